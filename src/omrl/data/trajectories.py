"""Batches of whole trajectories: a few episodes of one task, one behind the other.

For methods that carry what they know from one episode to the next (BOReL, VariBAD). The episodes of
a lifetime are cut into trajectories in their order, and the last one has what is left. Trajectories
are padded to a fixed number of steps, and say which of these there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32

from omrl.data.device import DeviceData
from omrl.data.host import HostData
from omrl.ranges import Count, check_ranges
from omrl.types import Trajectory

AnyInt = int | Int[Array, ""]


@dataclass(frozen=True)
class TrajectorySpec:
    """A batch of `size` trajectories of one task, drawn with replacement and equally likely."""

    name: str
    size: Count
    episodes: Count
    """Of a trajectory; its last one may have fewer."""
    horizon: Count
    """Most steps of an episode."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def steps(self) -> int:
        """Of a padded trajectory."""
        return self.episodes * self.horizon

    @property
    def buffer(self) -> str:
        """Trajectories are of the main one."""
        return "main"


# --- How many there are ---


def num_trajectories(data: Any, episodes: int) -> Any:
    """Of every task, int32 [task]; `data` is a `DeviceData` or a `HostData`."""
    if isinstance(data, HostData):
        counts = np.array([len(task.starts) - 1 for task in data.tasks], np.int32)
        return -(-counts // episodes)
    last = data.num_rows - 1
    row = jnp.take_along_axis(data.obs_index, last[:, None], axis=1)[:, 0]
    return -(-(row - last + 1) // episodes)


# --- From their numbers to their transitions ---


def gather_trajectories(
    data: DeviceData, spec: TrajectorySpec, task: AnyInt, numbers: Int32[Array, " sample"]
) -> Trajectory:
    """Of one task, leaves [sample, step, ...]."""

    def one(number: Int32[Array, ""]) -> Trajectory:
        first, stop = (_first_row(data, task, spec.episodes * (number + k)) for k in (0, 1))
        row = first + jnp.arange(spec.steps)
        valid, row = row < stop, jnp.minimum(row, stop - 1)
        obs_row = data.obs_index[task, row]
        obs, next_obs = (data.obs[task, at].astype(jnp.float32) for at in (obs_row, obs_row + 1))
        action, reward = data.action[task, row], data.reward[task, row]
        return Trajectory(obs, action, reward, next_obs, data.terminated[task, row], valid)

    return jax.vmap(one)(numbers)


def _first_row(data: DeviceData, task: AnyInt, episode: Int32[Array, ""]) -> Int32[Array, ""]:
    """Row of a task at which an episode begins; the number of all its rows behind the last one.

    Before episode e there are e observations more than transitions, so that a row's episode is
    known; the first row of one is found by halving the rows.
    """

    def halve(_: AnyInt, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        earlier = data.obs_index[task, middle] - middle < episode
        closed = low == high
        return (
            jnp.where(earlier & ~closed, middle + 1, low),
            jnp.where(earlier | closed, high, middle),
        )

    most = data.obs_index.shape[1].bit_length()
    none = jnp.zeros((), jnp.int32)
    return jax.lax.fori_loop(0, most, halve, (none, data.num_rows[task]))[0]


def read_trajectories(
    data: HostData,
    spec: TrajectorySpec,
    tasks: Int[np.ndarray, "*lead"],
    numbers: Int[np.ndarray, ...],
) -> Trajectory:
    """Of each of `tasks`, which are positions: of `numbers` [*lead, sample] leaves [*lead, sample,
    step, ...], of numpy. Like `gather_trajectories`, bit for bit."""
    first, stop = np.empty_like(numbers), np.empty_like(numbers)
    for task in np.unique(tasks):
        starts, chosen = data.tasks[task].starts, numbers[tasks == task] * spec.episodes
        first[tasks == task] = starts[chosen]
        stop[tasks == task] = starts[np.minimum(chosen + spec.episodes, len(starts) - 1)]
    row = first[..., None] + np.arange(spec.steps)
    valid = row < stop[..., None]
    batch = data.gather(tasks, np.minimum(row, stop[..., None] - 1))
    columns = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated)
    return Trajectory(*columns, valid)  # pyright: ignore[reportArgumentType]
