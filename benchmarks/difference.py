"""One method above another, from the raw numbers in results/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from omrl import stats
from omrl.diagnostics.base import SETS
from omrl.diagnostics.traces_results import TracesResult

RESULTS = Path(__file__).resolve().parents[1] / "results"
TEST = 2
"""Side of Omniglot's classes."""


@dataclass(frozen=True)
class Side:
    """One method of a difference."""

    file: str
    """In results/."""
    shot: int = -1
    """Index of the adaptation in its returns, of which the last is the adapted one; of a diagnosis,
    of its contexts or sets of trajectories."""
    quantity: Literal["returns", "kl", "success", "spread"] = "returns"
    """success: of episodes [percent]; of diagnoses: kl of posteriors to the prior [nats], spread of
    the ends of trajectories [m]."""
    again: tuple[str, ...] = ()
    """Files of further runs with the same seeds; what counts is the mean of all runs of each."""
    since: int | None = None
    """Index of the adaptation whose returns are taken off: a gain."""

    def values(self) -> Float[np.ndarray, "seed task episode"]:
        return np.mean([self._of(RESULTS / file) for file in (self.file, *self.again)], axis=0)

    def _of(self, path: Path) -> Float[np.ndarray, "seed task episode"]:
        if self.quantity == "spread":
            return _spread(TracesResult.load(path), SETS[self.shot])
        with np.load(path) as arrays:
            if "accuracy" in arrays:  # [seed, evaluation, side, episode], as if of one task
                return 100.0 * arrays["accuracy"][:, -1, TEST, None].astype(np.float64)
            if "kl" in arrays:  # A diagnosis: [context, seed, task, episode]
                return arrays[self.quantity][self.shot]
            if self.quantity == "success":
                return 100.0 * arrays["success"][:, :, self.shot].astype(np.float64)
            returns = arrays["returns"]
            since = 0.0 if self.since is None else returns[:, :, self.since]
            return returns[:, :, self.shot] - since


def _spread(result: TracesResult, name: str) -> Float[np.ndarray, "seed task 1"]:
    """Logged trajectories are beside those of every seed."""
    distances = result.distances(name, "train")
    assert distances is not None
    seeds = len(result.provenance.seeds)
    return np.broadcast_to(distances, (seeds, distances.shape[1]))[..., None]


@dataclass(frozen=True)
class Difference:
    """What the paper has above 0."""

    name: str
    above: Side
    below: Side

    def estimate(self) -> stats.Estimate:
        return stats.improvement(self.above.values(), self.below.values())

    def seeds_above(self) -> str:
        """How many of the seeds are above 0, of how many."""
        of_seed = (self.above.values() - self.below.values()).mean((1, 2))
        return f"{(of_seed > 0).sum()} of {len(of_seed)}"
