"""What a training draws from: one buffer, or two that each batch names one of.

SMAC and PEARL keep two: reinforcement-learning batches are of one, the context of the encoder is of
the other, which holds other data, for example the last trajectories alone. `BatchSpec.buffer` says
which one a batch is drawn from; where there is one only, both names mean it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from omrl.data.device import DeviceData
from omrl.data.host import HostData
from omrl.data.sample import BatchSpec


class Buffers(NamedTuple):
    """Two, with the same tasks in the same order, and both on the device or both on the disk."""

    main: DeviceData | HostData
    encoder: DeviceData | HostData


TrainingData = DeviceData | HostData | Buffers


def buffers_of(data: TrainingData, specs: tuple[BatchSpec, ...]) -> dict[str, Any]:
    """The buffer that each batch is drawn from, by the name of the batch."""
    two = data if isinstance(data, Buffers) else Buffers(data, data)
    return {spec.name: getattr(two, spec.buffer) for spec in specs}


def is_on_disk(data: TrainingData) -> bool:
    return isinstance(data.main if isinstance(data, Buffers) else data, HostData)


def num_rows(data: TrainingData, specs: tuple[BatchSpec, ...]) -> dict[str, Any]:
    """Transitions of every task in the buffer of each batch, int32 [task]."""
    return {name: buffer.num_rows for name, buffer in buffers_of(data, specs).items()}
