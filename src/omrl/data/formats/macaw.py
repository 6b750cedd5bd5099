"""The files of MACAW's reference code: a buffer and a task per file.

    buffers_cheetah_vel_train_7_sub_task_0.hdf5    `ReplayBuffer.save`
    env_cheetah_vel_train_task7.pkl                a list of one dict: [{"velocity": 0.6}]

Rows of a buffer are trajectories in reverse time, in a ring: see `omrl.data.formats.macaw_buffer`.
Where a trajectory begins is read off `terminal_discounts`, which is the discount itself for its
last transition. In a ring that wrapped, the row to be written next is where a row does not belong
to the one before; the trajectory that it cuts has lost its last transitions, and ends `truncated`.
Monte-Carlo rewards and terminal observations are derived again on loading and are not read.

Written files hold two datasets more, `truncated` and `terms`, which the reference code ignores.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from omrl.data.dataset import Dataset, TaskData
from omrl.data.formats import unpickle
from omrl.data.formats.hdf5 import Hdf5File, opened
from omrl.data.formats.layout import Columns, Rows, count_rows, ranges
from omrl.data.formats.macaw_buffer import trajectory_rows
from omrl.data.formats.source import (
    ForeignTask,
    Parameters,
    Request,
    listed,
    numbered,
    require,
    single_parameter,
)
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

DISCOUNT = 0.99
"""Of written files."""
MAX_DISCOUNT = 0.9999
TINY = 1e-30
_NAMES = {
    "obs": "obs",
    "next_obs": "next_obs",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminals",
}
"""The datasets that are read, by our names."""
_TASK_KEYS = {"cheetah-vel": "velocity", "cheetah-dir": "direction", "ant-dir": "goal"}
"""How the reference code calls the one parameter of a task, by family."""


# --- Reading ---


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The buffers in a folder, by the number in their names."""
    require("h5py")
    paths = listed(source)
    buffers = numbered(paths, r"_train_(\d+)_sub_task_0\.hdf5$", "task")
    if not buffers:
        raise InputError(f"{source}: no buffers_*_train_N_sub_task_0.hdf5; give their folder")
    task_files = numbered(paths, r"_train_task(\d+)\.pkl$", "task")
    return [
        ForeignTask(
            index=index,
            file=path,
            read=partial(_batches, request.spec, path),
            parameters=_parameters(task_files[index]) if index in task_files else None,
        )
        for index, path in buffers.items()
    ]


def _parameters(path: Path) -> Parameters | None:
    tasks = unpickle.read(path)
    if not isinstance(tasks, list) or len(tasks) != 1 or not isinstance(tasks[0], dict):
        raise InputError(f"{path}: must be a list of one dict, the task")
    if len(tasks[0]) > 1:
        return None  # Factors of a model's arrays, in units that depend on the model.
    return single_parameter(str(path), tasks[0])


def _batches(spec: EnvSpec, path: Path) -> Iterator[Columns]:
    with opened(path) as file:
        datasets = {ours: file.dataset(name) for ours, name in _NAMES.items()}
        extras = ("truncated", "terms") if spec.term_names else ("truncated",)
        datasets |= {name: file.dataset(name) for name in extras if file.has(name)}
        count = count_rows(str(path), datasets)
        write_location, bounds = _trajectories(path, *_discounts(file, count))

        def read(first: int, stop: int) -> Mapping[str, np.ndarray]:
            part = bounds[np.searchsorted(bounds, first) : np.searchsorted(bounds, stop) + 1]
            lengths = np.diff(part)
            # Row i of a trajectory is the one of its other end.
            order = np.repeat(part[:-1] + part[1:] - 1, lengths) - np.arange(first, stop) - first
            return {
                name: _from_ring(dataset, first + write_location, stop + write_location)[order]
                for name, dataset in datasets.items()
            }

        last = np.zeros(count, bool)
        last[bounds[1:] - 1] = True
        yield from Rows(spec, str(path), count, read).batches(last)


