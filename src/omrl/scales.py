"""Standard deviations that numbers can be divided by."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

SMALLEST = 1e-6
"""Relative to 1 or the mean, whichever is larger: some ten times the spacing of float32."""
HARDLY = 1e-3
"""Of the median spread of an observation's entries: what moves less hardly moves."""


def divisors(
    mean: Float[np.ndarray, " entry"], std: Float[np.ndarray, " entry"]
) -> Float[np.ndarray, " entry"]:
    """`std`, with 1 for an entry that is constant but for rounding, which so stays as it is.

    Divided by its own spread, such an entry (the torso's y) would be noise of size 1 in the data
    it was measured on, and any other value of it huge.
    """
    return np.where(_varies(mean, std), std, 1.0)


def measured_divisors(
    mean: Float[np.ndarray, " entry"], std: Float[np.ndarray, " entry"]
) -> Float[np.ndarray, " entry"]:
    """`divisors`, with 1 for an entry that hardly moves in the data it is measured on, too.

    Other tasks may move it as they do the rest: a quaternion of an object that lies still in all
    training tasks of Meta-World has a spread of 1e-5, and turned in a test task it would be 3e4.
    """
    varies = _varies(mean, std)
    if not varies.any():
        return np.ones_like(std)
    return np.where(varies & (std >= HARDLY * np.median(std[varies])), std, 1.0)


def _varies(mean: Float[np.ndarray, " entry"], std: Float[np.ndarray, " entry"]) -> np.ndarray:
    return std > SMALLEST * np.maximum(np.abs(mean), 1.0)
