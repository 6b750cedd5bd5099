"""What PEARL learns and one step of it: soft actor-critic told z, with a value function V.

With y a constant, a ~ pi and z ~ q(z|c)

    y        = c r + gamma (1 - terminated) V_target(s', z)
    L_Q      = mean [(Q_1(s, a, z) - y)^2 + (Q_2(s, a, z) - y)^2]       to Q_1, Q_2 and the encoder
    L_KL     = sum over tasks of KL(q(z|c) || N(0, 1))                  to the encoder, times beta
    L_V      = mean (V(s, z) - [min_i Q_i(s, a, z) - log pi(a|s, z)])^2
    L_policy = mean [log pi(a|s, z) - min_i Q_i(s, a, z)]  + penalties of mean^2 and log_std^2

(Algorithm 1 and section 5, arXiv:1903.08254; V as in arXiv:1801.01290, Eqs. 5 to 8). Qs and
encoder step first; V and policy then learn from the new Qs, at the same z. Means are over the
transitions of all tasks.

Here axes are [task, sample, feature], because whatever a network computes for all transitions has
to be one product of matrices, see `nets.latent_mlp.over_samples`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from omrl.algos.pearl_config import PearlConfig
from omrl.algos.sac import LOG_STD_RANGE
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, every_sample, over_samples
from omrl.ops import latent
from omrl.ops.descent import move
from omrl.ops.gaussian import clipped_tanh_log_slope, squash, tanh_log_slope
from omrl.ops.latent import Evidence
from omrl.ops.sac import bellman_target, polyak, soft_value
from omrl.types import Batch, Key, Metrics, Scalar, Spec

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes

NUM_CRITICS = 2
PerSample: TypeAlias = Float[Array, "task sample"]
PerTask: TypeAlias = Float[Array, " task"]
Z: TypeAlias = Float[Array, "task latent"]


class Evaluation(NamedTuple):
    """What the Q-loss teaches."""

    encoder: Encoder
    critics: LatentMlp
    """Both Qs, leaves [critic, ...]."""


class Improvement(NamedTuple):
    """What learns from the Qs."""

    value: LatentMlp
    policy: LatentMlp
    """Outputs mean and log_std of the action before tanh."""


class Learner(NamedTuple):
    evaluation: Evaluation
    improvement: Improvement
    target_value: LatentMlp
    evaluation_opt: Any
    improvement_opt: Any


class Inferred(NamedTuple):
    """What is known of z."""

    evidence: Evidence
    z: Z
    kl: PerTask
    """To the prior, in nats."""


class PearlTask(NamedTuple):
    """What is known of one task, the z that is acted with, and the policy that is told it."""

    evidence: Evidence
    z: Float[Array, " latent"]
    policy: LatentMlp
    """The meta-trained one, if it was not tuned to the task."""


class Acted(NamedTuple):
    """Actions of the policy and what they come from."""

    action: Float[Array, "task sample act"]
    log_prob: PerSample
    mean: Float[Array, "task sample act"]
    """Before tanh, as `log_std`."""
    log_std: Float[Array, "task sample act"]


def init(config: PearlConfig, spec: Spec, key: Key) -> Learner:
    """New networks. V's target starts as V."""
    small = config.initial == "small-outputs"
    encoder_key, critic_key, value_key, policy_key = jax.random.split(key, 4)
    encoder = Encoder.init(
        encoder_key,
        spec.obs_dim,
        spec.act_dim,
        config.encoder_hidden,
        config.latent,
        3e-3 if small else None,
        next_obs=config.next_obs_in_context,
    )

    def make(key: Key, in_dim: int, out_dim: int, last_bound: float) -> LatentMlp:
        bound = last_bound if small else None
        return LatentMlp.init(key, in_dim, config.latent, config.hidden, out_dim, bound)

    critics = jax.vmap(lambda k: make(k, spec.obs_dim + spec.act_dim, 1, 3e-3))(
        jax.random.split(critic_key, NUM_CRITICS)
    )
    value = make(value_key, spec.obs_dim, 1, 3e-3)
    policy = make(policy_key, spec.obs_dim, 2 * spec.act_dim, 1e-3)
    return start(Evaluation(encoder, critics), Improvement(value, policy), value)


def start(evaluation: Evaluation, improvement: Improvement, target_value: LatentMlp) -> Learner:
    """Networks with fresh optimisers."""
    target_value = jax.tree.map(jnp.copy, target_value)
    opts = ADAM.init(evaluation), ADAM.init(improvement)
    return Learner(evaluation, improvement, target_value, *opts)


# --- What the networks say of every transition ---


def evidence(encoder: Encoder, context: Batch) -> Evidence:
    """The product of the factors of all transitions of each task, leaves [task, latent]."""
    columns = (context.obs, context.action, context.reward, context.next_obs)
    return jax.vmap(latent.product)(latent.factor(*over_samples(encoder, *columns)))


def infer(encoder: Encoder, context: Batch, noise: Z) -> Inferred:
    """z ~ q(z|c), differentiable in the encoder."""
    product = evidence(encoder, context)
    mean, variance = latent.posterior(product)
    kl = jax.vmap(latent.kl_to_prior)(mean, variance)
    return Inferred(product, latent.sample(mean, variance, noise), kl)


def outputs(
    net: LatentMlp, x: Float[Array, "task sample in"], z: Z
) -> Float[Array, "task sample out"]:
    return over_samples(net, x, every_sample(jax.vmap(net.shift)(z), x.shape[1]))


def values(net: LatentMlp, obs: Float[Array, "task sample obs"], z: Z) -> PerSample:
    """V(s, z)."""
    return outputs(net, obs, z)[..., 0]


