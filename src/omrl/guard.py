"""From "this chunk met a NaN" to the update, the seed, the task and the tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Int, Num

from omrl.algorithm import Stage
from omrl.checkpoint import leaf_names
from omrl.chunk import Layout, train_chunk
from omrl.data.buffers import Buffers, TrainingData
from omrl.errors import NonFiniteError


def is_finite(
    metrics: Mapping[str, Num[np.ndarray, "seed ..."]], finite: Bool[np.ndarray, "seed leaf"]
) -> bool:
    """Whether every metric and every leaf of the new states of a chunk is."""
    return bool(np.all(finite)) and all(np.all(np.isfinite(rows)) for rows in metrics.values())


def locate(
    stage: Stage,
    layout: Layout,
    states: Any,
    data: TrainingData | None,
    seeds: Int[np.ndarray, " seed"],
    task_ids: Int[np.ndarray, " task"],
    *,
    first: int,
    num_updates: int,
    collected: Buffers | None = None,
    prepared: dict[str, Array] | None = None,
) -> NonFiniteError:
    """The error for a chunk that was not finite, found by repeating it one update at a time.

    Args:
        states: of the chunk's start, at update number `first`. The repetition is exact: same
            program, same keys.
    """
    for step in range(first, first + num_updates):
        states, metrics, finite = train_chunk(
            stage, layout, states, data, seeds, task_ids, 1, collected, prepared
        )
        metrics = {name: np.asarray(rows)[:, 0] for name, rows in metrics.items()}
        finite = np.asarray(finite)
        if not is_finite(metrics, finite):
            where = _describe(metrics, finite, seeds, leaf_names(states))
            return NonFiniteError(f"stage {stage.name}, update {step + 1}: {where}")
    raise RuntimeError("a chunk that was not finite is finite when repeated: faulty hardware?")


def _describe(
    metrics: Mapping[str, Num[np.ndarray, "seed ..."]],
    finite: Bool[np.ndarray, "seed leaf"],
    seeds: Int[np.ndarray, " seed"],
    leaves: list[str],
) -> str:
    """`seed 3, task 17: metric value_loss, leaf value.layers[0].kernel` of the first bad seed, and
    which others are."""
    bad = {name: ~np.isfinite(rows) for name, rows in metrics.items()}
    seed, *others = (
        seed
        for seed in range(len(seeds))
        if not finite[seed].all() or any(rows[seed].any() for rows in bad.values())
    )
    of_seed = {name: rows[seed] for name, rows in bad.items() if rows[seed].any()}
    by_task = {name: rows for name, rows in of_seed.items() if rows.ndim == 1}
    sampled = metrics["task"][seed]
    tasks = f"one of the tasks {', '.join(map(str, sampled))}"
    tensors = []
    for name, rows in by_task.items() or of_seed.items():
        tensors.append(f"metric {name}")
        if by_task:
            tasks = f"task {sampled[int(np.argmax(rows))]}"
        break
    if not finite[seed].all():
        tensors.append(f"leaf {leaves[int(np.argmin(finite[seed]))]}")
    alike = f"; also of seed {', '.join(str(seeds[other]) for other in others)}" if others else ""
    return f"seed {seeds[seed]}, {tasks}: {', '.join(tensors)} not finite{alike}"
