"""How a run ends other than well; the command line turns each into one line and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong usage or bad input, in one line: what was given, what is allowed, the nearest fix.

    Exit code 2.
    """


class NonFiniteError(ArithmeticError):
    """Training met a NaN or an infinity: which update, seed, task and tensor. Exit code 1."""


class Stopped(Exception):  # noqa: N818 - being told to stop is not an error
    """A signal ended the run after a checkpoint. `code` is the exit code, 128 + signal number."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant instead of an unknown `name`, for an error message."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
    return f"did you mean {' or '.join(close)}?"
