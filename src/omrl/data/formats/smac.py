"""The "MACAW format" of SMAC's release: pickled dicts of arrays, a file per task.

    tasks.pkl                          a list of dicts: [{"velocity": 0.7}, …] or [{"goal": 120.0}]
    macaw_replay_buffer_task_7.npy     {"obs": …, "actions": …, "rewards": …, "next_obs": …,
    macaw_enc_replay_buffer_task_7.npy  "terminals": …, "end_indices": …, …}

Rows are in time order (its derived columns are not, and are not read). `end_indices` has the last
row of every episode but an unfinished one; without it the ends are found as in rlkit's snapshots.
`observations` and `next_observations` are other names that rlkit's code has for the same columns.
A `goal` of one number is a direction in degrees.

Source: rail-berkeley/rlkit@ac45a9d, `rlkit/torch/smac/launcher_util.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.formats import unpickle
from omrl.data.formats.layout import Columns, Rows
from omrl.data.formats.source import (
    ForeignTask,
    Parameters,
    Request,
    listed,
    numbered,
    single_parameter,
)
from omrl.errors import InputError

_NAMES = {
    "obs": ("obs", "observations"),
    "next_obs": ("next_obs", "next_observations"),
    "action": ("actions",),
    "reward": ("rewards",),
    "terminated": ("terminals",),
}


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The files of the buffer that is asked for, by the number in their names."""
    pattern = rf"^macaw_{request.buffer}_task_(\d+)\.npy$"
    files = numbered(listed(source), pattern, "task")
    if not files:
        raise InputError(f"{source}: no macaw_{request.buffer}_task_N.npy; give their folder")
    parameters = _parameters(source / "tasks.pkl")
    return [
        ForeignTask(
            index=index,
            file=path,
            read=partial(_batches, request, path),
            parameters=parameters.get(index),
            behaviour={"buffer": request.buffer},
        )
        for index, path in files.items()
    ]


def _parameters(path: Path) -> dict[int, Parameters]:
    if not path.is_file():
        return {}
    tasks = unpickle.read(path)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InputError(f"{path}: must be a list of dicts, the tasks")
    found = {}
    for index, task in enumerate(tasks):
        (value,) = single_parameter(f"{path}, task {index}", task)
        found[index] = (math.radians(value) if "goal" in task else value,)
    return found


def _batches(request: Request, path: Path) -> Iterator[Columns]:
    content = unpickle.read_npy(path)
    fields = content.items[0] if content.shape == () else None
    if not isinstance(fields, dict):
        raise InputError(f"{path}: must hold one dict of arrays")
    columns = {ours: _column(path, fields, names) for ours, names in _NAMES.items()}
    rows = Rows.of(request.spec, str(path), columns)
    if "end_indices" in fields:
        last = _marked(path, fields["end_indices"], rows.count)
    else:
        last = rows.find_ends(request.path_length)
    yield from rows.batches(last)


def _column(path: Path, fields: Mapping[str, Any], names: tuple[str, ...]) -> np.ndarray:
    for name in names:
        if name in fields:
            return unpickle.array(fields[name], f"{path}, {name}")
    raise InputError(f"{path}: no {' or '.join(names)} in it; it is needed")


def _marked(path: Path, ends: Any, count: int) -> np.ndarray:
    """The last rows of episodes, and of the buffer."""
    rows = ends if isinstance(ends, list) else unpickle.array(ends, f"{path}, end_indices").tolist()
    if not isinstance(rows, list) or not all(type(i) is int and 0 <= i < count for i in rows):
        raise InputError(f"{path}, end_indices: must be rows between 0 and {count - 1}")
    last = np.zeros(count, bool)
    last[rows] = True
    last[-1:] = True
    return last
