"""Pictures of trajectories, as SMAC's Figures 6 and 7 have them, and one task after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omrl.diagnostics.base import SETS
from omrl.diagnostics.traces_results import TracesResult
from omrl.drawing import COLOURS, WIDTH, image, room_for_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR = {
    "dataset": "#D55E00",
    "exploration": COLOURS["oracle"],
    "offline": COLOURS["after"],
    "online": COLOURS["behaviour"],
}
"""As in the paper: logged ones red, from the prior green, after contexts blue and orange."""
LABEL = {
    "dataset": "logged data",
    "exploration": "from the prior",
    "offline": "after offline context",
    "online": "after online context",
}
MOST_TASKS = 8
"""That are drawn one by one, evenly spread over all."""


@dataclass(frozen=True)
class Panels:
    """What is drawn."""

    pair: int = 0
    """Of the result's quantities."""
    all_sets: bool = False
    """Also trajectories from the prior and logged ones."""

    def of(self, draw: Callable[..., bytes]) -> Callable[..., bytes]:
        """`draw` of that."""
        return lambda results, png=False: draw(results, self, png=png)

    @property
    def sets(self) -> tuple[str, ...]:
        return SETS if self.all_sets else SETS[2:]


@image
def traces_figure(results: Sequence[TracesResult], panels: Panels) -> Figure:
    """All tasks in one panel, of the first run seed: the first checkpoint left, the last right."""
    from matplotlib.figure import Figure

    shown = _ends(results)
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    row = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    for axes, result in zip(row, shown, strict=True):
        for name in panels.sets:
            _draw(axes, result.traces(name, panels.pair)[0], name)
        _finish(axes, result, panels)
        axes.set_title(f"after {result.provenance.step:,} updates", size=9)
    _legend(figure, row[0], shown[-1], panels)
    return figure


@image
def traces_by_task(results: Sequence[TracesResult], panels: Panels) -> Figure:
    """A column per task, of the first run seed: the first checkpoint above, the last below."""
    from matplotlib.figure import Figure

    shown = _ends(results)
    tasks = len(shown[-1].task_indices)
    at = np.linspace(0, tasks - 1, min(tasks, MOST_TASKS)).round().astype(int)
    figure = Figure(figsize=(WIDTH, 0.8 + 1.6 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), len(at), sharex=True, sharey=True, squeeze=False)
    for row, result in zip(grid, shown, strict=True):
        for axes, task in zip(row, at, strict=True):
            for name in panels.sets:
                _draw(axes, result.traces(name, panels.pair)[0, task], name)
            _finish(axes, result, panels)
            axes.set(xlabel="", ylabel="")
            axes.set_title(f"task {result.task_indices[task]}", size=8)
        row[0].set_ylabel(f"{result.provenance.step:,} updates", size=8)
    horizontal, vertical = shown[-1].pairs[panels.pair]
    figure.supxlabel(horizontal.replace("_", " "), size=9)
    figure.supylabel(vertical.replace("_", " "), size=9)
    _legend(figure, grid[0][0], shown[-1], panels)
    return figure


def _ends(results: Sequence[TracesResult]) -> list[TracesResult]:
    """The first and the last, which may be one."""
    return [results[0], results[-1]] if len(results) > 1 else list(results)


def _draw(axes: Axes, traces: np.ndarray, name: str) -> None:
    """Traces [..., time, 2]."""
    lines = traces.reshape(-1, *traces.shape[-2:])
    axes.plot(lines[..., 0].T, lines[..., 1].T, color=COLOUR[name], linewidth=0.8, alpha=0.7)


def _finish(axes: Axes, result: TracesResult, panels: Panels) -> None:
    horizontal, vertical = result.pairs[panels.pair]
    axes.set(xlabel=horizontal.replace("_", " "), ylabel=vertical.replace("_", " "))
    if "velocity" not in vertical:
        axes.set_aspect("equal", adjustable="box")


def _legend(figure: Figure, axes: Axes, result: TracesResult, panels: Panels) -> None:
    there = [name for name in panels.sets if np.isfinite(result.traces(name, panels.pair)[0]).any()]
    handles = [axes.plot([], [], color=COLOUR[name])[0] for name in there]
    labels, columns = room_for_legend(figure, [LABEL[name] for name in there], 4)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
