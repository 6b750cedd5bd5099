"""SMAC's golden files: what each holds, computed with the functions that training uses.

A case of one step holds only what differs from case `offline`. So what it does not hold is compared
with `offline`'s, and a gradient that neither holds has to be zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from golden_file import GoldenFile, Group
from latent_format import (
    QUICK_COMPILE,
    Arrays,
    group,
    read_batches,
    read_context,
    read_critics,
    read_layers,
    read_policy,
    under,
    write_critics,
    write_layers,
    write_policy,
)

from omrl.algos import latent_context, smac_learner
from omrl.algos.smac import Smac, SmacState
from omrl.algos.smac_config import SmacConfig
from omrl.algos.smac_learner import ActorCritic, Forward, Learner, Noise, Representation
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, every_sample
from omrl.ops import latent
from omrl.ops.gaussian import reparametrized, squash, squashed_log_prob_of_action
from omrl.types import Batch, Spec

LEFT_OUT: Mapping[str, str] = {
    "multi/online_as_run_torch1/": "what the reference code does by accident: gradients of new "
    "weights through old activations",
    "protocol/": "trajectories, which test_explore_protocol.py and test_protocol.py play",
}
"""Outputs that are not compared, by how their names start, and why."""

OFFLINE = SmacConfig()
"""The reference code's settings; sizes are those of the networks."""


def cases(num_rows: int) -> dict[str, SmacConfig]:
    """The cases of one step. The reference code multiplies all weights by the number of rows; of
    its exponential ones our loss is the mean, so they get it as their weight in the loss."""
    reparam_only = replace(OFFLINE, awac_weight=0.0, reparam_weight=1.0)
    times_rows = replace(OFFLINE, temperature=2.0, awac_weight=float(num_rows))
    return {
        "offline": OFFLINE,
        "online": OFFLINE.self_supervised,
        "offline_sawyer": replace(OFFLINE, temperature=0.3, reward_scale=1.0),
        "q_to_encoder": replace(OFFLINE, q_trains_encoder=True),
        "bc_uniform": replace(OFFLINE, weights="uniform"),
        "sac_alpha0": reparam_only,
        "sac_alpha1": replace(reparam_only, entropy_weight=1.0),
        "exp_clip": replace(times_rows, weights="exp", largest_score=0.5),
        "whiten": replace(times_rows, weights="whitened"),
        "q1_only": replace(OFFLINE, temperature=2.0, advantage_q="first"),
    }


ADAPTED_TO = ("context", "eps_z", "obs", "eps_a", "label_action")
"""Inputs of a meta-test."""

_INPUT = re.compile(
    r"meta/.*|pog/(mus|vars|cotangent_\w+)|tanh/(mean|log_std|eps|data_action)|param/.*"
    rf"|(multi/)?(batch|eps)\d*/.*|adapt/({'|'.join(ADAPTED_TO)})"
)


def is_input(name: str) -> bool:
    return bool(_INPUT.fullmatch(name))


def groups(file: GoldenFile) -> Iterator[Group]:
    """The outputs of a file."""
    learner = read_learner(file)
    problem = Problem(learner, *read_batches(file, "batch/"), read_noise(file, "eps/"))
    cotangents = file["pog/cotangent_mean"], file["pog/cotangent_var"]
    yield group("pog/", _product(file["pog/mus"], file["pog/vars"], cotangents))
    tanh = (file[f"tanh/{name}"] for name in ("mean", "log_std", "eps", "data_action"))
    yield group("tanh/", _tanh(*tanh))
    for name, config in cases(problem.batch.reward.size).items():
        yield from _one_step(file, name, _outputs_and_gradients(config, problem))
    for name, config in (("offline", OFFLINE), ("online_same_params", OFFLINE.self_supervised)):
        yield group(f"multi/{name}/", _multi(file, config, learner, frozen=name != "offline"))
    given = {name: file[f"adapt/{name}"] for name in ADAPTED_TO}
    yield group("adapt/", _adapt(learner, given))


def _one_step(file: GoldenFile, case: str, ours: Arrays) -> Iterator[Group]:
    """Every array once: as the case's own, as case `offline`'s, or as zero."""
    own, shared, zero = ({} for _ in range(3))
    for name, array in ours.items():
        kind, _, rest = name.partition("/")
        if f"{kind}/{case}/{rest}" in file.arrays:
            own[f"{kind}/{case}/{rest}"] = array
        elif f"{kind}/offline/{rest}" in file.arrays:
            shared[f"{kind}/offline/{rest}"] = array
        elif kind == "grad":
            zero[f"{kind}/{case}/{rest}"] = array
    yield Group(case, f"out/{case}/", own)
    for name, array in shared.items():
        yield Group(f"{case} as offline", name, {name: array}, exact=True)
    yield Group(case, f"grad/{case}/", own, zero=zero)


# --- Layouts of the file as ours, and back ---


