"""What SMAC learns and one step of it: encoder and decoder of rewards, and actor-critic told z.

With z, z~ ~ q(z|h), a' ~ pi(.|s', z~), a_pi ~ pi(.|s, z), and y and w constants

    y         = c r + gamma (1 - terminated) [min_i Q_target_i(s', a', z) - alpha log pi(a'|s', z~)]
    L_critic  = sum_i mean (Q_i(s, a, z) - y)^2                                             (Eq. 1)
    score     = min_i Q_i(s, a, z) - min_i Q_i(s, a_pi, z);   w: see `ops.awac`
    L_actor   = mean [-w log pi(a|s, z)]                                                    (Eq. 2)
                + lambda mean [-min_i Q_i(s, a_pi, z)] + alpha mean log pi(a_pi|s, z)
    L_reward  = mean (r_d(s, a, z) - r)^2 + beta KL(q(z|h) || N(0, 1))                      (Eq. 3)

(arXiv:2107.03974). L_reward alone reaches the encoder; critics and actor take z as it is. Means are
over the transitions of all tasks. Everything steps at once, on gradients at the parameters from
before the step.

Whatever the settings leave without effect is not computed: what a gradient does not need, XLA
removes. Axes are [task, sample, feature], see `latent_context`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.algos import latent_context
from omrl.algos.latent_context import (
    ADAM,
    LAST_BOUND,
    POLICY_LAST_BOUND,
    Acted,
    Inferred,
    PerSample,
    PerTask,
    Z,
    action_values,
    init_critics,
)
from omrl.algos.smac_config import SmacConfig
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, over_samples
from omrl.ops import awac, latent
from omrl.ops.descent import move
from omrl.ops.gaussian import squashed_log_prob_of_action
from omrl.ops.sac import bellman_target, polyak, soft_value
from omrl.types import Batch, Key, Metrics, Scalar, Spec

HIDDEN_BIAS = 0.0
"""At first, in the reference code; PEARL's has another one."""


class Representation(NamedTuple):
    """What learns from rewards. The self-supervised phase, which has none, leaves it as it is."""

    encoder: Encoder
    decoder: LatentMlp
    """(s, a, z) -> r, unscaled."""


class ActorCritic(NamedTuple):
    critics: LatentMlp
    """Both Qs, leaves [critic, ...]."""
    policy: LatentMlp
    """Outputs mean and log_std of the action before tanh."""


class Learner(NamedTuple):
    representation: Representation
    actor_critic: ActorCritic
    target_critics: LatentMlp
    representation_opt: Any
    actor_critic_opt: Any


class Noise(NamedTuple):
    """Standard normal, all that one step draws; the order is that of the reference code."""

    z: Z
    action: Float[Array, "task sample act"]
    next_z: Z
    next_action: Float[Array, "task sample act"]


class Judged(NamedTuple):
    """What the actor's loss is made of."""

    acted: Acted
    """The policy at s."""
    log_prob: PerSample
    """log pi(a|s, z) of the logged action."""
    value: PerSample
    """min_i Q_i(s, a_pi, z), one sample of V(s, z)."""
    score: PerSample
    weights: PerSample
    """Constants, as `score`."""


class Forward(NamedTuple):
    """All that a step computes of its batches, before it is reduced to losses."""

    inferred: Inferred
    next_acted: Acted
    """The policy at s', told z~."""
    next_value: PerSample
    target: PerSample
    """y."""
    predicted: Float[Array, "task sample critic"]
    """Q_i(s, a, z)."""
    judged: Judged
    reward_error: PerTask
    """The decoder's."""


def init(config: SmacConfig, spec: Spec, key: Key) -> Learner:
    """New networks and optimisers."""
    small = config.initial == "small-outputs"
    last_bound = LAST_BOUND if small else None
    encoder_key, decoder_key, critic_key, policy_key, target_key = jax.random.split(key, 5)
    representation = init_representation(config, spec, encoder_key, decoder_key)
    in_dim, told = spec.obs_dim + spec.act_dim, (config.latent, config.hidden)
    critics = init_critics(critic_key, in_dim, *told, last_bound, HIDDEN_BIAS)
    policy = LatentMlp.init(
        policy_key,
        spec.obs_dim,
        *told,
        2 * spec.act_dim,
        POLICY_LAST_BOUND if small else None,
        HIDDEN_BIAS,
    )
    if config.targets == "copied":
        targets = jax.tree.map(jnp.copy, critics)
    else:
        targets = init_critics(target_key, in_dim, *told, last_bound, HIDDEN_BIAS)
    return start(representation, ActorCritic(critics, policy), targets)


