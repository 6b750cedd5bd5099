"""`report.html` of a run folder: one file, no network, made from what the folder holds and no more.

A section whose data is absent is left out and named at the end, so that a report of half a run is
never mistaken for one of a whole run. Results of other checkpoints, to compare with, are in folders
of their own, `eval/NAME/`, and are shown under that name; so are studies (`omrl.studies`).
`omrl.compare` writes the page of several runs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omrl import __version__, bundled, figures, stats
from omrl.config import json_hash, read_json
from omrl.diagnostics.base import grouped as diagnoses_of
from omrl.diagnostics.kinds import FOLDERS, KINDS, Figure, Results, folder_of
from omrl.errors import InputError
from omrl.files import atomic_write, read_text
from omrl.logs import read_log
from omrl.marks import by_updates
from omrl.results import EvalResult, describe, table
from omrl.studies import results as studies
from omrl.studies.figures import study_figure

CAPTIONS = {
    "steps": "Return after each number of gradient steps of adaptation.",
    "context-size": "Return against how much is adapted to. A larger context contains the smaller "
    "ones; trajectories stand at the number of their transitions.",
    "context-quality": "Return against the mean return of the data that is adapted to.",
    "distribution": "Return on the tasks that were trained on, and on others.",
}
Evaluation = list[EvalResult]
"""The same evaluation at growing numbers of updates."""


@dataclass
class Report:
    """What the template shows."""

    name: str
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    studies: list[dict[str, Any]] = field(default_factory=list)
    training: list[dict[str, str]] = field(default_factory=list)
    facts: list[dict[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def write_report(
    run_dir: str | Path, out: str | Path | None = None, *, statistic: str = "mean"
) -> Path:
    """Writes the report of a run, by default `report.html` in its folder, and returns its path.

    `statistic` of `stats.STATISTICS` is that of the studies' figures. Raises `InputError` if it is
    no run folder or a file in it is damaged.
    """
    run = open_folder(run_dir)
    path = run / "report.html" if out is None else Path(out)
    if path.suffix != ".html":
        raise InputError(f"{path}: a report is a page; name it FILE.html, or a --study of it")
    report = Report(run.resolve().name)
    evaluations, strange = of_run(run, grouped(run / "eval", report.left_out))
    report.left_out += map(foreign, strange)
    folders = [folder for folder in sorted(run.glob("eval/*/")) if folder.name not in FOLDERS]
    others = {
        folder.name: grouped(folder, report.left_out)
        for folder in folders
        if not studies.is_study(folder)
    }
    for name, groups in {**others, "this run" if others else "": evaluations}.items():
        for results in groups:
            report.evaluations.append(_evaluation(results, report.left_out, name))
    if not report.evaluations:
        report.left_out.append("results and figures of evaluations: no eval/*.npz")
    for folder in filter(studies.is_study, folders):
        try:
            result = studies.load(folder)
        except studies.UnfinishedError as error:
            report.left_out.append(str(error))
            continue
        title = f"Study: {result.study.name}"
        if folder.name != f"study-{result.study.name}":
            title = f"{title} ({folder.name})"
        report.studies.append(study_section({report.name: result}, statistic, title))
    for name, kind in KINDS.items():
        for results in diagnoses_of(run / "eval" / folder_of(name), kind.result):
            report.studies.append(diagnosis_section(name, results))
    _add_training(report, run, evaluations)
    _add_facts(report, run)
    with atomic_write(path) as file:
        file.write(render("report.html", report=report).encode())
    return path


def open_folder(run_dir: str | Path) -> Path:
    """The folder, if it is of a run: one begun with its config, however little came of it."""
    run = bundled.resolve(run_dir)
    if (run / "config.json").is_file():
        config = read_json(run / "config.json")
        if isinstance(config, dict) and "run" in config:
            return run
    from omrl.bundle import is_bundle  # imports JAX, which a report does without

    if is_bundle(run):
        raise InputError(
            f"{run_dir}: is a trained state without its run, of which nothing could be reported; "
            f"measure it: omrl evaluate {run_dir}"
        )
    raise InputError(f"{run_dir}: not a run folder (no config.json of omrl train); give one")


def grouped(folder: Path, left_out: list[str]) -> list[Evaluation]:
    """Results in a folder that differ in nothing but the number of updates, ascending. Of several
    of one state the last by name counts; the others are named in `left_out`."""
    groups: dict[Any, dict[int, tuple[Path, EvalResult]]] = {}
    for path in sorted(folder.glob("*.npz")):
        result = EvalResult.load(path)
        source = result.provenance
        of_run = source.run_hash, source.algorithm, source.seeds
        by_step = groups.setdefault(
            (result.config, source.spec_hash, source.dataset_hash, of_run), {}
        )
        if source.step in by_step:
            left_out.append(f"{by_step[source.step][0]}: of the same state as {path.name}")
        by_step[source.step] = path, result
    return [[by_step[step][1] for step in sorted(by_step)] for by_step in groups.values()]


def of_run(run: Path, groups: list[Evaluation]) -> tuple[list[Evaluation], list[Evaluation]]:
    """Those of the run in this folder, and those of others. Where none is of this run by its hash,
    as in results of an older version, all are taken to be, if they are of one."""
    record = read_json(run / "config.json")
    own = {"", json_hash([record["run"], record.get("data_hash")])}

    def hash_of(results: Evaluation) -> str:
        return results[-1].provenance.run_hash

    if own.isdisjoint(map(hash_of, groups)):
        own |= {hash_of(results) for results in groups[:1]}
    return (
        [results for results in groups if hash_of(results) in own],
        [results for results in groups if hash_of(results) not in own],
    )


def foreign(results: Evaluation) -> str:
    """Says that an evaluation is not of the run in whose folder it is."""
    source = results[-1].provenance
    return (
        f"{source.algorithm} after {source.step:,} updates in eval/: of another run, or of this "
        "one by another version; to compare it, move it to eval/NAME/"
    )


def _evaluation(results: Evaluation, left_out: list[str], name: str) -> dict[str, Any]:
    """Table and figures of the last of `results`: the score is never a maximum over training."""
    result = results[-1]
    config, last = result.config, result.config.shots[-1]
    tasks = (
        f"tasks {', '.join(map(str, config.tasks))}" if config.tasks else f"{config.split} tasks"
    )
    title = f"{config.protocol}, {tasks}"
    if config.needs_context:
        title += f", {config.context_size} {config.context_unit} of {config.context_slice}"
    title = f"{name}: {title}" if name else title
    header, rows, summary = table(result)
    shown = [figure(figures.per_task_bars(result), f"Return per task{bars_told([result])}.")]
    if config.protocol == "finetune":
        caption = f"Return while learning online: {config.finetune.schedule}."
        shown.append(figure(figures.finetuning_curve(result), caption))
    elif config.protocol == "explore":
        first = f"the first {config.explore.episodes} are before adaptation"
        caption = f"Return of every trajectory; {first}."
        shown.append(figure(figures.adaptation_curve(result), caption))
    elif len(config.shots) > 1:
        caption = "Return after each number of adaptation rounds."
        shown.append(figure(figures.adaptation_curve(result), caption))
    else:
        left_out.append(f"adaptation curve ({title}): one shot only")
    if "x_velocity" in result.traces:
        caption = "Forward speed over an episode, mean over seeds and episodes."
        shown.append(figure(figures.speed_over_time(result), caption))
    else:
        left_out.append(f"speed over time ({title}): x_velocity was not recorded")
    return {
        "title": title,
        "score_name": f"mean return {result.shot_name(last)}",
        "score": stats.bootstrap(result.shot(last), stats.mean),
        "header": header,
        "rows": rows,
        "summary": summary,
        "notes": [*by_updates(results[:-1]), *describe(result)],
        "figures": shown,
    }


def study_section(
    results: Mapping[str, studies.StudyResult], statistic: str, title: str
) -> dict[str, Any]:
    """Table and figure of a study of one run or of several, which are comparable."""
    header, rows, notes = [], [], []
    for name, result in results.items():
        header, own = studies.table(result)
        rows += [[name, *row] for row in own] if len(results) > 1 else own
        told = studies.describe(result)
        notes += [f"{name}: {line}" for line in told] if len(results) > 1 else told
    header = ["run", *header] if len(results) > 1 else header
    name = next(iter(results.values())).study.name
    return {
        "title": title,
        "header": header,
        "rows": rows,
        "summary": [],
        "notes": notes,
        "figures": [figure(study_figure(results, statistic), CAPTIONS[name])],
    }


def diagnosis_section(name: str, results: Results, pictures: Sequence[str] = ()) -> dict[str, Any]:
    """Table and figures of a diagnosis, at growing numbers of updates."""
    kind = KINDS[name]
    header, rows = kind.table(results)
    shown = pictures_of(name, results, pictures)
    return {
        "title": f"Diagnosis: {kind.title}",
        "header": header,
        "rows": rows,
        "summary": [],
        "notes": kind.describe(results),
        "figures": [figure(each.draw(results), each.caption) for each in shown],
    }


def pictures_of(name: str, results: Results, pictures: Sequence[str] = ()) -> list[Figure]:
    """The figures of a diagnosis with these names; all without any."""
    return [each for each in KINDS[name].figures(results) if not pictures or each.name in pictures]


def _add_training(report: Report, run: Path, evaluations: Sequence[Evaluation]) -> None:
    for results in evaluations:
        if len(results) > 1:
            told = intervals_told(results)
            caption = f"Return of the evaluated states over meta-training, {told}."
            report.training.append(figure(figures.return_over_updates(results), caption))
    log = read_log(run)
    evaluated = [
        {"step": row["step"], "metrics": {name: [v] for name, v in row["evaluation"].items()}}
        for row in log
        if row.get("evaluation")
    ]
    if not report.training and len(evaluated) > 1:
        caption = "What the evaluations during meta-training wrote to the log."
        report.training.append(figure(figures.metrics_over_updates(evaluated), caption))
    if not report.training:
        report.left_out.append("return over updates: fewer than two evaluations of one kind")
    rows = [row for row in log if row.get("metrics")]
    if rows:
        caption = "Training metrics: mean over seeds, band from the lowest to the highest seed."
        report.training.append(figure(figures.metrics_over_updates(rows), caption))
    else:
        report.left_out.append("training metrics: no rows in log.jsonl")


def _add_facts(report: Report, run: Path) -> None:
    sources = {
        "Command": "command.txt",
        "Configuration": "config.json",
        "Versions and devices": "versions.json",
    }
    for title, name in sources.items():
        path = run / name
        if not path.is_file():
            report.left_out.append(f"{title.lower()}: no {name}")
            continue
        is_json = path.suffix == ".json"
        text = json.dumps(read_json(path), indent=2) if is_json else read_text(path)
        report.facts.append({"title": title, "text": text})


def intervals_told(results: Sequence[EvalResult]) -> str:
    """What a caption says of the intervals of means over seeds and tasks, as `stats.bootstrap` has
    them."""
    alone = [result for result in results if len(result.provenance.seeds) == 1]
    if not alone:
        return "with 95 % intervals"
    if len(alone) < len(results):
        return "with 95 % intervals, of one seed over its episodes"
    if all(result.config.episodes == 1 for result in alone):
        return "without intervals: one seed, and one episode of each task"
    return "with 95 % intervals over the episodes of one seed"


def bars_told(results: Sequence[EvalResult]) -> str:
    """What a caption says of error bars, which one seed has none of."""
    several = any(len(result.provenance.seeds) > 1 for result in results)
    return "; bars: standard error over seeds" if several else ", of one seed"


def figure(svg: bytes, caption: str) -> dict[str, str]:
    """A figure as the templates show it."""
    encoded = base64.b64encode(svg).decode()
    return {"source": f"data:image/svg+xml;base64,{encoded}", "caption": caption}


def render(template: str, **values: Any) -> str:
    """The page that a template makes of `values`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("omrl"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)
