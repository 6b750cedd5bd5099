"""The picture of a study: one line per series, or, of several runs, one colour per run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from omrl import stats
from omrl.drawing import (
    COLOURS,
    RETURN_LABEL,
    WIDTH,
    image,
    legend,
    room_for_legend,
    run_colour,
    single_panel,
    with_unit,
)
from omrl.studies.plan import Point
from omrl.studies.results import StudyResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v")
NAMES = {
    "mean": "mean, 95 % bootstrap interval",
    "iqm": "interquartile mean, 95 % bootstrap interval",
    "standard-error": "mean ± standard error over seeds",
    "standard-error-tasks": "mean ± standard error over tasks",
    "standard-deviation": "mean ± standard deviation over seeds",
    "standard-deviation-tasks": "mean ± standard deviation over tasks",
    "median": "median and quartiles over seeds and tasks",
    "median-seeds": "median and quartiles over seeds",
    "median-tasks": "median and quartiles over tasks",
}
"""What `stats.STATISTICS` are, below a picture."""
BOOTSTRAPPED = ("mean", "iqm")
OF_EPISODES = "where there is one seed over episodes, not over training runs"


@dataclass(frozen=True)
class _Line:
    """Points that belong together, with what they are drawn with."""

    points: list[Point]
    estimates: list[stats.Estimate]
    label: str
    colour: str
    dash: str = "-"
    marker: str = "o"

    @property
    def x(self) -> list[float]:
        return [point.x for point in self.points if point.x is not None]

    @property
    def value(self) -> list[float]:
        return [estimate.value for estimate in self.estimates]

    @property
    def low(self) -> list[float]:
        return [estimate.low for estimate in self.estimates]

    @property
    def high(self) -> list[float]:
        return [estimate.high for estimate in self.estimates]


@image
def study_figure(results: Mapping[str, StudyResult], statistic: str) -> Figure:
    """The results of one study by the names of their runs; `statistic` of `stats.STATISTICS`."""
    first = next(iter(results.values()))
    if first.study.name == "distribution":
        return _distribution(results, statistic)
    figure, axes = single_panel()
    for number, (name, result) in enumerate(results.items()):
        for line in _lines(result, statistic, name if len(results) > 1 else "", number):
            _draw(axes, line, bars=first.study.name == "context-quality")
    _draw_baselines(axes, list(results.values()), statistic)
    points = [point for result in results.values() for point in result.study.points]
    numbers = ""
    if first.study.log_x:
        _sizes(axes, points)
    elif first.study.name == "steps":
        axes.set_xticks(sorted({point.x for point in points if point.x is not None}))
    elif len(results) == 1:
        numbers = _number_points(axes, first, statistic)
    axes.set(xlabel=f"{first.study.x_label}{numbers}", ylabel=RETURN_LABEL)
    legend(axes, 4)
    _footer(figure, results, statistic)
    return figure


def _lines(result: StudyResult, statistic: str, run: str, number: int) -> Iterator[_Line]:
    """One per series, and one per point that has no x. `run` is empty for one run alone, whose
    series then differ in colour."""
    estimate = stats.STATISTICS[statistic]
    placed = {
        series: sorted((p for p in points if p.x is not None), key=lambda p: p.x or 0.0)
        for series, points in result.series.items()
    }
    placed = {series: points for series, points in placed.items() if points}
    for position, (series, points) in enumerate(placed.items()):
        colour = run_colour(number if run else position)
        label = series if not run else run if len(placed) == 1 else f"{run}: {series}"
        estimates = [estimate(result.returns(point)) for point in points]
        dash = DASHES[(number // 8 if run else 0) % len(DASHES)]
        yield _Line(points, estimates, label, colour, dash, MARKERS[position % len(MARKERS)])
    for point in result.study.points:
        if point.x is None:
            what = point.series if point.label == "none" else point.label
            colour = run_colour(number) if run else COLOURS["before"]
            label = f"{run}: {what}" if run else what
            yield _Line([point], [estimate(result.returns(point))], label, colour, ":")


def _draw(axes: Axes, line: _Line, *, bars: bool) -> None:
    """A line with its range as a band, or as bars; without an x from side to side."""
    colour = line.colour
    if not line.x:
        axes.axhline(line.value[0], color=colour, linestyle=line.dash, label=line.label)
        if not np.isnan(line.low[0]):
            axes.axhspan(line.low[0], line.high[0], color=colour, alpha=0.12, linewidth=0)
        return
    shape: Any = {"marker": line.marker, "markersize": 4, "color": colour, "label": line.label}
    if bars or len(line.points) == 1:
        errors = np.abs(np.subtract([line.low, line.high], line.value))
        axes.errorbar(line.x, line.value, errors, linestyle=line.dash, capsize=2, **shape)
        return
    axes.plot(line.x, line.value, linestyle=line.dash, **shape)
    axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)


def _draw_baselines(axes: Axes, results: Sequence[StudyResult], statistic: str) -> None:
    """Of the data, where it is the same for all runs: always the mean."""
    mean = "" if statistic == "mean" else " (mean)"
    for name in ("behaviour", "oracle"):
        values = {result.baseline(name) for result in results}
        if len(values) == 1 and np.isfinite(value := values.pop()):
            style: Any = {"color": COLOURS[name], "linestyle": "--", "linewidth": 1}
            axes.axhline(value, label=f"{name}{mean}", **style)


def _sizes(axes: Axes, points: Sequence[Point]) -> None:
    """A logarithmic axis, with the sizes in transitions on it."""
    axes.set_xscale("log", base=2)
    ticks = sorted({p.x for p in points if p.x is not None and p.label.endswith(" transitions")})
    if ticks:
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.minorticks_off()


def _number_points(axes: Axes, result: StudyResult, statistic: str) -> str:
    """Numbers the parts of the data in the plan's order, and says what they are."""
    parts = [point for point in result.study.points if point.x is not None and point.label != "all"]
    for number, point in enumerate(parts, start=1):
        at = point.x or 0.0, stats.STATISTICS[statistic](result.returns(point)).value
        offset = (-2, 6) if number % 2 else (-2, -12)
        axes.annotate(str(number), at, xytext=offset, textcoords="offset points", fontsize=7)
    told = ", ".join(f"{number} {point.label}" for number, point in enumerate(parts, start=1))
    return f"\n{textwrap.fill(told, 120)}" if told else ""


