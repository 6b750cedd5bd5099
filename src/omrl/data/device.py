"""The data of many tasks on the device, ready to be sampled inside a jitted program.

Nothing is stored twice: next and terminal observations are rows of `obs` and are found through
`obs_index` and `terminal_index`. Tasks are padded to the longest one; nothing reads the padding.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64, Int32, Int64

from omrl.data.dataset import TaskView
from omrl.data.mixture import DataView


class DeviceData(NamedTuple):
    """Whole lifetimes of many tasks, in the order in which `load` was given the tasks."""

    obs: Float[Array, "task obs_row obs"]
    """One row more per episode than the other columns have: its last observation. In the dataset's
    own precision, float16 or float32."""
    action: Float32[Array, "task row act"]
    reward: Float32[Array, "task row"]
    terminated: Bool[Array, "task row"]
    mc_return: Float32[Array, "task row"]
    terminal_discount: Float32[Array, "task row"]
    obs_index: Int32[Array, "task row"]
    """Row of `obs` before the transition; the next observation is the row behind it."""
    terminal_index: Int32[Array, "task row"]
    """Row of `obs` at the end of the episode."""
    num_rows: Int32[Array, " task"]
    """Transitions of each task; rows from there on are padding."""


# --- What is derived from the columns ---


def mc_return(
    reward: Float[np.ndarray, " rows"],
    episode_start: Int64[np.ndarray, " boundaries"],
    discount: float,
) -> Float64[np.ndarray, " rows"]:
    """Discounted sum of rewards to the end of the recorded episode, without a bootstrap."""
    result = reward.astype(np.float64)
    lengths = np.diff(episode_start)
    for step in range(1, int(lengths.max())):
        rows = (episode_start[1:] - 1 - step)[lengths > step]
        result[rows] += discount * result[rows + 1]
    return result


def terminal_discount(
    episode_start: Int64[np.ndarray, " boundaries"], discount: float
) -> Float64[np.ndarray, " rows"]:
    """discount^(steps to the end of the episode); `discount` for its last transition."""
    ends = np.repeat(episode_start[1:], np.diff(episode_start))
    return discount ** (ends - np.arange(len(ends)))


def obs_index(episode_start: Int64[np.ndarray, " boundaries"]) -> Int64[np.ndarray, " rows"]:
    """Row of `obs` before every transition."""
    lengths = np.diff(episode_start)
    return np.arange(lengths.sum()) + np.repeat(np.arange(len(lengths)), lengths)


def terminal_index(episode_start: Int64[np.ndarray, " boundaries"]) -> Int64[np.ndarray, " rows"]:
    """Row of `obs` at the end of the episode of every transition."""
    lengths = np.diff(episode_start)
    return np.repeat(episode_start[1:] + np.arange(len(lengths)), lengths)


# --- Loading ---


def byte_budget(view: DataView, task_indices: Sequence[int]) -> dict[str, int]:
    """Bytes on the device of every field of `load`, and their `total`; allocates nothing."""
    shapes = _shapes(view, (view.task(index) for index in task_indices))
    sizes = {name: int(np.prod(shape)) * dtype.itemsize for name, (shape, dtype) in shapes.items()}
    return sizes | {"total": sum(sizes.values())}


def free_memory(device: Any) -> int:
    """Bytes that arrays may still take on `device`."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":") for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def load(view: DataView, task_indices: Sequence[int], *, discount: float) -> DeviceData:
    """The selected episodes of the tasks on the default device; floats but `obs` as float32.

    Goes task by task, so that the host holds one padded task beside the result. Every file that is
    read is compared with its sha256: `InputError` names the one that differs.
    """
    shapes = _shapes(view, (view.task(index) for index in task_indices))
    fields = {name: jnp.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}
    for position, index in enumerate(task_indices):
        task = view.task(index)
        task.check_hashes()
        for name, column in _fields(task, discount).items():
            shape, dtype = shapes[name]
            padded = np.zeros(shape[1:], dtype)
            padded[: len(column)] = column
            fields[name] = _put(fields[name], padded, np.int32(position))
    fields["num_rows"] = jnp.array([view.task(index).num_rows for index in task_indices], jnp.int32)
    return DeviceData(**fields)


def _shapes(
    view: DataView, tasks: Iterable[TaskView]
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    sizes = [(task.num_rows, task.num_episodes) for task in tasks]
    rows = max(rows for rows, _ in sizes)
    obs_rows = max(rows + episodes for rows, episodes in sizes)
    spec, floats, indices = view.spec, np.dtype(np.float32), np.dtype(np.int32)
    by_row = {
        "reward": floats,
        "terminated": np.dtype(bool),
        "mc_return": floats,
        "terminal_discount": floats,
        "obs_index": indices,
        "terminal_index": indices,
    }
    return {
        "obs": ((len(sizes), obs_rows, spec.obs_dim), view.dtype),
        "action": ((len(sizes), rows, spec.act_dim), floats),
        **{name: ((len(sizes), rows), dtype) for name, dtype in by_row.items()},
        "num_rows": ((len(sizes),), indices),
    }


def _fields(task: TaskView, discount: float) -> dict[str, np.ndarray]:
    starts, reward = task.episode_start, task.reward
    return {
        "obs": task.obs,
        "action": task.action,
        "reward": reward,
        "terminated": task.terminated,
        "mc_return": mc_return(reward, starts, discount),
        "terminal_discount": terminal_discount(starts, discount),
        "obs_index": obs_index(starts),
        "terminal_index": terminal_index(starts),
    }


@partial(jax.jit, donate_argnums=0)
def _put(field: Array, value: Array, position: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(field, value, position, 0)
