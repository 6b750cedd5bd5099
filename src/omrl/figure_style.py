"""How all figures look, and how one becomes an image.

No window, no global figure, the same bytes for the same numbers.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "omrl",
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
