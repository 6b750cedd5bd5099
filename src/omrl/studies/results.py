"""The folder of a study: raw returns of every evaluation, and what is needed to read them.

    study.json     what was planned, and of which state of which run
    00.npz, …      one `EvalResult` per evaluation, in the plan's order

Written one by one, so an interrupted study is a whole `study.json` and the results so far.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from omrl import stats
from omrl.config import differences, from_json, read_json, to_json
from omrl.errors import InputError
from omrl.files import atomic_write
from omrl.marks import marks
from omrl.protocol import EvalConfig
from omrl.results import BASELINES, EvalResult, estimate_to_json
from omrl.studies.plan import Point, Study
from omrl.tables import print_rows

FORMAT = "omrl-study-1"
RECORD = "study.json"
AGAIN = "evaluate the study again: --overwrite"
VARIED = {
    "steps": ("shots",),
    "context-size": ("shots", "context_size", "context_unit"),
    "context-quality": ("shots", "context_slice"),
    "distribution": ("shots",),
}
"""Fields of the given config that a study has in its points, or that say nothing of its numbers."""


class UnfinishedError(InputError):
    """A study of which results are still to come."""


@dataclass(frozen=True)
class Record:
    """Contents of `study.json`."""

    format: str
    run: str
    """The run folder or bundle, as given."""
    step: int
    """Updates that the evaluated states had made."""
    seeds: tuple[int, ...]
    spec_hash: str
    """Of the environment."""
    run_hash: str
    """Of the settings and data of the run, so that no other one's results are taken for its own."""
    study: Study


@dataclass(frozen=True)
class StudyResult:
    """A finished study."""

    record: Record
    results: tuple[EvalResult, ...]
    """One per evaluation of the plan."""

    @property
    def study(self) -> Study:
        return self.record.study

    @property
    def series(self) -> dict[str, list[Point]]:
        """The points by the line that they are on, both in order."""
        lines: dict[str, list[Point]] = {}
        for point in self.study.points:
            lines.setdefault(point.series, []).append(point)
        return lines

    @property
    def tasks(self) -> tuple[int, ...]:
        return tuple(self.results[0].task_indices.tolist())

    def returns(self, point: Point) -> Float64[np.ndarray, "seed task episode"]:
        """Raw returns of one point."""
        result = self.results[point.evaluation]
        kept = np.isin(result.task_indices, point.tasks or result.task_indices)
        return result.shot(point.rounds)[:, kept]

    def marks(self) -> list[str]:
        """What must not be missed; with the context where that is not the same for all."""
        told = [marks(each) for each in self.results]
        contexts = [each.config.context for each in self.results]
        everywhere = [mark for mark in told[0] if all(mark in each for each in told)]
        return everywhere + [
            f"{context}: {mark}"
            for context, each in zip(contexts, told, strict=True)
            for mark in each
            if mark not in everywhere
        ]

    def baseline(self, name: str) -> float:
        """Mean over the tasks of the first evaluation of one of `results.BASELINES`."""
        return float(self.results[0].baseline(name).mean())

    def to_json(self) -> dict[str, Any]:
        """Every point with every statistic as JSON values; null stands for what is not known."""
        return {
            "record": to_json(self.record),
            "provenance": to_json(self.results[0].provenance),
            "points": [
                to_json(point)
                | {
                    "tasks": list(point.tasks or self.tasks),
                    "statistics": {
                        name: estimate_to_json(statistic(self.returns(point)))
                        for name, statistic in stats.STATISTICS.items()
                    },
                }
                for point in self.study.points
            ],
            "baselines": {name: _number(self.baseline(name)) for name in BASELINES},
            "marks": self.marks(),
        }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --- Files ---


def is_study(folder: Path) -> bool:
    return (folder / RECORD).is_file()


def goes_on(folder: Path, record: Record, *, overwrite: bool) -> bool:
    """Whether the results in the folder are of this study.

    Raises `InputError` for a folder of something else, and for another study unless it is to be
    overwritten.
    """
    if is_study(folder):
        if not overwrite:
            _check_same(folder, record)
        return not overwrite
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is no study; give another folder with --out")
    return False


def begin(folder: Path, record: Record) -> None:
    """Makes the folder of a study, in place of the one that is there."""
    # First what the results are read by, so that none is ever read as another's.
    (folder / RECORD).unlink(missing_ok=True)
    for file in folder.glob("[0-9]*.npz"):
        file.unlink()
    with atomic_write(folder / RECORD) as file:
        file.write(json.dumps(to_json(record), indent=1).encode())


