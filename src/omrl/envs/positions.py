"""Where the body is in the plane, for environments whose reward terms tell it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

from omrl.envs.base import EnvSpec

_MOVED = {("next_x", "next_y"): False, ("torso_dx", "torso_dy"): True, ("com_dx", "com_dy"): True}
"""Pairs of terms, and whether they are a step's displacement: a position is then their sum."""


def has_positions(spec: EnvSpec) -> bool:
    return _columns(spec) is not None


def positions(
    spec: EnvSpec, terms: Float[np.ndarray, "*b time term"]
) -> Float64[np.ndarray, "*b time 2"]:
    """(x, y) after every step of an episode, in the environment's unit of length. Of environments
    that tell displacements it is relative to the start. ValueError without `has_positions`."""
    found = _columns(spec)
    if found is None:
        raise ValueError(f"{spec.id} has no positions among its terms")
    columns, moved = found
    pair = np.asarray(terms, np.float64)[..., columns]
    return np.cumsum(pair, axis=-2) if moved else pair


def _columns(spec: EnvSpec) -> tuple[list[int], bool] | None:
    for names, moved in _MOVED.items():
        if set(names) <= set(spec.term_names):
            return [spec.term_names.index(name) for name in names], moved
    return None
