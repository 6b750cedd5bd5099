"""The table of an experiment: one row per arm, every number with its 95 % interval.

Statistics are computed from the raw returns of all arms each time; nothing of them is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omrl import stats
from omrl.config import to_json
from omrl.diagnostics.kinds import KINDS
from omrl.experiments.declare import Experiment, Scale
from omrl.experiments.stages import Outcome
from omrl.marks import marks
from omrl.protocol import Measure
from omrl.results import EvalResult, circumstances, estimate_to_json
from omrl.stats import Estimate
from omrl.tuning import counted

STATISTICS = {"mean": stats.mean, "iqm": stats.iqm}
DIGITS: Mapping[Measure, int] = {"return": 1, "success": 2}
_MEASURED: Mapping[Measure, str] = {
    "return": "",
    "success": "episodes that do at some step what their task asks for, of all; ",
}


@dataclass(frozen=True)
class Row:
    """The numbers of an arm."""

    outcome: Outcome
    before: Estimate
    """Return before adaptation, or share of episodes that succeed."""
    after: Estimate
    """After the last of the evaluation's shots."""
    improvement: Estimate
    """after - before, paired."""
    probability: Estimate | None
    """That a run beats one of the reference method in the same group; None: it is that method, or
    there is no such row."""
    standard_error: Estimate
    """Mean after adaptation with its standard error over seeds, as MACAW's paper has it."""


def make_rows(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[Row]:
    """One row per outcome, in their order."""
    return [_row(experiment, outcome, outcomes) for outcome in outcomes]


def _row(experiment: Experiment, outcome: Outcome, outcomes: Sequence[Outcome]) -> Row:
    statistic, arm = STATISTICS[experiment.statistic], outcome.planned.arm
    before, after = _values(experiment, outcome, 0), _values(experiment, outcome, -1)
    rivals = [
        _values(experiment, other, -1)
        for other in outcomes
        if arm.method != other.planned.arm.method == experiment.reference
        and other.planned.arm.group == arm.group
    ]
    return Row(
        outcome,
        before=stats.bootstrap(before, statistic),
        after=stats.bootstrap(after, statistic),
        improvement=stats.improvement(after, before, statistic),
        probability=stats.probability_of_improvement(after, rivals[0]) if rivals else None,
        standard_error=stats.mean_standard_error(after),
    )


def _values(experiment: Experiment, outcome: Outcome, position: int) -> stats.Returns:
    """[seed, task, episode] of the first (0) or last (-1) shot."""
    shots = outcome.result.config.shots
    return outcome.result.measured(experiment.measure, shots[position])


# --- For a person ---


def table(experiment: Experiment, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and cells; columns that would be empty are left out."""
    numbers, digits = experiment.claim.numbers, DIGITS[experiment.measure]
    columns = {
        "method": [row.outcome.planned.arm.method for row in rows],
        "": [row.outcome.planned.arm.group for row in rows],
        "adaptation": [_adaptation(row.outcome.result) for row in rows],
        "before": [row.before.shown(digits) for row in rows],
        "after": [row.after.shown(digits) for row in rows],
        "improvement": [row.improvement.shown(digits) for row in rows],
        f"P(beats {experiment.reference})": [_probability(row) for row in rows],
        "paper": [str(numbers.get(row.outcome.planned.arm.label, "")) for row in rows],
    }
    columns = {title: cells for title, cells in columns.items() if any(cells)}
    return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def _adaptation(result: EvalResult) -> str:
    """What is between the two columns of returns."""
    last = result.config.shots[-1]
    if result.config.protocol == "explore":
        return f"{last} trajector{'y' if last == 1 else 'ies'}"
    return counted(last, "round") if result.env_steps is None else result.shot_name(last)


def _probability(row: Row) -> str:
    return "" if row.probability is None else row.probability.shown(2)


def notes(experiment: Experiment, scale: Scale, rows: Sequence[Row]) -> list[str]:
    """What has to be read with the numbers, and what the paper says."""
    probabilities = [row.probability.method for row in rows if row.probability]
    claim = experiment.claim
    lines = [
        f"{experiment.id}, scale {scale}",
        *filter(None, [experiment.scales[scale].note]),
        *(line for row in rows for line in _described(row)),
        f"before, after: {_MEASURED[experiment.measure]}{rows[0].after.method}",
        f"improvement: {rows[0].improvement.method}",
        *probabilities,
        *_gains(experiment, rows),
        *_better(experiment, rows),
        f"paper: {claim.words} ({claim.source})",
    ]
    if claim.spread:
        lines.append(f"± of the paper: {claim.spread}")
    if experiment.deviates:
        lines.append(f"deviates: {experiment.deviates}")
    return list(dict.fromkeys(lines))


def _described(row: Row) -> list[str]:
    """What its evaluation is; what a reader must not miss of it with its label."""
    result = row.outcome.result
    marked, label = marks(result), row.outcome.planned.arm.label
    return [f"{label}: {each}" if each in marked else each for each in circumstances(result)]


def _gains(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """What a run's later stages gain on the end of the one that another row is about."""
    lines = []
    for early in (row for row in rows if row.outcome.planned.arm.after):
        for late in rows:
            same_run = late.outcome.folder == early.outcome.folder
            evaluations = {row.outcome.planned.evaluation for row in (early, late)}
            if same_run and not late.outcome.planned.arm.after and len(evaluations) == 1:
                statistic = STATISTICS[experiment.statistic]
                after, before = (_values(experiment, row.outcome, -1) for row in (late, early))
                gain = stats.improvement(after, before, statistic)
                labels = [row.outcome.planned.arm.label for row in (late, early)]
                lines.append(f"{labels[0]}, minus {labels[1]}: {gain} ({gain.method})")
    return lines


def _better(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Which of the methods that the paper takes the better of it is, by name of the choice."""
    lines = []
    for name, methods in experiment.better_of.items():
        some = [row for row in rows if row.outcome.planned.arm.method in methods]
        if len(some) < len(methods):
            continue
        best = max(some, key=lambda row: row.after.value)
        lines.append(
            f"{name}, the better one as in the paper: {best.outcome.planned.arm.method}, "
            f"{best.after} (chosen by what is shown, so not without bias)"
        )
    return lines


# --- For a program ---


def to_object(row: Row) -> dict[str, Any]:
    """A row as JSON values."""
    outcome, planned = row.outcome, row.outcome.planned
    source = outcome.result.provenance
    return {
        "label": planned.arm.label,
        "method": planned.arm.method,
        "group": planned.arm.group,
        "collects": planned.arm.collects,
        "preset": planned.preset,
        "run": str(outcome.folder),
        "data_hash": outcome.data_hash,
        "updates": source.step,
        "seeds": list(source.seeds),
        "tasks": outcome.result.task_indices.tolist(),
        "evaluation": to_json(outcome.result.config),
        "before": estimate_to_json(row.before),
        "after": estimate_to_json(row.after),
        "improvement": estimate_to_json(row.improvement),
        "probability": row.probability and estimate_to_json(row.probability),
        "standard_error": estimate_to_json(row.standard_error),
        "seconds": outcome.seconds,
        "updates_per_s": outcome.updates_per_s,
        **{
            name: [result.to_json() for result in outcome.diagnoses.get(name, ())] for name in KINDS
        },
    }
