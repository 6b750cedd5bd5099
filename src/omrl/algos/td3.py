"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

One task, off-policy. Behaviour data of Cheetah-Velocity comes from it (MACAW, appendix D.2).

    y = r + gamma (1 - terminated) min_i Q'_i(s', clip(pi'(s') + clip(eps, -c, c), -1, 1))
    critics: sum_i (Q_i(s, a) - y)^2;  every d-th update, actor: -Q_1(s, pi(s))

Differences to the paper's Algorithm 1: learning rates of 3e-4, batches of 256 and layers of 256
units, as in the authors' later code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from omrl.nets.critics import action_values, init_critics
from omrl.nets.mlp import Mlp
from omrl.ops.descent import Optimizer, descend
from omrl.ops.sac import bellman_target, polyak
from omrl.ranges import Count, Fraction, NonNegative, Positive, Size, check_ranges
from omrl.types import Key, Scalar, Step


@dataclass(frozen=True)
class Td3Config:
    """Symbols are those of the paper."""

    hidden: tuple[Size, ...] = (256, 256)
    """Units of each hidden layer, actor and critics."""
    batch_size: Count = 256
    """Transitions per update."""
    discount: Fraction = 0.99
    """gamma."""
    learning_rate: Positive = 3e-4
    """Of Adam, actor and critics."""
    target_rate: Fraction = 0.005
    """tau, applied at every actor update."""
    policy_delay: Size = 2
    """d: critic updates per update of the actor and the targets."""
    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on the target action (actions are in [-1, 1])."""
    target_noise_clip: NonNegative = 0.5
    """c."""
    exploration_noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise on actions while collecting."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Networks(NamedTuple):
    actor: Mlp
    critics: Mlp


class Td3State(NamedTuple):
    online: Networks
    target: Networks
    actor_opt: optax.OptState
    critic_opt: optax.OptState


def policy(actor: Mlp, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
    """pi(s)."""
    return jnp.tanh(actor(obs))


def target_value(
    target: Networks, step: Step, noise: Float[Array, " act"], config: Td3Config
) -> Scalar:
    """y, a constant; `noise` is standard normal."""
    limit = config.target_noise_clip
    smoothing = jnp.clip(config.target_noise * noise, -limit, limit)
    action = jnp.clip(policy(target.actor, step.next_obs) + smoothing, -1, 1)
    next_value = jnp.min(action_values(target.critics, step.next_obs, action))
    return jax.lax.stop_gradient(
        bellman_target(step.reward, step.terminated, next_value, config.discount)
    )


def critic_loss(critics: Mlp, step: Step, target: Scalar) -> Scalar:
    """Squared errors of all critics, summed."""
    return jnp.sum((action_values(critics, step.obs, step.action) - target) ** 2)


def actor_loss(actor: Mlp, critics: Mlp, obs: Float[Array, " obs"]) -> Scalar:
    """-Q_1(s, pi(s))."""
    return -action_values(critics, obs, policy(actor, obs))[0]


@dataclass(frozen=True)
class Td3:
    """The agent of one task. Observations come in normalised; actions are in [-1, 1]."""

    config: Td3Config
    obs_dim: int
    act_dim: int

    @property
    def batches_per_update(self) -> int:
        return self.config.policy_delay

    def init(self, key: Key) -> Td3State:
        actor_key, critic_key = jax.random.split(key)
        hidden = self.config.hidden
        online = Networks(
            Mlp.init(actor_key, (self.obs_dim, *hidden, self.act_dim)),
            init_critics(critic_key, self.obs_dim, self.act_dim, hidden),
        )
        return Td3State(
            online,
            jax.tree.map(jnp.copy, online),
            self._optimizer.init(online.actor),
            self._optimizer.init(online.critics),
        )

    def update(self, state: Td3State, batches: Step, key: Key) -> Td3State:
        """d updates of the critics, then one of the actor and the targets.

        Leaves of `batches` are [d, sample, ...]. The delay is in the program's structure and no
        branch, so that it saves work under `vmap` over tasks too.
        """
        noise = jax.random.normal(key, batches.action.shape)
        for index in range(self.config.policy_delay):
            batch = Step(*(leaf[index] for leaf in batches))
            state = self._update_critics(state, batch, noise[index])
        return self._update_actor(state, batches.obs[-1])

    def act(
        self, state: Td3State, obs: Float[Array, " obs"], key: Key, deterministic: bool
    ) -> Float[Array, " act"]:
        action = policy(state.online.actor, obs)
        if deterministic:
            return action
        noise = self.config.exploration_noise * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, -1, 1)

    def actor(self, state: Td3State) -> Mlp:
        """The network of which tanh, on the first `act_dim` outputs, is the best action."""
        return state.online.actor

    def _update_critics(
        self, state: Td3State, batch: Step, noise: Float[Array, "sample act"]
    ) -> Td3State:
        target = jax.vmap(lambda step, n: target_value(state.target, step, n, self.config))(
            batch, noise
        )

        def loss(critics: Mlp) -> Scalar:
            return jnp.mean(jax.vmap(critic_loss, (None, 0, 0))(critics, batch, target))

        critics, critic_opt = descend(self._optimizer, loss, state.online.critics, state.critic_opt)
        return state._replace(online=state.online._replace(critics=critics), critic_opt=critic_opt)

    def _update_actor(self, state: Td3State, obs: Float[Array, "sample obs"]) -> Td3State:
        def loss(actor: Mlp) -> Scalar:
            return jnp.mean(jax.vmap(actor_loss, (None, None, 0))(actor, state.online.critics, obs))

        actor, actor_opt = descend(self._optimizer, loss, state.online.actor, state.actor_opt)
        online = state.online._replace(actor=actor)
        target = polyak(state.target, online, self.config.target_rate)
        return state._replace(online=online, target=target, actor_opt=actor_opt)

    @property
    def _optimizer(self) -> Optimizer:
        return optax.adam(self.config.learning_rate)
