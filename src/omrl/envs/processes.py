"""Simulators that are Python and hold the interpreter, stepped by several worker processes.

A batch is cut into one run of rows per worker, in order; each worker has a simulator of its own.
A simulator is a pure function of rows, so results do not depend on the number of workers. Workers
are fresh interpreters that are sent raw float64 numbers: nothing is pickled, nothing of the
program that starts them is imported again, and they end when their parent does.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64

from omrl.envs.base import Physics, SimulationError, check_finite
from omrl.errors import InputError, WorkerLost

_SIZES = struct.Struct("<3q")
"""Rows, width of states, width of actions; after a failure 0, 0 and the length of its JSON."""
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (SimulationError, InputError, ValueError)
}
_GRACE = 5.0
"""Seconds that a worker has to end by itself."""
_PROGRAM = "from omrl.envs.processes import serve; serve()"


@runtime_checkable
class Rows(Protocol):
    """A simulator; its class takes no arguments."""

    def step(
        self,
        states: Float64[np.ndarray, "row state"],
        actions: Float64[np.ndarray, "row act"],
    ) -> Float64[np.ndarray, "row state"]:
        """Rows one step later: a pure function, row by row."""
        ...


def load(name: str) -> Rows:
    """The simulator of a class `module:Class`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)()


# --- Workers -----------------------------------------------------------------------------------


def serve() -> None:
    """What a worker does: answer batches until its input ends."""
    import signal

    # The parent gets what is sent to all of its group, too, and then closes the input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else is printed is no answer
    simulator: Rows | None = None
    while (batch := _batch(source)) is not None:
        try:
            simulator = simulator or load(sys.argv[1])
            after = simulator.step(*batch)
        except Exception as error:
            _send_failure(answers, error)
        else:
            _send(answers, after, np.empty((len(after), 0)))


def _send(file: IO[bytes], states: np.ndarray, actions: np.ndarray) -> None:
    file.write(_SIZES.pack(len(states), states.shape[1], actions.shape[1]))
    file.write(np.ascontiguousarray(states, "<f8").data.cast("B") if states.size else b"")
    file.write(np.ascontiguousarray(actions, "<f8").data.cast("B") if actions.size else b"")
    file.flush()


def _send_failure(file: IO[bytes], error: Exception) -> None:
    text = json.dumps({"kind": type(error).__name__, "message": str(error)}).encode()
    file.write(_SIZES.pack(0, 0, len(text)) + text)
    file.flush()


def _receive(file: IO[bytes]) -> np.ndarray | Exception | None:
    """An answer: states, or what the worker failed with; None where it is gone."""
    sizes = _header(file)
    if sizes is None:
        return None
    rows, width, others = sizes
    if rows:
        return _rows(file, rows, width)
    text = file.read(others)
    if len(text) < others:
        return None
    failure = json.loads(text)
    kind = _KINDS.get(failure["kind"])
    text = failure["message"]
    return kind(text) if kind else RuntimeError(f"simulator: {failure['kind']}: {text}")


def _batch(file: IO[bytes]) -> tuple[np.ndarray, np.ndarray] | None:
    """States and actions, or None where there are no more."""
    sizes = _header(file)
    if sizes is None:
        return None
    rows, width, act_dim = sizes
    states, actions = _rows(file, rows, width), _rows(file, rows, act_dim)
    return None if states is None or actions is None else (states, actions)


def _header(file: IO[bytes]) -> tuple[int, int, int] | None:
    header = file.read(_SIZES.size)
    return None if len(header) < _SIZES.size else _SIZES.unpack(header)


def _rows(file: IO[bytes], num: int, width: int) -> np.ndarray | None:
    content = file.read(8 * num * width)
    if len(content) < 8 * num * width:
        return None
    return np.frombuffer(content, "<f8").reshape(num, width).astype(np.float64)


# --- The side that starts them -----------------------------------------------------------------


