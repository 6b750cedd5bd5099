"""The result of diagnosis `rewards`: errors of predicted rewards. No JAX here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Int64

from omrl import stats
from omrl.diagnostics.base import SOURCES, Diagnosis, Kinds, describe_contexts
from omrl.result_files import Head
from omrl.results import estimate_to_json

LOGGED = ("trained-on", "held-out")
TRANSITIONS = (*LOGGED, "explored")
"""Whose rewards are predicted: logged ones that the run was trained on or not, and explored ones
that are in no context."""


@dataclass(frozen=True)
class RewardsResult(Diagnosis):
    """Mean squared errors."""

    error: Float64[np.ndarray, "source transitions seed task repetition"]
    """Of predictions, told a context of the source; NaN where there is no such context, or there
    are no such transitions."""
    constant: Float64[np.ndarray, "transitions seed task repetition"]
    """Of the constant that fits the rewards of all repetitions of a seed and task best."""
    tried: Int64[np.ndarray, "transitions seed task repetition"]
    """Transitions that both are over."""

    FORMAT: ClassVar[str] = "omrl-rewards-1"

    @classmethod
    def kinds(cls, head: Head, tasks: int, arrays: Mapping[str, np.ndarray]) -> Kinds:
        rows = (len(TRANSITIONS), len(head.provenance.seeds), tasks, head.config.episodes)
        return {
            "error": (np.float64, (len(SOURCES), *rows)),
            "constant": (np.float64, rows),
            "tried": (np.int64, rows),
        }

    def error_of(self, source: str, name: str, group: str) -> stats.Estimate | None:
        """Mean over the tasks of a group that have such transitions and such a context, with its
        interval; None where none has."""
        errors = self.error[SOURCES.index(source), TRANSITIONS.index(name)]
        return _mean(errors[:, self.groups[group]])

    def constant_of(self, name: str, group: str) -> stats.Estimate | None:
        """The same of the best constant."""
        return _mean(self.constant[TRANSITIONS.index(name)][:, self.groups[group]])

    def to_json(self) -> dict[str, Any]:
        groups = {name: self._group(name) for name in self.groups}
        return {**self.head_to_json(), "groups": groups}

    def _group(self, group: str) -> dict[str, Any]:
        def told(estimate: stats.Estimate | None) -> Any:
            return estimate and estimate_to_json(estimate)

        return {
            name: {
                **{source: told(self.error_of(source, name, group)) for source in SOURCES},
                "constant": told(self.constant_of(name, group)),
            }
            for name in TRANSITIONS
        }


def _mean(errors: Float64[np.ndarray, "seed task repetition"]) -> stats.Estimate | None:
    there = _there(errors)
    return stats.bootstrap(errors[:, there], stats.mean) if there.any() else None


def _there(errors: np.ndarray) -> np.ndarray:
    """Tasks that there are numbers of."""
    return np.asarray(np.isfinite(errors).all((0, 2)))


def change(
    first: RewardsResult, last: RewardsResult, name: str, group: str
) -> stats.Estimate | None:
    """Of the error with a context of data between two checkpoints, paired."""
    before, after = (
        each.error[0, TRANSITIONS.index(name)][:, each.groups[group]] for each in (first, last)
    )
    there = _there(before) & _there(after)
    return stats.improvement(after[:, there], before[:, there]) if there.any() else None


# --- The printed table ---


def table(results: Sequence[RewardsResult]) -> tuple[list[str], list[list[str]]]:
    """Header and a row per checkpoint, group of tasks and kind of transitions."""
    told = [f"error, {source} context" for source in SOURCES]
    header = ["updates", "tasks", "transitions", *told, "best constant"]
    rows = []
    for result in results:
        for group in result.groups:
            for name in TRANSITIONS:
                cells = [result.error_of(source, name, group) for source in SOURCES]
                cells.append(result.constant_of(name, group))
                if any(cells):
                    step = f"{result.provenance.step:,}"
                    rows.append([step, group, name, *map(_shown, cells)])
    return header, rows


def describe(results: Sequence[RewardsResult]) -> list[str]:
    """What has to be printed with the numbers."""
    first, last = results[0], results[-1]
    lines = describe_contexts(results)
    for name, tasks in last.groups.items():
        lines.append(f"{name} tasks {', '.join(map(str, last.task_indices[tasks]))}")
        moved = change(first, last, "explored", name) if len(results) > 1 else None
        if moved is not None:
            lines.append(
                f"{name} tasks, explored transitions, offline context: error after "
                f"{last.provenance.step:,} minus after {first.provenance.step:,} updates "
                f"{moved.shown(3)} ({moved.method})"
            )
    estimate = next(
        each
        for name in TRANSITIONS
        if (each := last.constant_of(name, next(iter(last.groups)))) is not None
    )
    return [
        *lines,
        f"error: mean squared, of predicted rewards; {estimate.method}",
        "transitions: logged ones that the run was trained on (trained-on) or not (held-out: "
        "outside of its slice, or of tasks that it did not train on), and explored ones that are "
        "in no context",
        "best constant: one for all repetitions of a seed and task; its mean error is their "
        "variance",
    ]


def _shown(estimate: stats.Estimate | None) -> str:
    return "-" if estimate is None else estimate.shown(3)
