"""`omrl data info`: what is in a dataset, and what looks wrong, before anybody trains on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tyro.conf import Positional

from omrl import bundled
from omrl.cli.data_unfinished import print_unfinished, unfinished_of
from omrl.config import to_json
from omrl.data import manifest as manifests
from omrl.data import validate as validation
from omrl.data.dataset import Dataset
from omrl.data.info import BOUND, Info, TaskInfo, measure
from omrl.data.info_sample import CELLS, MOST_ROWS
from omrl.data.info_warnings import (
    Remark,
    constant_entries,
    float16_step,
    of_info,
    of_manifest,
)
from omrl.data.manifest import Manifest, check_mdp
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.files import atomic_write
from omrl.tables import parameter_cells, parameter_names, print_lines, print_table

BIG = 5_000_000
"""Transitions from which on it is said beforehand that they are read."""
_HEADER = (
    "episodes",
    "transitions",
    "minimum",
    "median",
    "mean return",
    "maximum",
    "saturated",
    "coverage",
    "duplicates",
    "time limit",
    "cut off",
    "terminated",
    "reward noise",
)
_SUCCESS = "success"
"""One column more, where tasks are done or left undone."""


@dataclass(frozen=True)
class InfoOptions:
    """Say what is in a dataset, and what looks wrong with it."""

    path: Positional[Path]
    """Folder of the dataset, or of an unfinished collection or import."""
    quick: bool = False
    """Only what the manifest tells, without reading the data."""
    html: Path | None = None
    """Also write a page with figures to this file."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class View:
    """What is shown of a dataset."""

    path: Path
    manifest: Manifest
    info: Info | None
    """None where the data is not valid."""
    warnings: list[Remark]


def run(options: InfoOptions) -> None:
    """Print what the dataset holds, after the checks of opening it."""
    partial = unfinished_of(bundled.resolve(options.path))
    if options.html is not None and (options.quick or partial):
        raise InputError(f"html: a page needs whole data and no --quick; leave out {options.html}")
    if options.html is not None and options.html.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"html: {options.html} does not end in .html; give the page such a name")
    if partial:
        print_unfinished(partial, manifests.read(partial), options.json)
    elif options.quick:
        print_manifest(options.path, open_dataset(options.path).manifest, options.json)
    else:
        view = look(options.path)
        if options.html is not None:
            write_page(view, options.html)
        if options.json:
            print(json.dumps(_as_json(view)))
        else:
            _print_view(view)


def look(path: Path) -> View:
    """All that is known of the dataset at `path`, and all that looks wrong."""
    dataset = open_dataset(path)
    manifest = dataset.manifest
    env, warnings = _environment(dataset)
    if not manifest.validated:
        report = validation.validate(dataset.path, manifest, env)
        warnings += [
            Remark("invalid", () if f.task is None else (f.task,), f"{f.file}: {f.problem}", f.fix)
            for f in report.findings
        ]
        if report.findings:
            return View(path, manifest, None, warnings)
        fix = "run omrl data validate"
        warnings.append(Remark("not validated", (), "no validation is on record", fix))
    with _progress(sum(task.transitions for task in manifest.tasks)) as progress:
        info = measure(dataset, env, progress)
    warnings += of_manifest(manifest) + of_info(manifest, info)
    return View(path, manifest, info, warnings)


def known_env(manifest: Manifest) -> TaskEnv | None:
    """The environment of the data, None where it is one of the data's owner."""
    try:
        return registry.make(manifest.spec.id)
    except InputError:
        return None


