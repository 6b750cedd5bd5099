"""What is learned from online: the transitions of a task, in a buffer of fixed size on the device.

A buffer holds whole rows of `Batch`, with what is derived from a trajectory written out: the ends
of rows that were overwritten are needed no more, and a bounded buffer may keep half a trajectory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int32, Int64

from omrl.data.device import mc_return, terminal_discount
from omrl.data.sample import BatchSpec, sample_rows
from omrl.types import Batch, Key


class Trajectories(NamedTuple):
    """One per row: per seed and task, or further. What is behind its `length` means nothing."""

    obs: Float32[np.ndarray, "*row time_and_one obs"]
    action: Float32[np.ndarray, "*row time act"]
    """As the physics took it, in [-1, 1]."""
    reward: Float32[np.ndarray, "*row time"]
    length: Int64[np.ndarray, "*row"]
    terminated: Bool[np.ndarray, "*row"]
    """The MDP ended it, not the horizon."""


class Buffer(NamedTuple):
    """The last transitions of one task."""

    rows: Batch
    """Leaves [capacity, ...]: transition n, counted from the first ever, is row n % capacity."""
    written: Int32[Array, ""]
    """Transitions ever put in."""

    @property
    def capacity(self) -> int:
        return self.rows.reward.shape[-1]

    @property
    def stored(self) -> Int32[Array, ""]:
        """Transitions that are there."""
        return jnp.minimum(self.written, self.capacity)


def empty(capacity: int, obs_dim: int, act_dim: int) -> Buffer:
    """A buffer of `capacity` transitions."""

    def floats(*feature: int) -> Array:
        return jnp.zeros((capacity, *feature), jnp.float32)

    rows = Batch(
        obs=floats(obs_dim),
        action=floats(act_dim),
        reward=floats(),
        next_obs=floats(obs_dim),
        terminated=jnp.zeros((capacity,), bool),
        mc_return=floats(),
        terminal_obs=floats(obs_dim),
        terminal_discount=floats(),
    )
    return Buffer(rows, jnp.zeros((), jnp.int32))


def append(buffer: Buffer, rows: Batch, count: int | Int[Array, ""]) -> Buffer:
    """The buffer with the first `count` of `rows` behind what is there, in place of the oldest
    where it is full. There are no more `rows` than it has room for."""
    number = jnp.arange(rows.reward.shape[0])
    place = (buffer.written + number) % buffer.capacity
    nowhere = buffer.capacity
    place = jnp.where(number < count, place, nowhere)
    put = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), buffer.rows, rows)
    return Buffer(put, buffer.written + jnp.asarray(count, jnp.int32))


def draw(buffer: Buffer, spec: BatchSpec, key: Key) -> Batch:
    """A batch of what is there, which must be `spec.size` transitions at least if they are drawn
    without replacement, else one."""
    rows = sample_rows(spec, buffer.stored, key)
    return jax.tree.map(lambda leaf: leaf[rows], buffer.rows)


def transitions(trajectories: Trajectories, discount: float) -> Batch:
    """Transitions with what losses need of their trajectory, leaves [*row, time, ...].

    Those behind the end of a trajectory mean nothing.
    """
    length, reward = trajectories.length, trajectories.reward
    horizon = reward.shape[-1]
    there = np.arange(horizon) < length[..., None]
    starts = np.concatenate([[0], np.cumsum(length.ravel())])

    def spread(values: np.ndarray) -> np.ndarray:
        whole = np.zeros(reward.shape, np.float32)
        whole[there] = values
        return whole

    last = trajectories.obs[(*np.indices(length.shape), length)]
    ends = np.arange(horizon) == length[..., None] - 1
    fields: dict[str, Any] = {
        "obs": trajectories.obs[..., :-1, :],
        "action": trajectories.action,
        "reward": reward,
        "next_obs": trajectories.obs[..., 1:, :],
        "terminated": ends & trajectories.terminated[..., None],
        "mc_return": spread(mc_return(reward[there], starts, discount)),
        "terminal_obs": np.repeat(last[..., None, :], horizon, axis=-2),
        "terminal_discount": spread(terminal_discount(starts, discount)),
    }
    return Batch(**fields)
