"""An opened dataset and the lifetimes in it, memory-mapped: only what is read is loaded.

`omrl.data.store` opens and creates datasets and describes the folder.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from omrl.arrays import map_npy
from omrl.config import json_hash
from omrl.data.finding import RESTORE
from omrl.data.manifest import Manifest, TaskRecord
from omrl.data.slice import ALL, Selection, Slice
from omrl.data.validate import check_hash, episode_returns
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

TRAINED_ON = ("obs", "action", "reward", "terminated", "episode_start")
"""The columns that training reads."""


class TaskView(abc.ABC):
    """Episodes of one task, wherever they are."""

    @property
    @abc.abstractmethod
    def lengths(self) -> Int64[np.ndarray, " episodes"]:
        """Transitions of every episode."""

    @abc.abstractmethod
    def column(self, name: str) -> np.ndarray:
        """All rows of a column but `episode_start`; KeyError where there is none."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of the columns, `episode_start` included."""

    @property
    @abc.abstractmethod
    def behaviour(self) -> Mapping[str, Any]:
        """What collected the data, in plain JSON values."""

    @abc.abstractmethod
    def check_hashes(self, names: Sequence[str] = TRAINED_ON) -> None:
        """`InputError` where one of these columns is not the one that was recorded."""

    @abc.abstractmethod
    def only(self, positions: Int64[np.ndarray, " kept"]) -> TaskView:
        """The episodes at these positions, which ascend."""

    @property
    def num_rows(self) -> int:
        return int(self.lengths.sum())

    @property
    def num_episodes(self) -> int:
        return len(self.lengths)

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
        """One row more per episode than it has transitions: its last observation."""
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


@dataclass(frozen=True)
class TaskData(TaskView):
    """The selected episodes of one task of a dataset."""

    path: Path
    """Folder of the dataset."""
    record: TaskRecord
    columns: Mapping[str, np.ndarray]
    """Of the whole lifetime."""
    selected: Selection

    @property
    def parameters(self) -> Float64[np.ndarray, " parameter"]:
        return np.array(self.record.parameters)

    @property
    def episodes(self) -> Int64[np.ndarray, " episodes"]:
        """Numbers of the selected episodes within the lifetime, in time order."""
        return self.selected.episodes

    @property
    def lengths(self) -> Int64[np.ndarray, " episodes"]:
        first, stop = self.rows("action")
        return stop - first

    def rows(
        self, name: str
    ) -> tuple[Int64[np.ndarray, " episodes"], Int64[np.ndarray, " episodes"]]:
        """First row in the lifetime's column of every selected episode, and the row behind it."""
        starts = np.asarray(self.columns["episode_start"])
        # An episode has one observation more than transitions.
        bounds = starts + np.arange(len(starts)) if name == "obs" else starts
        first, stop = bounds[self.episodes], bounds[self.episodes + 1]
        first[0] += self.selected.head
        stop[-1] -= self.selected.tail
        return first, stop

    def column(self, name: str) -> np.ndarray:
        """The selected rows of a column: a view where the episodes are neighbours, else a copy."""
        first, stop = self.rows(name)
        if np.array_equal(first[1:], stop[:-1]):
            column = self.columns[name][first[0] : stop[-1]]
        else:
            rows = [np.arange(*span) for span in zip(first, stop, strict=True)]
            column = self.columns[name][np.concatenate(rows)]
        if name == "truncated" and self.selected.tail:
            column = np.append(column[:-1], True)
        return column

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def behaviour(self) -> Mapping[str, Any]:
        return self.record.behaviour

    def check_hashes(self, names: Sequence[str] = TRAINED_ON) -> None:
        for name in names:
            check_hash(self.path, self.record, name)

    def only(self, positions: Int64[np.ndarray, " kept"]) -> TaskData:
        head = self.selected.head if positions[0] == 0 else 0
        tail = self.selected.tail if positions[-1] == self.num_episodes - 1 else 0
        return dataclasses.replace(self, selected=Selection(self.episodes[positions], head, tail))


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
    def dtype(self) -> np.dtype:
        """Of the floating-point columns."""
        return np.dtype(self.manifest.dtype)

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
    def source(self) -> dict[str, str]:
        """What a copy records of where it is from."""
        return {"hash": self.manifest.hash}

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
        whole = TaskData(self.path, record, columns, Selection(np.arange(record.episodes)))
        if self.selection == ALL:
            return whole
        try:
            selected = self.selection.select(whole.lengths, whole.returns)
        except InputError as error:  # A run may have slices of several datasets.
            raise InputError(f"{self.path}, task {index}: {error}") from None
        return dataclasses.replace(whole, selected=selected)

    def view(self, selection: Slice) -> Dataset:
        """The dataset with only the episodes of `selection`; nothing is copied."""
        if ALL not in (self.selection, selection):
            raise InputError(f"{self.path}: it is already the slice {self.selection}")
        return self if selection == ALL else dataclasses.replace(self, selection=selection)
