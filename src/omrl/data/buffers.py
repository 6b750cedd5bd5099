"""What a training draws from: one buffer, or two that each batch names one of.

SMAC and PEARL keep two: reinforcement-learning batches are of one, the context of the encoder is of
the other, which holds other data, for example the last trajectories alone. `BatchSpec.buffer` says
which one a batch is drawn from; where there is one only, both names mean it.

A run that explores has two of its own besides, and draws from them or from the union of logged and
collected data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from omrl.data.device import DeviceData
from omrl.data.host import HostData
from omrl.data.sample import AnyBatchSpec, AnyInt, count, gather
from omrl.data.trajectories import TrajectorySpec, gather_trajectories
from omrl.exploration import Exploration
from omrl.types import Batch, Trajectory


class Both(NamedTuple):
    """The rows of every task that were logged, and behind them those that were collected."""

    logged: DeviceData
    collected: DeviceData

    @property
    def num_rows(self) -> Int32[Array, " task"]:
        return self.logged.num_rows + self.collected.num_rows


class Buffers(NamedTuple):
    """Two, with the same tasks in the same order, and both on the device or both on the disk."""

    main: DeviceData | HostData | Both
    encoder: DeviceData | HostData | Both


TrainingData = DeviceData | HostData | Buffers


def with_columns(data: TrainingData | None, columns: dict[str, Array] | None) -> Any:
    """`data` with some of its columns replaced by those that a stage prepared, if it did."""
    if columns is None:
        return data
    assert isinstance(data, DeviceData)
    return data._replace(**columns)


def joined(
    data: TrainingData | None, collected: Buffers | None, exploration: Exploration | None
) -> TrainingData:
    """What a stage draws from, of one seed's `collected` with leaves [task, ...]."""
    if exploration is None:
        assert data is not None
        return data
    assert collected is not None
    if exploration.draw == "collected":
        return collected
    logged = data if isinstance(data, Buffers) else Buffers(data, data)  # pyright: ignore
    union = Buffers(*(Both(*pair) for pair in zip(logged, collected, strict=True)))  # pyright: ignore
    return union if exploration.draw == "union" else union._replace(encoder=collected.encoder)


def gather_rows(buffer: DeviceData | Both, task: AnyInt, rows: Int32[Array, "*b"]) -> Batch:
    """The transitions of `rows` of one task."""
    if isinstance(buffer, DeviceData):
        return gather(buffer, task, rows)
    behind = rows - buffer.logged.num_rows[task]
    logged = gather(buffer.logged, task, jnp.where(behind < 0, rows, 0))
    collected = gather(buffer.collected, task, jnp.maximum(behind, 0))

    def choose(old: Array, new: Array) -> Array:
        return jnp.where(
            behind.reshape(behind.shape + (1,) * (old.ndim - behind.ndim)) < 0, old, new
        )

    return jax.tree.map(choose, logged, collected)


def gather_batch(
    buffer: Any, spec: AnyBatchSpec, task: AnyInt, rows: Int32[Array, " sample"]
) -> Batch | Trajectory:
    """What was drawn of one task: transitions, or trajectories by their numbers."""
    if isinstance(spec, TrajectorySpec):
        return gather_trajectories(buffer, spec, task, rows)
    return gather_rows(buffer, task, rows)


def buffers_of(data: TrainingData, specs: tuple[AnyBatchSpec, ...]) -> dict[str, Any]:
    """The buffer that each batch is drawn from, by the name of the batch."""
    two = data if isinstance(data, Buffers) else Buffers(data, data)
    return {spec.name: getattr(two, spec.buffer) for spec in specs}


def is_on_disk(data: TrainingData) -> bool:
    return isinstance(data.main if isinstance(data, Buffers) else data, HostData)


def num_rows(data: TrainingData, specs: tuple[AnyBatchSpec, ...]) -> dict[str, Any]:
    """Of every task in the buffer of each batch, int32 [task], what it draws: transitions, or
    trajectories."""
    buffers = buffers_of(data, specs)
    return {spec.name: count(buffers[spec.name], spec) for spec in specs}
