"""Two views of one MDP as one: of every task some episodes of each, nothing copied.

Shares are of the transitions of a task. A mixture is as large as they allow: of the view that is
the smaller for its share all is taken, of the other whole episodes spread evenly over its lifetime,
up to one more than the share asks for. So neither depends on a seed, and the shares are met within
one episode.

Its lifetime runs through both lifetimes at once: an episode has its place by how much of its own
view lies before its middle. So the last fifth of a mixture is the last fifths of both, in the same
ratio, for batches that are drawn from a part of the lifetime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from omrl.config import json_hash
from omrl.data.dataset import TRAINED_ON, Dataset, TaskData, TaskView
from omrl.data.slice import Mixture, Slice, parse_view, spread
from omrl.envs.base import EnvSpec
from omrl.errors import InputError


@dataclass(frozen=True)
class MixedTask(TaskView):
    """Episodes of several parts, one after another in an order of their own."""

    parts: tuple[TaskData, ...]
    order: Int64[np.ndarray, " episodes"]
    """Positions of the episodes among those of all parts, counted through."""

    @property
    def lengths(self) -> Int64[np.ndarray, " episodes"]:
        return np.concatenate([part.lengths for part in self.parts])[self.order]

    def column(self, name: str) -> np.ndarray:
        """A copy of the rows of a column, in the wider dtype of the parts."""
        joined = np.concatenate([part.column(name) for part in self.parts])
        sizes = np.concatenate([part.lengths for part in self.parts]) + (name == "obs")
        stops = np.cumsum(sizes)[self.order]
        spans = zip(stops - sizes[self.order], stops, strict=True)
        return joined[np.concatenate([np.arange(*span) for span in spans])]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that all parts have."""
        return tuple(n for n in self.parts[0].names if all(n in p.names for p in self.parts))

    @property
    def behaviour(self) -> Mapping[str, Any]:
        return {"mixed": [part.behaviour for part in self.parts]}

    def check_hashes(self, names: Sequence[str] = TRAINED_ON) -> None:
        for part in self.parts:
            part.check_hashes(names)

    def only(self, positions: Int64[np.ndarray, " kept"]) -> MixedTask:
        kept, parts, first = self.order[positions], [], 0
        for part in self.parts:
            own = kept[(kept >= first) & (kept < first + part.num_episodes)] - first
            first += part.num_episodes
            if len(own):
                parts.append(part.only(np.sort(own)))
        return MixedTask(tuple(parts), np.argsort(np.argsort(kept)))


def mix_tasks(tasks: Sequence[TaskData], shares: Sequence[float]) -> MixedTask:
    """The largest mixture of the episodes of `tasks` that has these shares of transitions."""
    terms = list(zip(tasks, shares, strict=True))
    total = min(task.num_rows / share for task, share in terms)
    parts = tuple(
        task.only(spread(task.lengths, min(max(round(share * total), 1), task.num_rows)))
        for task, share in terms
    )
    places = [
        (part.episode_start[:-1] + part.episode_start[1:]) / (2 * part.num_rows) for part in parts
    ]
    return MixedTask(parts, np.argsort(np.concatenate(places), kind="stable"))


@dataclass(frozen=True)
class MixedData:
    """A mixture of two datasets, or of two parts of one; make it with `open_view`."""

    selection: Mixture
    parts: tuple[Dataset, Dataset]
    """Views of its slices."""

    @property
    def path(self) -> Path:
        return self.parts[0].path

    @property
    def spec(self) -> EnvSpec:
        return self.parts[0].spec

    @property
    def dtype(self) -> np.dtype:
        """Of the floating-point columns."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def source(self) -> dict[str, str]:
        """What a copy records of where it is from."""
        first, second = (part.manifest.hash for part in self.parts)
        return {"hash": first, "mixed_in": second}

    @property
    def hash(self) -> str:
        """Identifies the data of both and the mixture."""
        return json_hash([str(self.selection), *(part.manifest.hash for part in self.parts)])

    def task(self, index: int) -> MixedTask:
        """The mixture of task `index`; `InputError` unless both datasets have that same task."""
        check_tasks(*self.parts, (index,))
        return mix_tasks([part.task(index) for part in self.parts], self.selection.shares)


DataView = Dataset | MixedData


def check_tasks(one: Dataset, other: Dataset, task_indices: Sequence[int]) -> None:
    """`InputError` unless the two, which are to be used together, have the same tasks."""
    if one.spec.hash != other.spec.hash:
        raise InputError(
            f"{other.path}: data of {other.env_id}, spec hash {other.spec.hash[:12]}; that of "
            f"{one.path} is of {one.env_id}, {one.spec.hash[:12]}: use data of the same MDP"
        )
    for index in task_indices:
        ours = one.manifest.record(index).parameters
        held = index in other.task_indices
        theirs = other.manifest.record(index).parameters if held else "not there"
        if ours != theirs:
            raise InputError(
                f"{other.path}: its task {index} is {theirs}, that of {one.path} is {ours}; use "
                "data of the same tasks under the same numbers"
            )


def open_view(name: str, dataset: Dataset, mixed_in: Dataset | None = None) -> DataView:
    """The view of that name of `dataset`; the second term of a mixture is of `mixed_in` if given.

    Raises `InputError` for another name, for a slice where data to mix in is given, and for data of
    another MDP or other tasks.
    """
    view = parse_view(name)
    if isinstance(view, Slice):
        if mixed_in is not None:
            raise InputError(
                f"mix: {mixed_in.path} is given and slice {name!r} is no mixture; say the shares "
                f"of both, as in --slice 0.3:{name}+0.7:all"
            )
        return dataset.view(view)
    parts = dataset, mixed_in or dataset
    check_tasks(*parts, ())
    first, second = (part.view(of) for part, of in zip(parts, view.slices, strict=True))
    return MixedData(view, (first, second))
