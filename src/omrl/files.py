"""Files: writers replace the old one by the whole new one; what fails names the file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from omrl.errors import InputError, system_error


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` on success and vanishes on any failure."""
    temporary = named(path).with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path):
        if path.exists() and not path.is_file():
            raise InputError(
                f"{path}: is no regular file, which could be replaced; give another path"
            )
    try:
        with naming(path, temporary):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        with suppress(OSError):  # That of a name too long would hide the error of opening it.
            temporary.unlink()


def named(path: Path) -> Path:
    """`path`, which a file or folder shall have. Raises `InputError` for `.` and `/`."""
    if not path.name:
        raise InputError(f"{path}: does not end in a name; give the file or folder one")
    return path


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Has an OSError name `path` where it names no file (a full disk) or only the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, temporary, str(temporary)):
            error.filename = str(path)
        raise


def check_writable(folder: Path) -> None:
    """Makes a folder where there is none. Raises `OSError` where no file can be made in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with naming(folder), tempfile.TemporaryFile(dir=folder):
        pass


def check_apart(out: Path, reads: Iterable[Path], *, beside: Iterable[str] = ()) -> None:
    """Raises `InputError` where replacing `out`, or what has its name with an ending of `beside`,
    would remove what is read to write it."""
    replaced = {out.with_name(out.name + ending).resolve() for ending in ("", *beside)}
    for path in reads:
        if not replaced.isdisjoint([path.resolve(), *path.resolve().parents]):
            raise InputError(
                f"{out}: takes the place of {path}, of which it is made; write to another folder"
            )


def read_bytes(path: Path) -> bytes:
    """Contents of a file. Raises `InputError` where it cannot be read."""
    try:
        with naming(path):
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {system_error(error)}") from None


def read_text(path: Path) -> str:
    """As `read_bytes`, for a person: what is not UTF-8 is replaced by a sign."""
    return read_bytes(path).decode("utf-8", "replace")


def check_room(path: Path, needed: int) -> None:
    """Raises `InputError` unless the disk of `path`, which need not exist, has `needed` bytes."""
    existing = next(
        folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists()
    )
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise InputError(
            f"{path}: needs {needed:,} bytes on this disk, {free:,} are available; make room or "
            "write elsewhere"
        )
