"""Pictures of task distributions: what is trained on and what is tested, as small SVG files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from omrl.envs.base import TaskEnv

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"train": "#0072B2", "validation": "#009E73", "test": "#D55E00"}
_OTHER_COLOUR = "#CC79A7"
"""All of Okabe and Ito."""
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "omrl",  # the same bytes every time
    "svg.fonttype": "none",  # letters as text: a tenth of the size
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
}
_BINS = 12


def task_picture(env: TaskEnv) -> bytes:
    """SVG of the canonical tasks by split: angles on a circle, points in the plane, numbers on a
    line, many parameters as a histogram for each, of factors for each kind.

    The same bytes for equal tasks and splits.
    """
    from matplotlib import rc_context  # takes 1 s
    from matplotlib.figure import Figure

    names = env.spec.task_names
    kinds = list(dict.fromkeys(name.split(".")[0] for name in names))
    with rc_context(_STYLE):
        if len(names) > 2 and not (env.tasks % 1.0).any():
            figure = Figure(figsize=(6.4, 1.9))
            grid = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
            figure.subplots_adjust(0.08, 0.25, 0.99, 0.82, 0.1)
            grid[0].set_ylabel("% of the tasks")
            for column, axes in enumerate(grid):
                _choices(axes, env, column)
            figure.legend(*grid[0].get_legend_handles_labels(), loc="upper center", ncols=3)
        elif len(names) > 2 and names[0] != "environment":
            figure = Figure(figsize=(6.4, 1.9))
            grid = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
            figure.subplots_adjust(0.08, 0.25, 0.99, 0.82, 0.1)
            grid[0].set_ylabel("% of the factors")
            for axes, kind in zip(grid, kinds, strict=True):
                _histogram(axes, env, kind)
            figure.legend(*grid[0].get_legend_handles_labels(), loc="upper center", ncols=3)
        elif len(names) == 2 or is_angle(env):
            figure = Figure(figsize=(3.2, 3.4))
            axes = figure.add_axes((0.2, 0.12, 0.76, 0.74))
            _plane(axes, env)
            axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3)
        else:
            figure = Figure(figsize=(6.0, 0.9 + 0.2 * len(env.splits)))
            axes = figure.add_axes((0.12, 0.42, 0.86, 0.54))
            _line(axes, env)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def is_angle(env: TaskEnv) -> bool:
    """Whether a task is one angle, whose cosine and sine the reward takes."""
    names = env.spec.task_names
    return len(names) == 1 and f"cos({names[0]})" in env.spec.reward


def _plane(axes: Axes, env: TaskEnv) -> None:
    for rank, (name, tasks) in enumerate(env.split_table):
        chosen = env.tasks[list(tasks)]
        if is_angle(env):
            # Splits may share tasks: each has a circle of its own.
            radius = 1.0 + 0.12 * rank
            chosen = radius * np.concatenate([np.cos(chosen), np.sin(chosen)], axis=1)
        # Open and closed: where splits share tasks, both are seen.
        face = "none" if rank == 0 else None
        axes.plot(*chosen.T, "o", ms=6 - 2 * rank, mfc=face, color=_colour(name), label=name)
    axes.set_aspect("equal")
    axes.grid(True)
    if is_angle(env):
        (name,) = env.spec.task_names
        axes.set(xlabel=f"cos({name})", ylabel=f"sin({name})")
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4))  # the circle, however few points it has
    else:
        axes.set(xlabel=env.spec.task_names[0], ylabel=env.spec.task_names[1])


def _line(axes: Axes, env: TaskEnv) -> None:
    names = [name for name, _ in reversed(env.split_table)]
    for height, name in enumerate(names):
        values = env.tasks[list(env.splits[name]), 0]
        axes.plot(values, np.full(len(values), height), "o", ms=4, mew=0, color=_colour(name))
    axes.set(xlabel=env.spec.task_names[0], ylim=(-0.5, len(names) - 0.5))
    axes.set_yticks(range(len(names)), names)
    axes.grid(True, axis="x")


def _histogram(axes: Axes, env: TaskEnv, kind: str) -> None:
    columns = [n for n, name in enumerate(env.spec.task_names) if name.split(".")[0] == kind]
    factors = np.log2(env.tasks[:, columns])
    edges = np.linspace(factors.min(), factors.max(), _BINS + 1)
    for name, tasks in env.split_table:
        values = factors[list(tasks)].ravel()
        weights = np.full(len(values), 100.0 / len(values))
        colour, bins = _colour(name), edges.tolist()
        axes.hist(values, bins, weights=weights, histtype="step", color=colour, label=name)
    axes.set_xlabel(f"log2 {kind}")


def _choices(axes: Axes, env: TaskEnv, column: int) -> None:
    """Of a parameter that is a choice, by a whole number."""
    edges = np.arange(env.tasks[:, column].min(), env.tasks[:, column].max() + 2) - 0.5
    for name, tasks in env.split_table:
        values = env.tasks[list(tasks), column]
        weights, colour = np.full(len(values), 100.0 / len(values)), _colour(name)
        bins = edges.tolist()
        axes.hist(values, bins, weights=weights, histtype="step", color=colour, label=name)
    axes.set_xlabel(env.spec.task_names[column])


def _colour(split: str) -> str:
    return _COLOURS.get(split, _OTHER_COLOUR)
