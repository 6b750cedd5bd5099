"""The manifest of a dataset folder: what the data is, how it was made, the hash of every file.

One JSON file beside the columns. It is read as untrusted text: a missing or mistyped field is an
`InputError` with its path, as in `tasks[3].columns.obs.shape`. `Manifest.hash` covers everything
but the validation record, which quotes that hash: whoever edits the manifest or exchanges a column
has to validate again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from omrl import bundled, config
from omrl.config import Json, json_hash, read_json
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError
from omrl.files import atomic_write
from omrl.versions import version

NAME = "manifest.json"
CACHE = "cache"
"""Folder of what was derived from the data, within that of the dataset. It may be deleted."""
FORMAT = "omrl-dataset"
FORMAT_VERSION = 1
FLOATS = ("float32", "float16")
OUT = "OUT"
"""Stands in a manifest's `command` for the folder that it writes: of the same data wherever it is,
the manifest is the same."""
FIX = "create the dataset again or copy it again from its source"

COLUMNS = ("obs", "action", "reward", "terms", "terminated", "truncated", "episode_start")
_FIXED = {"terminated": "bool", "truncated": "bool", "episode_start": "int64"}


@dataclass(frozen=True)
class ColumnRecord:
    """One `.npy` file."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of the whole file, header included."""

    def __post_init__(self) -> None:
        allowed = (*FLOATS, *_FIXED.values())
        if self.dtype not in allowed:
            raise InputError(f"dtype {self.dtype!r} is not one of {', '.join(allowed)}")

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

    def __post_init__(self) -> None:
        if self.index < 0:
            raise InputError(f"index {self.index} must be 0 or more")
        if not 1 <= self.episodes <= self.transitions:
            raise InputError(
                f"task {self.index} must have episodes of at least one transition, not "
                f"{self.episodes} of {self.transitions}"
            )
        if unknown := sorted(self.columns.keys() - set(COLUMNS)):
            raise InputError(f"columns: {unknown[0]!r} is not one of {', '.join(COLUMNS)}")

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
    """What this was made of, if known: hash and slice of the dataset it was cut from, the run that
    collected it, …"""
    tasks: tuple[TaskRecord, ...] = ()
    validation: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in FLOATS:
            raise InputError(f"dtype must be {' or '.join(FLOATS)}, not {self.dtype!r}")
        if len({task.index for task in self.tasks}) != len(self.tasks):
            raise InputError("tasks: an index occurs twice")
        for position, task in enumerate(self.tasks):
            if len(task.parameters) != len(self.spec.task_names):
                raise InputError(
                    f"tasks[{position}].parameters: must have one number for each of "
                    f"{self.spec.task_names}"
                )

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
        raise InputError(
            f"{self.spec.id}: the dataset has no task {index}; it holds {held}: "
            "choose among these, as with --tasks, or give other data"
        )


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
        name: version(name) or "unknown" for name in libraries
    }


# --- The MDP ---


def check_mdp(folder: Path, manifest: Manifest, env: TaskEnv) -> None:
    """`InputError` where the data in `folder` is not of exactly this MDP."""
    held, wanted = manifest.spec, env.spec
    if held.hash == wanted.hash:
        return
    fields = [field.name for field in dataclasses.fields(EnvSpec)]
    other = ", ".join(n for n in fields if getattr(held, n) != getattr(wanted, n))
    fix = "collect or import it anew"
    if held.id != wanted.id:
        fix = f"give data of {wanted.id}, or train on this: omrl train --env {held.id}"
    raise InputError(
        f"{bundled.label(folder)}: made with {held.id} of spec hash {held.hash[:12]}, not "
        f"{wanted.id} of {wanted.hash[:12]}: another MDP ({other}); {fix}"
    )


# --- JSON ---


@dataclass(frozen=True)
class _Split:
    tasks: tuple[int, ...]
    hash: str


@dataclass(frozen=True)
class _Seal:
    """What the JSON has beside the fields of `Manifest`, and the splits in place of its own."""

    format: str
    format_version: int
    spec_hash: str
    splits: Mapping[str, _Split]


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


def from_json(fields: Json, path: str = NAME) -> Manifest:
    """The inverse of `to_json`. `InputError` gives the path of the first field that is wrong."""
    if not isinstance(fields, dict):
        raise InputError(f"{path}: is not an object; {FIX}")
    own = {field.name for field in dataclasses.fields(_Seal)}
    seal = config.from_json(_Seal, {n: v for n, v in fields.items() if n in own}, path, FIX)
    if (seal.format, seal.format_version) != (FORMAT, FORMAT_VERSION):
        raise InputError(
            f"{path}: format must be {FORMAT} version {FORMAT_VERSION}, not {seal.format} version "
            f"{seal.format_version}; use the version of omrl that wrote it"
        )
    for name, split in seal.splits.items():
        if split.hash != json_hash(split.tasks):
            raise InputError(f"{path}.splits.{name}: the tasks do not match their hash; {FIX}")
    plain = {n: v for n, v in fields.items() if n not in own}
    plain["splits"] = {name: list(split.tasks) for name, split in seal.splits.items()}
    manifest = config.from_json(Manifest, plain, path, FIX)
    if manifest.spec.hash != seal.spec_hash:
        raise InputError(f"{path}: spec does not match spec_hash; {FIX}")
    return manifest


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
    return from_json(read_json(path, FIX), str(path))
