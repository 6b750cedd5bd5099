"""What a run collected itself, on the host and on the disk.

    RUN/collected/000000.npz, 000001.npz, ...     one file per exploration

The files hold all trajectories in the order in which they went into the buffers, so buffers are a
function of them: a checkpoint has the hash of every file instead of the buffers, and a resumed run
fills its buffers from them. They also have the terms of the rewards, for datasets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from omrl.arrays import read_npz
from omrl.data.collected import BLOCK, Block
from omrl.data.device import mc_return, terminal_discount
from omrl.errors import InputError
from omrl.files import atomic_write

FOLDER = "collected"
FIX = "restore it from a copy, or start the run again in another folder"


class Explored(NamedTuple):
    """Trajectories, of all seeds, in order; their rows are one behind the other."""

    seed: Int64[np.ndarray, " trajectory"]
    """Position among the run's seeds."""
    task: Int64[np.ndarray, " trajectory"]
    """Position among the training tasks."""
    length: Int64[np.ndarray, " trajectory"]
    terminated: Bool[np.ndarray, " trajectory"]
    """The MDP ended it, not the horizon."""
    posterior: Bool[np.ndarray, " trajectory"]
    """It acted on the posterior."""
    clears: Bool[np.ndarray, " trajectory"]
    """The task's encoder buffer was emptied before it."""
    in_encoder: Bool[np.ndarray, " trajectory"]
    """The encoder buffer has it too."""
    obs: Float32[np.ndarray, "obs_row obs"]
    """One row more for every trajectory."""
    action: Float32[np.ndarray, "row act"]
    """As the physics took it, in [-1, 1]."""
    reward: Float32[np.ndarray, " row"]
    """As it is learned from: of the environment, or a label."""
    terms: Float32[np.ndarray, "row term"]
    returned: Float32[np.ndarray, " trajectory"]
    """The environment's undiscounted return, also where rewards are labels."""

    @property
    def starts(self) -> Int64[np.ndarray, " bounds"]:
        """First row of every trajectory, and how many rows there are."""
        return np.concatenate([[0], np.cumsum(self.length)])

    def only(self, chosen: Bool[np.ndarray, " trajectory"]) -> Explored:
        """Some of the trajectories."""
        rows, obs_rows = np.repeat(chosen, self.length), np.repeat(chosen, self.length + 1)
        by_row = {"obs": obs_rows, "action": rows, "reward": rows, "terms": rows}
        return Explored(*(getattr(self, name)[by_row.get(name, chosen)] for name in self._fields))

    def hash(self) -> str:
        """sha256 of all of it."""
        digest = hashlib.sha256()
        for name, array in self._asdict().items():
            digest.update(f"{name} {array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def concatenated(parts: list[Explored]) -> Explored:
    """All trajectories of `parts`, at least one part."""
    return Explored(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def blocks(explored: Explored, num_seeds: int, horizon: int, discount: float) -> Iterator[Block]:
    """For `omrl.data.collected.fill`, in order."""
    starts = explored.starts
    derived = {
        "mc_return": mc_return(explored.reward, starts, discount),
        "terminal_discount": terminal_discount(starts, discount),
    }
    of_seed = [np.flatnonzero(explored.seed == seed) for seed in range(num_seeds)]
    for first in range(0, max(map(len, of_seed)), BLOCK):
        block = _empty(explored, num_seeds, horizon)
        for seed, numbers in enumerate(of_seed):
            for place, number in enumerate(numbers[first : first + BLOCK]):
                at, length = (seed, place), int(explored.length[number])
                row, obs_row = int(starts[number]), int(starts[number]) + int(number)
                for name in ("task", "length", "clears", "in_encoder"):
                    getattr(block, name)[at] = getattr(explored, name)[number]
                block.obs[at][: length + 1] = explored.obs[obs_row : obs_row + length + 1]
                for name in ("action", "reward"):
                    getattr(block, name)[at][:length] = getattr(explored, name)[row : row + length]
                for name, values in derived.items():
                    getattr(block, name)[at][:length] = values[row : row + length]
                block.terminated[at][length - 1] = explored.terminated[number]
        yield block


def _empty(explored: Explored, num_seeds: int, horizon: int) -> Block:
    lead = (num_seeds, BLOCK)
    fields = {
        "task": np.zeros(lead, np.int32),
        "length": np.zeros(lead, np.int32),
        "clears": np.zeros(lead, bool),
        "in_encoder": np.zeros(lead, bool),
        "obs": np.zeros((*lead, horizon + 1, explored.obs.shape[1]), np.float32),
        "action": np.zeros((*lead, horizon, explored.action.shape[1]), np.float32),
        "terminated": np.zeros((*lead, horizon), bool),
        **{
            name: np.zeros((*lead, horizon), np.float32)
            for name in ("reward", "mc_return", "terminal_discount")
        },
    }
    return Block(**fields)  # pyright: ignore[reportArgumentType]


# --- Files ---


@dataclass
class ExploredFiles:
    """Those of one run, as far as a checkpoint knows them."""

    folder: Path
    """Of the run."""
    sha256: tuple[str, ...] = ()
    """Of the contents of each, `Explored.hash`."""

    @classmethod
    def of_checkpoint(cls, folder: Path, found: Mapping[str, Any]) -> ExploredFiles:
        """`found` is the `to_json` of then. Raises `InputError`."""
        if not isinstance(found["sha256"], list):
            raise InputError(
                f"{folder}: its checkpoint is of another version of omrl, which had one hash for "
                f"all of {FOLDER}/; use the version in the run's versions.json"
            )
        return cls(folder, tuple(found["sha256"]))

    def path(self, number: int) -> Path:
        return self.folder / FOLDER / f"{number:06d}.npz"

    def add(self, explored: Explored) -> None:
        """Writes the next one, which is on the disk on return."""
        with atomic_write(self.path(len(self.sha256))) as file:
            np.savez(file, **explored._asdict())
        self.sha256 = (*self.sha256, explored.hash())

    def to_json(self) -> dict[str, object]:
        """For a checkpoint."""
        return {"sha256": list(self.sha256)}

    def read(self) -> Iterator[Explored]:
        """All of them. `InputError` names one that is missing, damaged or not of this run."""
        for number, sha256 in enumerate(self.sha256):
            explored = self.read_file(number)
            # Of dtypes and shapes too: before this, nothing about the arrays is known.
            if explored.hash() != sha256:
                raise InputError(
                    f"{self.path(number)}: not what the checkpoint was made with; {FIX}"
                )
            yield explored

    def read_file(self, number: int) -> Explored:
        """One of them, not compared with its hash."""
        path = self.path(number)
        if not path.is_file():
            raise InputError(f"{path}: missing; {FIX}")
        arrays = read_npz(path, FIX)
        if arrays.keys() != set(Explored._fields):
            other = ", ".join(sorted(arrays.keys() ^ set(Explored._fields)))
            raise InputError(f"{path}: missing or unknown arrays: {other}; {FIX}")
        return Explored(**arrays)
