"""The pictures of a diagnosis: over meta-training where there are several checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from omrl import stats
from omrl.diagnostics.base import SETS, SOURCES
from omrl.diagnostics.results import ShiftResult
from omrl.diagnostics.rewards_results import TRANSITIONS, RewardsResult
from omrl.diagnostics.traces_figures import LABEL
from omrl.drawing import (
    COLOURS,
    RETURN_LABEL,
    WIDTH,
    image,
    interval_line,
    room_for_legend,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR = {"offline": COLOURS["after"], "online": COLOURS["behaviour"], "prior": COLOURS["before"]}
NUM_BINS = 30
KL_LABEL = "KL to the prior (nats)"


@image
def shift_figure(results: Sequence[ShiftResult]) -> Figure:
    """KL to the prior and return after adaptation, by kind of context: a row per group of tasks.
    Distributions of one checkpoint, medians and means over several."""
    from matplotlib.figure import Figure

    groups = list(results[-1].groups)
    figure = Figure(figsize=(WIDTH, 0.4 + 2.6 * len(groups)), layout="constrained")
    grid = figure.subplots(len(groups), 2, squeeze=False)
    for (left, right), group in zip(grid, groups, strict=True):
        if len(results) > 1:
            _over_updates(left, right, results, group)
        else:
            _of_one(left, right, results[0], group)
        left.set_title(f"{group} tasks", size=9)
        right.set_title(f"{group} tasks", size=9)
    handles, labels = grid[0][1].get_legend_handles_labels()
    labels, columns = room_for_legend(figure, labels, 3)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    return figure


def _over_updates(left: Axes, right: Axes, results: Sequence[ShiftResult], group: str) -> None:
    steps = [result.provenance.step for result in results]
    for source in SOURCES:
        kl = [result.kl_of(source, group) for result in results]
        interval_line(left, steps, kl, color=COLOUR[source], label=source)
    for source in ("prior", *SOURCES):
        returns = [result.return_of(source, group) for result in results]
        interval_line(right, steps, returns, color=COLOUR[source], label=_label(source))
    left.set(xlabel="updates", ylabel=KL_LABEL)
    right.set(xlabel="updates", ylabel=RETURN_LABEL)
    for axes in (left, right):
        thousands(axes)


def _of_one(left: Axes, right: Axes, result: ShiftResult, group: str) -> None:
    tasks = result.groups[group]
    edges = np.histogram_bin_edges(result.kl[:, :, tasks].ravel(), NUM_BINS)
    for number, source in enumerate(SOURCES):
        counts, _ = np.histogram(result.kl[number][:, tasks].ravel(), edges)
        left.stairs(counts, edges, fill=True, alpha=0.6, color=COLOUR[source])
    for number, source in enumerate(("prior", *SOURCES)):
        estimate = result.return_of(source, group)
        errors = np.nan_to_num(_reach(estimate))
        right.bar(number, estimate.value, 0.6, color=COLOUR[source], label=_label(source))
        right.errorbar([number], [estimate.value], errors, color="black", elinewidth=1)
    left.set(xlabel=KL_LABEL, ylabel="contexts")
    right.set(ylabel=RETURN_LABEL, xticks=range(3), xticklabels=["no", *SOURCES], xlabel="context")


def _reach(estimate: stats.Estimate) -> np.ndarray:
    """How far the interval reaches below and above, [2, 1]."""
    return np.array([[estimate.value - estimate.low], [estimate.high - estimate.value]])


def _label(source: str) -> str:
    return "before adaptation" if source == "prior" else f"{source} context"


@image
def xy_figure(results: Sequence[ShiftResult]) -> Figure:
    """Where trajectories go, by set, a colour per task; the first checkpoint above the last."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    rows = [results[0], results[-1]] if len(results) > 1 else list(results)
    figure = Figure(figsize=(WIDTH, 0.4 + 2.3 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(SETS), sharex=True, sharey=True, squeeze=False)
    for panels, result in zip(grid, rows, strict=True):
        assert result.xy is not None
        colours = colormaps["hsv"](np.linspace(0, 0.9, len(result.task_indices)))
        for panel, name, traces in zip(panels, SETS, result.xy, strict=True):
            for colour, of_task in zip(colours, traces, strict=True):
                panel.plot(of_task[..., 0].T, of_task[..., 1].T, color=colour, linewidth=1)
            panel.set_title(LABEL[name], size=9)
            panel.set_aspect("equal", adjustable="box")
        panels[0].set_ylabel(f"y, {result.provenance.step:,} updates")
    figure.supxlabel("x", size=9)
    return figure


@image
def rewards_figure(results: Sequence[RewardsResult]) -> Figure:
    """Errors of predicted rewards by kind of transitions and of context, a panel per group of
    tasks; the first checkpoint pale beside the last."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = [results[0], results[-1]] if len(results) > 1 else list(results)
    groups = list(shown[-1].groups)
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    row = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    bars = [(source, result) for source in SOURCES for result in shown]
    pale = [1.0 if result is shown[-1] else 0.4 for _, result in bars]
    width = 0.8 / len(bars)
    for axes, group in zip(row, groups, strict=True):
        for number, (source, result) in enumerate(bars):
            for at, name in enumerate(TRANSITIONS):
                error = result.error_of(source, name, group)
                constant = result.constant_of(name, group)
                if error is None or constant is None:
                    continue
                middle = at - 0.4 + (number + 0.5) * width
                axes.bar(middle, error.value, width, color=COLOUR[source], alpha=pale[number])
                reach = np.nan_to_num(_reach(error))
                axes.errorbar([middle], [error.value], reach, color="black", elinewidth=1)
                ends = middle - width / 2, middle + width / 2
                axes.hlines(constant.value, *ends, color="black")
        axes.set_title(f"{group} tasks", size=9)
        axes.set_xticks(range(len(TRANSITIONS)), TRANSITIONS)
        axes.set_xlim(-0.5, len(TRANSITIONS) - 0.5)
    row[0].set_ylabel("mean squared error")
    handles = [
        Patch(color=COLOUR[source], alpha=alpha)
        for (source, _), alpha in zip(bars, pale, strict=True)
    ]
    names = [f"{source} context, after {r.provenance.step:,} updates" for source, r in bars]
    labels, columns = room_for_legend(figure, names, 2)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    return figure
