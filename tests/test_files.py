"""Writing files: what is replaced, and what is not."""

import os

import pytest

from omrl.errors import InputError
from omrl.files import atomic_write


def test_only_files_are_replaced(tmp_path):
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.write_text("old")
    os.mkfifo(pipe)
    with atomic_write(file) as writer:
        writer.write(b"new")
    assert file.read_text() == "new"
    for path in (pipe, tmp_path):
        with pytest.raises(InputError, match="is no regular file"), atomic_write(path):
            pass
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]


def test_a_name_too_long_is_named_as_it_was_given(tmp_path):
    path = tmp_path / ("a" * 300)
    with pytest.raises(OSError, match="too long") as error, atomic_write(path):
        pass
    assert error.value.filename == str(path)
