"""An opened dataset and the lifetimes in it, memory-mapped: only what is read is loaded.

`omrl.data.store` opens and creates datasets and describes the folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from omrl.arrays import map_npy
from omrl.config import json_hash
from omrl.data.manifest import Manifest, TaskRecord
from omrl.data.slice import ALL, Slice
from omrl.data.validate import RESTORE, check_hash, episode_returns
from omrl.envs.base import EnvSpec
from omrl.errors import InputError


@dataclass(frozen=True)
class TaskData:
    """The selected episodes of one task. Columns are memory-mapped: only what is read is loaded."""

    record: TaskRecord
    columns: Mapping[str, np.ndarray]
    """Of the whole lifetime."""
    episodes: Int64[np.ndarray, " episodes"]
    """Numbers of the selected episodes within the lifetime, in time order."""

    @property
    def parameters(self) -> Float64[np.ndarray, " parameter"]:
        return np.array(self.record.parameters)

    @property
    def lengths(self) -> Int64[np.ndarray, " episodes"]:
        """Transitions of every episode."""
        return np.asarray(np.diff(self.columns["episode_start"]))[self.episodes]

    @property
    def num_rows(self) -> int:
        return int(self.lengths.sum())

    @property
    def num_episodes(self) -> int:
        return len(self.episodes)

    @property
    def episode_start(self) -> Int64[np.ndarray, " boundaries"]:
        """First row of every episode, and the number of rows."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def returns(self) -> Float64[np.ndarray, " episodes"]:
        """Undiscounted sum of rewards of every episode."""
        return episode_returns(self.reward, self.episode_start)

    @property
    def obs(self) -> Float[np.ndarray, "obs_rows obs"]:
        return self.column("obs")

    @property
    def action(self) -> Float[np.ndarray, "rows act"]:
        return self.column("action")

    @property
    def reward(self) -> Float[np.ndarray, " rows"]:
        return self.column("reward")

    @property
    def terms(self) -> Float[np.ndarray, "rows term"]:
        """The physical quantities of the reward; KeyError where none were recorded."""
        return self.column("terms")

    @property
    def terminated(self) -> Bool[np.ndarray, " rows"]:
        return self.column("terminated")

    @property
    def truncated(self) -> Bool[np.ndarray, " rows"]:
        return self.column("truncated")

    def column(self, name: str) -> np.ndarray:
        """The selected rows of a column: a view where the episodes are neighbours, else a copy."""
        # An episode has one observation more than transitions.
        extra = np.arange(len(self.columns["episode_start"])) if name == "obs" else 0
        bounds = np.asarray(self.columns["episode_start"]) + extra
        first, last = self.episodes[0], self.episodes[-1]
        if last - first + 1 == len(self.episodes):
            return self.columns[name][bounds[first] : bounds[last + 1]]
        spans = zip(bounds[self.episodes], bounds[self.episodes + 1], strict=True)
        rows = [np.arange(int(begin), int(end)) for begin, end in spans]
        return self.columns[name][np.concatenate(rows)]


@dataclass(frozen=True)
class Dataset:
    """An opened dataset, or a slice of one. Make it with `open_dataset` or `open_for_training`."""

    path: Path
    manifest: Manifest
    selection: Slice = ALL

    @property
    def spec(self) -> EnvSpec:
        return self.manifest.spec

    @property
    def env_id(self) -> str:
        return self.spec.id

    @property
    def splits(self) -> Mapping[str, tuple[int, ...]]:
        return self.manifest.splits

    @property
    def task_indices(self) -> tuple[int, ...]:
        """The tasks it has data of, ascending."""
        return tuple(task.index for task in self.manifest.tasks)

    @property
    def task_parameters(self) -> Float64[np.ndarray, "task parameter"]:
        """In the order of `task_indices`."""
        return np.array([task.parameters for task in self.manifest.tasks])

    @property
    def hash(self) -> str:
        """Identifies the data and the selection; written into every run."""
        return json_hash([self.manifest.hash, str(self.selection)])

    def task(self, index: int) -> TaskData:
        """The selected episodes of task `index`; `InputError` where it has none.

        `episode_start` is compared with its hash, since its numbers decide how much is read.
        """
        record = self.manifest.record(index)
        check_hash(self.path, record, "episode_start")
        folder = self.path / record.folder
        columns = {name: map_npy(folder / f"{name}.npy", RESTORE) for name in record.columns}
        whole = TaskData(record, columns, np.arange(record.episodes))
        if self.selection == ALL:
            return whole
        return dataclasses.replace(whole, episodes=self.selection.episodes(whole.returns))

    def view(self, selection: Slice) -> Dataset:
        """The dataset with only the episodes of `selection`; nothing is copied."""
        if ALL not in (self.selection, selection):
            raise InputError(f"{self.path}: it is already the slice {self.selection}")
        return self if selection == ALL else dataclasses.replace(self, selection=selection)
