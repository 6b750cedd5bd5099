"""What a reader of a result must not miss: lines that stand wherever its numbers do.

No JAX here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from omrl.result_files import Provenance

if TYPE_CHECKING:
    from omrl.results import EvalResult

_MOST_PLACES = 4


def marks(result: EvalResult) -> list[str]:
    """Of one evaluation."""
    return [*test_tasks_note(result.provenance), *_diverged_note(result)]


def by_updates(results: Sequence[EvalResult]) -> list[str]:
    """Of several evaluations of a run what is not true of all of it."""
    return [
        f"after {result.provenance.step:,} updates: {note}"
        for result in results
        for note in _diverged_note(result)
    ]


def test_tasks_note(source: Provenance) -> list[str]:
    """The mark of a run whose test tasks are not unseen."""
    return [f"META-TRAINED IN TEST TASKS, {source.test_tasks}"] if source.test_tasks else []


def in_log(result: EvalResult) -> dict[str, float]:
    """For the log of a training: how many seeds and tasks diverged, if any did."""
    if result.rounds_taken is None:
        return {}
    return {"diverged": float((result.rounds_taken < result.config.rounds[-1]).sum())}


def _diverged_note(result: EvalResult) -> list[str]:
    taken = result.rounds_taken
    if taken is None:
        return []
    places = [
        f"seed {result.provenance.seeds[seed]}, task {result.task_indices[task]} in round "
        f"{taken[seed, task] + 1}"
        for seed, task in np.argwhere(taken < result.config.rounds[-1])
    ]
    shown = "; ".join(places[:_MOST_PLACES]) + "; ..." * (len(places) > _MOST_PLACES)
    return [
        f"ADAPTATION DIVERGED for {len(places)} of {taken.size} seeds and tasks ({shown}): the "
        "outcome of the round before that stands for it and for those after it"
    ]
