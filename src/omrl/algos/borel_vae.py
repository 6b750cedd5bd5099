"""BOReL's model of the tasks: what its VAE learns, and one step of it.

With q_t the posterior of z after t of the T transitions of a trajectory, and z_t ~ q_t

    L = sum_(t=0..T) sum_(k=1..T) [error of r_k, and of s'_k, decoded from z_t]
        + beta [KL(q_0 || N(0, 1)) + sum_(t=1..T) KL(q_t || q_(t-1))]

(VariBAD, arXiv:1910.08348, Eqs. 7 to 9; BOReL, arXiv:2008.02598, section 4). So every belief has to
explain the past and the future alike. Whether errors are summed over k or averaged is
`decoded_reduction`; over t, and the KLs, they are always summed, and trajectories are averaged.

Decoding (T + 1) T pairs of a z and a transition is nearly all of the work. The first layer is a sum
of what z adds to it and of what the transition does, each computed once (`TransitionDecoder`), and
pairs are decoded in blocks of posteriors, which the gradient decodes again: a tensor of all inputs
would have 13 million numbers per trajectory of 400 steps, and never exists.

Losses see one trajectory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.algos.borel_config import VaeConfig
from omrl.nets.belief import Belief, BeliefEncoder, TransitionDecoder
from omrl.ops import belief as gaussian_beliefs
from omrl.ops.gaussian import gaussian_log_prob
from omrl.types import Key, Metrics, Scalar, Trajectory

ADAM: Any = optax.scale_by_adam()  # optax's types know arrays, not trees of our classes

PerPosterior = Float[Array, " term"]

Scale: TypeAlias = Callable[[Float[Array, "*b obs"]], Float[Array, "*b seen"]]
"""Observations as the networks take them; cells are read off those of the environment."""


def as_it_is(obs: Float[Array, "*b obs"]) -> Float[Array, "*b obs"]:
    """The scale of 1."""
    return obs


class Vae(NamedTuple):
    encoder: BeliefEncoder
    rewards: TransitionDecoder
    states: TransitionDecoder | None
    """s' of z, s and a, if the settings have it."""


class VaeLearner(NamedTuple):
    vae: Vae
    opt: Any


class Draws(NamedTuple):
    """All that one step draws, for a trajectory."""

    terms: Int[Array, "*b term"]
    """Which posteriors are decoded from: distinct numbers from 0 to T."""
    noise: Float[Array, "*b term latent"]
    """Standard normal, one for each of these."""


class Elbo(NamedTuple):
    """The terms of the loss of a trajectory, each summed over posteriors."""

    reward_error: Float[Array, "*b"]
    state_error: Float[Array, "*b"]
    """0 without a state decoder."""
    kl: Float[Array, "*b"]
    """In nats."""


def init(config: VaeConfig, obs_dim: int, act_dim: int, key: Key) -> VaeLearner:
    """New networks, for observations of `obs_dim` numbers as they see them, with a fresh
    optimiser."""
    encoder_key, reward_key, state_key = jax.random.split(key, 3)
    dims = (obs_dim, act_dim)
    encoder = BeliefEncoder.init(
        encoder_key, *dims, config.sizes, config.gru, config.latent, config.keep_bias
    )
    decoder = partial(TransitionDecoder.init, latent=config.latent, sizes=config.sizes)
    rewards = decoder(
        reward_key,
        *dims,
        sees=config.reward_sees,
        hidden=config.reward_hidden,
        out_dim=config.num_cells,
    )
    states = None
    if config.state_head != "none":
        num_outputs = 2 if config.state_head == "gaussian" else 1
        states = decoder(
            state_key,
            *dims,
            sees=("action", "obs"),
            hidden=config.state_hidden,
            out_dim=num_outputs * obs_dim,
        )
    return start(Vae(encoder, rewards, states))


def start(vae: Vae) -> VaeLearner:
    """Networks with a fresh optimiser."""
    return VaeLearner(vae, ADAM.init(vae))


