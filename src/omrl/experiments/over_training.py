"""What the methods of an experiment reach over their meta-training, point by point.

Made of experiments that are about success, whose paper tells how it falls again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omrl import stats
from omrl.experiments.declare import Experiment
from omrl.experiments.rows import DIGITS, Row
from omrl.results import EvalResult, estimate_to_json
from omrl.stats import Estimate


def sections(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One of the table's and page's sections, or none."""
    rows = [row for row in rows if len(row.outcome.curve) > 1]
    if experiment.measure == "return" or not rows:
        return []
    digits = DIGITS[experiment.measure]
    shown = {
        row.outcome.planned.arm.label: {
            result.provenance.step: _estimate(experiment, result).shown(digits)
            for result in row.outcome.curve
        }
        for row in rows
    }
    steps = sorted({step for points in shown.values() for step in points})
    return [
        {
            "title": f"{experiment.measure.title()} after adaptation over meta-training",
            "header": ["updates", *shown],
            "rows": [
                [f"{step:,}", *(points.get(step, "") for points in shown.values())]
                for step in steps
            ],
            "summary": (),
            "notes": [_highest(experiment, row) for row in rows],
            "figures": [],
        }
    ]


def to_object(experiment: Experiment, row: Row) -> dict[str, Any]:
    """The curve of a row as JSON values."""
    if experiment.measure == "return":
        return {}
    points = [
        {
            "updates": result.provenance.step,
            "after": estimate_to_json(_estimate(experiment, result)),
        }
        for result in row.outcome.curve
    ]
    of_data = row.outcome.result.mean_behaviour_success()
    return {"curve": points, "behaviour_success": of_data}


def _values(experiment: Experiment, result: EvalResult) -> stats.Returns:
    return result.measured(experiment.measure, result.config.shots[-1])


def _estimate(experiment: Experiment, result: EvalResult) -> Estimate:
    return stats.bootstrap(_values(experiment, result), stats.mean)


def _highest(experiment: Experiment, row: Row) -> str:
    """Where the curve of a run is highest, and what the rest of the training changes of it."""
    curve, digits = row.outcome.curve, DIGITS[experiment.measure]
    best = max(reversed(curve), key=lambda result: _estimate(experiment, result).value)
    label, highest = row.outcome.planned.arm.label, _estimate(experiment, best).shown(digits)
    when = f"{label}: highest after {best.provenance.step:,} updates, {highest}"
    if best is curve[-1]:
        return f"{when}, its last"
    change = stats.improvement(_values(experiment, curve[-1]), _values(experiment, best))
    return (
        f"{when}; at the end that plus {change.shown(digits)} ({change.method}; the highest is "
        "chosen by what is shown, on test tasks, so the fall is overstated)"
    )
