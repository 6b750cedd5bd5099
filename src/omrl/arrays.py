"""Arrays from files that anybody may have written: never unpickled, all damage an `InputError`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from omrl.errors import InputError, reason, system_error

HEADERS = threading.Lock()
"""To be held where a thread has numpy read the header of an `.npy`: it parses it as Python, and of
two threads that do so at once CPython 3.11 fails one with a SystemError now and then."""


@contextmanager
def reading(path: Path | str, fix: str) -> Iterator[None]:
    """Turns whatever a library raises for a file that it cannot read into one line with `fix`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # numpy, zipfile, zlib and safetensors raise many kinds
        # Where the system cannot open the file, it names it.
        if isinstance(error, OSError) and error.filename is not None:
            raise InputError(f"cannot read {system_error(error)}") from error
        # What numpy says of these, and of all that is no file of its own, is how to unpickle it.
        said = "Python objects, or no array" if "pickle" in str(error) else reason(error)
        raise InputError(f"{path}: damaged ({said}); {fix}") from error


def read_npz(path: Path, fix: str) -> dict[str, np.ndarray]:
    """All arrays of an `.npz`, by name. Raises `InputError`, which ends with `fix`."""
    # Opened here, since numpy leaves what it opens open if it is damaged.
    with reading(path, fix), path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):  # numpy hands out other members as bytes
                raise TypeError(f"{name} is not an array")
    return arrays


def map_npy(path: Path, fix: str) -> np.ndarray:
    """The array of an `.npy`, of which only what is used is read. Raises `InputError`."""
    with reading(path, fix), HEADERS:
        return np.load(path, mmap_mode="r", allow_pickle=False)


def check_array(
    path: Path, name: str, array: np.ndarray, dtype: DTypeLike, shape: tuple[int, ...], fix: str
) -> None:
    """Raises `InputError` unless the array `name` of `path` has that dtype and shape."""
    if array.dtype != dtype:
        raise InputError(f"{path}: {name} is {array.dtype}, expected {np.dtype(dtype)}; {fix}")
    if array.shape != shape:
        raise InputError(f"{path}: {name} has shape {array.shape}, expected {shape}; {fix}")


def check_real(name: str, values: Any) -> None:
    """`InputError` unless `values` are real numbers: casts would drop imaginary parts."""
    kind = np.asarray(values).dtype
    if kind.kind not in "fiub":
        raise InputError(f"{name} must be real numbers, not {kind}; convert to float32")
