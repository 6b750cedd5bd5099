"""What the families' canonical tasks have in common: splits, goals on a semicircle, digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

Splits = dict[str, tuple[int, ...]]


def first_train(num_train: int, num_test: int) -> Splits:
    """The first tasks train, the others test."""
    total = num_train + num_test
    return {"train": tuple(range(num_train)), "test": tuple(range(num_train, total))}


def all_but(test: Sequence[int], num_tasks: int) -> Splits:
    """All tasks train but those of `test`."""
    train = tuple(index for index in range(num_tasks) if index not in test)
    return {"train": train, "test": tuple(test)}


def semicircle_goals(
    rng: np.random.Generator | np.random.RandomState, num: int
) -> Float64[np.ndarray, "{num} 2"]:
    """Goals on the upper half of the unit circle, the angle from the x axis ~ U(0, pi)."""
    return on_circle(rng.uniform(0.0, np.pi, num))


def on_circle(angles: Float64[np.ndarray, " task"]) -> Float64[np.ndarray, "task 2"]:
    """Points of the unit circle; angles from the x axis."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def draw_directions(seed: int, num: int) -> Float64[np.ndarray, " {num}"]:
    """Angles that no paper released [rad]: U(0, 2 pi)."""
    return np.random.RandomState(seed).uniform(0.0, 2.0 * np.pi, num)


def directions_text(seed: int, directions: Float64[np.ndarray, " task"]) -> str:
    """What a spec says of `draw_directions`."""
    digest = digest_text(directions)
    return f"U(0, 2 pi), drawn by numpy RandomState({seed}), {digest}"


def digest_text(values: np.ndarray) -> str:
    """Pins, as part of a spec, a list that is read from a file."""
    digest = hashlib.sha256(values.astype("<f8").tobytes()).hexdigest()
    return f"sha256 of its float64 values {digest[:12]}"
