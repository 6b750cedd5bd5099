"""Signals that end a program in order.

`EndOnSignal` is in force for a whole command: SIGTERM and SIGINT end it wherever it is. Within it
`Interrupt` is in force where there is something to keep: a signal is only noted, and the run ends
between two chunks, after a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)
MESSAGE = "interrupted"
AGAIN_AFTER = 0.05
"""Seconds after which a signal is sent again if Python swallowed the exception it raised."""


class Interrupted(KeyboardInterrupt):
    """A signal told the program to end."""


class EndOnSignal:
    """While entered, SIGTERM and SIGINT raise `Interrupted`, and `signum` says which it was.

    No exception gets out once there was a signal: a library that is interrupted may raise anything.
    Python swallows exceptions in destructors and in callbacks of the garbage collector (JAX has
    one); there the signal is sent again.
    """

    def __init__(self, *, own_process: bool = False):
        """`own_process`: the command is all that the process does, and a signal ends the process.

        Within an import at once: extension modules interrupted while they load print tracebacks or
        crash. Else when the exception has come here: Python's own end of a process crashes while a
        device still computes.
        """
        self.signum = 0
        """The signal received, 0 while there was none."""
        self._own_process = own_process
        self._again: threading.Timer | None = None

    def __enter__(self) -> EndOnSignal:
        self._previous = _install(self._raise)
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._swallowed
        return self

    def __exit__(self, *_: object) -> bool:
        if self._again is not None:
            self._again.cancel()
        # A hook that came later goes on, and hands over to this one.
        if sys.unraisablehook == self._swallowed:
            sys.unraisablehook = self._hook
        if self._own_process:
            _install(signal.SIG_DFL)
            if self.signum:
                self._end()
        else:
            _restore(self._previous)
        return self.signum != 0

    def _raise(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        if self._own_process and _importing(frame):
            self._end()
        raise Interrupted

    def _end(self) -> NoReturn:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os.write(2, f"omrl: error: {MESSAGE}\n".encode())
        os._exit(128 + self.signum)

    def _swallowed(self, unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, Interrupted):
            self._hook(unraisable)
            return
        self._again = threading.Timer(AGAIN_AFTER, signal.raise_signal, (self.signum,))
        self._again.daemon = True
        self._again.start()


class Interrupt:
    """While entered, the first SIGTERM or SIGINT is only noted; a second SIGINT ends at once."""

    def __init__(self):
        self.signum = 0
        """The signal received, 0 while there was none."""

    def __enter__(self) -> Interrupt:
        self._previous = _install(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._previous)

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.signum = signum
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _install(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> dict[int, Any]:
    """Installs a handler of all `SIGNALS`; returns those before it."""
    # Python handles signals in its main thread alone; elsewhere the caller's handlers stay.
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in SIGNALS}


def _restore(previous: dict[int, Any]) -> None:
    for number, handler in previous.items():
        signal.signal(number, handler)
