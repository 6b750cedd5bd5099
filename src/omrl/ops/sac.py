"""The equations of actor-critic methods with target networks, for one transition (TD3, SAC)."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from omrl.types import Scalar

Tree = TypeVar("Tree")


def bellman_target(
    reward: Scalar, terminated: Bool[Array, ""], next_value: Scalar, discount: float
) -> Scalar:
    """y = r + gamma (1 - terminated) V(s'). A time limit is no termination: it bootstraps."""
    return reward + discount * jnp.where(terminated, 0.0, next_value)


def soft_value(
    values: Float[Array, " critic"], log_prob: Scalar, temperature: Scalar | float
) -> Scalar:
    """V(s) = min_i Q_i(s, a) - alpha log pi(a|s), one sampled action (Eq. 3, arXiv:1812.05905).

    Its negative is the actor's loss (Eq. 9 there).
    """
    return jnp.min(values) - temperature * log_prob


def temperature_loss(log_temperature: Scalar, log_prob: Scalar, target_entropy: float) -> Scalar:
    """J(alpha) = -alpha (log pi(a|s) + H), H the target entropy in nats (Eq. 18, arXiv:1812.05905).

    alpha = exp(log_temperature) stays positive. Gradient goes to the temperature only.
    """
    return -jnp.exp(log_temperature) * jax.lax.stop_gradient(log_prob + target_entropy)


def polyak(target: Tree, online: Tree, rate: float) -> Tree:
    """theta' <- tau theta + (1 - tau) theta', leaf by leaf."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)
