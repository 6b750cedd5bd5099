"""PEARL's golden files: what each holds, computed with the functions that training uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from golden_file import GoldenFile, Group

from omrl.algos import pearl_learner
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_learner import Evaluation, Improvement, Learner
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, every_sample
from omrl.nets.mlp import Dense
from omrl.ops import latent
from omrl.ops.gaussian import clipped_tanh_log_slope, reparametrized, squash
from omrl.ops.sac import polyak
from omrl.types import Batch

Arrays = dict[str, Any]

CONFIG = PearlConfig(log_prob="clipped")
"""The reference code's settings; sizes are those of the networks."""
QUICK_COMPILE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

_INPUT = re.compile(r"meta/.*|tanh/(mean|log_std|eps)|param/.*|(multi/)?(batch|eps)\d*/.*")
_SOFT_UPDATE = "target_vf_after_one_soft_update_with_unchanged_vf"


def is_input(name: str) -> bool:
    return bool(_INPUT.fullmatch(name))


def groups(file: GoldenFile) -> Iterator[Group]:
    """The outputs of a file."""
    learner = read_learner(file)
    batch, context = read_batches(file, "batch/")
    noise = read_noise(file, "eps/", batch)
    yield _group("tanh/", _tanh(file))
    yield _group("out/", _outputs(learner, batch, context, *noise))
    for name, arrays in _gradients(learner, batch, context, *noise).items():
        yield _group(f"grad/{name}/", arrays)
    target = polyak(learner.target_value, learner.improvement.value, CONFIG.target_rate)
    yield _group(f"{_SOFT_UPDATE}/", write_layers(target.layers))
    yield _group("multi/", _multi(file, learner))


def _group(prefix: str, arrays: Arrays) -> Group:
    return Group(prefix.rstrip("/"), prefix, _under(prefix, arrays))


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}


# --- Layouts of the file as ours, and back ---


def read_learner(file: GoldenFile) -> Learner:
    critics = [LatentMlp(read_layers(file, f"param/{name}/")) for name in ("qf1", "qf2")]
    value, target = (LatentMlp(read_layers(file, f"param/{n}/")) for n in ("vf", "target_vf"))
    *hidden, mean = read_layers(file, "param/policy/")
    log_std = _read_layer(file, "param/policy/last_fc_log_std")
    last = Dense(jnp.concatenate([mean.affine, log_std.affine], axis=1))
    return pearl_learner.start(
        Evaluation(
            Encoder(read_layers(file, "param/encoder/"), next_obs=False),
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *critics),
        ),
        Improvement(value, LatentMlp((*hidden, last))),
        target,
    )


def read_layers(file: GoldenFile, prefix: str) -> tuple[Dense, ...]:
    names = sorted(
        {name.split(".")[0] for name in file.folders(prefix) if name.startswith("fc")},
        key=lambda name: int(name[2:]),
    )
    return tuple(_read_layer(file, prefix + name) for name in (*names, "last_fc"))


def _read_layer(file: GoldenFile, name: str) -> Dense:
    return Dense.of(jnp.asarray(file[f"{name}.weight"].T), jnp.asarray(file[f"{name}.bias"]))


def write_layers(layers: tuple[Dense, ...]) -> Arrays:
    names = [*(f"fc{number}" for number in range(len(layers) - 1)), "last_fc"]
    return {
        f"{name}.{leaf}": array
        for name, layer in zip(names, layers, strict=True)
        for leaf, array in (("weight", layer.weight.T), ("bias", layer.bias))
    }


def write_evaluation(nets: Evaluation) -> Arrays:
    encoder = _under("encoder/", write_layers(nets.encoder.layers))
    return encoder | write_critics(nets.critics)


def write_critics(critics: LatentMlp) -> Arrays:
    arrays: Arrays = {}
    for number in range(pearl_learner.NUM_CRITICS):
        layers = jax.tree.map(lambda leaf, number=number: leaf[number], critics.layers)
        arrays |= _under(f"qf{number + 1}/", write_layers(layers))
    return arrays


