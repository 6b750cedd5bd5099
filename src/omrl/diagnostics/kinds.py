"""The diagnoses by name: how each is told. No JAX here; `omrl.diagnostics.run` measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omrl.diagnostics import results as shift
from omrl.diagnostics import rewards_results as rewards
from omrl.diagnostics import traces_results as traces
from omrl.diagnostics.base import Diagnosis
from omrl.diagnostics.figures import rewards_figure, shift_figure, xy_figure
from omrl.diagnostics.traces_figures import Panels, traces_by_task, traces_figure
from omrl.tables import print_rows

Results = Sequence[Any]
"""Of one kind, at growing numbers of updates."""


@dataclass(frozen=True)
class Figure:
    """A picture of results."""

    name: str
    """Of a file, without its ending."""
    draw: Callable[..., bytes]
    """Of `Results`; SVG, with `png=True` PNG."""
    caption: str


@dataclass(frozen=True)
class Kind:
    """What a page shows of a diagnosis."""

    title: str
    result: type[Diagnosis]
    table: Callable[[Any], tuple[list[str], list[list[str]]]]
    describe: Callable[[Any], list[str]]
    figures: Callable[[Any], list[Figure]]
    """Of results."""
    over_training: bool = False
    """An experiment has it at all kept checkpoints, not at the ends of the stages alone."""


def _of_shift(results: Results) -> list[Figure]:
    caption = "KL to the prior and return, by what was adapted to: logged data (offline) or the "
    found = [Figure("shift", shift_figure, f"{caption}run's own trajectories (online).")]
    if all(result.xy is not None for result in results):
        found.append(Figure("shift-xy", xy_figure, "Where trajectories go; a colour per task."))
    return found


def _of_traces(results: Results) -> list[Figure]:
    """As SMAC's Figures 6 and 7 have them, each also by task."""
    found = []
    for pair, names in enumerate(results[-1].pairs):
        shown = " against ".join(name.replace("_", " ") for name in reversed(names))
        of_pair = f"-{'-'.join(names)}" if pair else ""
        for panels in (Panels(pair), Panels(pair, all_sets=True)):
            name = f"traces{'-all' * panels.all_sets}{of_pair}"
            beside = ", beside those before adaptation and logged ones" * panels.all_sets
            caption = f"Trajectories after each kind of context{beside}: {shown}, all tasks."
            found.append(Figure(name, panels.of(traces_figure), caption))
            caption = f"The same by task, numbered as in the environment: {shown}."
            found.append(Figure(f"{name}-by-task", panels.of(traces_by_task), caption))
    return found


def _of_rewards(results: Results) -> list[Figure]:
    caption = "Mean squared error of predicted rewards, 95 % intervals; lines: best constant."
    return [Figure("rewards", rewards_figure, caption)]


KINDS: Mapping[str, Kind] = {
    "shift": Kind(
        "shift between offline and online contexts",
        shift.ShiftResult,
        shift.table,
        shift.describe,
        _of_shift,
        over_training=True,
    ),
    "traces": Kind(
        "trajectories after offline and online contexts",
        traces.TracesResult,
        traces.table,
        traces.describe,
        _of_traces,
    ),
    "rewards": Kind(
        "errors of predicted rewards",
        rewards.RewardsResult,
        rewards.table,
        rewards.describe,
        _of_rewards,
    ),
}


def folder_of(name: str) -> str:
    """Of the files of a diagnosis, in a run's `eval`."""
    return f"diagnose-{name}"


FOLDERS = tuple(map(folder_of, KINDS))


def print_diagnosis(name: str, results: Results) -> None:
    """The table, then what its numbers are; Markdown where the output is no terminal."""
    kind = KINDS[name]
    header, rows = kind.table(results)
    print_rows(header, rows, [], kind.describe(results))
