"""FOCAL's trees: a folder per task, a pickled `.npy` per trajectory.

    goal_idx7/trj_evalsample0_step500000.npy    actions drawn from the policy of that training step
    goal_idx7/trj_eval0_step500000.npy          its deterministic actions

Each is an array of objects, [T, 4]: observation, action, reward, next observation. Ends are not
recorded: a trajectory shorter than the path length ended in a terminal state. Order in time is that
of the training step, then of the names. Which trajectories are read is a pattern of their names.

Source: LanqingLi1993/FOCAL-ICLR@bd893f0, `rlkit/core/rl_algorithm.py`, `pytorch_sac/train.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.formats import unpickle
from omrl.data.formats.layout import Columns, Rows, batches
from omrl.data.formats.source import ForeignTask, Request, listed, numbered
from omrl.errors import InputError

_NAME = re.compile(r"trj_(eval|evalsample)(\d{1,9})_step(\d{1,15})\.npy", re.ASCII)


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The trajectories of every task whose names match the pattern."""
    folders = numbered(listed(source), r"^goal_idx(\d+)$", "task")
    if not folders:
        raise InputError(f"{source}: no folder goal_idxN; give the one that holds them")
    return [
        ForeignTask(
            index=index,
            file=folder,
            read=partial(_batches, request, paths),
            behaviour={"pattern": request.pattern, "trajectories": len(paths)},
        )
        for index, folder in folders.items()
        for paths in [_trajectories(folder, request.pattern)]
    ]


def _trajectories(folder: Path, pattern: str) -> list[Path]:
    """In the order in which they were recorded."""
    found: dict[tuple[int, str, int], Path] = {}
    for path in listed(folder):
        match = _NAME.fullmatch(path.name)
        if match is None or not fnmatchcase(path.name, pattern):
            continue
        key = int(match[3]), match[1], int(match[2])
        if key in found:
            raise InputError(f"{path}: the same trajectory as {found[key].name}; remove one")
        found[key] = path
    if not found:
        raise InputError(f"{folder}: no trajectory matches {pattern!r}; give another pattern")
    return [found[key] for key in sorted(found)]


def _batches(request: Request, paths: list[Path]) -> Iterator[Columns]:
    return batches(_episode(request, path) for path in paths)


def _episode(request: Request, path: Path) -> Columns:
    content = unpickle.read_npy(path)
    if len(content.shape) != 2 or content.shape[1] != 4 or content.shape[0] == 0:
        raise InputError(f"{path}: shape {content.shape}, must be (steps, 4)")
    names = ("obs", "action", "reward", "next_obs")
    columns = {
        name: _stacked(f"{path}, {name}", content.items[number::4])
        for number, name in enumerate(names)
    }
    last = np.arange(content.shape[0]) == content.shape[0] - 1
    columns["terminated"] = last & (content.shape[0] < request.path_length)
    return next(Rows.of(request.spec, str(path), columns).batches(last))


def _stacked(where: str, items: list[Any]) -> np.ndarray:
    """The column [T, …] of arrays of one shape."""
    arrays = [unpickle.array(item, where) for item in items]
    if len({(item.shape, item.dtype) for item in arrays}) != 1:
        raise InputError(f"{where}: shapes or dtypes differ from step to step; make them equal")
    return np.stack(arrays)
