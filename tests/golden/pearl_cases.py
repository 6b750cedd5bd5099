"""PEARL's golden files: what each holds, computed with the functions that training uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from golden_file import GoldenFile, Group
from latent_format import (
    QUICK_COMPILE,
    Arrays,
    group,
    read_batches,
    read_critics,
    read_layers,
    read_policy,
    under,
    write_critics,
    write_layers,
    write_policy,
)

from omrl.algos import latent_context, pearl_learner
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_learner import Evaluation, Improvement, Learner
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, every_sample
from omrl.ops import latent
from omrl.ops.gaussian import clipped_tanh_log_slope, reparametrized, squash
from omrl.ops.sac import polyak
from omrl.types import Batch

CONFIG = PearlConfig(log_prob="clipped")
"""The reference code's settings; sizes are those of the networks."""

_INPUT = re.compile(r"meta/.*|tanh/(mean|log_std|eps)|param/.*|(multi/)?(batch|eps)\d*/.*")
_SOFT_UPDATE = "target_vf_after_one_soft_update_with_unchanged_vf"


def is_input(name: str) -> bool:
    return bool(_INPUT.fullmatch(name))


def groups(file: GoldenFile) -> Iterator[Group]:
    """The outputs of a file."""
    learner = read_learner(file)
    batch, context = read_batches(file, "batch/")
    noise = read_noise(file, "eps/", batch)
    yield group("tanh/", _tanh(*(file[f"tanh/{name}"] for name in ("mean", "log_std", "eps"))))
    yield group("out/", _outputs(learner, batch, context, *noise))
    for name, arrays in _gradients(learner, batch, context, *noise).items():
        yield group(f"grad/{name}/", arrays)
    follow = jax.jit(partial(polyak, rate=CONFIG.target_rate), compiler_options=QUICK_COMPILE)
    target = follow(learner.target_value, learner.improvement.value)
    yield group(f"{_SOFT_UPDATE}/", write_layers(target.layers))
    yield group("multi/", _multi(file, learner))


# --- Layouts of the file as ours, and back ---


def read_learner(file: GoldenFile) -> Learner:
    value, target = (LatentMlp(read_layers(file, f"param/{n}/")) for n in ("vf", "target_vf"))
    encoder = Encoder(read_layers(file, "param/encoder/"), next_obs=False)
    return pearl_learner.start(
        Evaluation(encoder, read_critics(file)), Improvement(value, read_policy(file)), target
    )


def write_evaluation(nets: Evaluation) -> Arrays:
    encoder = under("encoder/", write_layers(nets.encoder.layers))
    return encoder | write_critics(nets.critics)


def write_improvement(nets: Improvement) -> Arrays:
    return under("vf/", write_layers(nets.value.layers)) | write_policy(nets.policy)


def read_noise(file: GoldenFile, prefix: str, batch: Batch) -> tuple[Any, Any]:
    """Of z [task, latent] and of actions [task, sample, act]."""
    action = jnp.asarray(file[prefix + "a"])
    return jnp.asarray(file[prefix + "z"]), action.reshape(batch.action.shape)


# --- What the files hold ---


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _tanh(mean: Any, log_std: Any, noise: Any) -> Arrays:
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
    inferred = latent_context.infer(encoder, context, z_noise)
    z, num_samples = inferred.z, batch.reward.shape[1]
    mean, variance = latent.posterior(inferred.evidence)
    acted = latent_context.act(policy, batch.obs, z, action_noise, clipped_tanh_log_slope)
    predicted = latent_context.action_values(critics, batch.obs, batch.action, z)
    new = jnp.min(latent_context.action_values(critics, batch.obs, acted.action, z), axis=-1)
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
        inferred = latent_context.infer(nets.encoder, context, z_noise)
        return CONFIG.kl_weight * jnp.sum(inferred.kl)

    def qf_loss(nets: Evaluation) -> Any:
        z = latent_context.infer(nets.encoder, context, z_noise).z
        losses = pearl_learner.q_loss(CONFIG, nets.critics, learner.target_value, batch, z)
        return jnp.mean(losses)

    z = latent_context.infer(evaluation.encoder, context, z_noise).z

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
        learner, losses, written = _step(learner, batch, context, *noise)
        arrays |= under(f"step{number}/", losses)
        arrays |= under(f"param_after_step{number}/", written)
    return arrays


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _step(
    learner: Learner, batch: Batch, context: Batch, z_noise: Any, action_noise: Any
) -> tuple[Learner, Arrays, Arrays]:
    """What is learned, the losses before, the parameters behind it."""
    infer = partial(latent_context.infer, context=context, noise=z_noise)
    learner, inferred, metrics = pearl_learner.step(CONFIG, learner, batch, infer, action_noise)
    losses = {
        "kl_loss": CONFIG.kl_weight * jnp.sum(inferred.kl),
        "qf_loss": jnp.mean(metrics["q_loss"]),
        "vf_loss": jnp.mean(metrics["value_loss"]),
        "policy_loss": jnp.mean(metrics["policy_loss"]),
    }
    written = (
        write_evaluation(learner.evaluation)
        | write_improvement(learner.improvement)
        | under("target_vf/", write_layers(learner.target_value.layers))
    )
    return learner, losses, written
