"""Steps of an optimiser down a loss, and their rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from omrl.types import Scalar

Params = TypeVar("Params")
Parts = TypeVar("Parts", bound=tuple)
Optimizer: TypeAlias = Any
"""An `optax.GradientTransformation`: its annotations refuse pytrees of our own classes."""


def descend(
    optimizer: Optimizer,
    loss: Callable[[Params], Scalar],
    params: Params,
    opt_state: optax.OptState,
) -> tuple[Params, optax.OptState]:
    """(params, opt_state) after one step on the gradient of `loss` with respect to `params`."""
    updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state)
    return jax.tree.map(lambda p, u: p + u, params, updates), opt_state


def move(parts: Parts, directions: Parts, rates: Sequence[Scalar | float]) -> Parts:
    """A NamedTuple after a step, each of its parts with a rate of its own.

    `directions` are those of one `optax.scale_by_adam` over all parts: the same as an Adam per
    part, with one step counter.
    """
    moved = (
        jax.tree.map(lambda x, d, rate=rate: x - rate * d, part, direction)
        for rate, part, direction in zip(rates, parts, directions, strict=True)
    )
    return type(parts)(*moved)


def cosine_decay(step: Int[Array, ""], num_steps: int) -> Scalar:
    """From 1 at step 0 along half a cosine to 0 at `num_steps`, where it stays."""
    return 0.5 * (1 + jnp.cos(math.pi * jnp.minimum(step / num_steps, 1.0)))
