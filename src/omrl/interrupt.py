"""Signals that end a run in order: noticed between chunks, after which there is a checkpoint."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupt:
    """While entered, the first SIGTERM or SIGINT is only noted; a second SIGINT ends at once."""

    def __init__(self):
        self.signum = 0
        """The signal received, 0 while there was none."""
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        # Python handles signals in its main thread alone; elsewhere the caller's handlers stay.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.signum = signum
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
