"""Safe reading of `.npy` files of numbers, and of `.npz` archives of them.

Nothing is allocated before the size that a header announces was compared with that of the file, and
nothing that is not a number is read. Names in an archive have to be those of the columns that are
asked for: there are no folders in it, and nothing is extracted.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omrl.arrays import reading
from omrl.data.finding import RESTORE
from omrl.errors import InputError

HEADER_BYTES = 16 << 10


class Header(NamedTuple):
    """What a `.npy` file says of itself."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int
    """Bytes before the data."""

    @property
    def file_bytes(self) -> int:
        return self.offset + self.dtype.itemsize * math.prod(self.shape)


def read_header(start: bytes, where: str | Path) -> Header:
    """The header in the first `HEADER_BYTES` of a `.npy` file."""
    file = io.BytesIO(start)
    with reading(where, RESTORE):  # numpy reads the header as Python
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"format version {version}")
    if any(size < 0 for size in shape):
        raise InputError(f"{where}: negative sizes in the header; copy it again")
    return Header(shape, fortran_order, dtype, file.tell())


def open_npy(path: Path) -> np.ndarray:
    """The array in a `.npy` file, memory-mapped. Raises `InputError` unless it is whole numbers."""
    with reading(path, RESTORE), path.open("rb") as file:
        header, size = read_header(file.read(HEADER_BYTES), path), path.stat().st_size
    _check_numbers(header, str(path))
    if size != header.file_bytes:
        raise InputError(
            f"{path}: its header asks for {header.file_bytes:,} bytes, it has {size:,}; copy it "
            "again from its source"
        )
    if math.prod(header.shape) == 0:
        return np.zeros(header.shape, header.dtype)
    order = "F" if header.fortran_order else "C"
    return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)


def read_npz(path: Path, names: Collection[str], max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of an archive by name, all of them among `names`, each of at most `max_bytes`.

    Raises `InputError` for any other entry and for whatever is damaged or larger.
    """
    with reading(path, RESTORE), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check_entries(path, entries, names)
        return {
            entry.filename.removesuffix(".npy"): _read_entry(path, archive, entry, max_bytes)
            for entry in entries
        }


def _check_entries(path: Path, entries: list[zipfile.ZipInfo], names: Collection[str]) -> None:
    seen = set()
    for entry in entries:
        name = entry.filename
        if name.removesuffix(".npy") not in names or not name.endswith(".npy"):
            allowed = ", ".join(f"{known}.npy" for known in sorted(names))
            raise InputError(f"{path}: holds {name[:80]!r}; allowed are {allowed}")
        if name in seen:
            raise InputError(f"{path}: holds {name!r} twice; write it once")
        seen.add(name)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{path}, {name}: compressed in a way that numpy does not write")


def _read_entry(
    path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int
) -> np.ndarray:
    where = f"{path}, {entry.filename}"
    with archive.open(entry) as file:
        start = file.read(HEADER_BYTES)
        header = read_header(start, where)
        _check_numbers(header, where)
        needed = header.file_bytes
        if needed != entry.file_size:
            raise InputError(
                f"{where}: its header asks for {needed:,} bytes, the archive says "
                f"{entry.file_size:,}; write it again"
            )
        if needed > max_bytes + header.offset:
            raise InputError(
                f"{where}: {needed:,} bytes, an episode of this environment has at most "
                f"{max_bytes:,} in a column"
            )
        content = start + file.read(needed - len(start) + 1)
    if len(content) != needed:
        raise InputError(f"{where}: {len(content):,} of {needed:,} bytes; copy the file again")
    flat = np.frombuffer(content, header.dtype, offset=header.offset)
    if header.fortran_order:
        return flat.reshape(header.shape[::-1]).T
    return flat.reshape(header.shape)


def _check_numbers(header: Header, where: str) -> None:
    if header.dtype.kind not in "fiub":
        raise InputError(f"{where}: dtype {header.dtype}; only numbers and truth values are read")