def draw(config: VaeConfig, num_steps: int, key: Key) -> Draws:
    """For a trajectory of `num_steps` transitions."""
    terms_key, noise_key = jax.random.split(key)
    terms = jnp.arange(num_steps + 1)
    if config.elbo_terms is not None:
        terms = jax.random.permutation(terms_key, terms)[: config.elbo_terms]
    return Draws(terms, jax.random.normal(noise_key, (len(terms), config.latent)))


# --- What a decoder makes of it ---


def reward_error(config: VaeConfig, out: Float[Array, " out"], target: Any) -> Scalar:
    """Of one decoded reward.

    Args:
        target: (reward, which output counts as a one-hot vector).
    """
    reward, counts = target
    decoded = jnp.sum(out * counts)
    if config.reward_head == "squared":
        return (decoded - reward) ** 2
    success = (reward >= config.reward_success).astype(out.dtype)
    return jax.nn.softplus(decoded) - success * decoded


def state_error(
    config: VaeConfig, out: Float[Array, " out"], next_obs: Float[Array, " obs"]
) -> Scalar:
    """Of one decoded s', averaged over its entries."""
    if config.state_head == "squared":
        return jnp.mean((out - next_obs) ** 2)
    return -gaussian_log_prob(next_obs, *jnp.split(out, 2)) / next_obs.size


def one_hot_cell(config: VaeConfig, obs: Float[Array, "*b obs"]) -> Float[Array, "*b cell"]:
    """1 at the cell that an observation is in; without `reward_cells` there is one cell."""
    number = jnp.zeros(obs.shape[:-1], jnp.int32)
    for entry, size in enumerate(config.reward_cells):
        number = number * size + jnp.round(obs[..., entry]).astype(jnp.int32)
    return jax.nn.one_hot(number, config.num_cells, dtype=obs.dtype)


def decoded(
    decoder: TransitionDecoder, trajectory: Trajectory, z: Float[Array, "term latent"]
) -> Float[Array, "term step out"]:
    """Outputs at all transitions, from every z; for a look at them: training holds a block."""
    seen = jax.vmap(decoder.seen)(trajectory.obs, trajectory.action, trajectory.next_obs)
    shifts = jax.vmap(decoder.shift)(z)
    return jax.vmap(lambda shift: jax.vmap(decoder, (None, 0))(shift, seen))(shifts)


def predicted_reward(
    config: VaeConfig,
    vae: Vae,
    z: Float[Array, " latent"],
    obs: Float[Array, " obs"],
    action: Float[Array, " act"],
    next_obs: Float[Array, " obs"],
    scaled: Scale = as_it_is,
) -> Scalar:
    """The reward of a transition decoded from z; of head bernoulli the expected one."""
    seen = vae.rewards.seen(scaled(obs), action, scaled(next_obs))
    out = vae.rewards(vae.rewards.shift(z), seen)
    value = jnp.dot(out, one_hot_cell(config, next_obs))
    if config.reward_head == "squared":
        return value
    gain = config.reward_success - config.reward_failure
    return config.reward_failure + gain * jax.nn.sigmoid(value)


def errors(
    config: VaeConfig,
    decoder: TransitionDecoder,
    error: Callable[[Float[Array, " out"], Any], Scalar],
    targets: Any,
    trajectory: Trajectory,
    z: Float[Array, "term latent"],
) -> PerPosterior:
    """Errors of all transitions decoded from each z, reduced over transitions.

    Args:
        error: of an output and a target.
        targets: leaves [step, ...].
    """
    seen = jax.vmap(decoder.seen)(trajectory.obs, trajectory.action, trajectory.next_obs)
    count = trajectory.valid.astype(seen.dtype)
    if config.decoded_reduction == "mean":
        count /= jnp.sum(count)

    if config.reward_cells and not decoder.sees:
        reward, cells = targets
        return cell_errors(config, decoder, reward, cells, count, z)

    @jax.checkpoint
    def of_one(shift: Float[Array, " hidden"]) -> Scalar:
        if decoder.sees:
            out = jax.vmap(decoder, (None, 0))(shift, seen)
            return jnp.dot(jax.vmap(error)(out, targets), count)
        out = decoder.net.rest(shift)  # The same for all transitions.
        return jnp.dot(jax.vmap(error, (None, 0))(out, targets), count)

    shifts = jax.vmap(decoder.shift)(z)
    return jax.lax.map(of_one, shifts, batch_size=config.decoder_block)


