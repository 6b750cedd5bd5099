"""DQN: deep Q-learning for a few discrete actions (Mnih et al. 2015), off-policy.

    y = r + gamma (1 - terminated) max_a' Q'(s', a');  loss: (Q(s, a) - y)^2

Double DQN (van Hasselt et al. 2016, arXiv:1509.06461) values at s' the action that Q prefers there:
y = r + gamma (1 - terminated) Q'(s', argmax_a' Q(s', a')).

On data that lack actions, `conservative` w > 0 adds w [log sum_a' exp Q(s, a') - Q(s, a)] to the
loss (CQL, Kumar et al. 2020, arXiv:2006.04779, Eq. 4; `ops.cql`).

An action is a vector with an entry per choice, and means the largest one, as in `envs.gridnav`.
Differences to the papers: the error is not clipped, and the target network follows the other one
slowly in place of being copied from time to time.

Axes are [task, sample, feature]; means are over the transitions of all tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from omrl.nets.latent_mlp import over_samples
from omrl.nets.mlp import Mlp
from omrl.ops.cql import discrete_gap
from omrl.ops.sac import bellman_target, polyak
from omrl.ranges import Fraction, NonNegative, Positive, Size, check_ranges
from omrl.types import Key, Metrics, Scalar, Step


@dataclass(frozen=True)
class DqnConfig:
    """Widths, discount and rates are those of BOReL's reference code (arXiv:2008.02598) for grid
    navigation."""

    TAG: ClassVar[str] = "dqn"

    hidden: tuple[Size, ...] = (64, 64)
    """Widths of the hidden layers."""
    discount: Fraction = 0.99
    """gamma."""
    double: bool = False
    """Double DQN."""
    learning_rate: Positive = 3e-4
    """Of Adam."""
    target_rate: Fraction = 0.005
    """tau."""
    conservative: NonNegative = 0.0
    """Weight of CQL's term beside the squared error, twice the alpha of its paper; 0: none."""
    exploration: Fraction = 0.1
    """Probability of a uniformly random action, unless it acts deterministically."""

    def __post_init__(self) -> None:
        check_ranges(self)


class DqnState(NamedTuple):
    q: Mlp
    """s -> Q(s, a) of every action."""
    target_q: Mlp
    opt: optax.OptState


def init(config: DqnConfig, obs_dim: int, num_actions: int, key: Key) -> DqnState:
    """A new network; the target starts as it is."""
    q = Mlp.init(key, (obs_dim, *config.hidden, num_actions))
    return DqnState(q, jax.tree.map(jnp.copy, q), _adam(config).init(q))


def chosen(action: Float[Array, " act"]) -> Int[Array, ""]:
    """Which action a vector means: the first largest entry, after clipping to [-1, 1]."""
    return jnp.argmax(jnp.clip(action, -1.0, 1.0))


def target_value(config: DqnConfig, q: Mlp, target_q: Mlp, step: Step) -> Scalar:
    """y, a constant."""
    values = target_q(step.next_obs)
    best = jnp.argmax(q(step.next_obs) if config.double else values)
    target = bellman_target(step.reward, step.terminated, values[best], config.discount)
    return jax.lax.stop_gradient(target)


def loss(config: DqnConfig, q: Mlp, target_q: Mlp, step: Step) -> Scalar:
    """Of one transition, CQL's term included."""
    values = q(step.obs)
    logged = values[chosen(step.action)]
    error = (logged - target_value(config, q, target_q, step)) ** 2
    if not config.conservative:
        return error
    return error + config.conservative * discrete_gap(values, logged)


def step(
    config: DqnConfig, state: DqnState, batch: Step, decay: Scalar | float = 1.0
) -> tuple[DqnState, Metrics]:
    """The learner after one Adam step on a batch with leaves [task, sample, ...], and the loss by
    task. `decay` is what the rate is multiplied with."""

    def total(q: Mlp) -> tuple[Scalar, Array]:
        def one(*columns: Array) -> Scalar:
            return loss(config, q, state.target_q, Step(*columns))

        by_task = jnp.mean(over_samples(one, *batch), axis=1)
        return jnp.mean(by_task), by_task

    grads, by_task = jax.grad(total, has_aux=True)(state.q)
    moves, opt = _adam(config).update(grads, state.opt)
    q = jax.tree.map(lambda x, move: x + decay * move, state.q, moves)
    return DqnState(q, polyak(state.target_q, q, config.target_rate), opt), {"q_loss": by_task}


def act(
    config: DqnConfig, q: Mlp, obs: Float[Array, " obs"], key: Key, deterministic: bool
) -> Float[Array, " act"]:
    """1 at the action, 0 elsewhere: the best one, or at times any (`DqnConfig.exploration`)."""
    values = q(obs)
    best = jnp.argmax(values)
    if not deterministic:
        choice_key, any_key = jax.random.split(key)
        explores = jax.random.bernoulli(choice_key, config.exploration)
        best = jnp.where(explores, jax.random.randint(any_key, (), 0, values.size), best)
    return jax.nn.one_hot(best, values.size, dtype=values.dtype)


def _adam(config: DqnConfig) -> Any:
    return optax.adam(config.learning_rate)
