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

Axes are [task, sample, feature], see `latent_context`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.algos.latent_context import (
    ADAM,
    LAST_BOUND,
    POLICY_LAST_BOUND,
    Inferred,
    PerSample,
    PerTask,
    Z,
    act,
    action_values,
    init_critics,
    outputs,
)
from omrl.algos.pearl_config import PearlConfig
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, over_samples
from omrl.ops.descent import move
from omrl.ops.gaussian import LOG_SLOPES
from omrl.ops.sac import bellman_target, polyak, soft_value
from omrl.types import Batch, Key, Metrics, Scalar, Spec


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
        LAST_BOUND if small else None,
        next_obs=config.next_obs_in_context,
    )

    def make(key: Key, in_dim: int, out_dim: int, last_bound: float) -> LatentMlp:
        bound = last_bound if small else None
        return LatentMlp.init(key, in_dim, config.latent, config.hidden, out_dim, bound)

    critics = init_critics(
        critic_key,
        spec.obs_dim + spec.act_dim,
        config.latent,
        config.hidden,
        LAST_BOUND if small else None,
    )
    value = make(value_key, spec.obs_dim, 1, LAST_BOUND)
    policy = make(policy_key, spec.obs_dim, 2 * spec.act_dim, POLICY_LAST_BOUND)
    return start(Evaluation(encoder, critics), Improvement(value, policy), value)


def start(evaluation: Evaluation, improvement: Improvement, target_value: LatentMlp) -> Learner:
    """Networks with fresh optimisers."""
    target_value = jax.tree.map(jnp.copy, target_value)
    opts = ADAM.init(evaluation), ADAM.init(improvement)
    return Learner(evaluation, improvement, target_value, *opts)


def values(net: LatentMlp, obs: Float[Array, "task sample obs"], z: Z) -> PerSample:
    """V(s, z)."""
    return outputs(net, obs, z)[..., 0]


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
    acted = act(policy, batch.obs, z, noise, LOG_SLOPES[config.log_prob])
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
