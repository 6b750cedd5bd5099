"""The stages of an algorithm together: how long they are, and whether there is data for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from jaxtyping import Int

from omrl.algorithm import Algorithm, Stage
from omrl.data.buffers import Buffers, TrainingData, is_on_disk, num_rows
from omrl.data.device import DeviceData
from omrl.data.sample import BatchSpec, check_sizes, check_specs
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.ranges import INT32_MAX


@cache
def stages_of(algorithm: Algorithm) -> tuple[Stage, ...]:
    """The stages, the same objects for equal algorithms.

    Methods are equal only if they are of the same object: with stages of its own, an algorithm that
    is built again would have its programs traced and compiled again.
    """
    return algorithm.stages()


def num_updates(algorithm: Algorithm) -> int:
    """Updates of all stages together."""
    return sum(stage.steps for stage in algorithm.stages())


def stage_ends(algorithm: Algorithm) -> tuple[int, ...]:
    """Updates of the run at the end of each stage, ascending."""
    return tuple(np.unique(np.cumsum([stage.steps for stage in algorithm.stages()])).tolist())


def check_data(
    algorithm: Algorithm, data: TrainingData | None, task_ids: Int[np.ndarray, " task"]
) -> None:
    """Raises `InputError` if the data of the tasks `task_ids` is too little for a stage, or what it
    collects itself before its first update."""
    if num_updates(algorithm) > INT32_MAX:
        raise InputError(
            f"steps: the stages have {num_updates(algorithm):,} updates together; make fewer, at "
            f"most {INT32_MAX:,}"
        )
    for stage in algorithm.stages():
        if stage.distinct_tasks and stage.task_batch > len(task_ids):
            raise InputError(
                f"task_batch: stage {stage.name} draws {stage.task_batch} tasks per update, the "
                f"data has {len(task_ids)}; use at most that many"
            )
        check_specs(stage.batches)
        of_rows = tuple(spec for spec in stage.batches if isinstance(spec, BatchSpec))
        _check_rows(stage.task_batch, of_rows)
        if not stage.needs_data:
            assert stage.exploration is not None
            rows = [stage.exploration.least_rows()] * len(task_ids)
            check_sizes(of_rows, rows, task_ids.tolist())
            _check_contexts(stage.exploration, rows, task_ids)
            continue
        if data is None:
            raise InputError(f"data: stage {stage.name} learns from logged data; give a dataset")
        if stage.exploration is not None and is_on_disk(data):
            raise InputError(
                f"placement: stage {stage.name} draws logged data together with what it collects, "
                "which is on the device; use placement device"
            )
        if stage.prepare is not None and not isinstance(data, DeviceData):
            raise InputError(
                f"placement: stage {stage.name} prepares the data on the device; use placement "
                "device, or a slice of the data where it does not fit"
            )
        counts = num_rows(data, of_rows)
        for name in ("main", "encoder"):
            specs = tuple(spec for spec in of_rows if spec.buffer == name)
            if specs:
                rows = np.asarray(counts[specs[0].name]).tolist()
                exploration = stage.exploration
                if name == "encoder" and exploration and exploration.draw == "union-main":
                    # Nothing logged is in it.
                    rows = [exploration.least_rows()] * len(rows)
                check_sizes(specs, rows, task_ids.tolist())
        if stage.exploration is not None:
            encoder = data.encoder if isinstance(data, Buffers) else data
            rows = np.asarray(encoder.num_rows).tolist()
            _check_contexts(stage.exploration, rows, task_ids)


def _check_rows(task_batch: int, specs: Sequence[BatchSpec]) -> None:
    """`InputError` for batches whose transitions int32 cannot count."""
    for spec in specs:
        if task_batch * spec.size > INT32_MAX:
            raise InputError(
                f"{spec.name}.size: {spec.size:,} transitions of {task_batch} tasks are more "
                f"than an update can have, {INT32_MAX:,}; draw fewer"
            )


def _check_contexts(
    exploration: Exploration, rows: Sequence[int], task_ids: Int[np.ndarray, " task"]
) -> None:
    """`InputError` where posterior or labels would be inferred from more transitions than there
    are; `rows` has those of every task's encoder buffer before the stage."""
    adds_first = exploration.needs_data and exploration.into_encoder != "none"
    explored = exploration.prior_steps if adds_first else 0
    at = int(np.argmin(rows))
    contexts = rows[at] + explored
    if exploration.draw == "union-main":
        contexts = exploration.least_rows()
    for name, used, there in (
        ("label_context", True, rows[at]),
        ("context_size", exploration.posterior_steps > 0, contexts),
    ):
        size = getattr(exploration, name)
        if used and size > there:
            raise InputError(
                f"exploration.{name}: {size} transitions are drawn of an encoder buffer, and task "
                f"{task_ids[at]} has {there} there; take at most that many, or more data"
            )
