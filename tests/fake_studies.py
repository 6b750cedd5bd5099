"""Studies with chosen numbers: the plans are real, their results those of `fake_results`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_results import TASKS, make_result
from omrl.evaluate import EvalConfig
from omrl.studies import results
from omrl.studies.plan import Facts, Part, StudyName, plan
from omrl.studies.results import FORMAT, Record, StudyResult

CONFIG = EvalConfig(tasks=TASKS, episodes=2)
FACTS = Facts(
    gradient_steps=1,
    task_names=("target_velocity",),
    task_parameters=tuple((0.075 * (index + 1),) for index in range(40)),
    trained_on=(7, 15, 20),
    splits={"train": (7, 15, 20), "test": (2,)},
    holdout="",
    part=lambda data, name: Part(5800, 29, 200, {"all": -60.0}.get(name, -100.0)),
)


def make_study(
    name: StudyName,
    *,
    seeds: int = 2,
    step: int = 1000,
    run: str = "runs/macaw",
    facts: Facts = FACTS,
    points: tuple[str, ...] = (),
    **changes: Any,
) -> StudyResult:
    """The study around `CONFIG` with `changes`; see `make_result` for its returns."""
    config = replace(CONFIG, **{"shots": (0, 1, 3)} | changes)
    study = plan(name, config, facts, points=points)
    found = []
    for evaluation in study.evaluations:
        fields = vars(evaluation.config)
        found.append(make_result(step=step, seeds=seeds, **fields))
    source = found[0].provenance
    record = Record(FORMAT, run, step, source.seeds, source.spec_hash, source.run_hash, study)
    return StudyResult(record, tuple(found))


def save(study: StudyResult, folder: Path, *, only: int | None = None) -> Path:
    """The folder of the study, with all results or the first few."""
    results.begin(folder, study.record)
    for number, result in enumerate(study.results[:only]):
        result.save(results.file_of(folder, number))
    return folder
