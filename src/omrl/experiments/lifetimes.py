"""Figures of behaviour data: what the policies that collected it returned along their lifetimes.

Nothing is trained. What such a figure is made of are collections, those that other experiments of
the same cache train on, and their episodes in the order in which they were played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from omrl import bundled
from omrl.data.collect.presets import named_config
from omrl.data.dataset import TaskData
from omrl.data.manifest import check_mdp
from omrl.data.store import open_dataset
from omrl.data.success import succeeded
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.envs.metaworld import MetaWorld
from omrl.envs.metaworld_tasks import NAMES
from omrl.errors import InputError, nearest
from omrl.experiments.declare import Claim, Scale
from omrl.tables import parameter_cells, parameter_names

PARTS = 100
"""Equal parts of a lifetime in figures, at most."""
FEW_PARTS, EPISODES = 20, 8
"""As many parts as that have so few episodes; more parts have so many episodes each at least."""
TENTH = 0.1
"""Of a lifetime: its start and its end."""


@dataclass(frozen=True)
class Problem:
    """The data of one panel."""

    name: str
    env: str
    data: Mapping[Scale, str]
    """Preset of `omrl collect`, or `bundled:NAME`."""


@dataclass(frozen=True)
class Lifetimes:
    """A figure of a paper that shows its behaviour policies."""

    id: str
    title: str
    claim: Claim
    problems: tuple[Problem, ...]
    scales: Mapping[Scale, str]
    """What has to be said of each scale."""
    deviates: str
    symlog: bool = False
    """Whether returns of tasks differ by orders of magnitude."""

    def chosen(self, only: Sequence[str] = ()) -> tuple[Problem, ...]:
        """All problems, or those of these names. `InputError` for an unknown one."""
        names = [problem.name for problem in self.problems]
        for name in only:
            if name not in names:
                raise InputError(f"--only: {self.id} has no {name!r}; {nearest(name, names)}")
        return tuple(each for each in self.problems if not only or each.name in only)


@dataclass(frozen=True)
class Lifetime:
    """All episodes of a task, in time order."""

    index: int
    title: str
    split: str
    """train, test or both; empty: neither."""
    returns: Float64[np.ndarray, " episode"]
    lengths: Int64[np.ndarray, " episode"]
    success: Bool[np.ndarray, " episode"] | None
    """Of episodes that did at some step what the task asks for; None where that is not known."""
    final_return: float | None
    """Of the final agent without exploration, where an agent learned."""

    @property
    def transitions(self) -> int:
        return int(self.lengths.sum())

    def start(self, values: np.ndarray) -> float:
        """Mean of the first tenth of the episodes, at least of one."""
        return float(values[: self._tenth].mean())

    def end(self, values: np.ndarray) -> float:
        """Of the last tenth."""
        return float(values[-self._tenth :].mean())

    def curve(
        self, values: np.ndarray
    ) -> tuple[Float64[np.ndarray, " part"], Float64[np.ndarray, " part"]]:
        """Transitions at the end of up to `PARTS` equal parts, and the means of these."""
        parts = min(PARTS, max(min(FEW_PARTS, len(values)), len(values) // EPISODES))
        bounds = np.arange(parts + 1) * len(values) // parts
        means = np.add.reduceat(values.astype(np.float64), bounds[:-1]) / np.diff(bounds)
        return np.cumsum(self.lengths)[bounds[1:] - 1].astype(np.float64), means

    @property
    def _tenth(self) -> int:
        return max(1, round(TENTH * len(self.returns)))


@dataclass(frozen=True)
class Read:
    """What was read of a problem's data."""

    problem: Problem
    data: str
    data_hash: str
    command: str
    versions: Mapping[str, str]
    agent: str
    """Who collected it."""
    tasks: tuple[Lifetime, ...]

    @property
    def succeeds(self) -> bool:
        """Whether successes of all tasks are known."""
        return all(task.success is not None for task in self.tasks)


def collections(experiment: Lifetimes, scale: Scale) -> tuple[str, ...]:
    """Presets of what has to be collected first."""
    names = (problem.data[scale] for problem in experiment.problems)
    return tuple(name for name in names if not name.startswith(bundled.PREFIX))


def extras(experiment: Lifetimes, scale: Scale) -> tuple[str, ...]:
    """Packages that collecting needs beside ours."""
    envs = (registry.make(named_config(name).env) for name in collections(experiment, scale))
    return tuple(sorted({env.extra for env in envs} - {""}))


def read(problem: Problem, data: str) -> Read:
    """The lifetimes in the dataset `data`. `InputError` for a damaged one or another MDP's."""
    dataset, env = open_dataset(data), registry.make(problem.env)
    check_mdp(dataset.path, dataset.manifest, env)
    records = {task.index: task for task in dataset.manifest.tasks}
    agents = {str(r.behaviour.get("agent", {}).get("algorithm", "?")) for r in records.values()}
    splits = dataset.manifest.splits
    return Read(
        problem,
        data,
        dataset.hash,
        dataset.manifest.command,
        dataset.manifest.versions,
        ", ".join(sorted(agents)),
        tuple(
            _lifetime(dataset.task(index), env, splits) for index in sorted(dataset.task_indices)
        ),
    )


def _lifetime(task: TaskData, env: TaskEnv, splits: Mapping[str, Sequence[int]]) -> Lifetime:
    judged = ("terms",) if env.succeeds and "terms" in task.names else ()
    task.check_hashes(("reward", "episode_start", *judged))
    index, final = task.record.index, task.behaviour.get("final_return")
    return Lifetime(
        index,
        _title(env, task),
        " and ".join(name for name in ("train", "test") if index in splits.get(name, ())),
        task.returns,
        np.asarray(task.lengths),
        succeeded(task, env),
        None if final is None else float(final),
    )


def _title(env: TaskEnv, task: TaskData) -> str:
    """Its parameters, of Meta-World the name of its environment."""
    if isinstance(env, MetaWorld) and len(env.names) > 1:
        return NAMES[int(task.parameters[0])]
    names = parameter_names(env.spec.task_names)
    cells = parameter_cells(task.parameters.tolist())
    pairs = zip(names, cells, strict=True)
    return ", ".join(f"{name} {cell}".strip() for name, cell in pairs)
