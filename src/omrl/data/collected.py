"""What a run collected itself, on the device: `DeviceData` with room for what is still to come.

The buffers of a seed have leaves [task, row, ...] and are filled with whole trajectories, each
behind those that are there. So sampling is that of logged data, and nothing is stored twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from omrl.data.buffers import Buffers
from omrl.data.device import DeviceData
from omrl.exploration import Room
from omrl.layout import Layout, on_all_seeds

BLOCK = 8
"""Trajectories of each seed that are put in by one call."""


class Block(NamedTuple):
    """Trajectories of one seed in the order in which they are put in."""

    task: Int32[Array, "*seed trajectory"]
    """Positions along the first axis of the buffers."""
    length: Int32[Array, "*seed trajectory"]
    """0: there is none."""
    clears: Bool[Array, "*seed trajectory"]
    """The task's encoder buffer is emptied before it."""
    in_encoder: Bool[Array, "*seed trajectory"]
    """The encoder buffer gets it too."""
    obs: Float32[Array, "*seed trajectory time_and_one obs"]
    action: Float32[Array, "*seed trajectory time act"]
    reward: Float32[Array, "*seed trajectory time"]
    terminated: Bool[Array, "*seed trajectory time"]
    mc_return: Float32[Array, "*seed trajectory time"]
    terminal_discount: Float32[Array, "*seed trajectory time"]


def shapes(num_tasks: int, room: Room, obs_dim: int, act_dim: int) -> DeviceData:
    """Of the buffer of one seed, as `jax.ShapeDtypeStruct`."""
    rows, obs_rows = (num_tasks, room.rows), (num_tasks, room.rows + room.trajectories)
    kinds = {
        "obs": ((*obs_rows, obs_dim), jnp.float32),
        "action": ((*rows, act_dim), jnp.float32),
        "reward": (rows, jnp.float32),
        "terminated": (rows, bool),
        "mc_return": (rows, jnp.float32),
        "terminal_discount": (rows, jnp.float32),
        "obs_index": (rows, jnp.int32),
        "terminal_index": (rows, jnp.int32),
        "num_rows": ((num_tasks,), jnp.int32),
    }
    fields: dict[str, Any] = {n: jax.ShapeDtypeStruct(*kind) for n, kind in kinds.items()}
    return DeviceData(**fields)


def num_bytes(buffers: Buffers) -> int:
    """Of arrays or of their shapes."""
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(buffers))


def empty(layout: Layout, num_seeds: int, of_one: Buffers) -> Buffers:
    """Buffers of so many seeds with nothing in them, leaves [seed, task, ...]."""

    def make() -> Buffers:
        return jax.tree.map(lambda x: jnp.zeros((num_seeds, *x.shape), x.dtype), of_one)

    return jax.jit(make, out_shardings=layout.by_seed)()


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def fill(layout: Layout, buffers: Buffers, block: Block) -> Buffers:
    """`buffers` with the trajectories of `block` in them, one after the other."""

    def one_seed(buffers: Buffers, block: Block) -> Buffers:
        def put_next(buffers: Buffers, one: Block) -> tuple[Buffers, None]:
            main, encoder = buffers
            assert isinstance(main, DeviceData)
            assert isinstance(encoder, DeviceData)
            cleared = jnp.where(one.clears, 0, encoder.num_rows[one.task])
            encoder = encoder._replace(num_rows=encoder.num_rows.at[one.task].set(cleared))
            kept = jnp.where(one.in_encoder, one.length, 0)
            return Buffers(_put(main, one, one.length), _put(encoder, one, kept)), None

        return jax.lax.scan(put_next, buffers, block)[0]

    return on_all_seeds(one_seed, layout, (buffers, block))


def _put(buffer: DeviceData, one: Block, length: Int32[Array, ""]) -> DeviceData:
    """The buffer with the first `length` steps of one trajectory, a row of `Block`."""
    task, first = one.task, buffer.num_rows[one.task]
    before = buffer.obs_index[task, jnp.maximum(first - 1, 0)] + 2
    first_obs = jnp.where(first > 0, before, 0)
    time = jnp.arange(one.reward.shape[0])
    # Rows that are not there go behind the end, where writing does nothing.
    row = jnp.where(time < length, first + time, buffer.reward.shape[1])
    time_and_one = jnp.arange(len(time) + 1)
    there = (time_and_one <= length) & (length > 0)
    obs_row = jnp.where(there, first_obs + time_and_one, buffer.obs.shape[1])
    columns = {
        "action": one.action,
        "reward": one.reward,
        "terminated": one.terminated,
        "mc_return": one.mc_return,
        "terminal_discount": one.terminal_discount,
        "obs_index": first_obs + time,
        "terminal_index": jnp.broadcast_to(first_obs + length, time.shape),
    }
    put = {
        name: getattr(buffer, name).at[task, row].set(column, mode="drop")
        for name, column in columns.items()
    }
    obs = buffer.obs.at[task, obs_row].set(one.obs, mode="drop")
    return DeviceData(**put, obs=obs, num_rows=buffer.num_rows.at[task].add(length))