def _check_same(folder: Path, record: Record) -> None:
    """`InputError` unless the folder is of that study, wherever the run is now."""
    held = replace(read_record(folder), run=record.run)
    if held != record:
        found = next(differences(_brief(held), _brief(record)), "of other data")
        raise InputError(
            f"{folder}: holds another study ({found}); replace it with --overwrite, or keep both "
            "with --out FOLDER"
        )


def _brief(record: Record) -> dict[str, Any]:
    """What fits into one line where it differs."""
    fields = to_json(record)
    labels = ", ".join(point.label for point in record.study.points)
    fields["study"] = {
        name: fields["study"][name] for name in ("name", "base", "left_out", "trained_range")
    } | {"points": labels}
    return fields


def read_record(folder: Path) -> Record:
    """What `study.json` says. Raises `InputError` where a point is of no evaluation there is."""
    path = folder / RECORD
    fields = read_json(path, AGAIN)
    found = fields.get("format") if isinstance(fields, dict) else None
    if found != FORMAT:
        raise InputError(f"{path}: format {found!r}, this version reads {FORMAT!r}; {AGAIN}")
    record = from_json(Record, fields, str(path), AGAIN)
    study = record.study
    if not study.evaluations or not study.points:
        raise InputError(f"{path}: holds no evaluation or no point; {AGAIN}")
    if len(study.trained_range) not in (0, 2):
        raise InputError(f"{path}: study.trained_range: {study.trained_range} is no range; {AGAIN}")
    for number, point in enumerate(study.points):
        where = f"{path}: study.points[{number}]"
        if not 0 <= point.evaluation < len(study.evaluations):
            raise InputError(f"{where}.evaluation: {point.evaluation} is not there; {AGAIN}")
        shots = study.evaluations[point.evaluation].config.shots
        if point.rounds not in shots:
            raise InputError(f"{where}.rounds: {point.rounds} is none of {shots}; {AGAIN}")
    return record


def file_of(folder: Path, number: int) -> Path:
    """Raw returns of evaluation `number`."""
    return folder / f"{number:02d}.npz"


def read_result(folder: Path, record: Record, number: int) -> EvalResult:
    """The result of one evaluation. Raises `InputError` unless it is of this study."""
    path = file_of(folder, number)
    result = EvalResult.load(path)
    source = result.provenance
    config = record.study.evaluations[number].config
    found = {
        "config": (to_json(result.config), to_json(config)),
        "step": (source.step, record.step),
        "seeds": (source.seeds, record.seeds),
        "spec_hash": (source.spec_hash, record.spec_hash),
        "run_hash": (source.run_hash, record.run_hash),
    }
    for name, (has, needs) in found.items():
        if has != needs:
            raise InputError(f"{path}: its {name} is not that of {folder / RECORD}; {AGAIN}")
    tasks = set(result.task_indices.tolist())
    for point in record.study.points:
        if point.evaluation == number and not tasks.issuperset(point.tasks):
            raise InputError(f"{path}: has no task {min({*point.tasks} - tasks)}; {AGAIN}")
    return result


def load(folder: str | Path) -> StudyResult:
    """The study in `folder`.

    Raises `UnfinishedError` for one that was interrupted, `InputError` for anything damaged.
    """
    folder = Path(folder)
    if not is_study(folder):
        raise InputError(f"{folder}: no study (no {RECORD}); make one: omrl evaluate RUN --study …")
    record = read_record(folder)
    wanted = range(len(record.study.evaluations))
    missing = [number for number in wanted if not file_of(folder, number).is_file()]
    if missing:
        raise UnfinishedError(
            f"{folder}: {len(missing)} of {len(wanted)} evaluations are still to come; go on with "
            "the same command: omrl evaluate …"
        )
    return StudyResult(record, tuple(read_result(folder, record, number) for number in wanted))


# --- The printed table ---


def table(result: StudyResult) -> tuple[list[str], list[list[str]]]:
    """Header and one row per point; of `distribution` the groups, its tasks are in the picture."""
    several = len(result.series) > 1
    x_label = "tasks" if result.study.name == "distribution" else result.study.x_label
    header = ["series"] * several + [x_label, "mean", "median"]
    header[-2:-2] = ["data"] * (result.study.name == "context-quality")
    rows = []
    for point in result.study.points:
        if result.study.name == "distribution" and point.x is not None:
            continue
        returns = result.returns(point)
        mean, median = (stats.STATISTICS[name](returns) for name in ("mean", "median"))
        quartiles = f"{median.value:.1f} ({median.low:.1f}, {median.high:.1f})"
        rows.append([point.series] * several + [_place(result, point), str(mean), quartiles])
        rows[-1][-2:-2] = [point.label] * (result.study.name == "context-quality")
    return header, rows