def init_representation(
    config: SmacConfig, spec: Spec, encoder_key: Key, decoder_key: Key
) -> Representation:
    """New encoder and decoder."""
    last_bound = LAST_BOUND if config.initial == "small-outputs" else None
    encoder = Encoder.init(
        encoder_key,
        spec.obs_dim,
        spec.act_dim,
        config.encoder_hidden,
        config.latent,
        last_bound,
        HIDDEN_BIAS,
        next_obs=config.next_obs_in_context,
        spread=config.encoder_spread,
    )
    in_dim = spec.obs_dim + spec.act_dim
    decoder = LatentMlp.init(
        decoder_key, in_dim, config.latent, config.decoder_hidden, 1, last_bound, HIDDEN_BIAS
    )
    return Representation(encoder, decoder)


def start(
    representation: Representation, actor_critic: ActorCritic, target_critics: LatentMlp
) -> Learner:
    """Networks with fresh optimisers."""
    opts = ADAM.init(representation), ADAM.init(actor_critic)
    return Learner(representation, actor_critic, target_critics, *opts)


def noise_of_task(config: SmacConfig, num_samples: int, act_dim: int, key: Key) -> Noise:
    """Leaves without the axis of tasks."""
    keys = jax.random.split(key, 4)
    shapes = ((config.latent,), (num_samples, act_dim)) * 2
    return Noise(*(jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)))


# --- Rewards ---


def decoded_rewards(
    decoder: LatentMlp,
    obs: Float[Array, "task sample obs"],
    action: Float[Array, "task sample act"],
    z: Z,
) -> PerSample:
    """r_d(s, a, z)."""
    return latent_context.outputs(decoder, jnp.concatenate([obs, action], axis=-1), z)[..., 0]


def reward_error(
    config: SmacConfig, decoder: LatentMlp, batch: Batch, context: Batch, z: Z
) -> PerTask:
    """The decoder's squared error on every task, on the transitions of one of its batches."""
    seen = batch if config.decoder_batch == "batch" else context
    error = decoded_rewards(decoder, seen.obs, seen.action, z) - seen.reward
    reduce = jnp.mean if config.reward_reduction == "mean" else jnp.sum
    return reduce(error**2, axis=1)


def representation_loss(config: SmacConfig, errors: PerTask, kl: PerTask) -> Scalar:
    """L_reward of `reward_error` and the KL of every task."""
    reduce = jnp.mean if config.kl_reduction == "mean" else jnp.sum
    return jnp.mean(errors) + config.kl_weight * reduce(kl)


# --- Critics ---


def z_of_next(config: SmacConfig, inferred: Inferred, noise: Z) -> Z:
    """z~, a constant."""
    if config.next_z == "same":
        return jax.lax.stop_gradient(inferred.z)
    mean, variance = latent.posterior(inferred.evidence)
    return jax.lax.stop_gradient(latent.sample(mean, variance, noise))


def next_value(
    config: SmacConfig, target_critics: LatentMlp, next_acted: Acted, batch: Batch, z: Z
) -> PerSample:
    """min_i Q_target_i(s', a', z) - alpha log pi(a'|s', z~)."""
    alpha = config.entropy_weight if config.entropy_in_target else 0.0

    def one(values: Float[Array, " critic"], log_prob: Scalar) -> Scalar:
        return soft_value(values, log_prob, alpha)

    values = action_values(target_critics, batch.next_obs, next_acted.action, z)
    return over_samples(one, values, next_acted.log_prob)


def q_target(config: SmacConfig, batch: Batch, next_value: PerSample) -> PerSample:
    """y, a constant."""

    def one(reward: Scalar, terminated: Array, value: Scalar) -> Scalar:
        return bellman_target(config.reward_scale * reward, terminated, value, config.discount)

    return jax.lax.stop_gradient(over_samples(one, batch.reward, batch.terminated, next_value))


def q_loss(
    predicted: Float[Array, "task sample critic"], target: PerSample
) -> Float[Array, "task critic"]:
    """L_critic of every task, apart for each Q."""
    return jnp.mean((predicted - target[..., None]) ** 2, axis=1)


# --- Actor ---


def judge(
    config: SmacConfig,
    nets: ActorCritic,
    batch: Batch,
    z: Z,
    predicted: Float[Array, "task sample critic"],
    noise: Float[Array, "task sample act"],
) -> Judged:
    """How good logged actions are beside the policy's own.

    Args:
        predicted: Q_i(s, a, z).
        noise: standard normal, of the policy's actions.
    """
    acted = latent_context.act(nets.policy, batch.obs, z, noise)
    log_prob = over_samples(squashed_log_prob_of_action, batch.action, acted.mean, acted.log_std)
    value = jnp.min(action_values(nets.critics, batch.obs, acted.action, z), axis=-1)
    logged = jnp.min(predicted, axis=-1) if config.advantage_q == "min" else predicted[..., 0]
    score = jax.lax.stop_gradient(logged - value)
    return Judged(acted, log_prob, value, score, weights_of(config, score))


