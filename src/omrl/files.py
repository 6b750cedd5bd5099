"""Writing files: readers see the old one or the whole new one, and room is checked before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from omrl.errors import InputError


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` on success and vanishes on any failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
