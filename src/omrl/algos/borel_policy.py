"""BOReL's policy for continuous actions, and one step of it: soft actor-critic on s+.

    s+       = [s, mean, log variance] of the belief before the action     (`belief_obs`)
    L_critic = sum_i mean (Q_i(s+, a) - y)^2, with y as in `algos.sac`
    L_actor  = mean [alpha log pi(a|s+) - min_i Q_i(s+, a)],  a ~ pi(.|s+)

(BOReL, arXiv:2008.02598, section 4; SAC, arXiv:1812.05905). The belief is a part of the state: in
the Bellman target s'+ has that of after the transition. Means are over the transitions of all
tasks. Everything steps at once, on gradients at the parameters from before the step: so does the
reference code, while `algos.sac` shows the actor the new Qs.

On little data `conservative` w > 0 makes it CQL (Kumar et al. 2020, arXiv:2006.04779, Eq. 4): to
L_critic comes, for each Q_i,

    w mean [log integral exp Q_i(s+, a') da' - Q_i(s+, a)]

with the integral estimated as in appendix F there, from actions that are uniform and as many of the
policy at s+, each over its density (`q_gaps`, `ops.cql`). Policy and target stay as they are.

Axes are [task, sample, feature].
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from omrl.algos.borel_config import BeliefSacConfig
from omrl.algos.latent_context import LAST_BOUND, NUM_CRITICS, POLICY_LAST_BOUND, PerSample
from omrl.algos.sac import SacState, action_distribution, actor_loss, policy_loss, target_value
from omrl.nets.critics import action_values
from omrl.nets.latent_mlp import over_samples
from omrl.nets.mlp import Mlp, init_layers
from omrl.ops import cql
from omrl.ops.gaussian import LOG_SLOPES, squash
from omrl.ops.sac import polyak
from omrl.types import Key, Metrics, Scalar, Step

Vector = Float[Array, "*b latent"]


class Proposals(NamedTuple):
    """What the integral of CQL is estimated with, of every transition."""

    uniform: Float[Array, "*b proposal act"]
    """Actions, uniform over [-1, 1]."""
    noise: Float[Array, "*b proposal act"]
    """Standard normal, for actions of the policy."""


class Noise(NamedTuple):
    """All that one step draws; what is not of CQL is standard normal."""

    next_action: Float[Array, "*b act"]
    action: Float[Array, "*b act"]
    proposals: Proposals | None = None
    """None where nothing is conservative."""


def belief_obs(
    obs: Float[Array, "*b obs"], mean: Vector, log_variance: Vector
) -> Float[Array, "*b belief_obs"]:
    """s+, what the policy and the Qs see."""
    return jnp.concatenate([obs, mean, log_variance], axis=-1)


def init(config: BeliefSacConfig, obs_dim: int, act_dim: int, key: Key) -> SacState:
    """New networks for an s+ of `obs_dim` numbers. The target Qs start as the Qs."""
    small = config.initial == "small-outputs"
    actor_key, critic_key = jax.random.split(key)

    def make(key: Key, sizes: tuple[int, ...], last_bound: float) -> Mlp:
        return Mlp(init_layers(key, sizes, last_bound if small else None))

    actor = make(actor_key, (obs_dim, *config.hidden, 2 * act_dim), POLICY_LAST_BOUND)
    sizes = (obs_dim + act_dim, *config.hidden, 1)
    critics = jax.vmap(lambda k: make(k, sizes, LAST_BOUND))(
        jax.random.split(critic_key, NUM_CRITICS)
    )
    return start(config, actor, critics)


def start(config: BeliefSacConfig, actor: Mlp, critics: Mlp) -> SacState:
    """Networks with fresh targets, temperature and optimisers."""
    temperature = 1.0 if config.temperature is None else config.temperature
    log_temperature = jnp.log(jnp.asarray(temperature, jnp.float32))
    return SacState(
        actor,
        log_temperature,
        critics,
        jax.tree.map(jnp.copy, critics),
        _policy_adam(config).init((actor, log_temperature)),
        _critic_adam(config).init(critics),
    )


def draw(config: BeliefSacConfig, num_samples: int, act_dim: int, key: Key) -> Noise:
    """For the transitions of one task."""
    next_action, action = (
        jax.random.normal(k, (num_samples, act_dim)) for k in jax.random.split(key, 2)
    )
    noise = Noise(next_action, action)
    if not config.conservative:
        return noise
    uniform_key, noise_key = jax.random.split(jax.random.fold_in(key, 0))
    shape = (num_samples, config.conservative_actions, act_dim)
    uniform = jax.random.uniform(uniform_key, shape, minval=-1.0)
    return noise._replace(proposals=Proposals(uniform, jax.random.normal(noise_key, shape)))


# --- Losses ---


def q_target(
    config: BeliefSacConfig, state: SacState, batch: Step, noise: Float[Array, "task sample act"]
) -> PerSample:
    """y, a constant, at the actions that `noise` stands for."""

    def one(*columns: Array) -> Scalar:
        slope = LOG_SLOPES[config.log_prob]
        return target_value(state, Step(*columns[:-1]), columns[-1], config.discount, slope)

    return over_samples(one, *batch, noise)


def q_losses(critics: Mlp, batch: Step, target: PerSample) -> Float[Array, "task critic"]:
    """L_critic of every task, apart for each Q."""
    predicted = over_samples(partial(action_values, critics), batch.obs, batch.action)
    return jnp.mean((predicted - target[..., None]) ** 2, axis=1)


def q_gaps(
    config: BeliefSacConfig, actor: Mlp, critics: Mlp, batch: Step, proposals: Proposals
) -> Float[Array, "task critic"]:
    """CQL's term of every task, apart for each Q and without its weight. Gradient goes to the Qs
    alone."""
    slope, act_dim = LOG_SLOPES[config.log_prob], batch.action.shape[-1]

    def one(obs: Array, logged: Array, uniform: Array, noise: Array) -> Float[Array, " critic"]:
        distribution = action_distribution(actor, obs)
        acted, log_prob = jax.vmap(lambda n: squash(n, *distribution, slope))(noise)
        actions = jax.lax.stop_gradient(jnp.concatenate([uniform, acted]))
        densities = jnp.full(len(uniform), cql.uniform_log_density(act_dim))
        densities = jax.lax.stop_gradient(jnp.concatenate([densities, log_prob]))
        values = jax.vmap(partial(action_values, critics, obs))(actions)
        integral = jax.vmap(cql.log_integral, (1, None))(values, densities)
        return integral - action_values(critics, obs, logged)

    return jnp.mean(over_samples(one, batch.obs, batch.action, *proposals), axis=1)


def policy_losses(
    config: BeliefSacConfig,
    actor: Mlp,
    log_temperature: Scalar,
    critics: Mlp,
    obs: Float[Array, "task sample obs"],
    noise: Float[Array, "task sample act"],
) -> Float[Array, " task"]:
    """L_actor of every task, at the actions that `noise` stands for; with the temperature's loss,
    if that is learned."""
    slope, entropy = LOG_SLOPES[config.log_prob], config.target_entropy
    target_entropy = -float(noise.shape[-1]) if entropy is None else entropy

    def one(obs: Array, noise: Array) -> Scalar:
        given = (actor, log_temperature, critics, obs, noise)
        if config.temperature is None:
            return policy_loss(*given, target_entropy, slope)
        return actor_loss(*given, slope)[0]

    return jnp.mean(over_samples(one, obs, noise), axis=1)


# --- One step ---


def step(
    config: BeliefSacConfig,
    state: SacState,
    batch: Step,
    noise: Noise,
    decay: Scalar | float = 1.0,
) -> tuple[SacState, Metrics]:
    """The learner after one Adam step on everything, and the losses by task.

    Args:
        batch: leaves [task, sample, ...]; observations are s+ and s'+.
        noise: leaves [task, sample, act].
        decay: what all rates are multiplied with.
    """

    def moved(x: Array, move: Array) -> Array:
        return x + decay * move

    target = q_target(config, state, batch, noise.next_action)

    def critic_loss(critics: Mlp) -> tuple[Scalar, Metrics]:
        errors = jnp.sum(q_losses(critics, batch, target), axis=1)
        if not config.conservative:
            return jnp.mean(errors), {"q_loss": errors}
        assert noise.proposals is not None
        gaps = jnp.sum(q_gaps(config, state.actor, critics, batch, noise.proposals), axis=1)
        total = jnp.mean(errors + config.conservative * gaps)
        return total, {"q_loss": errors, "q_gap": gaps}

    def actors_loss(policy: tuple[Mlp, Scalar]) -> tuple[Scalar, Array]:
        by_task = policy_losses(config, *policy, state.critics, batch.obs, noise.action)
        return jnp.mean(by_task), by_task

    policy = state.actor, state.log_temperature
    of_critics, metrics = jax.grad(critic_loss, has_aux=True)(state.critics)
    of_policy, policy_by_task = jax.grad(actors_loss, has_aux=True)(policy)
    moves, critic_opt = _critic_adam(config).update(of_critics, state.critic_opt)
    policy_moves, policy_opt = _policy_adam(config).update(of_policy, state.policy_opt)
    critics = jax.tree.map(moved, state.critics, moves)
    actor, log_temperature = jax.tree.map(moved, policy, policy_moves)
    targets = polyak(state.target_critics, critics, config.target_rate)
    state = SacState(actor, log_temperature, critics, targets, policy_opt, critic_opt)
    return state, metrics | {"policy_loss": policy_by_task}


def _critic_adam(config: BeliefSacConfig) -> Any:
    return optax.adam(config.critic_lr)


def _policy_adam(config: BeliefSacConfig) -> Any:
    return optax.adam(config.policy_lr)
