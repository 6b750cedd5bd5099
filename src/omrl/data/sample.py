"""Sampling rows of one task on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BatchSpec:
    """How the rows of one batch are drawn from one task's lifetime."""

    name: str
    size: int
    mode: Literal["contiguous", "iid", "without_replacement"] = "iid"
    """`contiguous`: `size` rows at a distance of `stride` from a random start; `iid`: replacement."""
    start: float = 0.0
    """Rows before this fraction of the lifetime are never drawn."""
    stop: float = 1.0
    stride: int = 1
    recency: float = 0.0
    """Density over the slice is proportional to position^recency: 0 uniform, 1 linear (iid only)."""
    disjoint_from: str = ""
    """Name of an earlier batch of the same update whose span of rows is left out."""
