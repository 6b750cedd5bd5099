"""Experiments side by side on one machine, each in one of a few processes.

They make everything and tell nothing but that. Whoever started them goes through all experiments
again and finds them made; so one that failed, or whose process was killed, is told there.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

WATCH = 1.0
"""Seconds between looks whether who started a process still lives."""

Make = Callable[[str], object]
"""Makes what has that name. A function of a module, or a `functools.partial` of one: it is sent to
the processes."""


def make_ahead(names: Sequence[str], make: Make, num_processes: int) -> None:
    """Makes all in so many processes, and waits for it. Where the caller is interrupted they are
    told so with SIGTERM, and waited for."""
    context = multiprocessing.get_context("spawn")  # JAX's threads live through no fork.
    # A byte for each, of which every process takes one at a time: no lock that one could leave
    # locked, or behind.
    numbers, writer = context.Pipe(duplex=False)
    with writer:
        os.write(writer.fileno(), bytes(range(len(names))))
    given = numbers, names, make, os.getpid()
    with numbers, _started(context, num_processes, given) as processes:
        for process in processes:
            process.join()


@contextmanager
def _started(context: SpawnContext, number: int, given: tuple[Any, ...]) -> Iterator[list[Any]]:
    processes: list[SpawnProcess] = []
    try:
        for _ in range(number):
            process = context.Process(target=_work, args=given)
            process.start()
            processes.append(process)
        yield processes
    finally:
        for process in processes:
            process.terminate()  # Nothing, where it has ended.
        for process in processes:
            process.join()


def _work(numbers: Connection, names: Sequence[str], make: Make, parent: int) -> None:
    """What one process does."""
    from omrl.compiling import programs_kept
    from omrl.errors import Stopped
    from omrl.interrupt import EndOnSignal

    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with EndOnSignal() as signals, programs_kept():
        while number := os.read(numbers.fileno(), 1):
            name = names[number[0]]
            started = time.monotonic()
            _say(f"{name}: begun")
            try:
                make(name)
            except Stopped:
                return
            except Exception:
                _say(f"{name}: failed, and is tried again in the end")
            else:
                _say(f"{name}: made in {time.monotonic() - started:.0f} s")
    if signals.signum:
        os._exit(128 + signals.signum)


def _end_with(parent: int) -> None:
    """Ends this process once `parent` has gone, which may have been killed; in order, as the
    training that it is at ends."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    with suppress(ProcessLookupError):
        os.kill(os.getpid(), signal.SIGTERM)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