def _place(result: StudyResult, point: Point) -> str:
    if result.study.name == "context-quality":
        return "-" if point.x is None else f"{point.x:.1f}"
    return point.label


def describe(result: StudyResult) -> list[str]:
    """What has to be printed with the numbers."""
    source, study, base = result.results[0].provenance, result.study, result.study.base
    returns = result.returns(study.points[0])
    baselines = {name: result.baseline(name) for name in BASELINES}
    known = [f"{name} {value:.1f}" for name, value in baselines.items() if math.isfinite(value)]
    tasks = ", ".join(map(str, result.tasks))
    lines = [
        f"study {study.name} of {result.record.run}",
        f"environment {source.env_id}, spec {source.spec_hash[:12]}; tasks {tasks}",
        *result.marks(),
        f"protocol {base.protocol}; {_context(study)}; "
        f"{source.dataset} ({source.dataset_hash[:12]}), context seed {base.context_seed}",
        f"{source.algorithm} after {source.step:,} updates, seeds "
        f"{', '.join(map(str, source.seeds))}; {base.episodes} episodes per seed and task, seed "
        f"{base.episode_seed}, {'deterministic' if base.deterministic else 'sampled'} actions",
        *(f"{name}: {stats.STATISTICS[name](returns).method}" for name in ("mean", "median")),
    ]
    if known:
        lines.append(f"for comparison, mean over the tasks: {', '.join(known)}")
    return lines + [f"left out: {reason}" for reason in study.left_out]


def _context(study: Study) -> str:
    """What does not vary of the contexts, in words."""
    base = study.base
    rounds = "" if study.name == "steps" else f", {_rounds(base.shots[-1])}"
    if study.name == "context-size":
        return f"contexts drawn without replacement from {base.context_slice}{rounds}"
    if study.name == "context-quality":
        return f"contexts: {base.context_size} {base.context_unit} of each part{rounds}"
    return f"context: {base.context}{rounds}"


def _rounds(count: int) -> str:
    return f"{count} round{'s' * (count != 1)} of adaptation"


def print_study(result: StudyResult) -> None:
    """The table, then what its numbers are; Markdown where the output is no terminal."""
    header, rows = table(result)
    print_rows(header, rows, [], describe(result))


# --- Several in one picture ---


def check_comparable(results: Sequence[StudyResult]) -> None:
    """`InputError` unless these are one study on the same tasks of the same MDP by one protocol."""
    first = results[0]
    for other in results[1:]:
        ours, theirs = first.results[0].provenance, other.results[0].provenance
        pairs = {
            "study": (first.study.name, other.study.name),
            "environment": (_env(ours), _env(theirs)),
            "protocol": (first.study.base.protocol, other.study.base.protocol),
            "tasks": (first.tasks, other.tasks),
        }
        for name, (one, two) in pairs.items():
            if one != two:
                raise InputError(
                    f"{other.record.run}: its {name} is {_listed(two)}, that of "
                    f"{first.record.run} {_listed(one)}: these are different quantities; compare "
                    "runs of the same"
                )


def differing(results: Sequence[StudyResult]) -> list[str]:
    """For each result what of its settings is not that of all, in words; empty where all agree."""
    settings = [_settings(result) for result in results]
    names = [name for name in settings[0] if len({one[name] for one in settings}) > 1]
    return [", ".join(f"{name} {one[name]}" for name in names) for one in settings]


def _settings(result: StudyResult) -> dict[str, str]:
    base = result.study.base
    skipped = {
        "protocol",
        "split",
        "tasks",
        "traces",
        "finetune",
        "explore",
        *VARIED[result.study.name],
    }
    fields = [field.name for field in dataclasses.fields(EvalConfig) if field.name not in skipped]
    settings = {name.replace("_", " "): str(getattr(base, name)) for name in fields}
    if {"context_size", "context_unit"}.isdisjoint(skipped):
        settings["context"] = f"{settings.pop('context size')} {settings.pop('context unit')}"
    if result.study.name != "steps":
        settings["rounds"] = str(base.shots[-1])
    return settings | {"data": result.results[0].provenance.dataset_hash[:12]}


def _env(source: Any) -> str:
    return f"{source.env_id} ({source.spec_hash[:12]})"


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
