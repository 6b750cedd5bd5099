"""Networks of one layer and one transition, for losses worked out by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from omrl.nets.latent_mlp import LatentMlp
from omrl.nets.mlp import Dense
from omrl.types import Batch


def linear(weight: Any, bias: Any) -> LatentMlp:
    """A network of one layer on [x, z]."""
    return LatentMlp((Dense.of(jnp.array(weight, jnp.float32), jnp.array(bias, jnp.float32)),))


# One observation, one action, one z; of critic i the leaves are [i].
CRITICS = linear([[[1.0], [2.0], [0.5]], [[3.0], [-1.0], [0.0]]], [[0.0], [0.5]])

Z = jnp.array([[-1.0]])


def hand_batch(terminated: bool = False) -> Batch:
    """One task of one transition: s = 0.5, a = 0.25, r = 3, s' = 0.2."""
    column = jnp.ones((1, 1))
    return Batch(
        obs=jnp.full((1, 1, 1), 0.5),
        action=jnp.full((1, 1, 1), 0.25),
        reward=3 * column,
        next_obs=jnp.full((1, 1, 1), 0.2),
        terminated=jnp.full((1, 1), terminated),
        mc_return=column,
        terminal_obs=jnp.ones((1, 1, 1)),
        terminal_discount=column,
    )
