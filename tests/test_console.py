"""A reader that closes our output, as `head` does, ends a command like any other program."""

from __future__ import annotations

import contextlib
import os

import pytest

from omrl import cli
from omrl.console import Console


@pytest.fixture
def closed():
    """A file whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    file = os.fdopen(writer, "w")
    yield file
    with contextlib.suppress(BrokenPipeError):
        file.close()


def test_a_console_has_the_error_that_print_has(closed):
    with pytest.raises(BrokenPipeError):
        Console(file=closed).print("a line")


@pytest.mark.parametrize("arguments", [["presets"], ["data", "info", "bundled:cheetah-vel"]])
def test_a_command_ends_as_by_sigpipe(arguments, closed, monkeypatch, capfd):
    closed.reconfigure(line_buffering=True)
    monkeypatch.setattr("sys.stdout", closed)
    assert cli.main(arguments) == 141
    assert not capfd.readouterr().err