def write_improvement(nets: Improvement) -> Arrays:
    *hidden, last = nets.policy.layers
    act_dim = last.affine.shape[1] // 2
    mean, log_std = Dense(last.affine[:, :act_dim]), Dense(last.affine[:, act_dim:])
    return (
        _under("vf/", write_layers(nets.value.layers))
        | _under("policy/", write_layers((*hidden, mean)))
        | {
            "policy/last_fc_log_std.weight": log_std.weight.T,
            "policy/last_fc_log_std.bias": log_std.bias,
        }
    )


def read_batches(file: GoldenFile, prefix: str) -> tuple[Batch, Batch]:
    """The reinforcement-learning batch and the context, leaves [task, sample, ...]."""
    read = {name: jnp.asarray(file[prefix + name]) for name in file.folders(prefix)}
    obs_dim, act_dim = (read[name].shape[-1] for name in ("observations", "actions"))
    seen = read["context"]
    return (
        _batch(
            read["observations"],
            read["actions"],
            read["rewards"],
            read["next_observations"],
            read["terminals"],
        ),
        _batch(
            seen[..., :obs_dim],
            seen[..., obs_dim : obs_dim + act_dim],
            seen[..., obs_dim + act_dim :],
        ),
    )


def _batch(obs: Any, action: Any, reward: Any, next_obs: Any = None, ends: Any = None) -> Batch:
    none = jnp.zeros_like(reward[..., 0])
    return Batch(
        obs=obs,
        action=action,
        reward=reward[..., 0],
        next_obs=jnp.zeros_like(obs) if next_obs is None else next_obs,
        terminated=none > 0 if ends is None else ends[..., 0] > 0,
        mc_return=none,
        terminal_obs=obs,
        terminal_discount=none,
    )


def read_noise(file: GoldenFile, prefix: str, batch: Batch) -> tuple[Any, Any]:
    """Of z [task, latent] and of actions [task, sample, act]."""
    action = jnp.asarray(file[prefix + "a"])
    return jnp.asarray(file[prefix + "z"]), action.reshape(batch.action.shape)


# --- What the files hold ---


