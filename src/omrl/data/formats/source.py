"""What a reader finds in a source, and what a person or an export states about it.

The data of other programs rarely says of what MDP and tasks it is. That is stated in a JSON file
(beside the data as `tasks.json`, or anywhere), in options, or by data that was exported from here:

    {"env": "cheetah-vel/macaw-v1",
     "tasks": [[0.075], [0.15], [0.225]],
     "splits": {"train": [0, 1], "test": [2]}}

Every field may be left out. `tasks` has the parameters of task 0, 1, …, or is an object of them by
number; `dtype`, `spec_hash` and `behaviour` (by number) are written by exports.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omrl.config import Json, from_json, read_json
from omrl.data.dataset import Dataset
from omrl.data.formats.layout import Columns
from omrl.data.manifest import TaskRecord
from omrl.envs.base import EnvSpec
from omrl.errors import InputError, system_error

STATEMENT = "tasks.json"
_JSON_BYTES = 64 << 20
_END_BYTES = 1 << 16

Parameters = tuple[float, ...]


@dataclass(frozen=True)
class Statement:
    """What is stated about a source; empty where nothing is."""

    env: str = ""
    spec_hash: str = ""
    dtype: Literal["", "float32", "float16"] = ""
    """Of the floating-point columns."""
    tasks: Mapping[int, Parameters] = field(default_factory=dict)
    splits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    behaviour: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What collected the data of a task."""

    def to_json(self) -> Json:
        """As the JSON file has it."""
        return {
            "env": self.env,
            "spec_hash": self.spec_hash,
            "dtype": self.dtype,
            "tasks": {str(index): list(values) for index, values in self.tasks.items()},
            "splits": {name: list(indices) for name, indices in self.splits.items()},
            "behaviour": {str(index): dict(value) for index, value in self.behaviour.items()},
        }


@dataclass(frozen=True)
class _Fields:
    """`Statement` as JSON has it."""

    env: str
    spec_hash: str
    dtype: Literal["", "float32", "float16"]
    tasks: Mapping[str, Parameters]
    splits: Mapping[str, tuple[int, ...]]
    behaviour: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """How a source is to be read."""

    spec: EnvSpec
    path_length: int
    """Steps after which the recording program cut an episode."""
    buffer: str = "replay_buffer"
    """Of snapshots that hold two, the one to read: `replay_buffer` or `enc_replay_buffer`."""
    pattern: str = "trj_eval*_step*.npy"
    """Of FOCAL's trajectories, the names of those to read."""


@dataclass(frozen=True)
class ForeignTask:
    """The data of one task, not yet read."""

    index: int
    file: Path
    """Named in messages and in the manifest."""
    read: Callable[[], Iterator[Columns]]
    """Batches of whole episodes, in the order in which they were recorded."""
    parameters: Parameters | None = None
    """As far as the source tells."""
    behaviour: Mapping[str, Any] = field(default_factory=dict)


# --- Statements ---


def read_statement(path: Path) -> Statement:
    """The statement in a JSON file. Raises `InputError` naming the first wrong field."""
    return parse_statement(read_description(path), str(path))


def statement_beside(source: Path) -> Statement:
    """The statement in the folder `source`, empty where there is none."""
    path = source / STATEMENT
    return read_statement(path) if path.is_file() else Statement()


def statement_of(dataset: Dataset, records: Sequence[TaskRecord]) -> Statement:
    """What an export states about tasks of a dataset."""
    return Statement(
        env=dataset.env_id,
        spec_hash=dataset.spec.hash,
        dtype=dataset.manifest.dtype,  # pyright: ignore[reportArgumentType]
        tasks={record.index: record.parameters for record in records},
        splits=dataset.splits,
        behaviour={record.index: record.behaviour for record in records},
    )


def parse_statement(given: Json, path: str) -> Statement:
    """The inverse of `Statement.to_json`; fields may be missing, and `tasks` may be a list.

    Raises `InputError` with the path of the first wrong field.
    """
    filled = Statement().to_json() | given
    if isinstance(filled["tasks"], list):
        rows = enumerate(filled["tasks"])
        filled["tasks"] = {str(i): row if isinstance(row, list) else [row] for i, row in rows}
    fields = from_json(_Fields, filled, path)
    return Statement(
        env=fields.env,
        spec_hash=fields.spec_hash,
        dtype=fields.dtype,
        tasks=_by_number(fields.tasks, f"{path}.tasks"),
        splits=fields.splits,
        behaviour=_by_number(fields.behaviour, f"{path}.behaviour"),
    )


def read_description(path: Path) -> dict[str, Any]:
    """The object in a JSON file that describes data."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {system_error(error)}") from None
    if size > _JSON_BYTES:
        raise InputError(f"{path}: larger than {_JSON_BYTES:,} bytes; not a description")
    fields = read_json(path)
    if not isinstance(fields, dict):
        raise InputError(f"{path}: must hold a JSON object")
    return fields


def _by_number(named: Mapping[str, Any], path: str) -> dict[int, Any]:
    for name in named:
        if not re.fullmatch(r"0|[1-9]\d{0,8}", name, re.ASCII):
            raise InputError(f"{path}: {name[:40]!r} is not the number of a task")
    return {int(name): value for name, value in named.items()}


# --- Files ---


def numbered(paths: list[Path], pattern: str, what: str) -> dict[int, Path]:
    """Paths by the number that the one group of `pattern` finds in their names, ascending.

    Raises `InputError` where two have the same number.
    """
    found: dict[int, Path] = {}
    for path in sorted(paths):
        match = re.search(pattern, path.name, re.ASCII)
        if match is None or len(match[1]) > 18:
            continue
        number = int(match[1])
        if number in found:
            raise InputError(
                f"{path}: {what} {number} is {found[number].name} already; remove one of them"
            )
        found[number] = path
    return dict(sorted(found.items()))


def listed(folder: Path) -> list[Path]:
    """What the folder holds. Raises `InputError` where there is none."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {system_error(error)}") from None


def fingerprint(source: Path) -> str:
    """Hash of the names, sizes and both ends of all files: whether a source was changed.

    Not of all contents, so that a file of any size costs nothing.
    """
    result = hashlib.sha256()
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            result.update(repr((str(path.relative_to(source)), size)).encode())
            with path.open("rb") as file:
                result.update(file.read(_END_BYTES))
                file.seek(max(0, size - _END_BYTES))
                result.update(file.read(_END_BYTES))
    return result.hexdigest()


def require(package: str) -> Any:
    """The optional package. Raises `InputError` with the line that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(
            f"this format needs the package {package}, which is not installed; "
            "pip install 'omrl[formats]'"
        ) from None


def single_parameter(where: str, value: Any) -> Parameters:
    """The parameters of a task that a task file of the reference programs holds as a dict.

    They name them differently, so only a task of one finite number is understood.
    """
    values = list(value.values()) if isinstance(value, dict) else []
    if len(values) != 1 or type(values[0]) not in (int, float) or not math.isfinite(values[0]):
        raise InputError(
            f"{where}: the task is not one number; state the parameters of all tasks with --tasks"
        )
    return (float(values[0]),)
