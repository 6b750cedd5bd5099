"""Ctrl-C and SIGTERM end every command with one line and their code, whatever it is doing."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from omrl import interrupt
from omrl.cli import main
from omrl.interrupt import EndOnSignal, Interrupt, Interrupted

PROGRAM = (
    "import sys; from omrl.cli import main; print('ready', flush=True); "
    "code = main(); print('done', flush=True); sys.exit(code)"
)
ENDLESS = ["bench", "macaw", "--device", "cpu", "--seconds", "1000"]
"""Imports for one or two seconds, compiles for some, and then measures."""


def until_done(signum: int, delay: float) -> tuple[int, str]:
    """Exit code and standard error of a command that is sent a signal after `delay` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signum)
    _, error = process.communicate(timeout=120)
    return process.returncode, error


@pytest.mark.parametrize(
    ("signum", "code", "delay"),
    [
        *((signal.SIGINT, 130, delay) for delay in (0.1, 0.3, 0.6, 1.0, 2.0)),
        *((signal.SIGTERM, 143, delay) for delay in (0.1, 0.8)),
    ],
)
def test_at_any_time_it_is_one_line(signum, code, delay):
    assert until_done(signum, delay) == (code, "omrl: error: interrupted\n")


# --- Where the exception does not come through ---


def send() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


def swallowed_by_the_garbage_collector() -> None:
    def callback(phase, info):
        gc.callbacks.remove(callback)
        send()

    gc.callbacks.append(callback)
    gc.collect()
    for _ in range(1000):
        time.sleep(0.01)
    raise AssertionError("the signal was lost")


def swallowed_by_a_library() -> None:
    with contextlib.suppress(BaseException):
        send()


def turned_into_another_error() -> None:
    try:
        send()
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None


@pytest.mark.parametrize(
    "work", [send, swallowed_by_the_garbage_collector, swallowed_by_a_library,
             turned_into_another_error]
)  # fmt: skip
def test_no_way_of_losing_the_exception_matters(work, monkeypatch, capsys):
    from omrl.cli import envs

    handlers = [signal.getsignal(number) for number in interrupt.SIGNALS]
    hook = sys.unraisablehook
    monkeypatch.setattr(envs, "main", lambda *_: work())
    assert main(["envs"]) == 130
    assert capsys.readouterr() == ("", "omrl: error: interrupted\n")
    assert [signal.getsignal(number) for number in interrupt.SIGNALS] == handlers
    assert sys.unraisablehook is hook


def test_what_else_python_swallows_is_reported_as_ever(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    class Faulty:
        def __del__(self):
            raise ValueError("in a destructor")

    with EndOnSignal() as signals:
        Faulty()
    assert signals.signum == 0
    assert [type(each.exc_value) for each in reported] == [ValueError]
    reported.clear()  # it holds the object


# --- Where there is something to keep ---


def test_within_a_run_it_is_only_noted_and_afterwards_raised_again():
    steps = []
    with EndOnSignal() as signals:
        with Interrupt() as noted:
            send()
            steps.append("to the next checkpoint")
        assert (noted.signum, signals.signum) == (signal.SIGINT, 0)
        with pytest.raises(Interrupted):
            send()
    assert steps
    assert signals.signum == signal.SIGINT
