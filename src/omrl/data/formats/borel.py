"""BOReL's trees: a folder per task, named after it, with five `.npy` files.

    seed_73_goal_1.234/{obs,actions,rewards,next_obs,terminals}.npy
    seed_74_goal_-0.5_0.866/…

Files are [rows, width], trajectories one after another, or [trajectory length, trajectories,
width]; a trajectory is several episodes of `path_length` steps back to back. Tasks are numbered in
the order of seed and name, and their parameters are those in the name (three decimals).

Kept as they are: the first observation of every episode but the first in a trajectory is the last
one of the episode before (the authors' wrapper returns that instead of the start state). Not kept:
`terminals`, which mark goal states and end nothing, and a last entry of observations that is more
than the environment has, the wrapper's flag of finished episodes.

Source: Rondorf/BOReL@cf0816f, `utils/offline_utils.py`, `environments/wrappers.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from omrl.data.formats.layout import Columns, Rows
from omrl.data.formats.npy import open_npy
from omrl.data.formats.source import ForeignTask, Request, listed
from omrl.errors import InputError

_NAME = re.compile(r"(?:seed_(\d{1,18})_)?goal((?:_-?\d+(?:\.\d+)?(?:e-?\d+)?)+)", re.ASCII)
_NAMES = {"obs": "obs", "next_obs": "next_obs", "action": "actions", "reward": "rewards"}


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The folders `seed_N_goal_…`, numbered in their order."""
    found = []
    for path in listed(source):
        if match := _NAME.fullmatch(path.name):
            parameters = tuple(float(part) for part in match[2].split("_")[1:])
            found.append((int(match[1] or -1), path.name, path, parameters))
    if not found:
        raise InputError(f"{source}: no folder seed_N_goal_X; give the one that holds them")
    return [
        ForeignTask(
            index=index,
            file=path,
            read=partial(_batches, request, path),
            parameters=parameters,
        )
        for index, (_, _, path, parameters) in enumerate(sorted(found))
    ]


def _batches(request: Request, folder: Path) -> Iterator[Columns]:
    arrays = {ours: open_npy(folder / f"{name}.npy") for ours, name in _NAMES.items()}
    shape = arrays["obs"].shape
    if len(shape) not in (2, 3):
        raise InputError(f"{folder}/obs.npy: shape {shape}, must be (rows, width) or 3-dimensional")
    for ours, array in arrays.items():
        if array.ndim != len(shape) or array.shape[:-1] != shape[:-1]:
            raise InputError(f"{folder}/{_NAMES[ours]}.npy: shape {array.shape}, of obs {shape}")
    count = math.prod(shape[:-1])
    if count == 0 or count % request.path_length:
        raise InputError(
            f"{folder}: {count} rows, must be a multiple of the path length {request.path_length}"
        )

    def read_rows(first: int, stop: int) -> Columns:
        rows = np.arange(first, stop)
        # Of [trajectory length, trajectories, width], trajectories are the outer axis.
        at = (rows,) if len(shape) == 2 else (rows % shape[0], rows // shape[0])
        block = {name: array[at] for name, array in arrays.items()}
        for name in ("obs", "next_obs"):
            if block[name].shape[1] == request.spec.obs_dim + 1:
                block[name] = block[name][:, :-1]
        return block | {"terminated": np.zeros(len(rows), bool)}

    last = np.arange(count) % request.path_length == request.path_length - 1
    yield from Rows(request.spec, str(folder), count, read_rows).batches(last)
