"""Which episodes tasks take over from each other, where a task changes the reward alone.

Reward relabelling of BOReL (arXiv:2008.02598): where the data of a task is that of its own agent
alone, the places that the agent went to tell the task, and a model learns nothing from rewards.
Episodes of the agents of other tasks, with the rewards of the task that takes them over, mend that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64

from omrl.data.dataset import Dataset, TaskData
from omrl.errors import InputError
from omrl.ranges import Count, Natural, Positive, check_ranges

Plan = Int64[np.ndarray, "episodes 2"]
"""The episodes of a new lifetime in order: task that recorded it, number in the lifetime there."""


@dataclass(frozen=True)
class Borrowing:
    """Which episodes every task takes over from the other tasks.

    All others give it equally many, different episodes. Which ones is a function of the seed and
    the task.
    """

    share: Positive | None = None
    """Episodes that a task takes over in all, relative to its own; or `per_task`."""
    per_task: Count | None = None
    """Episodes that a task takes over from every other task."""
    mode: Literal["extend", "replace"] = "extend"
    """Keep all episodes of its own, or drop as many, drawn evenly."""
    split: str = "train"
    """Only its tasks give and take; the data of all others is copied as it is."""
    holdout: str = ""
    """Split of tasks that neither give nor take, though `split` names them."""
    trajectory: Count = 1
    """Episodes that an agent plays in a row; of these only the first half gives and is replaced."""
    seed: Natural = 0

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.share is None) == (self.per_task is None):
            raise InputError("share: give either it or per_task")
        if self.trajectory > 1 and self.mode == "extend":
            raise InputError("trajectory: extending would move its episodes; needs mode replace")


def takers(dataset: Dataset, borrowing: Borrowing) -> tuple[int, ...]:
    """The tasks that give and take. Raises `InputError` for an unknown split or too few tasks."""
    for field in ("split", "holdout"):
        name = getattr(borrowing, field)
        if name not in dataset.splits and (name or field == "split"):
            held = ", ".join(dataset.splits) or "none"
            raise InputError(f"{dataset.path}: {field}: no split {name!r}; the dataset has {held}")
    left_out = dataset.splits.get(borrowing.holdout, ())
    found = tuple(index for index in dataset.splits[borrowing.split] if index not in left_out)
    if len(found) < 2:
        raise InputError(
            f"{dataset.path}: split {borrowing.split!r} has {len(found)} tasks that may give and "
            "take; it needs at least 2"
        )
    return found


def own_episodes(task: TaskData) -> Plan:
    """The selected episodes of a task. `InputError` where a slice cuts one of them."""
    if task.selected.head or task.selected.tail:
        raise InputError(
            f"{task.path}: its slice cuts an episode of task {task.record.index}, and only whole "
            "ones are relabelled; write it with omrl data slice first, or take a number of episodes"
        )
    return np.stack([np.full(task.num_episodes, task.record.index), task.episodes], axis=1)


def borrow(borrowing: Borrowing, index: int, tasks: Mapping[int, TaskData]) -> Plan:
    """The lifetime of task `index` with episodes of the other `tasks` in it.

    Those stand where they stood in the lifetime that they are from, relative to its length, so that
    the end of a lifetime remains the work of the better agents.
    """
    rng = np.random.Generator(np.random.Philox(key=[borrowing.seed, index]))
    own = own_episodes(tasks[index])
    places = _first_halves(len(own), borrowing.trajectory)
    givers = [giver for giver in tasks if giver != index]
    if borrowing.per_task is None:
        total = max(1, round((borrowing.share or 0.0) * len(places)))
    else:
        total = borrowing.per_task * len(givers)
    if borrowing.mode == "replace" and total > len(places):
        raise InputError(
            f"task {index}: {total} episodes cannot replace {len(places)}; take over fewer, or use "
            "mode extend"
        )
    counts = total // len(givers) + (rng.permutation(len(givers)) < total % len(givers))
    taken, when = [], []
    for giver, count in zip(givers, counts.tolist(), strict=True):
        theirs = own_episodes(tasks[giver])
        given = _first_halves(len(theirs), borrowing.trajectory)
        if count > len(given):
            raise InputError(
                f"task {index} is to take {count} episodes of task {giver}, which has {len(given)} "
                "to give; take over fewer"
            )
        chosen = rng.choice(given, count, replace=False)
        taken.append(theirs[chosen])
        when.append(chosen / len(theirs))
    order = np.argsort(np.concatenate(when), kind="stable")
    borrowed, when = np.concatenate(taken)[order], np.concatenate(when)[order]
    if borrowing.mode == "replace":
        own[np.sort(rng.choice(places, total, replace=False))] = borrowed
        return own
    when = np.concatenate([np.arange(len(own)) / len(own), when])
    return np.concatenate([own, borrowed])[np.argsort(when, kind="stable")]


def _first_halves(num_episodes: int, trajectory: int) -> Int64[np.ndarray, " episodes"]:
    """Positions in the first half of every `trajectory` episodes; all where that is 1."""
    episode = np.arange(num_episodes)
    return episode[episode % trajectory < max(1, trajectory // 2)]
