"""The manifest of a dataset folder: what the data is, how it was made, the hash of every file.

One JSON file beside the columns. It is read as untrusted text: a missing or mistyped field is an
`InputError` that names it. `Manifest.hash` covers everything but the validation record, which
quotes that hash: whoever edits the manifest or exchanges a column has to validate again.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from omrl.config import json_hash
from omrl.envs.base import EnvSpec
from omrl.errors import InputError
from omrl.files import atomic_write

NAME = "manifest.json"
FORMAT = "omrl-dataset"
FORMAT_VERSION = 1
FLOATS = ("float32", "float16")

COLUMNS = ("obs", "action", "reward", "terms", "terminated", "truncated", "episode_start")
_FIXED = {"terminated": "bool", "truncated": "bool", "episode_start": "int64"}


@dataclass(frozen=True)
class ColumnRecord:
    """One `.npy` file."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of the whole file, header included."""

    @property
    def num_bytes(self) -> int:
        """Of the data without the header."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class TaskRecord:
    """One task folder."""

    index: int
    parameters: tuple[float, ...]
    episodes: int
    transitions: int
    return_mean: float
    """Mean over the episodes of the undiscounted sum of rewards; the next two alike."""
    return_min: float
    return_max: float
    behaviour: Mapping[str, Any]
    """What collected the data, as its collector describes it."""
    columns: Mapping[str, ColumnRecord]

    @property
    def folder(self) -> str:
        return task_folder(self.index)


@dataclass(frozen=True)
class Manifest:
    """A whole dataset."""

    spec: EnvSpec
    dtype: str
    """Of the floating-point columns: float32, or float16 for compact copies."""
    splits: Mapping[str, tuple[int, ...]]
    command: str
    versions: Mapping[str, str]
    source: Mapping[str, str] | None
    """Hash and slice of the dataset this one was cut from, if any."""
    tasks: tuple[TaskRecord, ...] = ()
    validation: Mapping[str, str] | None = None

    @property
    def hash(self) -> str:
        """sha256 of all but the validation record."""
        return json_hash(to_json(dataclasses.replace(self, validation=None)))

    @property
    def validated(self) -> bool:
        """Whether a full validation of exactly this data is on record."""
        return self.validation is not None and self.validation.get("hash") == self.hash

    def record(self, index: int) -> TaskRecord:
        for task in self.tasks:
            if task.index == index:
                return task
        held = ", ".join(str(task.index) for task in self.tasks)
        raise InputError(f"{self.spec.id}: the dataset has no task {index}; it holds {held}")


def task_folder(index: int) -> str:
    return f"task-{index:03d}"


def column_names(spec: EnvSpec, with_terms: bool) -> tuple[str, ...]:
    """The columns of a task; data recorded elsewhere may lack the terms of the reward."""
    left_out = () if with_terms and spec.term_names else ("terms",)
    return tuple(name for name in COLUMNS if name not in left_out)


def column_dtype(name: str, float_dtype: str) -> np.dtype:
    """Dtype of a column in a dataset whose floating-point columns have `float_dtype`."""
    return np.dtype(_FIXED.get(name, float_dtype))


def column_shape(name: str, spec: EnvSpec, num_rows: int, num_episodes: int) -> tuple[int, ...]:
    """Shape of a column that holds `num_rows` transitions in `num_episodes` whole episodes."""
    widths = {
        "obs": (num_rows + num_episodes, spec.obs_dim),
        "action": (num_rows, spec.act_dim),
        "terms": (num_rows, len(spec.term_names)),
        "episode_start": (num_episodes + 1,),
    }
    return widths.get(name, (num_rows,))


@functools.cache
def library_versions() -> dict[str, str]:
    """Versions of what could change the numbers in a dataset."""
    libraries = ("omrl", "numpy", "mujoco", "gymnasium", "jax")
    return {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in libraries
    }


# --- JSON ---


def to_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain JSON values."""
    fields = dataclasses.asdict(manifest)
    fields["spec"] = json.loads(manifest.spec.to_json())
    fields["spec_hash"] = manifest.spec.hash
    fields["splits"] = {
        name: {"tasks": list(tasks), "hash": json_hash(list(tasks))}
        for name, tasks in manifest.splits.items()
    }
    return {"format": FORMAT, "format_version": FORMAT_VERSION} | fields


