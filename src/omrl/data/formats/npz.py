"""A folder of `.npz` episodes, which any program with numpy can write and read.

    task-007/episode-00012.npz    obs [T + 1, obs], action [T, act], reward [T],
                                  terminated [T], truncated [T], perhaps terms [T, term]

Episodes are in the order of the number in their names. `tasks.json` beside the folders states the
rest, see `omrl.data.formats.source`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.dataset import Dataset
from omrl.data.formats.layout import Columns, batches, episode, episode_bytes
from omrl.data.formats.npy import read_npz
from omrl.data.formats.source import ForeignTask, Request, listed, numbered
from omrl.data.manifest import COLUMNS, task_folder
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

_ARRAYS = tuple(name for name in COLUMNS if name != "episode_start")


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The folders `task-N`, and in each the files `episode-N.npz`."""
    folders = numbered(listed(source), r"^task[-_]?(\d+)$", "task")
    if not folders:
        raise InputError(f"{source}: no folder task-N; give the one that holds them")
    return [
        ForeignTask(index, folder, partial(_batches, request.spec, folder))
        for index, folder in folders.items()
    ]


def _batches(spec: EnvSpec, folder: Path) -> Iterator[Columns]:
    files = [path for path in listed(folder) if path.suffix == ".npz"]
    found = numbered(files, r"(\d+)\.npz$", "episode")
    if not files or len(found) < len(files):
        without = next((path.name for path in files if path not in found.values()), "no .npz file")
        raise InputError(f"{folder}: {without}; name the episodes episode-0.npz, episode-1.npz, …")
    return batches(_episode(spec, path) for path in found.values())


def _episode(spec: EnvSpec, path: Path) -> Columns:
    names = _ARRAYS if spec.term_names else tuple(name for name in _ARRAYS if name != "terms")
    fields = read_npz(path, names, episode_bytes(spec))
    for name in names:
        if name not in fields and name != "terms":
            raise InputError(f"{path}: no {name}.npy in it; it is needed")
    return episode(spec, str(path), fields)


def write(dataset: Dataset, folder: Path) -> None:
    """A folder per task and a file per episode."""
    for index in dataset.task_indices:
        task = dataset.task(index)
        (folder / task_folder(index)).mkdir()
        for number in range(task.num_episodes):
            one = task.only(np.array([number]))
            columns: dict[str, Any] = {n: one.column(n) for n in _ARRAYS if n in task.columns}
            np.savez(folder / task_folder(index) / f"episode-{number:06d}.npz", **columns)
