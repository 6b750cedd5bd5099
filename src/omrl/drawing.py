"""What all figures have in common: colours, style, panels, legends.

Colours are those of Okabe and Ito. Drawn through matplotlib's object interface: no window, no
global figure, the same bytes for the same numbers.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from omrl import stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "before": "#999999",
    "after": "#0072B2",
    "behaviour": "#E69F00",
    "oracle": "#009E73",
    "random": "#CC79A7",
    "zero": "#56B4E9",
}
UNITS = {"target_velocity": "m/s", "x_velocity": "m/s"}
RETURN_LABEL = "return (sum of rewards)"
SUCCESS_LABEL = "episodes that succeed (share)"
WIDTH = 8.5
"""Inches; a wide figure of a report, whose text is 9 points high."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # letters as text: a tenth of the size, and it can be searched
    "svg.hashsalt": "omrl",
    "text.parse_math": False,  # A run may be named with a $.
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


def image(draw: Callable[..., Figure]) -> Callable[..., bytes]:
    """Runs `draw` in our style and returns its figure as SVG, with `png=True` as PNG."""

    @wraps(draw)
    def drawn(*args: Any, png: bool = False) -> bytes:
        from matplotlib import rc_context  # takes 1.1 s

        kind, dated = ("png", "Software") if png else ("svg", "Date")
        with rc_context(_STYLE):
            buffer = io.BytesIO()
            draw(*args).savefig(buffer, format=kind, dpi=200, metadata={dated: None})
        return buffer.getvalue()

    return drawn


def run_colour(number: int) -> str:
    """Of several runs or methods in one picture; a ninth begins again with the first."""
    # Those of behaviour and oracle, which may be beside them, come last.
    palette = ("#0072B2", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442", "#E69F00")
    return (*palette, "#009E73")[number % 8]


def single_panel(wanted_width: float = 0.0) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    width = min(max(WIDTH, wanted_width), 2.5 * WIDTH)
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    return figure, figure.subplots()


def panels(count: int, columns: int, *, share: bool) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    used = min(count, columns)
    rows = math.ceil(count / used)
    width = max(WIDTH * used / columns, WIDTH / 2)
    figure = Figure(figsize=(width, 0.6 + 1.7 * rows), layout="constrained")
    grid = figure.subplots(rows, used, sharex=share, sharey=share, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.set_visible(False)
    return figure, list(grid[:count])


def outer_labels(figure: Figure, horizontal: str, vertical: str) -> None:
    figure.supxlabel(horizontal, size=9)
    figure.supylabel(vertical, size=9)


def interval_line(
    axes: Axes,
    positions: Sequence[int | float],
    estimates: Sequence[stats.Estimate],
    *,
    color: str,
    label: str,
) -> None:
    axes.plot(
        positions, [estimate.value for estimate in estimates], "o-", ms=3, color=color, label=label
    )
    low, high = [e.low for e in estimates], [e.high for e in estimates]
    if len(positions) > 1:
        axes.fill_between(positions, low, high, color=color, alpha=0.2, linewidth=0)
    else:  # A band of one point would have no width.
        axes.vlines(positions, low, high, color=color)


def thousands(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def legend(axes: Axes, columns: int) -> None:
    """Above the axes."""
    handles, labels = axes.get_legend_handles_labels()
    figure: Any = axes.figure
    labels, used = room_for_legend(figure, labels, columns)
    axes.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=used)


def room_for_legend(
    figure: Figure, labels: Sequence[str], columns: int
) -> tuple[Sequence[str], int]:
    """The labels, wrapped, and how many columns of them fit; the figure grows by their rows."""
    labels = [textwrap.fill(label, 90) for label in labels]
    longest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    used = max(1, min(columns, 110 // (longest + 8)))
    rows = math.ceil(len(labels) / used) + sum(label.count("\n") for label in labels)
    figure.set_figheight(figure.get_figheight() + 0.18 * max(0, rows - 1))
    return labels, used


def with_unit(name: str) -> str:
    text = name.replace("_", " ")
    return f"{text} ({UNITS[name]})" if name in UNITS else text
