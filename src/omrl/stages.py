"""The stages of an algorithm together: how long they are, and whether there is data for them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from omrl.algorithm import Algorithm
from omrl.data.buffers import TrainingData, is_on_disk, num_rows
from omrl.data.sample import check_sizes, check_specs
from omrl.errors import InputError


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
    for stage in algorithm.stages():
        if stage.distinct_tasks and stage.task_batch > len(task_ids):
            raise InputError(
                f"task_batch: stage {stage.name} draws {stage.task_batch} tasks per update, the "
                f"data has {len(task_ids)}; use at most that many"
            )
        check_specs(stage.batches)
        if not stage.needs_data:
            assert stage.exploration is not None
            rows = [stage.exploration.least_rows()] * len(task_ids)
            check_sizes(stage.batches, rows, task_ids.tolist())
            continue
        if data is None:
            raise InputError(f"data: stage {stage.name} learns from logged data; give a dataset")
        if stage.exploration is not None and is_on_disk(data):
            raise InputError(
                f"placement: stage {stage.name} draws logged data together with what it collects, "
                "which is on the device; use placement device"
            )
        counts = num_rows(data, stage.batches)
        for name in ("main", "encoder"):
            specs = tuple(spec for spec in stage.batches if spec.buffer == name)
            if specs:
                rows = np.asarray(counts[specs[0].name]).tolist()
                check_sizes(specs, rows, task_ids.tolist())