def _footer(figure: Figure, results: Mapping[str, StudyResult], statistic: str) -> None:
    """What a picture alone, without its page, would not tell."""
    first = next(iter(results.values()))
    source, base = first.results[0].provenance, first.study.base
    seeds = sorted({len(result.record.seeds) for result in results.values()})
    counted = " or ".join(map(str, seeds))
    lone = statistic in BOOTSTRAPPED and seeds[0] == 1
    of_one = "no interval where there is one run of each" if base.episodes == 1 else OF_EPISODES
    figure.supxlabel(
        f"{source.env_id} (spec {source.spec_hash[:12]}), protocol {base.protocol}, "
        f"{len(first.tasks)} tasks, {counted} seed{'s' * (seeds != [1])}; {NAMES[statistic]}"
        f"{f' ({of_one})' * lone}",
        size=7,
        color="#5c6b7a",
    )


# --- In and out of the training tasks ---


def _distribution(results: Mapping[str, StudyResult], statistic: str) -> Figure:
    """Return against the task's parameter, where there is one, beside the groups of tasks."""
    from matplotlib.figure import Figure

    first = next(iter(results.values()))
    by_parameter = len(first.study.trained_range) > 0
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    panels = figure.subplots(
        1, 1 + by_parameter, sharey=True, squeeze=False, width_ratios=[3, 1][-1 - by_parameter :]
    )[0]
    lines = list(_group_lines(results, statistic))
    if by_parameter:
        for line in lines:
            _scatter(panels[0], line)
        panels[0].axvspan(*first.study.trained_range, color="#f0e442", alpha=0.18, linewidth=0)
        panels[0].set(xlabel=with_unit(first.study.x_label), ylabel=RETURN_LABEL)
        panels[0].set_title("yellow: range of the training tasks", size=7, loc="left")
    groups = list(dict.fromkeys(_group(point) for point in first.study.points))
    for number, line in enumerate(lines):
        _draw_group(panels[-1], line, groups, (number + 1) / (len(lines) + 1))
    labels = [group.replace(" tasks", "\ntasks") for group in groups]
    panels[-1].set_xticks(range(len(groups)), labels)
    panels[-1].set_xlim(-0.5, len(groups) - 0.5)
    if not by_parameter:
        panels[-1].set_ylabel(RETURN_LABEL)
    handles, names = panels[-1].get_legend_handles_labels()
    names, columns = room_for_legend(figure, names, 4)
    figure.legend(handles, names, loc="outside upper center", ncols=columns)
    _footer(figure, results, statistic)
    return figure


def _group_lines(results: Mapping[str, StudyResult], statistic: str) -> Iterator[_Line]:
    """One per series. Of one run alone colours are groups, and hollow is before adaptation; of
    several, which are shown after it, colours are runs and markers are groups."""
    estimate, alone = stats.STATISTICS[statistic], len(results) == 1
    for number, (name, result) in enumerate(results.items()):
        groups = list(dict.fromkeys(_group(point) for point in result.study.points))
        for series, points in result.series.items():
            group = groups.index(_group(points[0]))
            if not alone and points[0].rounds == 0:
                continue
            yield _Line(
                points,
                [estimate(result.returns(point)) for point in points],
                series if alone else f"{name}: {_group(points[0])}",
                run_colour(group if alone else number),
                ":" if points[0].rounds == 0 else "-",
                MARKERS[group % len(MARKERS)],
            )


def _group(point: Point) -> str:
    return point.series.partition(",")[0]


def _marker(line: _Line) -> dict[str, Any]:
    face = "none" if line.dash == ":" else line.colour
    return {"marker": line.marker, "ms": 4, "mfc": face, "color": line.colour, "linestyle": "none"}


def _scatter(axes: Axes, line: _Line) -> None:
    pairs = zip(line.points, line.estimates, strict=True)
    at = [(p.x, e.value, e.low, e.high) for p, e in pairs if p.x is not None]
    x, value, low, high = np.array(sorted(at)).reshape(-1, 4).T
    axes.errorbar(x, value, np.abs([low - value, high - value]), elinewidth=0.8, **_marker(line))


def _draw_group(axes: Axes, line: _Line, groups: Sequence[str], place: float) -> None:
    """The mean over a group with its range, `place` in (0, 1) of the way through its column."""
    x = groups.index(_group(line.points[0])) + 0.6 * (place - 0.5)
    for point, estimate in zip(line.points, line.estimates, strict=True):
        if point.x is None:
            errors = np.abs([[estimate.low - estimate.value], [estimate.high - estimate.value]])
            axes.errorbar([x], estimate.value, errors, capsize=2, label=line.label, **_marker(line))
