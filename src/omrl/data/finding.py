"""One thing that is wrong with a dataset, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from omrl.data import manifest as manifests

RESTORE = "copy the dataset again from its source"
BLOCK_ROWS = 2**18
"""Rows of a column that are in memory at a time."""
RECREATE = "correct the data and create the dataset again"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where."""

    file: str
    """Relative to the dataset folder."""
    task: int | None
    """None where the dataset as a whole is meant."""
    field: str
    row: int | None
    """First offending row of the file; None where the whole file is meant."""
    problem: str
    fix: str

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row}"
        task = "" if self.task is None else f"task {self.task}, "
        return f"{self.file} ({task}{self.field}{row}): {self.problem}; {self.fix}"


def file_of(index: int, name: str) -> str:
    return f"{manifests.task_folder(index)}/{name}.npy"


def where(check: Callable[..., np.ndarray], *columns: np.ndarray) -> np.ndarray:
    """The rows of columns of equal length for which `check` of a block of them is true."""
    blocks = range(0, len(columns[0]), BLOCK_ROWS)
    found = [
        first + np.flatnonzero(check(*(column[first : first + BLOCK_ROWS] for column in columns)))
        for first in blocks
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])
