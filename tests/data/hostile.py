"""What hostile files are made of, and the limits under which they are read."""

from __future__ import annotations

import contextlib
import os
import resource
import struct
from pathlib import Path

import pytest
from points import PointEnv, lifetime

from omrl.data.exchange import import_dataset
from omrl.errors import InputError


@contextlib.contextmanager
def little_memory(extra=256 << 20):
    """Lets the process map `extra` bytes more than it has; whoever asks for more gets an error."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def resident_bytes():
    """Of memory that belongs to this process alone and to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise AssertionError("no RssAnon")


class Runs:
    """Unpickled by Python, makes the folder `path`."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


ENV = PointEnv()
GOALS = (0.0, 0.5, 1.0)
HUGE = 2**40


def one_task(lengths=(5, 5, 5, 5)):
    return {0: lifetime(ENV, 0, list(lengths))}


def load(folder, format, name="out"):
    """Import the source of `folder`."""
    with little_memory():
        import_dataset(
            folder / "source", folder / name, format, command="", env=ENV, canonical=True
        )


def cases():
    """An empty list of parameters, and a decorator that adds the makers of sources to it."""
    found = []

    def case(format, message):
        """Of a function that makes a source of `format` at a path: what is said about it."""

        def add(make):
            name = f"{format}-{make.__name__.removeprefix(format + '_')}"
            found.append(pytest.param(format, make, message, id=name))
            return make

        return add

    return found, case


def assert_refused(tmp_path, format, make, message):
    """One line, no dataset, and nothing was executed."""
    make(tmp_path / "source")
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, format)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "made").exists()


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(full):
    module, _, attribute = full.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def array(shape, dtype=b"f8", raw=b"C\x08" + bytes(8), *, fortran=b"\x89"):
    """The opcodes of an array with state (1, shape, dtype, fortran, raw); `shape` are opcodes."""
    kind = name("numpy.dtype") + text(dtype.decode()) + b"\x89\x88\x87R"
    kind += b"(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    empty = (
        name("numpy.core.multiarray._reconstruct") + name("numpy.ndarray") + b"K\x00\x85C\x01b\x87R"
    )
    return empty + b"(K\x01" + shape + kind + fortran + raw + b"tb"


def program(content, protocol=4):
    return b"\x80" + bytes([protocol]) + content + b"."


def npy_of_objects(content, shape=()):
    """A .npy file of objects with this pickle."""
    header = f"{{'descr': '|O', 'fortran_order': False, 'shape': {shape!r}}}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def npy(array=None, *, shape=(3, 2), descr="<f4", body=b""):
    """A .npy file with this header."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}}}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body