def action_values(
    critics: LatentMlp,
    obs: Float[Array, "task sample obs"],
    action: Float[Array, "task sample act"],
    z: Z,
) -> Float[Array, "task sample critic"]:
    """Q_i(s, a, z). One network after the other: a batched product is slower on a CPU."""
    x = jnp.concatenate([obs, action], axis=-1)
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], critics) for i in range(NUM_CRITICS)]
    return jnp.concatenate([outputs(critic, x, z) for critic in each], axis=-1)


def distribution(
    policy: LatentMlp, obs: Float[Array, " obs"], shift: Float[Array, " hidden"]
) -> tuple[Float[Array, " act"], Float[Array, " act"]]:
    """(mean, log_std) of the Gaussian before tanh."""
    mean, log_std = jnp.split(policy(obs, shift), 2)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def act(
    config: PearlConfig,
    policy: LatentMlp,
    obs: Float[Array, "task sample obs"],
    z: Z,
    noise: Float[Array, "task sample act"],
) -> Acted:
    """One action of the policy for every observation, differentiable in the policy."""
    log_slope = tanh_log_slope if config.log_prob == "exact" else clipped_tanh_log_slope

    def one(obs: Array, shift: Array, noise: Array) -> Acted:
        mean, log_std = distribution(policy, obs, shift)
        return Acted(*squash(noise, mean, log_std, log_slope), mean, log_std)

    return over_samples(one, obs, every_sample(jax.vmap(policy.shift)(z), obs.shape[1]), noise)


def noise_of_task(
    config: PearlConfig, num_samples: int, act_dim: int, key: Key
) -> tuple[Float[Array, " latent"], Float[Array, "sample act"]]:
    """Standard normal, for z and for the actions of a step."""
    z_key, action_key = jax.random.split(key)
    z_noise = jax.random.normal(z_key, (config.latent,))
    return z_noise, jax.random.normal(action_key, (num_samples, act_dim))


# --- Losses ---


def q_target(config: PearlConfig, target_value: LatentMlp, batch: Batch, z: Z) -> PerSample:
    """y, a constant."""

    def one(reward: Scalar, terminated: Array, next_value: Scalar) -> Scalar:
        return bellman_target(config.reward_scale * reward, terminated, next_value, config.discount)

    next_value = values(target_value, batch.next_obs, z)
    return jax.lax.stop_gradient(over_samples(one, batch.reward, batch.terminated, next_value))


def q_loss(
    config: PearlConfig, critics: LatentMlp, target_value: LatentMlp, batch: Batch, z: Z
) -> PerTask:
    """L_Q of every task; its mean is the loss."""
    error = (
        action_values(critics, batch.obs, batch.action, z)
        - q_target(config, target_value, batch, z)[..., None]
    )
    return jnp.mean(jnp.sum(error**2, axis=-1), axis=1)


def improvement_losses(
    config: PearlConfig,
    improvement: Improvement,
    critics: LatentMlp,
    batch: Batch,
    z: Z,
    noise: Float[Array, "task sample act"],
) -> Metrics:
    """L_V and L_policy of every task; their means are the losses."""
    value, policy = improvement
    acted = act(config, policy, batch.obs, z, noise)
    q = action_values(critics, batch.obs, acted.action, z)
    # Its gradient with respect to the action is a part of the policy's.
    soft = over_samples(lambda q, log_prob: soft_value(q, log_prob, 1.0), q, acted.log_prob)
    value_error = values(value, batch.obs, z) - jax.lax.stop_gradient(soft)
    penalties = config.mean_penalty * acted.mean**2 + config.log_std_penalty * acted.log_std**2
    return {
        "value_loss": jnp.mean(value_error**2, axis=1),
        "policy_loss": jnp.mean(-soft, axis=1) + jnp.mean(penalties, axis=(1, 2)),
    }


# --- One step ---


def step(
    config: PearlConfig,
    learner: Learner,
    batch: Batch,
    infer: Callable[[Encoder], Inferred],
    noise: Float[Array, "task sample act"],
) -> tuple[Learner, Inferred, Metrics]:
    """The learner after one Adam step on everything, what `infer` told, and the losses by task.

    Args:
        infer: what is known of z; what it does with the encoder decides what the encoder learns.
        noise: standard normal, of the policy's actions.
    """

    # --- Encoder and Qs ---
    def evaluation_loss(nets: Evaluation) -> tuple[Scalar, tuple[Inferred, PerTask]]:
        inferred = infer(nets.encoder)
        losses = q_loss(config, nets.critics, learner.target_value, batch, inferred.z)
        total = jnp.mean(losses) + config.kl_weight * jnp.sum(inferred.kl)
        return total, (inferred, losses)

    grads, (inferred, q_losses) = jax.grad(evaluation_loss, has_aux=True)(learner.evaluation)
    directions, evaluation_opt = ADAM.update(grads, learner.evaluation_opt)
    rates = (config.encoder_lr, config.critic_lr)
    evaluation = move(learner.evaluation, directions, rates)

    # --- V and policy, from the new Qs ---
    def improvement_loss(nets: Improvement) -> tuple[Scalar, Metrics]:
        losses = improvement_losses(config, nets, evaluation.critics, batch, inferred.z, noise)
        return sum(map(jnp.mean, losses.values()), start=jnp.zeros(())), losses

    grads, losses = jax.grad(improvement_loss, has_aux=True)(learner.improvement)
    directions, improvement_opt = ADAM.update(grads, learner.improvement_opt)
    improvement = move(learner.improvement, directions, (config.value_lr, config.policy_lr))
    target_value = polyak(learner.target_value, improvement.value, config.target_rate)
    moved = Learner(evaluation, improvement, target_value, evaluation_opt, improvement_opt)
    return moved, inferred, {"q_loss": q_losses, **losses, "kl": inferred.kl}
