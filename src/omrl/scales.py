"""Standard deviations that numbers can be divided by."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

SMALLEST = 1e-6
"""Relative to 1 or the mean, whichever is larger: some ten times the spacing of float32."""


def divisors(
    mean: Float[np.ndarray, " entry"], std: Float[np.ndarray, " entry"]
) -> Float[np.ndarray, " entry"]:
    """`std`, with 1 for an entry that is constant but for rounding, which so stays as it is.

    Divided by its own spread, such an entry (the torso's y) would be noise of size 1 in the data
    it was measured on, and any other value of it huge.
    """
    return np.where(std > SMALLEST * np.maximum(np.abs(mean), 1.0), std, 1.0)