def _tanh(file: GoldenFile) -> Arrays:
    mean, log_std, noise = (jnp.asarray(file[f"tanh/{n}"]) for n in ("mean", "log_std", "eps"))

    def drawn(mean: Any, log_std: Any) -> tuple[Any, Any]:
        return jax.vmap(partial(squash, log_slope=clipped_tanh_log_slope))(noise, mean, log_std)

    action, log_prob = drawn(mean, log_std)
    grads = jax.grad(lambda m, s: jnp.sum(drawn(m, s)[1]), (0, 1))(mean, log_std)
    return {
        "action": action,
        "pre_tanh": jax.vmap(reparametrized)(noise, mean, log_std),
        "log_prob_sample": log_prob,
        "grad_sum_log_prob_sample_mean": grads[0],
        "grad_sum_log_prob_sample_log_std": grads[1],
    }


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _outputs(
    learner: Learner, batch: Batch, context: Batch, z_noise: Any, action_noise: Any
) -> Arrays:
    """Every array [task * sample, ...], as the file has it."""
    (encoder, critics), (value, policy) = learner.evaluation, learner.improvement
    inferred = pearl_learner.infer(encoder, context, z_noise)
    z, num_samples = inferred.z, batch.reward.shape[1]
    mean, variance = latent.posterior(inferred.evidence)
    acted = pearl_learner.act(CONFIG, policy, batch.obs, z, action_noise)
    predicted = pearl_learner.action_values(critics, batch.obs, batch.action, z)
    new = jnp.min(pearl_learner.action_values(critics, batch.obs, acted.action, z), axis=-1)
    losses = pearl_learner.improvement_losses(
        CONFIG, learner.improvement, critics, batch, z, action_noise
    )
    penalties = (
        CONFIG.mean_penalty * jnp.mean(acted.mean**2),
        CONFIG.log_std_penalty * jnp.mean(acted.log_std**2),
    )
    per_sample = {
        "task_z": every_sample(z, num_samples),
        "new_actions": acted.action,
        "policy_mean": acted.mean,
        "policy_log_std": acted.log_std,
        "log_pi": acted.log_prob,
        "q1_pred": predicted[..., 0],
        "q2_pred": predicted[..., 1],
        "v_pred": pearl_learner.values(value, batch.obs, z),
        "target_v_values": pearl_learner.values(learner.target_value, batch.next_obs, z),
        "q_target": pearl_learner.q_target(CONFIG, learner.target_value, batch, z),
        "min_q_new_actions": new,
        "v_target": new - acted.log_prob,
    }
    return {
        **{name: array.reshape(-1, *array.shape[2:]) for name, array in per_sample.items()},
        "post_mean": mean,
        "post_var": variance,
        "kl_div": jnp.sum(inferred.kl),
        "kl_loss": CONFIG.kl_weight * jnp.sum(inferred.kl),
        "qf_loss": jnp.mean(pearl_learner.q_loss(CONFIG, critics, learner.target_value, batch, z)),
        "vf_loss": jnp.mean(losses["value_loss"]),
        "policy_loss": jnp.mean(losses["policy_loss"]),
        "mean_reg_loss": penalties[0],
        "std_reg_loss": penalties[1],
        "policy_reg_loss": sum(penalties),
    }


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _gradients(
    learner: Learner, batch: Batch, context: Batch, z_noise: Any, action_noise: Any
) -> dict[str, Arrays]:
    """By loss. What a loss must not reach the file does not have: V's and the policy's do not reach
    the encoder, so z is a constant in them."""
    evaluation, improvement = learner.evaluation, learner.improvement

    def kl_loss(nets: Evaluation) -> Any:
        inferred = pearl_learner.infer(nets.encoder, context, z_noise)
        return CONFIG.kl_weight * jnp.sum(inferred.kl)

    def qf_loss(nets: Evaluation) -> Any:
        z = pearl_learner.infer(nets.encoder, context, z_noise).z
        losses = pearl_learner.q_loss(CONFIG, nets.critics, learner.target_value, batch, z)
        return jnp.mean(losses)

    z = pearl_learner.infer(evaluation.encoder, context, z_noise).z

    def improvement_loss(name: str, nets: Improvement, critics: LatentMlp) -> Any:
        losses = pearl_learner.improvement_losses(CONFIG, nets, critics, batch, z, action_noise)
        return jnp.mean(losses[name])

    def gradient(name: str) -> Arrays:
        loss = partial(improvement_loss, name)
        own, of_critics = jax.grad(loss, (0, 1))(improvement, evaluation.critics)
        return write_improvement(own) | write_critics(of_critics)

    return {
        "kl_loss": write_evaluation(jax.grad(kl_loss)(evaluation)),
        "qf_loss": write_evaluation(jax.grad(qf_loss)(evaluation)),
        "vf_loss": gradient("value_loss"),
        "policy_loss": gradient("policy_loss"),
    }


def _multi(file: GoldenFile, learner: Learner) -> Arrays:
    """Adam steps one after the other."""
    arrays: Arrays = {}
    for number in range(sum(name.startswith("batch") for name in file.folders("multi/"))):
        batch, context = read_batches(file, f"multi/batch{number}/")
        noise = read_noise(file, f"multi/eps{number}/", batch)
        learner, losses = _step(learner, batch, context, *noise)
        arrays |= _under(f"step{number}/", losses)
        written = (
            write_evaluation(learner.evaluation)
            | write_improvement(learner.improvement)
            | _under("target_vf/", write_layers(learner.target_value.layers))
        )
        arrays |= _under(f"param_after_step{number}/", written)
    return arrays


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _step(
    learner: Learner, batch: Batch, context: Batch, z_noise: Any, action_noise: Any
) -> tuple[Learner, Arrays]:
    infer = partial(pearl_learner.infer, context=context, noise=z_noise)
    learner, inferred, metrics = pearl_learner.step(CONFIG, learner, batch, infer, action_noise)
    return learner, {
        "kl_loss": CONFIG.kl_weight * jnp.sum(inferred.kl),
        "qf_loss": jnp.mean(metrics["q_loss"]),
        "vf_loss": jnp.mean(metrics["value_loss"]),
        "policy_loss": jnp.mean(metrics["policy_loss"]),
    }