def cell_errors(
    config: VaeConfig,
    decoder: TransitionDecoder,
    reward: Float[Array, " step"],
    cells: Float[Array, "step cell"],
    count: Float[Array, " step"],
    z: Float[Array, "term latent"],
) -> PerPosterior:
    """The same of rewards decoded by cells from z alone. The error is then linear in how often each
    cell was there, and with success, so that transitions are summed before anything is decoded.

    Args:
        cells: one-hot.
        count: weight of each transition.
    """
    success = (reward >= config.reward_success).astype(count.dtype)
    visits, successes = count @ cells, (count * success) @ cells
    out = jax.vmap(lambda one: decoder.net.rest(decoder.shift(one)))(z)
    return jax.nn.softplus(out) @ visits - out @ successes


# --- Losses ---


def beliefs(encoder: BeliefEncoder, trajectory: Trajectory) -> Belief:
    """q_0, ..., q_T, leaves [T + 1, ...]."""
    return encoder.beliefs(trajectory.action, trajectory.reward, trajectory.next_obs)


def elbo(
    config: VaeConfig, vae: Vae, trajectory: Trajectory, draws: Draws, scaled: Scale = as_it_is
) -> Elbo:
    """Both sides of it, at the same posteriors."""
    cells = one_hot_cell(config, trajectory.next_obs)
    obs, next_obs = scaled(trajectory.obs), scaled(trajectory.next_obs)
    trajectory = trajectory._replace(obs=obs, next_obs=next_obs)
    known = beliefs(vae.encoder, trajectory)
    mean, log_variance = known.mean[draws.terms], known.log_variance[draws.terms]
    z = jax.vmap(gaussian_beliefs.sample)(mean, log_variance, draws.noise)
    kl = gaussian_beliefs.kl_chain(known.mean, known.log_variance)[draws.terms]
    # --- q_t counts if transition t does; scaled to the number of all ---
    exists = jnp.concatenate([jnp.ones(1, bool), trajectory.valid])[draws.terms]
    count = exists * (len(known.mean) / len(draws.terms))
    # --- Decoders ---
    of_rewards = errors(
        config,
        vae.rewards,
        partial(reward_error, config),
        (trajectory.reward, cells),
        trajectory,
        z,
    )
    of_states = jnp.zeros_like(of_rewards)
    if vae.states is not None:
        error = partial(state_error, config)
        of_states = errors(config, vae.states, error, trajectory.next_obs, trajectory, z)
    return Elbo(*(jnp.dot(count, term) for term in (of_rewards, of_states, kl)))


def loss(config: VaeConfig, terms: Elbo) -> Float[Array, "*b"]:
    """L of every trajectory; its mean is the loss."""
    return (
        terms.reward_error + config.state_weight * terms.state_error + config.kl_weight * terms.kl
    )


# --- One step ---


def step(
    config: VaeConfig,
    learner: VaeLearner,
    trajectories: Trajectory,
    draws: Draws,
    decay: Scalar | float = 1.0,
    scaled: Scale = as_it_is,
) -> tuple[VaeLearner, Metrics]:
    """The learner after one Adam step, and the loss and its terms by task.

    Args:
        decay: what the rate is multiplied with.
        trajectories: leaves [task, rollout, step, ...].
        draws: leaves [task, rollout, ...].
    """

    def total(vae: Vae) -> tuple[Scalar, Elbo]:
        of_one = partial(elbo, config, vae, scaled=scaled)
        terms = jax.vmap(jax.vmap(of_one))(trajectories, draws)
        return jnp.mean(loss(config, terms)), terms

    grads, terms = jax.grad(total, has_aux=True)(learner.vae)
    directions, opt = ADAM.update(grads, learner.opt)
    rate = config.learning_rate * decay
    vae = jax.tree.map(lambda x, d: x - rate * d, learner.vae, directions)
    by_task = {name: jnp.mean(term, axis=1) for name, term in terms._asdict().items()}
    by_task["vae_loss"] = jnp.mean(loss(config, terms), axis=1)
    if vae.states is None:
        del by_task["state_error"]
    return VaeLearner(vae, opt), by_task
