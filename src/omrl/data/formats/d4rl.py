"""D4RL's HDF5 files: rows of observations, actions, rewards, terminals and timeouts.

One file is one task: SOURCE is a file, or a folder of files with `task-N` or `task_N` in the name.
`terminals` are true ends, `timeouts` the other ends of episodes; without `timeouts` an episode is
cut after the path length. Next observations are `next_observations`; where there are none, the last
transition of every episode has none either and is left out, and with it a terminal state.

Source: Farama-Foundation/D4RL@71a9549, `d4rl/__init__.py`, `d4rl/offline_env.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from omrl.data.formats.hdf5 import opened
from omrl.data.formats.layout import Columns, Rows, after_steps, count_rows, flags
from omrl.data.formats.source import ForeignTask, Request, listed, numbered, require
from omrl.errors import InputError

_NAMES = {"obs": "observations", "action": "actions", "reward": "rewards"}


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The one file, or the numbered files of a folder."""
    require("h5py")
    files = {0: source} if source.is_file() else _numbered(source)
    return [
        ForeignTask(index, path, partial(_batches, request, path)) for index, path in files.items()
    ]


def _numbered(source: Path) -> dict[int, Path]:
    files = [path for path in listed(source) if path.suffix in (".hdf5", ".h5")]
    found = numbered(files, r"task[-_]?(\d+)", "task")
    if not files or len(found) < len(files):
        without = next((path.name for path in files if path not in found.values()), "no file")
        raise InputError(f"{source}: {without}; name the files of the tasks task-0.hdf5, …")
    return found


def _batches(request: Request, path: Path) -> Iterator[Columns]:
    with opened(path) as file:
        names = dict(_NAMES)
        if file.has("next_observations"):
            names["next_obs"] = "next_observations"
        datasets = {ours: file.dataset(name) for ours, name in names.items()}
        if not file.has("terminals"):
            raise InputError(f"{path}: no terminals; they are needed")
        ends = {name: file.dataset(name) for name in ("terminals", "timeouts") if file.has(name)}
        count_rows(str(path), datasets | ends)
        marked = {name: flags(str(path), name, column[()]) for name, column in ends.items()}
        last = _ends(str(path), marked, request.path_length)
        if "next_obs" in datasets:
            datasets["terminated"] = marked["terminals"]
            yield from Rows.of(request.spec, str(path), datasets).batches(last)
        else:
            yield from _without_next(request, path, datasets, last)


def _ends(where: str, marked: Columns, path_length: int) -> Bool[np.ndarray, " rows"]:
    """The last row of every episode; of the last one, also where the recording stops."""
    if any(column.size != len(column) for column in marked.values()):
        raise InputError(f"{where}: terminals and timeouts must be one per row")
    last = np.logical_or.reduce([column.reshape(-1) for column in marked.values()])
    last[-1:] = True
    return last if "timeouts" in marked else last | after_steps(last, path_length)


def _without_next(
    request: Request, path: Path, datasets: dict[str, Any], last: Bool[np.ndarray, " rows"]
) -> Iterator[Columns]:
    """All but the last row of every episode: the observation after it is that of the next row."""
    kept = np.flatnonzero(~last)
    if len(kept) == 0:
        raise InputError(f"{path}: no next_observations, and no episode of two steps; give them")

    def read_rows(first: int, stop: int) -> Columns:
        begin, end = int(kept[first]), int(kept[stop - 1]) + 1
        rows = kept[first:stop] - begin
        block = {name: dataset[begin:end][rows] for name, dataset in datasets.items()}
        following = datasets["obs"][begin + 1 : end + 1][rows]
        return block | {"next_obs": following, "terminated": np.zeros(len(rows), bool)}

    rows = Rows(request.spec, str(path), len(kept), read_rows)
    yield from rows.batches(np.append(np.diff(kept) > 1, True))