class Problem(NamedTuple):
    learner: Learner
    batch: Batch
    context: Batch
    noise: Noise


def read_learner(file: GoldenFile) -> Learner:
    encoder = Encoder(read_layers(file, "param/encoder/"), next_obs=False)
    decoder = LatentMlp(read_layers(file, "param/decoder/"))
    return smac_learner.start(
        Representation(encoder, decoder),
        ActorCritic(read_critics(file), read_policy(file)),
        read_critics(file, "target_qf"),
    )


def read_noise(file: GoldenFile, prefix: str) -> Noise:
    z, action, next_z, next_action = (
        jnp.asarray(file[prefix + name]) for name in ("z", "a", "z_next", "a_next")
    )
    by_task = (len(z), -1, action.shape[-1])
    return Noise(z, action.reshape(by_task), next_z, next_action.reshape(by_task))


def write_representation(nets: Representation) -> Arrays:
    encoder, decoder = (write_layers(net.layers) for net in nets)
    return under("encoder/", encoder) | under("decoder/", decoder)


def write_actor_critic(nets: ActorCritic) -> Arrays:
    return write_critics(nets.critics) | write_policy(nets.policy)


# --- What the files hold ---


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _product(means: Any, variances: Any, cotangents: Any) -> Arrays:
    def product(means: Any, variances: Any) -> Any:
        return latent.posterior(latent.product(latent.factor(means, variances)))

    (mean, variance), pull_back = jax.vjp(product, means, variances)
    of_means, of_variances = pull_back(cotangents)
    return {
        "out_mean": mean,
        "out_var": variance,
        "grad_mus": of_means,
        "grad_vars": of_variances,
        "kl_per_dim": jax.vmap(latent.kl_to_prior)(mean[:, None], variance[:, None]),
    }


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _tanh(mean: Any, log_std: Any, noise: Any, data: Any) -> Arrays:
    def sampled(mean: Any, log_std: Any) -> Any:
        return jax.vmap(squash)(noise, mean, log_std)[1]

    def logged(mean: Any, log_std: Any) -> Any:
        return jax.vmap(squashed_log_prob_of_action)(data, mean, log_std)

    arrays = {
        "pre_tanh": jax.vmap(reparametrized)(noise, mean, log_std),
        "action": jax.vmap(squash)(noise, mean, log_std)[0],
    }
    for name, log_prob in (("sample", sampled), ("data", logged)):
        arrays[f"log_prob_{name}"] = log_prob(mean, log_std)
        grads = jax.grad(lambda *x, f=log_prob: jnp.sum(f(*x)), (0, 1))(mean, log_std)
        for of, grad in zip(("mean", "log_std"), grads, strict=True):
            arrays[f"grad_sum_log_prob_{name}_{of}"] = grad
    return arrays


@partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILE)
def _outputs_and_gradients(config: SmacConfig, problem: Problem) -> Arrays:
    """In one program, which has their common part once."""
    return under("out/", _outputs(config, problem)) | under("grad/", _gradients(config, problem))


def _outputs(config: SmacConfig, problem: Problem) -> Arrays:
    learner, batch, _, _ = problem
    seen = _forward(config, learner.representation, learner.actor_critic, problem)
    z, judged, next_acted = seen.inferred.z, seen.judged, seen.next_acted
    mean, variance = latent.posterior(seen.inferred.evidence)
    decoder = learner.representation.decoder
    per_row = {
        "task_z_with_grad": every_sample(z, batch.reward.shape[1]),
        "new_obs_actions": judged.acted.action,
        "log_pi": judged.acted.log_prob,
        "policy_mean": judged.acted.mean,
        "policy_std": jnp.exp(judged.acted.log_std),
        "new_next_actions": next_acted.action,
        "new_log_pi": next_acted.log_prob,
        "q1_pred": seen.predicted[..., 0],
        "q2_pred": seen.predicted[..., 1],
        "target_q_values": seen.next_value,
        "q_target": seen.target,
        "reward_pred": smac_learner.decoded_rewards(decoder, batch.obs, batch.action, z),
        "q_new_actions": judged.value,
        "v_pi": judged.value,
        "policy_logpp": judged.log_prob,
        # Of a largest score the file has what it leaves.
        "score": judged.score
        if config.largest_score is None
        else jnp.minimum(judged.score, config.largest_score),
        # Of the two kinds that have mean 1 the file has those with sum 1.
        "weights": judged.weights
        / (batch.reward.size if config.weights in ("softmax", "uniform") else 1),
    }
    return {
        **{name: array.reshape(-1, *array.shape[2:]) for name, array in per_row.items()},
        **_losses(config, seen),
        "post_mean": mean,
        "post_var": variance,
    }


def _forward(
    config: SmacConfig, representation: Representation, nets: ActorCritic, problem: Problem
) -> Forward:
    learner, batch, context, noise = problem
    targets = learner.target_critics
    return smac_learner.forward(config, nets, representation, targets, batch, context, noise)


