"""Snapshots of replay buffers by rlkit and oyster (PEARL, SMAC): a pickle, perhaps by joblib.

    {"replay_buffer": MultiTaskReplayBuffer, "enc_replay_buffer": MultiTaskReplayBuffer}

with `task_buffers`, a dict of a `SimpleReplayBuffer` per task number, whose `_observations`,
`_actions`, … are rows in the order of a ring of `_max_replay_buffer_size`, `_top` the row that is
written next and `_size` the rows that are there. A multi-task buffer alone is read as well.
Terminal states are marked, time limits are not: see `Rows.find_ends`.

Sources: katerakelly/oyster@44e20fd and rail-berkeley/rlkit@ac45a9d, `rlkit/data_management`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.formats import unpickle
from omrl.data.formats.layout import Columns, Rows, count_rows
from omrl.data.formats.source import ForeignTask, Request
from omrl.errors import InputError

_NAMES = {
    "obs": "_observations",
    "next_obs": "_next_obs",
    "action": "_actions",
    "reward": "_rewards",
    "terminated": "_terminals",
}


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The buffers of all tasks that hold anything."""
    content = unpickle.read(source)
    if isinstance(content, dict):
        if request.buffer not in content:
            held = ", ".join(str(name)[:40] for name in list(content)[:5]) or "nothing"
            raise InputError(f"{source}: no {request.buffer!r} in it; it holds {held}")
        content = content[request.buffer]
    buffers = _attributes(content, str(source)).get("task_buffers")
    if not isinstance(buffers, dict):
        raise InputError(f"{source}: no task_buffers by task number; save a MultiTaskReplayBuffer")
    tasks = []
    for index, buffer in buffers.items():
        if type(index) is not int or index < 0:
            raise InputError(f"{source}, task_buffers: {index!r} is not the number of a task")
        fields = _attributes(buffer, f"{source}, task {index}")
        if _count(fields, f"{source}, task {index}", "_size") > 0:
            task = partial(_batches, request, f"{source}, task {index}", fields)
            tasks.append(ForeignTask(index, source, task, behaviour={"buffer": request.buffer}))
    return sorted(tasks, key=lambda task: task.index)


def _batches(request: Request, where: str, fields: Mapping[str, Any]) -> Iterator[Columns]:
    columns = {ours: unpickle.array(fields.get(name), where) for ours, name in _NAMES.items()}
    size, top = (_count(fields, where, name) for name in ("_size", "_top"))
    capacity = count_rows(where, columns)
    if size > capacity or top > capacity:
        raise InputError(f"{where}: _size {size} or _top {top} is beyond its {capacity} rows")
    first = top % capacity if size == capacity else 0
    rows = Rows(request.spec, where, size, partial(_from_ring, columns, first))
    yield from rows.batches(rows.find_ends(request.path_length, headless=first > 0))


def _from_ring(columns: Columns, first: int, begin: int, stop: int) -> Columns:
    """Rows begin to stop - 1, counted from row `first` of the ring."""
    rows = (first + np.arange(begin, stop)) % len(columns["obs"])
    return {name: column[rows] for name, column in columns.items()}


def _attributes(value: Any, where: str) -> dict[str, Any]:
    attributes = value.attributes if isinstance(value, unpickle.Inert) else None
    if not isinstance(attributes, dict):
        raise InputError(f"{where}: must be a replay buffer, not {type(value).__name__}")
    return attributes


def _count(fields: Mapping[str, Any], where: str, name: str) -> int:
    count = fields.get(name)
    if type(count) is not int or count < 0:
        raise InputError(f"{where}: {name} must be a number of rows")
    return count
