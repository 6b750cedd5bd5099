"""One step of an optimiser down a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import optax

from omrl.types import Scalar

Params = TypeVar("Params")
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