def _losses(config: SmacConfig, seen: Forward) -> Arrays:
    q_losses = jnp.mean(smac_learner.q_loss(seen.predicted, seen.target), axis=0)
    kl, error = jnp.mean(seen.inferred.kl), seen.reward_error
    return {
        "qf1_loss": q_losses[0],
        "qf2_loss": q_losses[1],
        "policy_loss": jnp.mean(smac_learner.policy_loss(config, seen.judged)),
        "kl_div": kl,
        "kl_loss": config.kl_weight * kl,
        "reward_prediction_loss": jnp.mean(error),
        "context_loss": smac_learner.representation_loss(config, error, seen.inferred.kl),
    }


def _gradients(config: SmacConfig, problem: Problem) -> Arrays:
    """Of every loss with respect to every network, by loss/network/parameter."""
    learner, batch, _, noise = problem

    names = ("qf1_loss", "qf2_loss", "policy_loss", "context_loss")

    def losses(representation: Representation, nets: ActorCritic) -> Any:
        by_name = _losses(config, _forward(config, representation, nets, problem))
        return jnp.stack([by_name[name] for name in names])

    of_all = jax.jacrev(losses, (0, 1))(learner.representation, learner.actor_critic)
    arrays: Arrays = {}
    for number, name in enumerate(names):
        of = jax.tree.map(lambda leaf, number=number: leaf[number], of_all)
        written = write_representation(of[0]) | write_actor_critic(of[1])
        arrays |= under(f"{name}/", written)

    seen = _forward(config, learner.representation, learner.actor_critic, problem)

    def policy_loss(critics: LatentMlp) -> Any:
        """As the Qs would learn from it, which training does not let them."""
        nets = learner.actor_critic._replace(critics=critics)
        predicted = latent_context.action_values(critics, batch.obs, batch.action, z)
        judged = smac_learner.judge(config, nets, batch, z, predicted, noise.action)
        return jnp.mean(smac_learner.policy_loss(config, judged))

    z = seen.inferred.z
    of_critics = jax.grad(policy_loss)(learner.actor_critic.critics)
    return arrays | under("policy_loss/", write_critics(of_critics))


def _multi(file: GoldenFile, config: SmacConfig, learner: Learner, *, frozen: bool) -> Arrays:
    """Adam steps one after the other."""
    arrays: Arrays = {}
    for number in range(sum(name.startswith("batch") for name in file.folders("multi/"))):
        batches = read_batches(file, f"multi/batch{number}/")
        problem = Problem(learner, *batches, read_noise(file, f"multi/eps{number}/"))
        learner, losses, written = _step(config, problem, frozen)
        arrays |= under(f"step{number}/", losses)
        arrays |= under(f"param_after_step{number}/", written)
    return arrays


@partial(jax.jit, static_argnums=(0, 2), compiler_options=QUICK_COMPILE)
def _step(config: SmacConfig, problem: Problem, frozen: bool) -> tuple[Learner, Arrays, Arrays]:
    """What is learned, the losses before, the parameters behind it."""
    learner = problem.learner
    seen = _forward(config, learner.representation, learner.actor_critic, problem)
    losses = {name: array for name, array in _losses(config, seen).items() if "loss" in name}
    learner, *_ = smac_learner.step(config, *problem, frozen=frozen)
    written = (
        write_representation(learner.representation)
        | write_actor_critic(learner.actor_critic)
        | write_critics(learner.target_critics, "target_qf")
    )
    return learner, losses, written


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _adapt(learner: Learner, given: Arrays) -> Arrays:
    """Meta-test, behind the contract."""
    obs, action = given["obs"], given["label_action"]
    config = replace(OFFLINE, latent=len(given["eps_z"]))
    spec = Spec(obs.shape[1], action.shape[1], num_train_tasks=1, horizon=1)
    algorithm, state = Smac(config, spec), SmacState(jnp.zeros((), jnp.int32), learner)
    context = read_context(given["context"], obs.shape[1], action.shape[1])
    support = jax.tree.map(lambda leaf: leaf[0], context)
    key = jax.random.PRNGKey(0)
    task = algorithm.adapt(state, algorithm.begin(state, key), support, key)
    mean, variance = latent.posterior(task.evidence)
    task = task._replace(z=latent.sample(mean, variance, given["eps_z"]))
    acted = latent_context.act(task.policy, obs[None], task.z[None], given["eps_a"][None])
    return {
        "post_mean": mean,
        "post_std": jnp.sqrt(variance),
        "z": task.z,
        "action_deterministic": jax.vmap(lambda s: algorithm.act(state, task, s, key, True))(obs),
        "action_stochastic": acted.action[0],
        "label_reward": jax.vmap(partial(algorithm.label, state, task.z))(obs, action),
    }
