"""The column files of one task while they grow.

Each is a `.npy` file from its first byte on: numpy leaves room in the header for a growing first
axis, so sealing a task rewrites 128 bytes in place and copies nothing. Nothing is remembered in
memory. How many episodes are durable is read off the files: `episode_start` is written last, so an
episode it names is whole in all columns, and what an interruption left behind it is cut off by the
next write.
"""

from __future__ import annotations

import io
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omrl.data.manifest import column_dtype, column_names, column_shape
from omrl.envs.base import EnvSpec
from omrl.errors import InputError


@dataclass(frozen=True)
class GrowingTask:
    """The files of one task in `folder`."""

    folder: Path
    spec: EnvSpec
    dtype: str
    """Of the floating-point columns."""

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add whole episodes: every column of theirs, `episode_start` counted from their first row.

        On any failure the files are as before.
        """
        episodes, rows = self.cursor()
        if episodes == 0:
            self._begin("terms" in columns)
        elif columns.keys() != set(self.names()):
            raise InputError(
                f"{self.folder.name}: terms must be given for all episodes or for none"
            )
        else:
            self.truncate(episodes)
        grown = dict(columns) | {"episode_start": columns["episode_start"][1:] + rows}
        try:
            for name in self.names():
                with self.path(name).open("ab") as file:
                    file.write(np.ascontiguousarray(grown[name]).data)
        except OSError:
            self.truncate(episodes)
            raise

    def truncate(self, episodes: int) -> None:
        """Keep only the first `episodes` episodes; ValueError where there are fewer."""
        if episodes == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        starts = self._starts()
        if episodes > self.cursor()[0]:
            raise ValueError(
                f"{self.folder}: cannot keep {episodes} of {self.cursor()[0]} episodes"
            )
        for name in self.names():
            shape = column_shape(name, self.spec, int(starts[episodes]), episodes)
            os.truncate(self.path(name), self._size(name, shape))

    def cursor(self) -> tuple[int, int]:
        """Numbers of durable episodes and of their rows."""
        starts = self._starts()
        episodes = len(starts) - 1
        while episodes > 0 and not self._holds(int(starts[episodes]), episodes):
            episodes -= 1
        return (episodes, int(starts[episodes])) if episodes > 0 else (0, 0)

    def seal(self) -> None:
        """Cut off what is not durable and write the final headers."""
        episodes, rows = self.cursor()
        self.truncate(episodes)
        for name in self.names():
            with self.path(name).open("r+b") as file:
                file.write(self._header(name, column_shape(name, self.spec, rows, episodes)))
        self.sync()

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        for name in self.names():
            with self.path(name).open("rb") as file:
                os.fsync(file.fileno())

    def names(self) -> tuple[str, ...]:
        """The columns of the task, `episode_start` last."""
        return column_names(self.spec, self.path("terms").is_file())

    def path(self, name: str) -> Path:
        """The file of a column."""
        return self.folder / f"{name}.npy"

    def _begin(self, with_terms: bool) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in column_names(self.spec, with_terms):
            empty = column_shape(name, self.spec, 0, 0)
            first = np.zeros(1, np.int64).tobytes() if name == "episode_start" else b""
            self.path(name).write_bytes(self._header(name, empty) + first)

    def _starts(self) -> np.ndarray:
        path = self.path("episode_start")
        header = len(self._header("episode_start", (0,)))
        if not path.is_file() or path.stat().st_size <= header:
            return np.zeros(1, np.int64)
        # fromfile leaves out a last number that is there in part.
        starts = np.fromfile(path, np.int64, offset=header)
        # Of a damaged file counts what no flipped bit can have enlarged.
        lengths = np.diff(starts, prepend=0)
        wrong = (lengths < 1) | (lengths > self.spec.horizon)
        wrong[:1] = starts[:1] != 0
        return starts[: np.argmax(wrong)] if wrong.any() else starts

    def _holds(self, rows: int, episodes: int) -> bool:
        return all(
            self.path(name).is_file()
            and self.path(name).stat().st_size
            >= self._size(name, column_shape(name, self.spec, rows, episodes))
            for name in self.names()
        )

    def _size(self, name: str, shape: tuple[int, ...]) -> int:
        data = column_dtype(name, self.dtype).itemsize * math.prod(shape)
        return len(self._header(name, shape)) + data

    def _header(self, name: str, shape: tuple[int, ...]) -> bytes:
        buffer = io.BytesIO()
        fields = {
            "descr": np.lib.format.dtype_to_descr(column_dtype(name, self.dtype)),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(buffer, fields)
        return buffer.getvalue()
