"""One run over several processes: start them, agree, gather.

Every process runs the same program. What only one of them knows (a signal, the time a chunk took)
is agreed on before it decides anything, or the processes would wait for each other forever.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Float64

from omrl.errors import InputError


def initialise(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins the processes of a run. Before anything else touches a device.

    Args:
        coordinator: HOST:PORT at which process 0 can be reached by all.
    """
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise InputError(f"coordinator: {coordinator!r} is not HOST:PORT, as in 10.0.0.1:9000")
    if not 0 <= process_id < num_processes:
        raise InputError(f"process_id: {process_id} is not in 0 … {num_processes - 1}")
    jax.distributed.initialize(coordinator, num_processes, process_id)


def is_main() -> bool:
    """Whether this process is the one that evaluates and writes logs."""
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Returns when every process has come to this point."""
    multihost_utils.sync_global_devices(name)


def agree_on_max(values: Float64[np.ndarray, " value"]) -> Float64[np.ndarray, " value"]:
    """The largest of each value over all processes, the same on every one."""
    if jax.process_count() == 1:
        return values
    return np.max(np.stack(_gather_float64(values)), axis=0)


def gather(states: Any) -> Any:
    """`states` with every seed at hand on every process."""
    if jax.process_count() == 1:
        return states
    return multihost_utils.process_allgather(states, tiled=True)


def _gather_float64(values: Float64[np.ndarray, " value"]) -> list[np.ndarray]:
    # Devices drop float64 to float32 by default, so the bits travel.
    words = multihost_utils.process_allgather(values.view(np.uint32))
    return [np.asarray(row, np.uint32).view(np.float64) for row in words]
