"""The only reader of pickled files: it interprets a pickle and can build plain data, nothing else.

A pickle is a program for a small stack machine, of which Python's own interpreter can be told to
import and call anything; `omrl.data.formats.pickle_machine` is another one, that cannot. Memory is
bounded by the file: strings of bytes and arrays are views of the mapped file, whose size must be
that of the data; what has to be copied is counted, and so are the opcodes.
"""

from __future__ import annotations

import mmap
import tempfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from omrl.arrays import reading
from omrl.data.finding import RESTORE
from omrl.data.formats.npy import HEADER_BYTES, read_header
from omrl.data.formats.pickle_machine import ArrayHolder, Inert, Machine, ObjectArray
from omrl.errors import InputError

__all__ = ["Inert", "ObjectArray", "array", "read", "read_npy"]

MAX_INFLATED = 8 << 30
"""Bytes that a compressed file of joblib may expand to, on disk."""


def read(path: Path) -> Any:
    """The content of a pickle, also of one by joblib, plain or compressed.

    Arrays in it are read-only views of the file; get them with `array`. Raises `InputError` naming
    what is not plain data or not whole.
    """
    with reading(path, RESTORE), path.open("rb") as file:
        if file.read(1) != b"\x78":  # zlib; a pickle begins with 0x80.
            return Machine(_mapped(file), 0, path).run()
        with tempfile.TemporaryFile() as inflated:
            _inflate(path, file, inflated)
            return Machine(_mapped(inflated), 0, path).run()


def read_npy(path: Path) -> ObjectArray:
    """The content of a `.npy` file of objects. Raises `InputError` as `read` does."""
    with reading(path, RESTORE), path.open("rb") as file:
        header = read_header(file.read(HEADER_BYTES), path)
        if header.dtype != np.dtype("O"):
            raise InputError(f"{path}: dtype {header.dtype}, must be object (pickled)")
        value = _resolved(Machine(_mapped(file), header.offset, path).run())
    if not isinstance(value, ObjectArray):
        raise InputError(f"{path}: the pickle in it is not an array of objects")
    return value


def array(value: Any, where: str) -> np.ndarray:
    """A loaded value as an array. Raises `InputError` if it is anything else."""
    value = _resolved(value)
    if isinstance(value, float | int | bool):
        return np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise InputError(f"{where}: must be an array of numbers, not {type(value).__name__}")
    return value


def _resolved(value: Any) -> Any:
    return value.value if isinstance(value, ArrayHolder) else value


def _mapped(file: BinaryIO) -> memoryview:
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _inflate(path: Path, file: BinaryIO, result: BinaryIO) -> None:
    """Write what the zlib stream `file` holds to `result`."""
    file.seek(0)
    inflater = zlib.decompressobj()
    while (block := file.read(1 << 20)) and not inflater.eof:
        while block:
            result.write(inflater.decompress(block, 1 << 24))
            block = inflater.unconsumed_tail
            if result.tell() > MAX_INFLATED:
                raise InputError(
                    f"{path}: expands to more than {MAX_INFLATED:,} bytes; decompress it (zlib)"
                )
    result.flush()
