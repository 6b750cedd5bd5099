"""Evaluates a study: reads what its plan has to know, then runs what the plan says.

Every evaluation is `metatrain.evaluate_trained` of the same state, so one compiled program adapts
for all contexts of one size, and one acts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from omrl.data.dataset import Dataset
from omrl.data.mixture import check_tasks, open_view
from omrl.data.store import open_for_training, with_tasks_of
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.metatrain import Trained, evaluate_trained
from omrl.protocol import EvalConfig
from omrl.results import EvalResult
from omrl.studies import results
from omrl.studies.plan import Facts, Part, Study, StudyName, plan
from omrl.studies.results import FORMAT, Record, StudyResult


def run_study(
    trained: Trained,
    name: StudyName,
    config: EvalConfig,
    *,
    data: str | Path | None = None,
    points: Sequence[str] = (),
    more_data: Sequence[str | Path] = (),
    out: str | Path | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> StudyResult:
    """Evaluates the study `name` of a checkpoint around `config`.

    Args:
        trained: loaded with room for the shots of `config`.
        data: dataset of the contexts; by default the one that was trained on.
        points, more_data: see `plan`.
        out: folder that keeps it. Results of the same study that are there are not evaluated again.
        overwrite: evaluate anew whatever study is there.
        report: called with one line before every evaluation.

    Raises `InputError` where the plan is impossible or `out` holds something else.
    """
    main = open_for_training(trained.dataset(data), trained.env)
    datasets = {"": main} | {str(d): open_for_training(d, trained.env) for d in more_data}
    env = with_tasks_of(main, trained.env)
    for other in datasets.values():
        check_tasks(main, other, config.task_indices(env))
    facts = read_facts(trained, env, datasets, config)
    study = plan(name, config, facts, points=points, more_data=[str(d) for d in more_data])
    record = Record(
        format=FORMAT,
        run=trained.source,
        step=trained.step,
        seeds=tuple(trained.seeds),
        spec_hash=env.spec.hash,
        run_hash=trained.record.hash,
        study=study,
    )
    folder = None if out is None else Path(out)
    begun = folder is not None and results.goes_on(folder, record, overwrite=overwrite)
    found = []
    for number, evaluation in enumerate(study.evaluations):
        if folder is not None and begun and results.file_of(folder, number).exists():
            found.append(_kept(folder, record, number, datasets[evaluation.data]))
            continue
        report(_progress(study, number))
        result = evaluate_trained(trained, evaluation.data or data, evaluation.config)
        if folder is not None:
            if not begun:  # Only now: what cannot be evaluated leaves no folder.
                results.begin(folder, record)
            begun = True
            result.save(results.file_of(folder, number))
        found.append(result)
    return StudyResult(record, tuple(found))


def read_facts(
    trained: Trained, env: TaskEnv, datasets: dict[str, Dataset], config: EvalConfig
) -> Facts:
    """What a plan has to know; `env` has the tasks of the data, `datasets` are by their names."""
    run = trained.record.run
    held_out = env.splits[run.holdout] if run.holdout else ()
    tasks = config.task_indices(env)

    @cache
    def part(data: str, name: str) -> Part:
        return measure_part(datasets[data], name, tasks)

    return Facts(
        gradient_steps=run.algo.gradient_steps,
        task_names=env.spec.task_names,
        task_parameters=tuple(map(tuple, env.tasks.tolist())),
        trained_on=tuple(t for t in env.splits.get(run.train_split, ()) if t not in held_out),
        splits=env.splits,
        holdout=run.holdout,
        part=part,
    )


def measure_part(dataset: Dataset, name: str, tasks: Sequence[int]) -> Part:
    """What the slice `name` has of `tasks`. Raises `InputError` where a lifetime is too short."""
    view = open_view(name, dataset)
    held = [view.task(index) for index in tasks]
    lengths = np.unique(np.concatenate([task.lengths for task in held]))
    return Part(
        transitions=min(task.num_rows for task in held),
        trajectories=min(task.num_episodes for task in held),
        length=int(lengths[0]) if len(lengths) == 1 else 0,
        mean_return=float(np.mean([task.returns.mean() for task in held])),
    )


def _kept(folder: Path, record: Record, number: int, dataset: Dataset) -> EvalResult:
    """The result that an interrupted study left; `InputError` if it is of other data."""
    result = results.read_result(folder, record, number)
    has, needs = result.provenance.dataset_hash, dataset.manifest.hash
    if has != needs:
        raise InputError(
            f"{results.file_of(folder, number)}: its contexts are of data with hash {has[:12]}, "
            f"{dataset.path} has {needs[:12]}; {results.AGAIN}"
        )
    return result


def _progress(study: Study, number: int) -> str:
    evaluation = study.evaluations[number]
    of = f" of {evaluation.data}" if evaluation.data else ""
    text = f"{number + 1} of {len(study.evaluations)}: context {evaluation.config.context}{of}"
    return f"study {study.name}, {text}"
