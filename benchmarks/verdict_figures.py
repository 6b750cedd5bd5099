"""The figures of docs/verdicts.md from the raw numbers in results/; `verdicts.py` writes them.

They look as those that `omrl reproduce` leaves, of the rows that were run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from difference import RESULTS
from evidence import MEASURED
from omrl import figures, stats
from omrl.diagnostics.kinds import KINDS
from omrl.experiments.declare import plan
from omrl.experiments.lifetimes import Lifetime, Read
from omrl.experiments.lifetimes_page import curves
from omrl.experiments.registry import BEHAVIOUR, EXPERIMENTS
from omrl.experiments.rows import STATISTICS
from omrl.figures import MethodPoint
from omrl.omniglot import settings as omniglot
from omrl.omniglot.results import Curve, footer
from omrl.omniglot.results import curves as accuracy_curves
from omrl.omniglot.split import SIDES, Split
from omrl.omniglot.training import slug
from omrl.report import pictures_of
from omrl.results import EvalResult


@dataclass(frozen=True)
class Picture:
    """A file beside the page."""

    name: str
    caption: str
    content: bytes
    """SVG."""


@dataclass(frozen=True)
class Row:
    """A row of an experiment's table that was run."""

    label: str
    point: MethodPoint
    result: EvalResult


def rows_of(name: str) -> tuple[list[Row], list[str]]:
    """Those of the experiment whose returns are in results/, in its order, and the labels of the
    others. Raises `KeyError` for a row that it has not, `InputError` for a named file that is not
    there."""
    experiment = EXPERIMENTS[name]
    found, missing = [], []
    given = dict(MEASURED[name].rows)
    for planned in plan(experiment, "gpu"):
        arm = planned.arm
        path = RESULTS / f"{given.pop(arm.label, f'{name}/{planned.slug}')}.npz"
        if not path.exists() and arm.label not in MEASURED[name].rows:
            missing.append(arm.label)
            continue
        result = EvalResult.load(path)
        before, after = (
            stats.bootstrap(
                result.measured(experiment.measure, result.config.shots[at]),
                STATISTICS[experiment.statistic],
            )
            for at in (0, -1)
        )
        point = MethodPoint(arm.method, arm.group, before, after)
        found.append(Row(arm.label, point, result))
    if given:
        raise KeyError(f"{name} has no rows {', '.join(given)}")
    return found, missing


def pictures(name: str, rows: Sequence[Row]) -> Iterator[Picture]:
    """Of an experiment of methods or of a diagnosis."""
    measured = MEASURED[name]
    if name == omniglot.ID:
        yield Picture(name, "Accuracy over meta-training, and its standard error.", _omniglot())
    elif measured.diagnosis:
        kind = KINDS[measured.diagnosis]
        results = [kind.result.load(RESULTS / file) for file in measured.checkpoints]
        for each in pictures_of(measured.diagnosis, results, EXPERIMENTS[name].pictures):
            yield Picture(f"{name}-{each.name}", each.caption, each.draw(results))
    elif rows:
        experiment = EXPERIMENTS[name]
        draw = figures.methods_lines if experiment.figure == "lines" else figures.methods_bars
        points = [row.point for row in rows]
        caption = f"{experiment.measure.title()} after adaptation, with 95 % intervals."
        yield Picture(name, caption, draw(points, experiment.measure))


def of_data(name: str) -> Picture:
    """Of an experiment that draws behaviour data: the problems whose episodes are kept."""
    experiment = BEHAVIOUR[name]
    there = {path.stem for path in (RESULTS / name).glob("*.npz")}
    found = [
        Read(problem, "", "", "", {}, "", tuple(_lifetimes(f"{name}/{problem.name}.npz")))
        for problem in experiment.problems
        if problem.name in there
    ]
    missing = [each.name for each in experiment.problems if each.name not in there]
    caption = "A line per task: means of parts of its lifetime."
    if missing:
        caption += f" Episodes not kept: {', '.join(missing)}."
    return Picture(name, caption, curves(found, experiment.symlog))


def _lifetimes(file: str) -> Iterator[Lifetime]:
    with np.load(RESULTS / file) as arrays:
        ends = np.cumsum(arrays["episodes"])[:-1]
        returns, lengths = (np.split(arrays[name], ends) for name in ("returns", "lengths"))
        tasks, finals = arrays["tasks"], arrays["final_returns"]
        hits = np.split(arrays["success"], ends) if "success" in arrays else [None] * len(tasks)
    for task, summed, played, hit, final in zip(tasks, returns, lengths, hits, finals, strict=True):
        yield Lifetime(int(task), "", "", summed, played, hit, float(final))


def _omniglot() -> bytes:
    """Of the networks of Figure 6."""
    folder = RESULTS / omniglot.ID
    told, found = json.loads((folder / "results.json").read_text()), []
    for label in (row["label"] for row in told["rows"]):
        with np.load(folder / f"{slug(label)}.npz") as arrays:
            found.append(Curve(label, arrays["steps"].tolist(), arrays["accuracy"]))
    sides = {side: tuple(told["split"][side]) for side in SIDES}
    return accuracy_curves(found, footer(Split(**sides, rule=told["split"]["rule"])))