class Workers:
    """Some worker processes."""

    def __init__(self, simulator: str, num: int):
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, simulator],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
            )
            for _ in range(num)
        ]
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self._workers)

    @property
    def alive(self) -> bool:
        """Whether they have not been ended."""
        return self._finalizer.alive

    def step(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """All rows. Raises what a simulator raised, `WorkerLost` where a worker is gone."""
        if not self.alive:
            raise RuntimeError("the worker processes of the simulator have ended")
        with self._lock:
            try:
                answers = self._exchange(states, actions)
            except OSError:
                raise self._gone() from None
            except BaseException:  # interrupted: answers may be left over
                self.close()
                raise
        if any(answer is None for answer in answers):
            raise self._gone()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return np.concatenate([answer for answer in answers if isinstance(answer, np.ndarray)])

    def _exchange(
        self, states: np.ndarray, actions: np.ndarray
    ) -> list[np.ndarray | Exception | None]:
        """What each worker answers; None of one that is gone."""
        cuts = np.linspace(0, len(states), len(self._workers) + 1).astype(int)
        parts = list(zip(self._workers, cuts[:-1], cuts[1:], strict=True))
        busy = [(worker, first, last) for worker, first, last in parts if first < last]
        for worker, first, last in busy:
            assert worker.stdin is not None
            _send(worker.stdin, states[first:last], actions[first:last])
        return [_receive(worker.stdout) for worker, _, _ in busy if worker.stdout is not None]

    def close(self) -> None:
        """End them; may be called twice."""
        self._finalizer()

    def _gone(self) -> WorkerLost:
        self.close()
        codes = sorted({worker.returncode for worker in self._workers} - {0})
        return WorkerLost(
            "a worker process of the simulator ended by itself (exit code "
            f"{', '.join(map(str, codes))}; -9 is mostly of too little memory, for which fewer "
            "--threads are a remedy); what was saved is kept: repeat the "
            "command, with --resume where it has that"
        )


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close their input, which ends them, and kill those that stay."""
    for worker in workers:
        assert worker.stdin is not None
        with suppress(OSError):  # it is gone, with part of a batch unread
            worker.stdin.close()
    for worker in workers:
        try:
            worker.wait(_GRACE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        assert worker.stdout is not None
        worker.stdout.close()


class ProcessPhysics(Physics):
    """Steps a batch with `num` simulators: one in this process, or several workers."""

    def __init__(self, simulator: str, num: int):
        """`simulator`: a class of `Rows` as `module:Class`. Raises what it raises at once."""
        self._local: Rows | None = local(simulator)
        self._workers: Workers | None = Workers(simulator, num) if num > 1 else None
        if self._workers is not None:
            _WORKING.setdefault(simulator, weakref.WeakSet()).add(self._workers)

    def step(
        self,
        states: Float64[np.ndarray, "env state"],
        actions: Float64[np.ndarray, "env act"],
        tasks: Float64[np.ndarray, "env parameter"],
        active: Bool[np.ndarray, " env"],
    ) -> Float64[np.ndarray, "env state"]:
        """See `Physics.step`. The task is that of the state."""
        check_finite(states, active)
        next_states = states.copy()
        if active.any():
            stepper = self._workers or self._local
            assert stepper is not None
            next_states[active] = stepper.step(states[active], actions[active])
        return next_states

    def close(self) -> None:
        """End the workers."""
        self._local = None
        if self._workers is not None:
            self._workers.close()
            self._workers = None


_LOCAL: dict[str, Rows] = {}
_WORKING: dict[str, weakref.WeakSet[Workers]] = {}
"""Of each simulator the workers that there are."""


def local(simulator: str) -> Rows:
    """The simulator of this process, made when it is first needed."""
    if simulator not in _LOCAL:
        _LOCAL[simulator] = load(simulator)
    return _LOCAL[simulator]


def step_somewhere(
    simulator: str, states: Float[np.ndarray, "row state"], actions: Float[np.ndarray, "row act"]
) -> Float64[np.ndarray, "row state"]:
    """By workers that someone has, if any, else here; which one changes nothing but the time."""
    working = next((each for each in _WORKING.get(simulator, ()) if each.alive), None)
    if working is None or len(states) == 1:
        return local(simulator).step(states, actions)
    return working.step(states, actions)