def weights_of(config: SmacConfig, score: PerSample) -> PerSample:
    """w of every transition."""
    beta = config.temperature
    if config.weights == "softmax":
        return awac.softmax_weights(score, beta)
    if config.weights == "softmax-per-task":
        return jax.vmap(lambda of_task: awac.softmax_weights(of_task, beta))(score)
    if config.weights == "exp":
        return awac.exponential_weights(score, beta, config.largest_score)
    if config.weights == "whitened":
        return awac.whitened_weights(score, beta, config.largest_score)
    return awac.uniform_weights(score)


def policy_loss(config: SmacConfig, judged: Judged) -> PerTask:
    """L_actor of every task; its mean is the loss."""
    terms = (
        (config.awac_weight, -judged.weights * judged.log_prob),
        (config.reparam_weight, -judged.value),
        (config.entropy_weight, judged.acted.log_prob),
    )
    # A term of weight 0 left in would be computed.
    loss = sum((weight * term for weight, term in terms if weight), start=jnp.zeros(()))
    return jnp.mean(loss, axis=1)


# --- One step ---


def forward(
    config: SmacConfig,
    nets: ActorCritic,
    representation: Representation,
    target_critics: LatentMlp,
    batch: Batch,
    context: Batch,
    noise: Noise,
) -> Forward:
    """Every network once at every input; where gradients stop is decided here."""
    inferred = latent_context.infer(representation.encoder, context, noise.z)
    z = jax.lax.stop_gradient(inferred.z)
    # --- Critics ---
    next_z = z_of_next(config, inferred, noise.next_z)
    next_acted = latent_context.act(nets.policy, batch.next_obs, next_z, noise.next_action)
    value = next_value(config, target_critics, next_acted, batch, z)
    z_of_q = inferred.z if config.q_trains_encoder else z
    predicted = action_values(nets.critics, batch.obs, batch.action, z_of_q)
    # --- Actor: the Qs are what it learns from, and learn nothing from it ---
    constant = nets._replace(critics=jax.lax.stop_gradient(nets.critics))
    judged = judge(config, constant, batch, z, predicted, noise.action)
    # --- Decoder ---
    error = reward_error(config, representation.decoder, batch, context, inferred.z)
    target = q_target(config, batch, value)
    return Forward(inferred, next_acted, value, target, predicted, judged, error)


def losses(config: SmacConfig, seen: Forward) -> tuple[Scalar, Metrics]:
    """Their sum, and each by task."""
    of_critics = jnp.sum(q_loss(seen.predicted, seen.target), axis=1)
    of_actor = policy_loss(config, seen.judged)
    kl = seen.inferred.kl
    of_rewards = representation_loss(config, seen.reward_error, kl)
    return jnp.mean(of_critics) + jnp.mean(of_actor) + of_rewards, {
        "q_loss": of_critics,
        "policy_loss": of_actor,
        "reward_loss": seen.reward_error,
        "kl": kl,
    }


def step(
    config: SmacConfig,
    learner: Learner,
    batch: Batch,
    context: Batch,
    noise: Noise,
    *,
    frozen: bool = False,
) -> tuple[Learner, Inferred, Metrics]:
    """The learner after one Adam step on everything, z with what it comes from, and the losses by
    task.

    Args:
        frozen: leave encoder and decoder as they are, as the self-supervised phase does; there is
            no `reward_loss` then.
    """

    def loss(
        nets: ActorCritic, representation: Representation
    ) -> tuple[Scalar, tuple[Inferred, Metrics]]:
        targets = learner.target_critics
        seen = forward(config, nets, representation, targets, batch, context, noise)
        total, by_task = losses(config, seen)
        return total, (seen.inferred, by_task)

    learned = (0,) if frozen else (0, 1)
    nets = (learner.actor_critic, learner.representation)
    grads, (inferred, metrics) = jax.grad(loss, learned, has_aux=True)(*nets)
    directions, opt = ADAM.update(grads[0], learner.actor_critic_opt)
    moved = move(learner.actor_critic, directions, (config.critic_lr, config.policy_lr))
    learner = learner._replace(
        actor_critic=moved,
        target_critics=polyak(learner.target_critics, moved.critics, config.target_rate),
        actor_critic_opt=opt,
    )
    if frozen:
        del metrics["reward_loss"]
        return learner, inferred, metrics
    representation, opt = move_representation(
        config, learner.representation, grads[1], learner.representation_opt
    )
    learner = learner._replace(representation=representation, representation_opt=opt)
    return learner, inferred, metrics


def move_representation(
    config: SmacConfig, representation: Representation, grads: Representation, opt: Any
) -> tuple[Representation, Any]:
    """Encoder and decoder after one Adam step, and their optimiser."""
    directions, opt = ADAM.update(grads, opt)
    return move(representation, directions, (config.encoder_lr, config.decoder_lr)), opt
