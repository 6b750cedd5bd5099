"""The figures of a report, each a self-contained SVG, or a PNG if asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from omrl import stats
from omrl.drawing import (
    COLOURS,
    RETURN_LABEL,
    SUCCESS_LABEL,
    image,
    interval_line,
    legend,
    outer_labels,
    panels,
    run_colour,
    single_panel,
    thousands,
    with_unit,
)
from omrl.protocol import Measure
from omrl.results import EvalResult
from omrl.tables import MOST_PARAMETERS, parameter_cells, parameter_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 20
LABELS: Mapping[Measure, str] = {"return": RETURN_LABEL, "success": SUCCESS_LABEL}


@dataclass(frozen=True)
class MethodPoint:
    """What a method returns, in a comparison of methods."""

    method: str
    group: str
    before: stats.Estimate
    after: stats.Estimate


@image
def per_task_bars(result: EvalResult) -> Figure:
    """Return per task: before, after the last shot, behaviour, oracle; error bars over seeds."""
    shots = dict.fromkeys((result.config.shots[0], result.config.shots[-1]))
    colours = {result.shot_name(rounds): _colour(result, rounds) for rounds in shots}
    bars = {result.shot_name(rounds): result.shot(rounds).mean(2) for rounds in shots}
    bars |= {name: result.baseline(name)[None] for name in ("behaviour", "oracle")}
    bars = {name: values for name, values in bars.items() if np.isfinite(values).all()}
    order = _by_parameters(result)
    figure, axes = single_panel(0.25 * len(order) * len(bars))
    width = 0.8 / len(bars)
    for number, (name, values) in enumerate(bars.items()):
        position = np.arange(len(order)) + (number - (len(bars) - 1) / 2) * width
        spread = values[:, order].std(0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0
        colour = colours.get(name) or COLOURS[name]
        axes.bar(position, values[:, order].mean(0), width, spread, color=colour, label=name)
    names = ", ".join(map(with_unit, parameter_names(result.provenance.task_names)))
    labels = [_label(result, task) for task in order]
    axes.set_xticks(np.arange(len(order)), labels, rotation=90 if len(order) > 10 else 0)
    axes.set(xlabel=f"task: {names}", ylabel=RETURN_LABEL)
    legend(axes, len(bars))
    return figure


@image
def adaptation_curve(result: EvalResult) -> Figure:
    """Return over adaptation rounds, of `explore` over trajectories: mean with its interval, every
    task, baselines."""
    shots = result.config.points
    explores = result.config.protocol == "explore"
    places = [shot + explores for shot in shots]
    figure, axes = single_panel()
    for task in range(len(result.task_indices)):
        per_task = [result.shot(rounds)[:, task].mean() for rounds in shots]
        label = "each task" if task == 0 else None
        axes.plot(places, per_task, color="#cccccc", linewidth=1, zorder=1, label=label)
    estimates = [stats.bootstrap(result.shot(rounds), stats.mean) for rounds in shots]
    interval_line(axes, places, estimates, color=COLOURS["after"], label=_mean(estimates))
    _baselines(axes, result)
    label = "trajectory" if explores else "adaptation rounds"
    axes.set(xlabel=label, ylabel=RETURN_LABEL, xticks=places)
    legend(axes, 5)
    return figure


@image
def finetuning_curve(result: EvalResult) -> Figure:
    """Return over environment steps online: mean with its interval, every task, baselines."""
    figure, axes = single_panel()
    steps, estimates = zip(*result.curve(), strict=True)
    assert result.env_steps is not None
    for task in range(len(result.task_indices)):
        label = "each task" if task == 0 else None
        of_task = result.env_steps[:, task].mean(0), result.returns[:, task].mean((0, 2))
        axes.plot(*of_task, color="#cccccc", linewidth=1, zorder=1, label=label)
    interval_line(axes, steps, estimates, color=COLOURS["after"], label=_mean(estimates))
    _baselines(axes, result)
    axes.set(xlabel="environment steps online, per task", ylabel=RETURN_LABEL)
    thousands(axes)
    legend(axes, 5)
    return figure


@image
def speed_over_time(result: EvalResult) -> Figure:
    """Forward speed before and after adaptation against the task's target, mean over seeds."""
    trace, shots = result.traces["x_velocity"], result.config.shots
    order = _by_parameters(result)
    chosen = [order[position] for position in _spread(len(order))]
    seconds = result.provenance.dt * np.arange(1, trace.shape[-1] + 1)
    figure, grid = panels(len(chosen), 5, share=True)
    for panel, task in zip(grid, chosen, strict=True):
        for rounds in dict.fromkeys((shots[0], shots[-1])):
            name = result.shot_name(rounds)
            speed = trace[:, task, result.config.points.index(rounds)].mean(0)
            panel.plot(seconds, speed, color=_colour(result, rounds), label=name)
        if "target_velocity" in result.provenance.task_names:
            column = result.provenance.task_names.index("target_velocity")
            target = result.task_parameters[task, column]
            panel.axhline(target, color="black", linestyle=":", linewidth=1.2, label="target")
        panel.set_title(f"task {result.task_indices[task]}: {_parameters(result, task)}", size=9)
    outer_labels(figure, "time (s)", "forward speed (m/s)")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