def from_json(fields: Mapping[str, Any]) -> Manifest:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on anything malformed."""
    tasks = tuple(_task_from_json(task) for task in fields["tasks"])
    if len({task.index for task in tasks}) != len(tasks):
        raise ValueError("a task index occurs twice")
    spec = EnvSpec.from_json(json.dumps(fields["spec"]))
    if fields["spec_hash"] != spec.hash:
        raise ValueError("spec does not match spec_hash")
    if fields["dtype"] not in FLOATS:
        raise ValueError(f"dtype must be {' or '.join(FLOATS)}")
    for task in tasks:
        _check_task(task, spec)
    return Manifest(
        spec=spec,
        dtype=_typed(fields, "dtype", str),
        splits={name: _split(name, split) for name, split in fields["splits"].items()},
        command=_typed(fields, "command", str),
        versions=_typed(fields, "versions", dict),
        source=fields["source"] and _typed(fields, "source", dict),
        tasks=tasks,
        validation=fields["validation"] and _typed(fields, "validation", dict),
    )


def _task_from_json(fields: Mapping[str, Any]) -> TaskRecord:
    columns = {
        name: ColumnRecord(
            dtype=_typed(column, "dtype", str),
            shape=tuple(int(size) for size in column["shape"]),
            sha256=_typed(column, "sha256", str),
        )
        for name, column in fields["columns"].items()
    }
    numbers = {name: float(fields[name]) for name in ("return_mean", "return_min", "return_max")}
    return TaskRecord(
        index=_typed(fields, "index", int),
        parameters=tuple(float(value) for value in fields["parameters"]),
        episodes=_typed(fields, "episodes", int),
        transitions=_typed(fields, "transitions", int),
        behaviour=_typed(fields, "behaviour", dict),
        columns=columns,
        **numbers,
    )


def _check_task(task: TaskRecord, spec: EnvSpec) -> None:
    if len(task.parameters) != len(spec.task_names):
        raise ValueError(f"task {task.index} must have the parameters {spec.task_names}")
    if task.index < 0:
        raise ValueError(f"task index {task.index} must be 0 or more")
    if not 1 <= task.episodes <= task.transitions:
        raise ValueError(f"task {task.index} must have episodes of at least one transition")
    if unknown := sorted(task.columns.keys() - set(COLUMNS)):
        raise ValueError(f"task {task.index} has an unknown column {unknown[0]!r}")


def _split(name: str, fields: Mapping[str, Any]) -> tuple[int, ...]:
    tasks = [int(index) for index in fields["tasks"]]
    if fields["hash"] != json_hash(tasks):
        raise ValueError(f"the tasks of split {name!r} do not match its hash")
    return tuple(tasks)


def _typed(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {kind.__name__}, not {type(value).__name__}")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


# --- Files ---


def write(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of `folder` in one step: a reader sees the old one or the new one."""
    with atomic_write(folder / NAME) as file:
        file.write(json.dumps(to_json(manifest), indent=1, allow_nan=False).encode())


def read(folder: Path) -> Manifest:
    """The manifest of `folder`; `InputError` where there is none or it is malformed."""
    path = folder / NAME
    if not path.is_file():
        raise InputError(f"{folder}: not a dataset (no {NAME}); give the folder that holds it")
    try:
        fields = json.loads(path.read_bytes(), parse_constant=_no_constant)
        if fields["format"] != FORMAT or fields["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format must be {FORMAT} version {FORMAT_VERSION}")
        return from_json(fields)
    except KeyError as error:
        raise InputError(f"{path}: field {error} is missing; create the dataset again") from error
    except (TypeError, ValueError, AttributeError) as error:
        detail = " ".join(str(error).split())
        raise InputError(f"{path}: {detail}; create the dataset again") from error
