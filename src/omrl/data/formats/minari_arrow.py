"""Minari's Arrow storage: a folder per episode with one record batch in the IPC file format.

A file is read as the stream that it contains, message by message, so that nothing is decompressed:
Minari does not compress, and a compressed buffer may announce any size. Columns are padded to one
length, that of the observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from omrl.arrays import reading
from omrl.data.finding import RESTORE
from omrl.data.formats.episodes import FIELDS
from omrl.data.formats.layout import episode_bytes
from omrl.data.formats.source import listed, read_description, require
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

PACKAGE = "pyarrow"
_MAGIC = b"ARROW1\0\0"
_ROOM = 64
"""Columns of the widest kind that fit in an episode's file: room for further infos."""


def read(spec: EnvSpec, folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """Our columns of episodes 0 to count - 1, `terms` as they are under `infos`."""
    held = {path.name for path in listed(folder) if path.is_dir()}
    if held != {str(number) for number in range(count)}:
        raise InputError(
            f"{folder}: its folders are not the numbers 0 to {count - 1} of the episodes in its "
            "metadata; copy the dataset again"
        )
    for number in range(count):
        yield _episode(spec, folder / str(number), number)


def _episode(spec: EnvSpec, folder: Path, number: int) -> dict[str, Any]:
    files = [path for path in listed(folder) if path.suffix == ".arrow"]
    if len(files) != 1:
        raise InputError(f"{folder}: {len(files)} .arrow files; an episode has one")
    if read_description(folder / "metadata.json").get("id") != number:
        raise InputError(f"{folder}: its id in metadata.json must be {number}; number anew")
    (path,) = files
    limit = _ROOM * episode_bytes(spec) + (1 << 20)
    if path.stat().st_size > limit:
        raise InputError(f"{path}: larger than an episode of {spec.horizon} steps, {limit:,} bytes")
    pa = require("pyarrow")
    require("pyarrow.ipc")
    with reading(path, RESTORE):
        batch = _record_batch(pa, path)
        # Not before: an observation more than there are steps.
        fields = {
            ours: _numbers(path, name, batch.column(name))[: None if ours == "obs" else -1]
            for ours, name in FIELDS.items()
        }
        if spec.term_names and "infos" in batch.schema.names:
            infos = batch.column("infos")
            if infos.type.get_field_index("terms") >= 0:
                fields["terms"] = _terms(spec, path, infos.field("terms"))
    return fields


def _record_batch(pa: Any, path: Path) -> Any:
    """The one record batch of a file, with every offset and size in it checked."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise InputError(f"{path}: not an Arrow file; copy it again from its source")
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(content)[len(_MAGIC) :])
    schema = pa.ipc.read_schema(_next(path, messages, "schema"))
    message = _next(path, messages, "record batch")
    if _is_compressed(message.metadata.to_pybytes()):
        raise InputError(f"{path}: compressed; write it without compression, as Minari does")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    return batch


def _next(path: Path, messages: Any, kind: str) -> Any:
    message = messages.read_next_message()
    if message is None or message.type != kind:
        raise InputError(f"{path}: no {kind} where one must be; copy it again from its source")
    return message


def _is_compressed(metadata: bytes) -> bool:
    """Whether a RecordBatch message has the field `compression` (Arrow's Message.fbs, slot 3).

    pyarrow has verified the flatbuffer before it hands the message out.
    """

    def number(position: int, size: int) -> int:
        return int.from_bytes(metadata[position : position + size], "little", signed=size == 4)

    def field(table: int, slot: int) -> int:
        vtable = table - number(table, 4)
        entry = 4 + 2 * slot
        offset = number(vtable + entry, 2) if entry < number(vtable, 2) else 0
        return table + offset if offset else 0

    header = field(number(0, 4), 2)
    return bool(field(header + number(header, 4), 3))


def _numbers(path: Path, name: str, column: Any) -> np.ndarray:
    """An Arrow array of numbers, or of lists of one size, as a numpy array."""
    pa = require("pyarrow")
    shape: tuple[int, ...] = (len(column),)
    if pa.types.is_fixed_size_list(column.type):
        shape = (len(column), column.type.list_size)
        # `flatten` leaves out what a null list covers.
        nulls, column = column.null_count, column.flatten()
    else:
        nulls = 0
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not is_number or nulls or column.null_count:
        raise InputError(f"{path}, {name}: {kind} or empty values; must be numbers, all there")
    return column.to_numpy(zero_copy_only=False).reshape(shape)


def _terms(spec: EnvSpec, path: Path, column: Any) -> np.ndarray:
    pa = require("pyarrow")
    if not pa.types.is_struct(column.type):
        return _numbers(path, "infos/terms", column)
    columns = [
        _numbers(path, f"infos/terms/{name}", column.field(name)) for name in spec.term_names
    ]
    return np.stack([values.reshape(-1) for values in columns], axis=1)


def write(folder: Path, episodes: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Write the storage of a task into its folder."""
    pa = require("pyarrow")
    require("pyarrow.ipc")
    for number, columns in enumerate(episodes):
        arrays = {name: _padded(pa, columns[ours], ours != "obs") for ours, name in FIELDS.items()}
        if "terms" in columns:
            terms = _padded(pa, columns["terms"], False)
            arrays["infos"] = pa.StructArray.from_arrays([terms], names=["terms"])
        batch = pa.RecordBatch.from_pydict(arrays)
        path = folder / str(number)
        path.mkdir()
        with pa.ipc.new_file(path / "part-0.arrow", batch.schema) as file:
            file.write_batch(batch)
        (path / "metadata.json").write_text(
            f'{{"id": {number}, "total_steps": {len(columns["reward"])}}}'
        )


def _padded(pa: Any, column: np.ndarray, pad: bool) -> Any:
    if pad:
        column = np.concatenate([column, np.zeros_like(column[:1])])
    if column.ndim == 1:
        return pa.array(column)
    return pa.FixedSizeListArray.from_arrays(
        np.ascontiguousarray(column).reshape(-1), column.shape[1]
    )
