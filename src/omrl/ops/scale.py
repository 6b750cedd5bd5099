"""Observations and returns in the units of a `Spec`, which were measured on the training tasks."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Batch, Spec


def scaled_obs(
    spec: Spec, obs: Float[Array, "*b obs"], *, normalize: bool
) -> Float[Array, "*b obs"]:
    """`obs`, standardised if `normalize`."""
    if not normalize:
        return obs
    lead = (1,) * (obs.ndim - 1)
    mean = jnp.asarray(spec.obs_mean, obs.dtype).reshape(*lead, -1)
    std = jnp.asarray(spec.obs_std, obs.dtype).reshape(*lead, -1)
    return (obs - mean) / std


def scaled_batch(spec: Spec, batch: Batch, *, normalize_obs: bool, scale_returns: bool) -> Batch:
    """What losses on Monte-Carlo returns read, scaled; `next_obs` and `reward` are as they were."""
    return batch._replace(
        obs=scaled_obs(spec, batch.obs, normalize=normalize_obs),
        terminal_obs=scaled_obs(spec, batch.terminal_obs, normalize=normalize_obs),
        mc_return=batch.mc_return / (spec.return_std if scale_returns else 1.0),
    )
