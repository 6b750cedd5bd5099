"""What every diagnosis' result has: whose contexts, of which tasks, and its file. No JAX here.

One `.npz` per checkpoint, by the way of `omrl.results`, in a folder per diagnosis.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from omrl.arrays import check_array
from omrl.config import json_hash, to_json
from omrl.errors import InputError
from omrl.marks import test_tasks_note
from omrl.protocol import EvalConfig
from omrl.result_files import FIX, Head, Provenance, read_arrays, write_arrays

SOURCES = ("offline", "online")
"""Where a context is from: the task's data, or the run's own trajectories."""
SETS = ("dataset", "exploration", "offline", "online")
"""Trajectories: logged, from the prior, and after adaptation to each kind of context."""

Kind = TypeVar("Kind", bound="Diagnosis")
Kinds = Mapping[str, tuple[Any, tuple[int, ...]]]
"""Type and shape of arrays, by name."""


@dataclass(frozen=True)
class Diagnosis(abc.ABC):
    """What one checkpoint does with contexts of data and with its own."""

    config: EvalConfig
    provenance: Provenance
    task_indices: Int64[np.ndarray, " task"]
    task_parameters: Float64[np.ndarray, "task parameter"]
    trained_on: Bool[np.ndarray, " task"]
    context_size: np.int64
    """Transitions asked for."""
    used: Int64[np.ndarray, "seed task repetition"] | None
    """Transitions of either context: fewer where fewer were explored. None, of a result from before
    they were told: then the online context alone was smaller."""

    FORMAT: ClassVar[str]
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Arrays that may be None."""
    FINITE: ClassVar[tuple[str, ...]] = ()
    """Arrays of finite numbers."""

    @classmethod
    @abc.abstractmethod
    def kinds(cls, head: Head, tasks: int, arrays: Mapping[str, np.ndarray]) -> Kinds:
        """Of its own arrays, for so many tasks; `arrays` are those of the file."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Statistics as JSON values; null stands for what is not known."""

    @property
    def groups(self) -> dict[str, Bool[np.ndarray, " task"]]:
        """Which tasks are of a group; without those that there are none of."""
        groups = {"test": ~self.trained_on, "train": self.trained_on}
        return {name: tasks for name, tasks in groups.items() if tasks.any()}

    def head_to_json(self) -> dict[str, Any]:
        """What all have, as JSON values."""
        return {
            "config": to_json(self.config),
            "provenance": to_json(self.provenance),
            "tasks": {
                name: self.task_indices[tasks].tolist() for name, tasks in self.groups.items()
            },
            "context_size": int(self.context_size),
            "used": None if self.used is None else [int(self.used.min()), int(self.used.max())],
        }

    # --- Files ---

    def save(self, path: Path) -> Path:
        """Writes one `.npz` in one step."""
        arrays = {
            field.name: np.asarray(getattr(self, field.name))
            for field in fields(self)
            if field.name not in _HEAD and getattr(self, field.name) is not None
        }
        return write_arrays(path, Head(self.FORMAT, self.config, self.provenance), arrays)

    @classmethod
    def load(cls: type[Kind], path: str | Path) -> Kind:
        """The result in `path`. Raises `InputError` for anything but a complete one."""
        path = Path(path)
        names = [f.name for f in fields(cls) if f.name not in (*_HEAD, *cls.OPTIONAL)]
        head, arrays = read_arrays(path, cls.FORMAT, names)
        cls._check(path, head, arrays)
        given: dict[str, Any] = {name: arrays.get(name) for name in (*names, *cls.OPTIONAL)}
        given["context_size"] = given["context_size"][()]
        given |= {name: getattr(head, name) for name in _HEAD}
        return cls(**given)

    @classmethod
    def _check(cls, path: Path, head: Head, arrays: dict[str, np.ndarray]) -> None:
        """`InputError` for the first array that is not as config and provenance say."""
        tasks, config = arrays["task_indices"].size, head.config
        if not tasks or not head.provenance.seeds:
            raise InputError(f"{path}: holds no task or no seed; {FIX}")
        kinds: dict[str, tuple[Any, tuple[int, ...]]] = {
            "task_indices": (np.int64, (tasks,)),
            "task_parameters": (np.float64, (tasks, len(head.provenance.task_names))),
            "trained_on": (np.bool_, (tasks,)),
            "context_size": (np.int64, ()),
            "used": (np.int64, (len(head.provenance.seeds), tasks, config.episodes)),
            **cls.kinds(head, tasks, arrays),
        }
        for name, array in arrays.items():
            if name not in kinds:
                raise InputError(f"{path}: {name} is no array of a diagnosis; {FIX}")
            check_array(path, name, array, *kinds[name], FIX)
        for name in cls.FINITE:
            if not np.isfinite(arrays[name]).all():
                raise InputError(f"{path}: {name} must be finite; {FIX}")


_HEAD = ("config", "provenance")


def file_of(folder: Path, config: EvalConfig, step: int) -> Path:
    """The file of the checkpoint after `step` updates."""
    return folder / f"{json_hash(to_json(config))[:8]}-{step:08d}.npz"


def grouped(folder: Path, kind: type[Kind]) -> list[list[Kind]]:
    """Results in a folder that differ in nothing but the number of updates, ascending."""
    groups: dict[Any, dict[int, Kind]] = {}
    for result in map(kind.load, sorted(folder.glob("*.npz"))):
        source = result.provenance
        key = (result.config, source.spec_hash, source.dataset_hash, source.seeds)
        groups.setdefault(key, {})[source.step] = result
    return [[by_step[step] for step in sorted(by_step)] for by_step in groups.values()]


def describe_contexts(results: Sequence[Diagnosis]) -> list[str]:
    """What has to be printed with the numbers of any of them."""
    last = results[-1]
    config, source = last.config, last.provenance
    return [
        f"environment {source.env_id}, spec {source.spec_hash[:12]}",
        *test_tasks_note(source),
        f"offline: {_sizes(results)} transitions of {config.context_slice} of {source.dataset} "
        f"({source.dataset_hash[:12]}), seed {config.context_seed} and following",
        f"online: {'as many' if last.used is not None else 'as many, at most,'} of "
        f"{config.explore.episodes} trajectories from the prior, true rewards; guesses of the task "
        f"are drawn every {config.explore.resample_every}",
        f"{source.algorithm}, seeds {', '.join(map(str, source.seeds))}; {config.episodes} "
        f"repetitions per seed and task, seed {config.episode_seed}",
    ]


def _sizes(results: Sequence[Diagnosis]) -> str:
    """How many transitions contexts have, and that it is not what was asked for."""
    asked = int(results[-1].context_size)
    used = [result.used for result in results if result.used is not None]
    least, most = (min(map(np.min, used)), max(map(np.max, used))) if used else (asked, asked)
    if least == asked:
        return str(asked)
    sizes = str(most) if least == most else f"{least} to {most}"
    return f"{sizes} (asked for {asked}; explored no more, see --explore.episodes)"
