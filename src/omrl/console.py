"""Where lines and tables for a person are printed."""

from __future__ import annotations

from typing import NoReturn

import rich.console


class Console(rich.console.Console):
    """Rich's, but a reader that has closed our output is `BrokenPipeError`, as `print` has it;
    Rich ends the process with 1, as if the command had failed."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def of_progress() -> Console:
    """For lines that tell how far something is: beside the output, which may be read by a
    program."""
    return Console(stderr=True, soft_wrap=True, highlight=False)