def _environment(dataset: Dataset) -> tuple[TaskEnv | None, list[Remark]]:
    """The environment, None where it is not exactly that of the data, which is remarked on."""
    env = known_env(dataset.manifest)
    if env is None:
        problem, fix = (
            f"{dataset.env_id} is not known here",
            "to train on it, register it and name the module with --import",
        )
        return None, [Remark("environment", (), problem, fix)]
    try:
        check_mdp(dataset.path, dataset.manifest, env)
    except InputError as error:
        problem, _, fix = str(error).partition("; ")
        return None, [Remark("environment", (), problem, fix)]
    return env, []


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """A function to be told of transitions that are done; a bar on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from omrl.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        if total >= BIG:
            console.print(f"reading {total:,} transitions …", highlight=False)
        yield lambda rows: None
        return
    done = TextColumn("{task.completed:,.0f} of {task.total:,.0f} transitions")
    columns = (BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda rows: bar.advance(task, rows)


# --- Text and JSON ---


def _summary(path: Path, manifest: Manifest) -> dict[str, Any]:
    columns = [column for task in manifest.tasks for column in task.columns.values()]
    return {
        "path": str(path),
        "env": manifest.spec.id,
        "spec_hash": manifest.spec.hash,
        "hash": manifest.hash,
        "validated": manifest.validated,
        "reward": (manifest.validation or {}).get("reward", "not checked"),
        "dtype": manifest.dtype,
        "bytes": sum(column.num_bytes for column in columns),
        "episodes": sum(task.episodes for task in manifest.tasks),
        "transitions": sum(task.transitions for task in manifest.tasks),
        "splits": {name: list(tasks) for name, tasks in manifest.splits.items()},
        "command": manifest.command,
        "versions": dict(manifest.versions),
        "source": manifest.source,
    }


def print_manifest(path: Path, manifest: Manifest, as_json: bool) -> None:
    """What the manifest tells."""
    if as_json:
        print(json.dumps(manifest_to_json(path, manifest)))
        return
    _print_summary(path, manifest)
    titles = ("episodes", "transitions", "mean return", "minimum", "maximum")
    rows = []
    for task in manifest.tasks:
        returns = (task.return_mean, task.return_min, task.return_max)
        rows.append([str(task.episodes), str(task.transitions), *(f"{r:.1f}" for r in returns)])
    print_table(*_with_parameters(manifest, titles, rows))


def manifest_to_json(path: Path, manifest: Manifest) -> dict[str, Any]:
    """The same as JSON."""
    return _summary(path, manifest) | {"tasks": manifests.to_json(manifest)["tasks"]}


def _as_json(view: View) -> dict[str, Any]:
    return manifest_to_json(view.path, view.manifest) | {
        "statistics": to_json(view.info),
        "warnings": [to_json(warning) for warning in view.warnings],
    }


def _print_view(view: View) -> None:
    _print_summary(view.path, view.manifest)
    if view.info is not None:
        print_table(*_table(view.manifest, view.info))
        print_lines("", _notes(view.manifest, view.info))
    shown = [str(warning) for warning in view.warnings]
    print_lines(f"\nwarnings ({len(shown)}):" if shown else "\nno warning", shown)


def _print_summary(path: Path, manifest: Manifest) -> None:
    print_lines("", _facts(path, manifest))


def _facts(path: Path, manifest: Manifest) -> list[str]:
    lines = []
    for name, value in _summary(path, manifest).items():
        pairs = value.items() if isinstance(value, dict) else ()
        text = "; ".join(f"{key}: {item}" for key, item in pairs) or str(value)
        lines.append(f"{name:12} {text}")
    return lines


def _with_parameters(
    manifest: Manifest, titles: tuple[str, ...], rows: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    """A table of one row per task, with its number and parameters in front."""
    header = ["task", *parameter_names(manifest.spec.task_names), *titles]
    fronts = [[str(task.index), *parameter_cells(task.parameters)] for task in manifest.tasks]
    return header, [[*front, *row] for front, row in zip(fronts, rows, strict=True)]


def _table(manifest: Manifest, info: Info) -> tuple[list[str], list[list[str]]]:
    header, rows = _HEADER, [_row(task) for task in info.tasks]
    if _tells_success(info):
        header = (*header, _SUCCESS)
        rows = [
            [*row, "?" if task.success is None else _percent(task.success)]
            for row, task in zip(rows, info.tasks, strict=True)
        ]
    return _with_parameters(manifest, header, rows)


def _tells_success(info: Info) -> bool:
    return any(task.success is not None for task in info.tasks)


def _row(task: TaskInfo) -> list[str]:
    returns = task.returns
    numbers = (returns.minimum, returns.median, returns.mean, returns.maximum)
    noise = "?"
    if task.reward_noise is not None:
        at_most = "" if task.noise_by == "recomputed" else "≤ "
        noise = at_most + _percent(task.reward_noise / (task.reward_std or 1.0))
    return [
        str(task.episodes),
        str(task.transitions),
        *(f"{number:.1f}" for number in numbers),
        *map(_percent, (task.saturated, task.coverage, task.duplicates.transitions)),
        *map(str, (task.ends.time_limit, task.ends.cut_off, task.ends.terminated)),
        noise,
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share else "0 %"


def _notes(manifest: Manifest, info: Info) -> list[str]:
    """What the columns of the table mean, and what does not fit in it."""
    rows = f"a sample of up to {info.sample_rows:,} rows per task"
    notes = [
        f"saturated: action entries within {BOUND} of a bound",
        f"coverage: visited cells of a {CELLS} x {CELLS} grid over two principal components of the "
        f"observations, of the {info.cells} that all tasks together visit ({rows})",
        "duplicates: transitions that occur again within the task, bit for bit",
        f"time limit, cut off, terminated: episodes truncated at the horizon of "
        f"{manifest.spec.horizon}, truncated before it, ended by the MDP",
        f"reward noise: of the reward's standard deviation ({MOST_ROWS:,} rows per task at most); "
        + _noise_note(info),
    ]
    if any(task.duplicates.compared < task.transitions for task in info.tasks):
        compared = sum(task.duplicates.compared for task in info.tasks)
        notes[2] += f" ({compared:,} of all were compared)"
    if _tells_success(info):
        known = [task.success for task in info.tasks if task.success is not None]
        notes.append(
            "success: episodes that did at some step what the task asks for; mean of the tasks "
            f"{_percent(float(np.mean(known)))}"
        )
    notes += [f"constant: {line}" for line in constant_entries(manifest, info)]
    if manifest.dtype == "float16":
        notes.append(_rounding_note(info))
    return notes


def _noise_note(info: Info) -> str:
    if any(task.noise_by == "recomputed" for task in info.tasks):
        return "stored minus recomputed from the recorded terms"
    return "≤, what a local linear fit of (s, a, s') does not explain, at most"


def _rounding_note(info: Info) -> str:
    def half_step(*pairs: tuple[tuple[float, ...], tuple[float, ...]]) -> str:
        return f"{float16_step(np.abs(pairs).max()) / 2:.2g}"

    obs = half_step(*((task.obs.low, task.obs.high) for task in info.tasks))
    reward = half_step(*(((task.reward_low,), (task.reward_high,)) for task in info.tasks))
    return f"float16: rounded by up to {obs} (obs), {reward} (reward), {2**-12:.2g} (action)"


# --- A page ---


def write_page(view: View, path: Path) -> None:
    """One HTML file that needs no other: the warnings and, of valid data, table and figures."""
    from omrl import report  # imports scipy

    header, rows, notes, figures = [], [], [], []
    if view.info is not None:
        header, rows = _table(view.manifest, view.info)
        notes, figures = _notes(view.manifest, view.info), _figures(view.info)
    page = report.render(
        "data_info.html",
        name=view.path.name,
        summary=_summary(view.path, view.manifest),
        warnings=[str(warning) for warning in view.warnings],
        header=header,
        rows=rows,
        notes=notes,
        figures=[report.figure(svg, caption) for svg, caption in figures],
        facts="\n".join(_facts(view.path, view.manifest)),
    )
    with atomic_write(path) as file:
        file.write(page.encode())


def _figures(info: Info) -> list[tuple[bytes, str]]:
    """Each with its caption."""
    from omrl import figures  # draws with matplotlib

    curves = {f"task {task.index}": task.returns.curve for task in info.tasks}
    counts = np.sum([task.returns.histogram for task in info.tasks], axis=0)
    low = min(task.returns.minimum for task in info.tasks)
    high = max(task.returns.maximum for task in info.tasks)
    shares = {
        "saturated actions": [task.saturated for task in info.tasks],
        "state coverage": [task.coverage for task in info.tasks],
        "duplicate transitions": [task.duplicates.transitions for task in info.tasks],
    }
    names = [str(task.index) for task in info.tasks]
    return [
        (figures.returns_over_lifetime(curves), "Mean return of parts of the lifetime."),
        (figures.return_histogram(counts.tolist(), low, high), "Returns of all episodes."),
        (figures.shares_per_task(names, shares), "Shares per task."),
    ]