def _discounts(file: Hdf5File, count: int) -> tuple[Float64[np.ndarray, " rows"], float]:
    """`terminal_discounts` and the discount of one step."""
    column, discount = file.dataset("terminal_discounts"), file.dataset("discount_factor")
    if column.shape not in ((count, 1), (count,)) or discount.shape != ():
        raise InputError(
            f"{file.path}: terminal_discounts {column.shape} and discount_factor {discount.shape} "
            f"must be ({count}, 1) and a number"
        )
    value = float(discount[()])
    if not 0 < value <= MAX_DISCOUNT:
        raise InputError(
            f"{file.path}: discount_factor {value:g}; between 0 and {MAX_DISCOUNT} the beginnings "
            "of trajectories can be told"
        )
    return column[()].reshape(-1).astype(np.float64), value


def _trajectories(
    path: Path, discounts: Float64[np.ndarray, " rows"], discount: float
) -> tuple[int, Int64[np.ndarray, " boundaries"]]:
    """The row that would be written next, and where trajectories begin, counted from there.

    Raises `InputError` unless the rows are trajectories in reverse time.
    """
    tolerance = (1 - discount) / 4
    begins = np.abs(discounts / discount - 1) <= tolerance
    before = discounts[np.arange(len(discounts)) - 1]
    # Far from the end of a long trajectory float32 has no digits left.
    follows = (before < TINY) | (np.abs(discounts - discount * before) <= tolerance * before)
    orphans = np.flatnonzero(~begins & ~follows)
    if len(orphans) > 1 or not (begins.any() or len(orphans)):
        row = int(orphans[0]) if len(orphans) else 0
        raise InputError(
            f"{path}, row {row}: not the step before that of row {row - 1}; rows must be whole "
            "trajectories in reverse time, as before loading skips any"
        )
    write_location = int(orphans[0]) if len(orphans) else int(np.argmax(begins))
    starts = np.flatnonzero(np.roll(begins, -write_location))
    headless = [] if len(starts) and starts[0] == 0 else [0]
    return write_location, np.array([*headless, *starts, len(discounts)])


def _from_ring(dataset: Any, first: int, stop: int) -> np.ndarray:
    """Rows first to stop - 1, counted on beyond the end of the ring."""
    count = dataset.shape[0]
    if first < count < stop:
        return np.concatenate([dataset[first:count], dataset[: stop - count]])
    shift = count if first >= count else 0
    return dataset[first - shift : stop - shift]


# --- Writing ---


def write(dataset: Dataset, folder: Path) -> None:
    """A buffer and, for tasks of one parameter, a task file per task."""
    require("h5py")
    family = dataset.env_id.split("/")[0]
    name = family.replace("-", "_")
    for index in dataset.task_indices:
        task = dataset.task(index)
        _write_buffer(task, folder / f"buffers_{name}_train_{index}_sub_task_0.hdf5")
        if len(task.parameters) == 1:
            key = _TASK_KEYS.get(family, dataset.spec.task_names[0])
            content = pickle.dumps([{key: float(task.parameters[0])}], protocol=3)
            (folder / f"env_{name}_train_task{index}.pkl").write_bytes(content)


def _write_buffer(task: TaskData, path: Path) -> None:
    bounds = task.episode_start
    width = task.columns["obs"].shape[1] + task.columns["action"].shape[1]
    with require("h5py").File(path, "w") as file:
        file.create_dataset("discount_factor", data=DISCOUNT)
        for first, stop in ranges(bounds, 16 * width):
            numbers = range(first, stop - 1)
            trajectories = [_trajectory(task, number) for number in numbers]
            for name in trajectories[0]:
                rows = np.concatenate([trajectory[name] for trajectory in trajectories])
                dataset = file.require_dataset(
                    name, (task.num_rows, rows.shape[1]), rows.dtype, compression="lzf"
                )
                dataset[bounds[first] : bounds[stop - 1]] = rows


def _trajectory(task: TaskData, number: int) -> Columns:
    """The rows of an episode, counted within the selection."""
    one = task.only(np.array([number]))
    columns = trajectory_rows(one.obs, one.action, one.reward, one.terminated, DISCOUNT)
    columns["truncated"] = one.truncated[::-1, None]
    if "terms" in task.columns:
        columns["terms"] = one.terms[::-1]
    flags = ("terminals", "truncated")
    return {
        name: column if name in flags else column.astype(np.float32)
        for name, column in columns.items()
    }
