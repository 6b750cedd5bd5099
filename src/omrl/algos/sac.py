"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv:1812.05905).

One task, off-policy. Behaviour data of most tasks comes from it (MACAW, appendix D.2).

    y = r + gamma (1 - terminated) [min_i Q'_i(s', a') - alpha log pi(a'|s')],  a' ~ pi(.|s')
    critics: sum_i (Q_i(s, a) - y)^2;  actor: alpha log pi(a|s) - min_i Q_i(s, a),  a ~ pi(.|s)
    temperature: -alpha (log pi(a|s) + H), H = -dim(action) unless given

The policy is a diagonal Gaussian squashed by tanh. As in the authors' code log_std is clipped to
[-20, 2], and the temperature starts at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from omrl.algos.td3 import critic_loss
from omrl.nets.critics import action_values, init_critics
from omrl.nets.mlp import Mlp
from omrl.ops.descent import Optimizer, descend
from omrl.ops.gaussian import LogSlope, sample_squashed, squash, tanh_log_slope
from omrl.ops.sac import bellman_target, polyak, soft_value, temperature_loss
from omrl.ranges import Count, Finite, Fraction, Positive, Size, check_ranges
from omrl.types import Key, Scalar, Step

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class SacConfig:
    """Defaults: Table 1 of the paper. Symbols are those of the paper."""

    hidden: tuple[Size, ...] = (256, 256)
    """Units of each hidden layer, actor and critics."""
    batch_size: Count = 256
    """Transitions per update."""
    discount: Fraction = 0.99
    """gamma."""
    learning_rate: Positive = 3e-4
    """Of Adam, actor, critics and temperature."""
    target_rate: Fraction = 0.005
    """tau."""
    target_entropy: Finite | None = None
    """H in nats; None: minus the number of action dimensions."""

    def __post_init__(self) -> None:
        check_ranges(self)


class SacState(NamedTuple):
    actor: Mlp
    """Outputs mean and log_std of the action before tanh."""
    log_temperature: Scalar
    critics: Mlp
    target_critics: Mlp
    policy_opt: optax.OptState
    """Of actor and temperature."""
    critic_opt: optax.OptState


def action_distribution(
    actor: Mlp, obs: Float[Array, " obs"]
) -> tuple[Float[Array, " act"], Float[Array, " act"]]:
    """(mean, log_std) of the Gaussian before tanh."""
    mean, log_std = jnp.split(actor(obs), 2)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def target_value(
    state: SacState,
    step: Step,
    noise: Float[Array, " act"],
    discount: float,
    log_slope: LogSlope = tanh_log_slope,
) -> Scalar:
    """y, a constant, for the next action that a standard normal `noise` stands for."""
    distribution = action_distribution(state.actor, step.next_obs)
    action, log_prob = squash(noise, *distribution, log_slope)
    next_values = action_values(state.target_critics, step.next_obs, action)
    next_value = soft_value(next_values, log_prob, jnp.exp(state.log_temperature))
    return jax.lax.stop_gradient(bellman_target(step.reward, step.terminated, next_value, discount))


def actor_loss(
    actor: Mlp,
    log_temperature: Scalar,
    critics: Mlp,
    obs: Float[Array, " obs"],
    noise: Float[Array, " act"],
    log_slope: LogSlope = tanh_log_slope,
) -> tuple[Scalar, Scalar]:
    """The actor's loss for the action that a standard normal `noise` stands for, and the log
    density of that; nothing reaches the temperature."""
    action, log_prob = squash(noise, *action_distribution(actor, obs), log_slope)
    temperature = jax.lax.stop_gradient(jnp.exp(log_temperature))
    return -soft_value(action_values(critics, obs, action), log_prob, temperature), log_prob


def policy_loss(
    actor: Mlp,
    log_temperature: Scalar,
    critics: Mlp,
    obs: Float[Array, " obs"],
    noise: Float[Array, " act"],
    target_entropy: float,
    log_slope: LogSlope = tanh_log_slope,
) -> Scalar:
    """Losses of actor and temperature; neither reaches the other's."""
    loss, log_prob = actor_loss(actor, log_temperature, critics, obs, noise, log_slope)
    return loss + temperature_loss(log_temperature, log_prob, target_entropy)


@dataclass(frozen=True)
class Sac:
    """The agent of one task. Observations come in normalised; actions are in [-1, 1]."""

    config: SacConfig
    obs_dim: int
    act_dim: int

    @property
    def batches_per_update(self) -> int:
        return 1

    def init(self, key: Key) -> SacState:
        actor_key, critic_key = jax.random.split(key)
        hidden = self.config.hidden
        actor = Mlp.init(actor_key, (self.obs_dim, *hidden, 2 * self.act_dim))
        critics = init_critics(critic_key, self.obs_dim, self.act_dim, hidden)
        log_temperature = jnp.zeros((), jnp.float32)
        return SacState(
            actor,
            log_temperature,
            critics,
            jax.tree.map(jnp.copy, critics),
            self._optimizer.init((actor, log_temperature)),
            self._optimizer.init(critics),
        )

    def update(self, state: SacState, batches: Step, key: Key) -> SacState:
        """One update of critics, then actor and temperature. Leaves are [1, sample, ...]."""
        batch = Step(*(leaf[0] for leaf in batches))
        critic_key, policy_key = jax.random.split(key)
        state = self._update_critics(state, batch, critic_key)
        return self._update_policy(state, batch.obs, policy_key)

    def act(
        self, state: SacState, obs: Float[Array, " obs"], key: Key, deterministic: bool
    ) -> Float[Array, " act"]:
        mean, log_std = action_distribution(state.actor, obs)
        return jnp.tanh(mean) if deterministic else sample_squashed(key, mean, log_std)[0]

    def actor(self, state: SacState) -> Mlp:
        """The network of which tanh, on the first `act_dim` outputs, is the best action."""
        return state.actor

    def _update_critics(self, state: SacState, batch: Step, key: Key) -> SacState:
        noise = self._noise(key, batch.reward.shape[0])
        target = jax.vmap(lambda step, n: target_value(state, step, n, self.config.discount))(
            batch, noise
        )

        def loss(critics: Mlp) -> Scalar:
            return jnp.mean(jax.vmap(critic_loss, (None, 0, 0))(critics, batch, target))

        critics, critic_opt = descend(self._optimizer, loss, state.critics, state.critic_opt)
        return state._replace(
            critics=critics,
            critic_opt=critic_opt,
            target_critics=polyak(state.target_critics, critics, self.config.target_rate),
        )

    def _update_policy(
        self, state: SacState, obs: Float[Array, "sample obs"], key: Key
    ) -> SacState:
        noise = self._noise(key, obs.shape[0])
        entropy = self.config.target_entropy
        target_entropy = -float(self.act_dim) if entropy is None else entropy

        def loss(params: tuple[Mlp, Scalar]) -> Scalar:
            actor, log_temperature = params
            per_obs = jax.vmap(
                lambda o, n: policy_loss(
                    actor, log_temperature, state.critics, o, n, target_entropy
                )
            )
            return jnp.mean(per_obs(obs, noise))

        (actor, log_temperature), policy_opt = descend(
            self._optimizer, loss, (state.actor, state.log_temperature), state.policy_opt
        )
        return state._replace(actor=actor, log_temperature=log_temperature, policy_opt=policy_opt)

    def _noise(self, key: Key, num: int) -> Float[Array, "{num} act"]:
        """Standard normal, of `num` actions."""
        keys = jax.random.split(key, num)
        return jax.vmap(lambda k: jax.random.normal(k, (self.act_dim,)))(keys)

    @property
    def _optimizer(self) -> Optimizer:
        return optax.adam(self.config.learning_rate)