@image
def return_over_updates(results: Sequence[EvalResult]) -> Figure:
    """Mean return of the first and last shot over training, with its interval."""
    figure, axes = single_panel()
    config = results[0].config
    for rounds in dict.fromkeys((config.shots[0], config.shots[-1])):
        name = results[0].shot_name(rounds)
        estimates = [stats.bootstrap(result.shot(rounds), stats.mean) for result in results]
        steps = [result.provenance.step for result in results]
        colour = _colour(results[0], rounds)
        interval_line(axes, steps, estimates, color=colour, label=name)
    for name in ("behaviour", "oracle"):
        value = results[-1].baseline(name).mean()
        if np.isfinite(value):
            axes.axhline(value, color=COLOURS[name], linestyle="--", linewidth=1, label=name)
    axes.set(xlabel="updates", ylabel=RETURN_LABEL)
    thousands(axes)
    legend(axes, 4)
    return figure


@image
def bars_of_runs(results: Mapping[str, EvalResult]) -> Figure:
    """Return per task after the last shot of several runs; error bars over seeds."""
    first = next(iter(results.values()))
    order = _by_parameters(first)
    figure, axes = single_panel(0.25 * len(order) * len(results))
    width = 0.8 / len(results)
    for number, (name, result) in enumerate(results.items()):
        values = result.shot(result.config.shots[-1]).mean(2)[:, order]
        position = np.arange(len(order)) + (number - (len(results) - 1) / 2) * width
        spread = values.std(0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0
        colour = run_colour(number)
        axes.bar(position, values.mean(0), width, yerr=spread, color=colour, label=name)
    names = ", ".join(map(with_unit, parameter_names(first.provenance.task_names)))
    labels = [_label(first, task) for task in order]
    axes.set_xticks(np.arange(len(order)), labels, rotation=90 if len(order) > 10 else 0)
    axes.set(xlabel=f"task: {names}", ylabel=RETURN_LABEL)
    legend(axes, min(4, len(results)))
    return figure


@image
def metrics_over_updates(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Every training metric of the log: mean over seeds, band from the lowest to the highest."""
    names = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    figure, grid = panels(len(names), 3, share=False)
    for panel, name in zip(grid, names, strict=True):
        having = [row for row in rows if name in row["metrics"]]
        values = np.array([row["metrics"][name] for row in having], np.float64)
        steps = [row["step"] for row in having]
        panel.plot(steps, values.mean(1), color=COLOURS["after"])
        panel.fill_between(
            steps, values.min(1), values.max(1), color=COLOURS["after"], alpha=0.2, linewidth=0
        )
        panel.set_title(name.replace("_", " "), size=9)
        thousands(panel)
    outer_labels(figure, "updates", "value, no unit")
    return figure


@image
def returns_over_lifetime(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Mean return of equal parts of the lifetime of each task, by its title."""
    titles = list(curves)
    chosen = [titles[position] for position in _spread(len(titles))]
    figure, grid = panels(len(chosen), 5, share=False)
    for panel, title in zip(grid, chosen, strict=True):
        parts = len(curves[title])
        done = 100 * (np.arange(parts) + 0.5) / parts
        panel.plot(done, curves[title], "o-", ms=2, color=COLOURS["behaviour"])
        panel.set_title(title, size=9)
        panel.set_xlim(0, 100)
    outer_labels(figure, "lifetime (%)", RETURN_LABEL)
    return figure


@image
def return_histogram(counts: Sequence[int], low: float, high: float) -> Figure:
    """Episodes in equal parts of the returns from `low` to `high`."""
    figure, axes = single_panel()
    edges = np.histogram_bin_edges([], len(counts), (low, high))
    axes.stairs(counts, edges, fill=True, color=COLOURS["behaviour"])
    axes.set(xlabel=RETURN_LABEL, ylabel="episodes")
    return figure


@image
def shares_per_task(labels: Sequence[str], shares: Mapping[str, Sequence[float]]) -> Figure:
    """Bars from 0 to 100 %, a few of them at each task."""
    figure, axes = single_panel(0.25 * len(labels) * len(shares))
    width, colours = 0.8 / len(shares), list(COLOURS.values())[1:]
    for number, (name, values) in enumerate(shares.items()):
        position = np.arange(len(labels)) + (number - (len(shares) - 1) / 2) * width
        axes.bar(position, 100 * np.array(values), width, color=colours[number], label=name)
    axes.set_xticks(np.arange(len(labels)), labels, rotation=90 if len(labels) > 10 else 0)
    axes.set(xlabel="task", ylabel="share (%)", ylim=(0, 100))
    legend(axes, len(shares))
    return figure


@image
def methods_bars(points: Sequence[MethodPoint], measure: Measure = "return") -> Figure:
    """Bars of what every method reaches after adaptation, in groups; ticks: before it.

    Of one group the methods stand at the axis: there may be more of them than colours.
    """
    if len({point.group for point in points}) == 1:
        points = [replace(p, group=p.method, method="after adaptation") for p in points]
    methods, groups = _named(points)
    figure, axes = single_panel(0.35 * len(points))
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        own = [point for point in points if point.method == method]
        positions = [
            groups.index(point.group) + (number - (len(methods) - 1) / 2) * width for point in own
        ]
        after = np.array([point.after.value for point in own])
        axes.bar(positions, after, width, color=run_colour(number), label=method)
        axes.errorbar(positions, after, _spans(own), fmt="none", ecolor="black", elinewidth=1)
        before = [point.before.value for point in own]
        label = "before adaptation" if number == 0 else None
        axes.scatter(
            positions, before, s=220 * width, c="black", marker="_", linewidths=1.5, label=label
        )
    slanted = {"rotation": 30, "ha": "right"} if len(groups) > 6 else {}
    axes.set_xticks(range(len(groups)), groups, **slanted)
    axes.set(ylabel=LABELS[measure])
    legend(axes, 4)
    return figure


@image
def methods_lines(points: Sequence[MethodPoint], measure: Measure = "return") -> Figure:
    """What every method reaches after adaptation over the groups, with its interval."""
    methods, groups = _named(points)
    figure, axes = single_panel()
    for number, method in enumerate(methods):
        own = [point for point in points if point.method == method]
        positions = [groups.index(point.group) for point in own]
        estimates = [point.after for point in own]
        interval_line(axes, positions, estimates, color=run_colour(number), label=method)
    axes.set_xticks(range(len(groups)), groups)
    axes.set(ylabel=f"{LABELS[measure]} after adaptation")
    legend(axes, 4)
    return figure


@image
def methods_over_updates(
    curves: Mapping[str, Sequence[EvalResult]], measure: Measure = "return"
) -> Figure:
    """What every run reaches after adaptation over its training, with its interval."""
    figure, axes = single_panel()
    for number, (label, results) in enumerate(curves.items()):
        values = [r.measured(measure, r.config.shots[-1]) for r in results]
        estimates = [stats.bootstrap(each, stats.mean) for each in values]
        steps = [result.provenance.step for result in results]
        interval_line(axes, steps, estimates, color=run_colour(number), label=label)
    axes.set(xlabel="updates", ylabel=f"{LABELS[measure]} after adaptation")
    thousands(axes)
    legend(axes, 3)
    return figure


def _named(points: Sequence[MethodPoint]) -> tuple[list[str], list[str]]:
    """Methods and groups, in the order in which they come."""
    methods = list(dict.fromkeys(point.method for point in points))
    return methods, list(dict.fromkeys(point.group for point in points))


def _spans(points: Sequence[MethodPoint]) -> Float[np.ndarray, "2 point"]:
    """How far intervals reach below and above; nothing where there is none."""
    spans = [
        (point.after.value - point.after.low, point.after.high - point.after.value)
        for point in points
    ]
    return np.nan_to_num(np.array(spans).T)


def _mean(estimates: Sequence[stats.Estimate]) -> str:
    """What is drawn of these, in the legend."""
    has_interval = any(math.isfinite(estimate.low) for estimate in estimates)
    return "mean and 95 % interval" if has_interval else "mean"


def _spread(count: int) -> list[int]:
    """Positions of what gets a panel: all, or `MAX_PANELS` evenly from first to last."""
    return [int(at) for at in np.linspace(0, count - 1, min(count, MAX_PANELS)).round()]


def _colour(result: EvalResult, rounds: int) -> str:
    """Of a shot: one colour for what is before adaptation or before going online, where there is
    something behind it."""
    config = result.config
    is_before = rounds == 0 and config.protocol != "zero-shot"
    if config.protocol == "explore":
        is_before = rounds < config.explore.episodes
    return COLOURS["before" if is_before else "after"]


def _baselines(axes: Axes, result: EvalResult) -> None:
    for name in ("random", "behaviour", "oracle"):
        value = result.baseline(name).mean()
        if np.isfinite(value):
            axes.axhline(value, color=COLOURS[name], linestyle="--", linewidth=1, label=name)


def _by_parameters(result: EvalResult) -> list[int]:
    """Positions of the tasks, ascending in their parameters."""
    return np.lexsort(result.task_parameters.T[::-1]).tolist()


def _parameters(result: EvalResult, task: int) -> str:
    return ", ".join(parameter_cells(result.task_parameters[task].tolist()))


def _label(result: EvalResult, task: int) -> str:
    """Its parameters; its index where they are many."""
    few = len(result.provenance.task_names) <= MOST_PARAMETERS
    return _parameters(result, task) if few else f"task {result.task_indices[task]}"
