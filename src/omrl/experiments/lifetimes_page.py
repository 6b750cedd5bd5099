"""What a figure of behaviour data leaves behind: raw returns, table, JSON, figure, one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from omrl.drawing import RETURN_LABEL, SUCCESS_LABEL, image, panels, thousands
from omrl.experiments.declare import Scale
from omrl.experiments.folder import RESULTS, settle
from omrl.experiments.lifetimes import PARTS, Lifetime, Lifetimes, Read
from omrl.experiments.page import (
    Written,
    claim_to_json,
    write_file,
    write_numbers,
    write_table,
)
from omrl.files import atomic_write
from omrl.report import figure, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 10
"""Points of a curve that are marked."""
RUNS_HEADER = ["problem", "collected by", "environment", "transitions", "data"]


def write(
    out: Path, experiment: Lifetimes, scale: Scale, found: Sequence[Read], command: str
) -> Written:
    """Writes results/*.npz, table.md, results.json, figure.png and page.html into `out`."""
    header, cells = table(found)
    lines = notes(experiment, scale, found)
    raw = {out / RESULTS / f"{each.problem.name}.npz": each for each in found}
    for path, each in raw.items():
        _save(path, each)
    settle(out, raw)
    sections = [_section(each) for each in found]
    write_table(out, experiment.title, header, cells, lines, sections)
    described = {
        "experiment": experiment.id,
        "scale": scale,
        "command": command,
        "claim": claim_to_json(experiment.claim),
        "rows": [to_object(each) for each in found],
        "notes": lines,
    }
    write_numbers(out, described)
    write_file(out / "figure.png", curves(found, experiment.symlog, png=True))
    caption = f"A line per task, coloured by its number; means of up to {PARTS} parts of a lifetime"
    write_file(
        out / "page.html",
        render(
            "experiment.html",
            experiment=experiment,
            claim=experiment.claim,
            scale=scale,
            header=header,
            rows=cells,
            notes=lines,
            figures=[figure(curves(found, experiment.symlog), f"{caption}.")],
            sections=sections,
            command=command,
            runs_header=RUNS_HEADER,
            runs=[_source(each) for each in found],
            facts=[_facts(each) for each in found],
            footnote="Returns are undiscounted sums of rewards of the episodes that were logged, "
            "exploration included.",
        ).encode(),
    )
    return Written(header, cells, lines, described)


def _save(path: Path, found: Read) -> None:
    """Of all tasks one after another; `episodes` tells how many are of each."""
    arrays = {
        "tasks": np.array([task.index for task in found.tasks]),
        "episodes": np.array([len(task.returns) for task in found.tasks]),
        "returns": np.concatenate([task.returns for task in found.tasks]),
        "lengths": np.concatenate([task.lengths for task in found.tasks]),
        "final_returns": np.array(
            [np.nan if task.final_return is None else task.final_return for task in found.tasks]
        ),
    }
    if found.succeeds:
        arrays["success"] = np.concatenate([_success(task) for task in found.tasks])
    with atomic_write(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _success(task: Lifetime) -> np.ndarray:
    assert task.success is not None
    return task.success


# --- Numbers ---


@dataclass(frozen=True)
class _Ends:
    """Means of the first and last tenth of every task's episodes."""

    start: np.ndarray
    end: np.ndarray

    @property
    def better(self) -> int:
        """Tasks that end above where they start."""
        return int((self.end > self.start).sum())


def _returns(found: Read) -> _Ends:
    return _Ends(
        np.array([task.start(task.returns) for task in found.tasks]),
        np.array([task.end(task.returns) for task in found.tasks]),
    )


def _successes(found: Read) -> _Ends | None:
    if not found.succeeds:
        return None
    return _Ends(
        np.array([task.start(_success(task)) for task in found.tasks]),
        np.array([task.end(_success(task)) for task in found.tasks]),
    )


def _finals(found: Read) -> np.ndarray | None:
    finals = [task.final_return for task in found.tasks]
    return None if None in finals else np.array(finals)


def _over_tasks(values: np.ndarray | None, digits: int = 1) -> str:
    if values is None:
        return ""
    parts = values.mean(), values.min(), values.max()
    mean, low, high = (f"{part:.{digits}f}" for part in parts)
    return f"{mean} [{low}, {high}]"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def table(found: Sequence[Read]) -> tuple[list[str], list[list[str]]]:
    """Header and cells, a row per problem; columns that would be empty are left out."""
    returns, successes = [_returns(each) for each in found], [_successes(each) for each in found]
    columns = {
        "problem": [each.problem.name for each in found],
        "collected by": [each.agent for each in found],
        "tasks": [str(len(each.tasks)) for each in found],
        "transitions of each": [_span([t.transitions for t in each.tasks]) for each in found],
        "episodes of each": [_span([len(t.returns) for t in each.tasks]) for each in found],
        "start": [_over_tasks(each.start) for each in returns],
        "end": [_over_tasks(each.end) for each in returns],
        "end above start": [f"{each.better} of {len(each.end)} tasks" for each in returns],
        "final agents": [_over_tasks(_finals(each)) for each in found],
        "success at start": [_over_tasks(each and each.start, 2) for each in successes],
        "success at end": [_over_tasks(each and each.end, 2) for each in successes],
    }
    columns = {title: cells for title, cells in columns.items() if any(cells)}
    return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def notes(experiment: Lifetimes, scale: Scale, found: Sequence[Read]) -> list[str]:
    """What has to be read with the numbers, and what the paper says."""
    lines = [
        f"{experiment.id}, scale {scale}",
        experiment.scales[scale],
        "start, end: mean return of the first and last tenth of a task's episodes; mean over "
        "tasks, in brackets the lowest and the highest. A task has one lifetime, so there is no "
        "interval",
    ]
    if any(_finals(each) is not None for each in found):
        lines.append("final agents: without exploration, from initial states that no episode had")
    if any(each.succeeds for each in found):
        lines.append("success: share of these episodes that do at some step what the task asks for")
    claim = experiment.claim
    return [
        *lines,
        f"paper: {claim.words} ({claim.source})",
        f"deviates: {experiment.deviates}",
    ]


def to_object(found: Read) -> dict[str, Any]:
    """A problem as JSON values."""
    return {
        "problem": found.problem.name,
        "env": found.problem.env,
        "data": found.data,
        "data_hash": found.data_hash,
        "agent": found.agent,
        "collects": True,
        "seeds": [],
        "tasks": [_task(task) for task in found.tasks],
    }


def _task(task: Lifetime) -> dict[str, Any]:
    steps, returns = task.curve(task.returns)
    told = {
        "index": task.index,
        "title": task.title,
        "split": task.split,
        "episodes": len(task.returns),
        "transitions": task.transitions,
        "start": task.start(task.returns),
        "end": task.end(task.returns),
        "final_return": task.final_return,
        "curve": {"transitions": steps.tolist(), "return": returns.tolist()},
    }
    if task.success is not None:
        told["success_start"], told["success_end"] = (
            task.start(task.success),
            task.end(task.success),
        )
        told["curve"]["success"] = task.curve(task.success)[1].tolist()
    return told


# --- The page ---


def _section(found: Read) -> dict[str, Any]:
    """All tasks of a problem."""
    header = ["task", "", "split", "episodes", "start", "highest part", "end"]
    finals = _finals(found) is not None
    header += ["final agent"] * finals + ["success at start", "success at end"] * found.succeeds
    rows = []
    for task in found.tasks:
        highest = task.curve(task.returns)[1].max()
        row = [str(task.index), task.title, task.split, str(len(task.returns))]
        row += [f"{value:.1f}" for value in (task.start(task.returns), highest)]
        row += [f"{task.end(task.returns):.1f}", *([f"{task.final_return:.1f}"] if finals else [])]
        if found.succeeds:
            success = _success(task)
            row += [f"{task.start(success):.2f}", f"{task.end(success):.2f}"]
        rows.append(row)
    return {
        "title": f"Tasks of {found.problem.name}",
        "header": header,
        "rows": rows,
        "summary": (),
        "notes": [f"highest part: of up to {PARTS} equal parts of the lifetime, as in the figure"],
        "figures": [],
    }


def _source(found: Read) -> list[str]:
    transitions = sum(task.transitions for task in found.tasks)
    return [
        found.problem.name,
        found.agent,
        found.problem.env,
        f"{transitions:,}",
        f"{found.data} ({found.data_hash[:12]})",
    ]


def _facts(found: Read) -> dict[str, str]:
    text = f"{found.command}\n\n{json.dumps(dict(found.versions), indent=2)}"
    return {"title": f"{found.problem.name}: how its data was made, and versions", "text": text}


@image
def curves(found: Sequence[Read], symlog: bool) -> Figure:
    """Return of every task over its transitions, and success beside it where it is known."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    wanted = [(each, success) for each in found for success in (False, True)[: 1 + each.succeeds]]
    picture, grid = panels(len(wanted), 2, share=False)
    picture.set_figheight(0.6 + 2.6 * -(-len(wanted) // 2))
    for panel, (each, success) in zip(grid, wanted, strict=True):
        colour = ScalarMappable(Normalize(0, max(1, each.tasks[-1].index)), "viridis")
        colours = iter(colour.to_rgba(np.array([task.index for task in each.tasks])))
        for task in each.tasks:
            steps, means = task.curve(_success(task) if success else task.returns)
            marker = "o" if len(means) < FEW else ""
            panel.plot(steps, means, marker=marker, ms=2, lw=0.9, color=next(colours))
        panel.set_title(each.problem.name, size=9)
        panel.set(xlabel="transitions of the task")
        panel.set(ylabel=SUCCESS_LABEL if success else RETURN_LABEL)
        if symlog and not success:
            panel.set_yscale("symlog", linthresh=100.0)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        thousands(panel)
        picture.colorbar(colour, ax=panel, label="task")
    return picture
