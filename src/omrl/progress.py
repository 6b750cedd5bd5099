"""The progress of training for a person: a bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from omrl.console import of_progress

LINE_EVERY = 10.0
"""Seconds between two plain lines."""


class TrainProgress:
    """Shows steps/s, time left, loss and the last evaluation on standard error."""

    def __init__(self, total: int, *, console: Console | None = None, show: bool = True):
        self._total = total
        self._console = console or of_progress()
        self._show = show
        self._evaluation = ""
        self._last_line = float("-inf")
        self._bar: Progress | None = None
        if show and self._console.is_terminal:
            columns = (BarColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def update(self, stage: str, step: int, steps_per_s: float, loss: float) -> None:
        """After a chunk, `step` updates of all stages: `loss` is what the last row of the log says,
        as a mean over seeds."""
        remaining = (self._total - step) / steps_per_s if steps_per_s else 0.0
        text = (
            f"{step}/{self._total} {stage}  {steps_per_s:.1f} steps/s  "
            f"ETA {clock(remaining)}  loss {loss:.4g}{self._evaluation}"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=text)
        elif time.monotonic() - self._last_line >= LINE_EVERY or step == self._total:
            self._last_line = time.monotonic()
            self.message(text)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """A line of its own, and the newest one beside the loss."""
        self._evaluation = "".join(f"  {name} {value:.4g}" for name, value in values.items())
        self.message(f"evaluation after {step} updates:{self._evaluation}")

    def message(self, text: str) -> None:
        if self._show:
            self._console.print(text, markup=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __enter__(self) -> TrainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours in front if there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
