"""The progress of a collection for a person: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
from jaxtyping import Float64
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from omrl.console import of_progress

LINE_EVERY = 10.0
"""Seconds between two plain lines."""
SHOW_EVERY = 0.2
"""Seconds between two changes of the bar."""


class CollectProgress:
    """Shows transitions, rates, time left and returns on standard error."""

    def __init__(self, total: int, done: int, *, console: Console | None = None):
        """`total` transitions of all tasks, of which `done` are there already."""
        self._total, self._done, self._updates = total, done, 0
        self._console = console or of_progress()
        self._returns = ""
        self._last = (time.monotonic(), done, 0)
        self._rates = np.zeros(2)
        self._bar: Progress | None = None
        if self._console.is_terminal:
            columns = (BarColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def restart(self) -> None:
        """From here on time counts; what went by since the last step was no collecting."""
        self._last = (time.monotonic(), self._done, self._updates)

    def step(self, transitions: int, updates: int) -> None:
        """After a step of the environments, with what it added over all tasks."""
        self._done += transitions
        self._updates += updates
        elapsed = time.monotonic() - self._last[0]
        if elapsed >= (SHOW_EVERY if self._bar is not None else LINE_EVERY):
            self._show(elapsed)

    def round(self, returns: Float64[np.ndarray, " task"]) -> None:
        """After a round, with the mean return of each task."""
        self._returns = (
            f"  return {returns.mean():.1f} (worst {returns.min():.1f}, best {returns.max():.1f})"
        )

    def message(self, text: str) -> None:
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Show the last state."""
        self._show(max(time.monotonic() - self._last[0], 1e-9))
        if self._bar is not None:
            self._bar.stop()

    def __enter__(self) -> CollectProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _show(self, elapsed: float) -> None:
        _, done, updates = self._last
        rates = np.array([self._done - done, self._updates - updates]) / elapsed
        # A mean over the last ten seconds or so.
        weight = np.exp(-elapsed / LINE_EVERY) if self._rates.any() else 0.0
        self._rates = weight * self._rates + (1 - weight) * rates
        self._last = (time.monotonic(), self._done, self._updates)
        left = max(self._total - self._done, 0)
        eta = timedelta(seconds=round(left / self._rates[0])) if self._rates[0] else "unknown"
        text = (
            f"{self._done:,}/{self._total:,} transitions  {self._rates[0]:,.0f} env steps/s  "
            f"{self._rates[1]:,.0f} updates/s  ETA {eta}{self._returns}"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=text)
        else:
            self.message(text)
