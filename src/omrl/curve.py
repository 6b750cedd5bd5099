"""What an evaluation by `finetune` has measured so far, in memory and in a file.

The file is no result: it holds what an interruption would lose, NaN for what was not reached, and
is removed once there is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64

from omrl.arrays import check_array, read_npz
from omrl.errors import InputError
from omrl.files import atomic_write
from omrl.simulate import Labels, Outcome

FIX = "delete it to begin again"


def unfinished(result: Path) -> Path:
    """The file for a result that is to be at `result`: not among the results of a run's `eval`."""
    return result.with_name(f"{result.name}.unfinished")


@dataclass(frozen=True)
class Curve:
    """Undiscounted returns after growing numbers of online trajectories, the points."""

    returns: Float64[np.ndarray, "seed task point episode"]
    baselines: Float64[np.ndarray, "kind task episode"]
    """Of uniform actions and of zeros."""
    env_steps: Int64[np.ndarray, "seed task point"]
    """Environment steps made online."""
    traces: dict[str, Float64[np.ndarray, "seed task point time"]]
    success: Float64[np.ndarray, "seed task point episode"] | None
    """See `Outcome`."""

    @classmethod
    def of(cls, labels: Labels, traces: Sequence[str], horizon: int, *, succeeds: bool) -> Curve:
        """With nothing measured yet; the shots of `labels` are the points. `succeeds`: there is
        success in this environment."""
        lead = labels.shape[:3]
        return cls(
            np.full(labels.shape, np.nan),
            np.full((2, lead[1], labels.num_episodes), np.nan),
            np.zeros(lead, np.int64),
            {name: np.full((*lead, horizon), np.nan) for name in traces},
            np.full(labels.shape, np.nan) if succeeds else None,
        )

    @property
    def finished(self) -> Bool[np.ndarray, " task"]:
        """Tasks of which every point is there."""
        return np.asarray(np.isfinite(self.returns).all((0, 2, 3)))

    def put(
        self,
        tasks: Int[np.ndarray, " some"],
        point: int,
        outcome: Outcome,
        env_steps: Int64[np.ndarray, "seed some"],
    ) -> None:
        """Writes what was measured of some `tasks` at a point, all by position."""
        self.returns[:, tasks, point] = outcome.returns[:, :, 0]
        self.env_steps[:, tasks, point] = env_steps
        if len(outcome.baselines):
            self.baselines[:, tasks] = outcome.baselines
        for name, trace in outcome.traces.items():
            self.traces[name][:, tasks, point] = trace[:, :, 0]
        if self.success is not None and outcome.success is not None:
            self.success[:, tasks, point] = outcome.success[:, :, 0]

    # --- The file ---

    def save(self, path: Path, identity: str) -> None:
        """Writes the file in one step. `identity` says of which evaluation it is."""
        with atomic_write(path) as file:
            np.savez_compressed(
                file, allow_pickle=False, identity=np.array(identity), **self._arrays()
            )

    def take_over(self, path: Path, identity: str) -> None:
        """Fills in what the file has, if there is one. Raises `InputError` for one that is damaged
        or of another evaluation."""
        if not path.exists():
            return
        found = read_npz(path, FIX)
        if str(found.pop("identity", "")) != identity:
            raise InputError(f"{path}: holds an unfinished evaluation of something else; {FIX}")
        wanted = self._arrays()
        if found.keys() != wanted.keys():
            raise InputError(f"{path}: damaged (arrays {sorted(found)}); {FIX}")
        for name, array in wanted.items():
            check_array(path, name, found[name], array.dtype, array.shape, FIX)
            array[...] = found[name]

    def _arrays(self) -> dict[str, np.ndarray]:
        traces = {f"trace/{name}": trace for name, trace in self.traces.items()}
        own = {"returns": self.returns, "baselines": self.baselines, "env_steps": self.env_steps}
        return own | traces | ({} if self.success is None else {"success": self.success})
