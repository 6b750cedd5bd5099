"""The 50 environments of Meta-World, where each may start, and which of them test.

Facts of metaworld 3.0.0, without which tasks could not be drawn or read where it is not installed;
a test compares them with the package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from omrl.errors import InputError

NUM_VECTOR = 6
"""Entries of a start vector at most; shorter ones are filled up with 0."""
SOURCE_SHA256 = "1f49ffd6061d3c2181bd92630ab94f47116dd54898482c5406a95b6035540eea"
"""Of `metaworld_simulator.source_digest`: with other sources or models the MDPs are others."""
_MAX_DRAWS = 10_000


@dataclass(frozen=True)
class Kind:
    """One environment of Meta-World and the box of its start vectors [m].

    A start vector is the place of the object and, where the goal has a choice of its own, then the
    goal: Meta-World's `rand_vec`, of 3 or 6 entries.
    """

    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    apart: float
    """Goals less than this beside the object, in x and y, are drawn again."""

    @property
    def size(self) -> int:
        """Entries of a start vector."""
        return len(self.low)

    def draw(self, rng: np.random.Generator) -> Float64[np.ndarray, " 6"]:
        """Uniform on the box but for goals too near."""
        vector = np.zeros(NUM_VECTOR)
        for _ in range(_MAX_DRAWS):
            vector[: self.size] = rng.uniform(self.low, self.high)
            if self._is_apart(vector):
                return vector
        raise AssertionError(f"{self.name}: no start vector in {_MAX_DRAWS} draws")

    def problem(self, vector: Float[np.ndarray, " 6"]) -> str:
        """Why that is no start vector; empty if it is one."""
        own, rest = vector[: self.size], vector[self.size :]
        if rest.any():
            return f"has {self.size} entries, the others are 0"
        if (own < self.low).any() or (own > self.high).any():
            column = int(np.argmax((own < self.low) | (own > self.high)))
            return f"has start.{column} from {self.low[column]:g} to {self.high[column]:g}"
        if not self._is_apart(vector):
            return f"has its goal at least {self.apart:g} m beside the object"
        return ""

    def _is_apart(self, vector: np.ndarray) -> bool:
        return not self.apart or bool(np.linalg.norm(vector[:2] - vector[3:5]) >= self.apart)


_TABLE = """
assembly | 0 0.6 0.02 -0.1 0.75 0.1 | 0 0.6 0.02 0.1 0.85 0.1 | 0.1
basketball | -0.1 0.6 0.0299 -0.1 0.85 0 | 0.1 0.7 0.0301 0.1 0.9000001 0 | 0.15
bin-picking | -0.21 0.65 0.02 0.1199 0.699 -0.001 | -0.03 0.75 0.02 0.1201 0.701 0.001 | 0
box-close | -0.05 0.5 0.02 -0.1 0.7 0.133 | 0.05 0.55 0.02 0.1 0.8 0.133 | 0.25
button-press | -0.1 0.85 0.115 | 0.1 0.9 0.115 | 0
button-press-topdown | -0.1 0.8 0.115 | 0.1 0.9 0.115 | 0
button-press-topdown-wall | -0.1 0.8 0.115 | 0.1 0.9 0.115 | 0
button-press-wall | -0.05 0.85 0.1149 | 0.05 0.9 0.1151 | 0
coffee-button | -0.1 0.8 -0.001 | 0.1 0.9 0.001 | 0
coffee-pull | -0.05 0.7 -0.001 -0.1 0.55 -0.001 | 0.05 0.75 0.001 0.1 0.65 0.001 | 0.15
coffee-push | -0.1 0.55 -0.001 -0.05 0.7 -0.001 | 0.1 0.65 0.001 0.05 0.75 0.001 | 0.15
dial-turn | -0.1 0.7 0 | 0.1 0.8 0 | 0
disassemble | 0 0.6 0.025 -0.1 0.6 0.1699 | 0.1 0.75 0.02501 0.1 0.75 0.1701 | 0.1
door-close | 0 0.85 0.15 | 0.1 0.95 0.15 | 0
door-lock | -0.1 0.8 0.15 | 0.1 0.85 0.15 | 0
door-open | 0 0.85 0.15 | 0.1 0.95 0.15 | 0
door-unlock | -0.1 0.8 0.15 | 0.1 0.85 0.15 | 0
drawer-close | -0.1 0.9 0 | 0.1 0.9 0 | 0
drawer-open | -0.1 0.9 0 | 0.1 0.9 0 | 0
faucet-close | -0.1 0.8 0 | 0.1 0.85 0 | 0
faucet-open | -0.05 0.8 0 | 0.05 0.85 0 | 0
hammer | -0.1 0.4 0 | 0.1 0.5 0 | 0
hand-insert | -0.1 0.6 0.05 -0.04 0.8 -0.0201 | 0.1 0.7 0.05 0.04 0.88 -0.0199 | 0.15
handle-press | -0.1 0.8 -0.001 | 0.1 0.9 0.001 | 0
handle-press-side | -0.35 0.65 -0.001 | -0.25 0.75 0.001 | 0
handle-pull | -0.1 0.8 -0.001 | 0.1 0.9 0.001 | 0
handle-pull-side | -0.35 0.65 0 | -0.25 0.75 0 | 0
lever-pull | -0.1 0.7 0 | 0.1 0.8 0 | 0
peg-insert-side | 0 0.5 0.02 -0.35 0.4 -0.001 | 0.2 0.7 0.02 -0.25 0.7 0.001 | 0.1
peg-unplug-side | -0.25 0.6 -0.001 | -0.15 0.8 0.001 | 0
pick-out-of-hole | 0 0.75 0.02 -0.1 0.5 0.15 | 0 0.75 0.02 0.1 0.6 0.3 | 0.15
pick-place | -0.1 0.6 0.02 -0.1 0.8 0.05 | 0.1 0.7 0.02 0.1 0.9 0.3 | 0.15
pick-place-wall | -0.05 0.6 0.015 -0.05 0.85 0.05 | 0.05 0.65 0.015 0.05 0.9 0.3 | 0.15
plate-slide | 0 0.6 0 -0.1 0.85 0 | 0 0.6 0 0.1 0.9 0 | 0
plate-slide-back | 0 0.85 0 -0.1 0.6 0.015 | 0 0.85 0 0.1 0.6 0.015 | 0
plate-slide-back-side | -0.25 0.6 0 -0.05 0.6 0.015 | -0.25 0.6 0 0.15 0.6 0.015 | 0
plate-slide-side | 0 0.6 0 -0.3 0.54 0 | 0 0.6 0 -0.25 0.66 0 | 0
push | -0.1 0.6 0.02 -0.1 0.8 0.01 | 0.1 0.7 0.02 0.1 0.9 0.02 | 0.15
push-back | -0.1 0.8 0.02 -0.1 0.6 0.0199 | 0.1 0.85 0.02 0.1 0.7 0.0201 | 0.15
push-wall | -0.05 0.6 0.015 -0.05 0.85 0.01 | 0.05 0.65 0.015 0.05 0.9 0.02 | 0.15
reach | -0.1 0.6 0.02 -0.1 0.8 0.05 | 0.1 0.7 0.02 0.1 0.9 0.3 | 0.15
reach-wall | -0.05 0.6 0.015 -0.05 0.85 0.05 | 0.05 0.65 0.015 0.05 0.9 0.3 | 0.15
shelf-place | -0.1 0.5 0.019 -0.1 0.8 0.299 | 0.1 0.6 0.021 0.1 0.9 0.301 | 0.1
soccer | -0.1 0.6 0.03 -0.1 0.8 0 | 0.1 0.7 0.03 0.1 0.9 0 | 0.15
stick-pull | -0.1 0.55 0 0.35 0.45 0.0199 | 0 0.65 0.001 0.45 0.55 0.0201 | 0.1
stick-push | -0.08 0.58 0 0.399 0.55 0.1319 | -0.03 0.62 0.001 0.401 0.6 0.1321 | 0.1
sweep | -0.1 0.6 0.02 | 0.1 0.7 0.02 | 0
sweep-into | -0.1 0.6 0.02 -0.001 0.8399 0.0199 | 0.1 0.7 0.02 0.001 0.8401 0.0201 | 0.15
window-close | 0 0.75 0.2 | 0 0.9 0.2 | 0
window-open | -0.1 0.7 0.16 | 0.1 0.9 0.16 | 0
"""
"""Name, least and largest start vector, distance."""


def _kind(line: str) -> Kind:
    name, low, high, apart = (part.strip() for part in line.split("|"))
    return Kind(name, tuple(map(float, low.split())), tuple(map(float, high.split())), float(apart))


KINDS: tuple[Kind, ...] = tuple(map(_kind, _TABLE.strip().splitlines()))
NAMES: tuple[str, ...] = tuple(kind.name for kind in KINDS)
ML45_TEST = ("bin-picking", "box-close", "door-lock", "door-unlock", "hand-insert")
ML10_TRAIN = (
    *("basketball", "button-press-topdown", "door-open", "drawer-close", "peg-insert-side"),
    *("pick-place", "push", "reach", "sweep", "window-open"),
)
ML10_TEST = ("door-close", "drawer-open", "lever-pull", "shelf-place", "sweep-into")
ML45_TRAIN = tuple(name for name in NAMES if name not in ML45_TEST)


def number_of(name: str) -> int:
    """Where in `KINDS` an environment is. `InputError` for an unknown one."""
    if name not in NAMES:
        raise InputError(f"no environment {name!r} of Meta-World; there are {', '.join(NAMES)}")
    return NAMES.index(name)
