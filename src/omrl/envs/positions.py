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
    return over_time(spec, np.asarray(terms, np.float64)[..., found[0]])


def _columns(spec: EnvSpec) -> tuple[list[int], bool] | None:
    for names, moved in _MOVED.items():
        if set(names) <= set(spec.term_names):
            return [spec.term_names.index(name) for name in names], moved
    return None


def shown_quantities(spec: EnvSpec) -> tuple[str, ...]:
    """Names of what a picture of a trajectory shows, in pairs, horizontal and vertical: x and y of
    a body in the plane; of a gripper's hand and of what it can carry; or x and its velocity, of
    what runs along a line. None where the environment tells neither."""
    if has_positions(spec):
        return ("x", "y")
    bodies = [name.removesuffix("_x") for name in spec.obs_names if name.endswith("_x")]
    bodies = [body for body in bodies if f"{body}_y" in spec.obs_names]
    if "hand" in bodies:
        return tuple(f"{body}_{axis}" for body in bodies for axis in "xy")
    return ("x", "x_velocity") if "x_velocity" in spec.term_names else ()


def of_step(
    spec: EnvSpec, obs: Float[np.ndarray, "*b obs"], terms: Float[np.ndarray, "*b term"]
) -> Float64[np.ndarray, "*b quantity"]:
    """What `over_time` makes `shown_quantities` of: of what is observed after a step, and of the
    terms of that step."""
    names = shown_quantities(spec)
    if names == ("x", "x_velocity"):
        return np.asarray(terms, np.float64)[..., [spec.term_names.index("x_velocity")] * 2]
    found = _columns(spec)
    if found is not None:
        return np.asarray(terms, np.float64)[..., found[0]]
    return np.asarray(obs, np.float64)[..., [spec.obs_names.index(name) for name in names]]


def over_time(
    spec: EnvSpec, steps: Float64[np.ndarray, "*b time quantity"]
) -> Float64[np.ndarray, "*b time quantity"]:
    """`shown_quantities` after every step of an episode, of its steps. Along a line x is relative
    to the start, in m."""
    if shown_quantities(spec) == ("x", "x_velocity"):
        return np.stack([np.cumsum(steps[..., 0], -1) * spec.dt, steps[..., 1]], -1)
    found = _columns(spec)
    return np.cumsum(steps, axis=-2) if found is not None and found[1] else steps
