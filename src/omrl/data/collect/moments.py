"""Running statistics of a task's observations, by which its agent sees them normalised.

A fixed scale would have to be known: the absolute position of a runner grows with its speed. The
statistics are those of all observations so far and change between rounds only.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from omrl.types import Scalar

MIN_SCALE = 1e-2
"""Smallest standard deviation that observations are divided by: some entries are constant."""
OBS_LIMIT = 10.0
"""Normalised observations are clipped to plus and minus this."""


class Moments(NamedTuple):
    """Statistics of the observations of one task so far."""

    count: Scalar
    mean: Float[Array, "*n obs"]
    squares: Float[Array, "*n obs"]
    """Sum of squared deviations from the mean."""


def empty_moments(obs_dim: int) -> Moments:
    """Of no observation."""
    zeros = jnp.zeros(obs_dim, jnp.float32)
    return Moments(jnp.zeros((), jnp.float32), zeros, zeros)


def add_rows(moments: Moments, obs: Float[Array, "row obs"], valid: Bool[Array, " row"]) -> Moments:
    """Statistics with the valid rows added (Chan, Golub and LeVeque 1979): no cancellation."""
    weight = valid.astype(obs.dtype)[:, None]
    added = jnp.sum(weight)
    mean = jnp.sum(weight * obs, axis=0) / jnp.maximum(added, 1.0)
    squares = jnp.sum(weight * (obs - mean[None]) ** 2, axis=0)
    count = moments.count + added
    shift = mean - moments.mean
    share = added / jnp.maximum(count, 1.0)
    return Moments(
        count,
        moments.mean + share * shift,
        moments.squares + squares + share * moments.count * shift**2,
    )


def scale(moments: Moments) -> Float[Array, "*n obs"]:
    """Standard deviations, not below `MIN_SCALE`."""
    count = jnp.maximum(moments.count, 1.0)[..., None]
    return jnp.maximum(jnp.sqrt(moments.squares / count), MIN_SCALE)


def normalise(moments: Moments, obs: Float[Array, " obs"]) -> Float[Array, " obs"]:
    """The observation as agents see it."""
    return jnp.clip((obs - moments.mean) / scale(moments), -OBS_LIMIT, OBS_LIMIT)
