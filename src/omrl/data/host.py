"""Lifetimes that stay on the disk: the host gathers batches from memory-mapped columns.

The rows are those that the device would draw, and so are the numbers (`omrl.data.device`). Only
what is gathered is read, and the system keeps of the files what it has memory for. Monte-Carlo
returns, the one thing that a row and its episode's bounds do not tell, become a column of their own
in the dataset's folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int, Int32, Int64

from omrl.arrays import HEADERS
from omrl.data.dataset import TaskData
from omrl.data.device import mc_return
from omrl.data.manifest import CACHE
from omrl.data.mixture import DataView, MixedTask
from omrl.data.validate import episode_blocks, read_header
from omrl.errors import InputError
from omrl.files import atomic_write
from omrl.types import Batch

BLOCK_ROWS = 2**20
"""Whole episodes of about so many rows are held in memory at a time."""

THREADS = 8
"""They wait for the disk rather than compute."""


@dataclass(frozen=True)
class HostData:
    """Whole lifetimes of many tasks, in the order in which `open_host` was given the tasks."""

    tasks: tuple[HostTask | MixedHostTask, ...]

    @cached_property
    def num_rows(self) -> Int32[np.ndarray, " task"]:
        """Transitions of each task."""
        return np.array([task.starts[-1] for task in self.tasks], np.int32)

    def gather(self, tasks: Int[np.ndarray, "*lead"], rows: Int[np.ndarray, ...]) -> Batch:
        """The transitions of `rows` [*lead, sample] of each of `tasks`, which are positions; leaves
        [*lead, sample, ...]. Further axes of `rows` are further axes of these.

        Like `omrl.data.sample.gather`, bit for bit.
        """
        distinct = np.unique(tasks)
        masks = [tasks == task for task in distinct]
        with ThreadPoolExecutor(THREADS) as threads:
            parts = list(
                threads.map(lambda task, mask: self.tasks[task].gather(rows[mask]), distinct, masks)
            )
        return _scattered(masks, parts, rows.shape)


@dataclass(frozen=True)
class MappedFile:
    """A file whose bytes are read as memory."""

    path: Path
    inode: int
    size: int

    @classmethod
    def of(cls, column: np.memmap) -> MappedFile:
        path = Path(str(column.filename))
        found = path.stat()
        return cls(path, found.st_ino, found.st_size)

    def check(self) -> None:
        """`InputError` if the file was cut off; one that was replaced or removed stays readable.

        The system ends a process that reads behind the end of a mapped file (SIGBUS). A cut between
        this check and the reading cannot be caught: it takes a moment, training takes hours.
        """
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return
        if now.st_ino == self.inode and now.st_size < self.size:
            raise InputError(
                f"{self.path}: cut off from {self.size} to {now.st_size} bytes while it was read; "
                "restore it from a copy, then go on with --resume"
            )


@dataclass(frozen=True)
class HostTask:
    """The selected episodes of one task."""

    files: tuple[MappedFile, ...]
    """All that `gather` reads."""
    data: TaskData
    discount: float
    mc_return: Float32[np.ndarray, " rows"]
    """Of the whole lifetime."""
    cut_return: Float32[np.ndarray, " cut"]
    """Monte-Carlo returns of the last episode if its end is cut off, else empty."""
    starts: Int64[np.ndarray, " boundaries"]
    """First of the selected rows in every selected episode, and how many there are."""
    origins: Int64[np.ndarray, " episodes"]
    """The same row's number in the whole lifetime."""

    def gather(self, rows: Int[np.ndarray, "*b"]) -> Batch:
        """The transitions of `rows`, which count the selected ones. Fields are arrays of numpy.

        `InputError` names a file that was cut off since it was opened.
        """
        for file in self.files:
            file.check()
        episode = np.searchsorted(self.starts, rows, side="right") - 1
        left = self.starts[episode + 1] - rows
        row = self.origins[episode] + rows - self.starts[episode]
        # An episode has one observation more than transitions.
        obs_row = row + self.data.episodes[episode]
        fields: dict[str, Any] = {
            "obs": self._column("obs", obs_row),
            "action": self._column("action", row),
            "reward": self._column("reward", row),
            "next_obs": self._column("obs", obs_row + 1),
            "terminated": np.take(self.data.columns["terminated"], row),
            "mc_return": self._mc_return(rows, row),
            "terminal_obs": self._column("obs", obs_row + left),
            "terminal_discount": (self.discount**left).astype(np.float32),
        }
        return Batch(**fields)

    def _column(self, name: str, rows: np.ndarray) -> np.ndarray:
        return np.take(self.data.columns[name], rows, axis=0).astype(np.float32, copy=False)

    def _mc_return(self, selected: np.ndarray, lifetime: np.ndarray) -> np.ndarray:
        """Of rows that are counted in both ways."""
        result = np.take(self.mc_return, lifetime)
        position = selected - (self.starts[-1] - len(self.cut_return))
        result[position >= 0] = self.cut_return[position[position >= 0]]
        return result


@dataclass(frozen=True)
class MixedHostTask:
    """Episodes of several parts in the order of a mixture."""

    parts: tuple[HostTask, ...]
    starts: Int64[np.ndarray, " boundaries"]
    """First row of every episode, and how many rows there are."""
    part: Int64[np.ndarray, " episodes"]
    """Which one has the episode."""
    origins: Int64[np.ndarray, " episodes"]
    """First row of the episode there."""

    @classmethod
    def of(cls, task: MixedTask, parts: tuple[HostTask, ...]) -> MixedHostTask:
        numbers = np.repeat(np.arange(len(parts)), [len(part.origins) for part in parts])
        origins = np.concatenate([part.starts[:-1] for part in parts])
        return cls(parts, task.episode_start, numbers[task.order], origins[task.order])

    def gather(self, rows: Int[np.ndarray, "*b"]) -> Batch:
        """The transitions of `rows`. Fields are arrays of numpy."""
        episode = np.searchsorted(self.starts, rows, side="right") - 1
        there = self.origins[episode] + rows - self.starts[episode]
        masks = [self.part[episode] == number for number in range(len(self.parts))]
        parts = [part.gather(there[mask]) for part, mask in zip(self.parts, masks, strict=True)]
        return _scattered(masks, parts, rows.shape)


def _scattered(
    masks: Sequence[Bool[np.ndarray, "*lead"]], parts: Sequence[Batch], shape: tuple[int, ...]
) -> Batch:
    """The batch of `shape` that has each of `parts` where its mask is."""
    fields: list[Any] = []
    for columns in zip(*parts, strict=True):
        features = columns[0].shape[1 + len(shape) - masks[0].ndim :]
        whole = np.empty((*shape, *features), columns[0].dtype)
        for mask, column in zip(masks, columns, strict=True):
            whole[mask] = column
        fields.append(whole)
    return Batch(*fields)


def open_host(
    view: DataView, task_indices: Sequence[int], *, discount: float, cache: bool = True
) -> HostData:
    """The selected episodes of the tasks, all floats as float32 once gathered.

    Every file that will be read is compared with its sha256: `InputError` names the one that
    differs. `cache`: keep the Monte-Carlo returns in the dataset's folder, unless that cannot be
    written, and not in memory.
    """
    tasks = []
    for index in task_indices:
        task = view.task(index)
        task.check_hashes()
        if isinstance(task, MixedTask):
            parts = tuple(_open_task(part, discount, cache) for part in task.parts)
            tasks.append(MixedHostTask.of(task, parts))
        else:
            tasks.append(_open_task(task, discount, cache))
    return HostData(tuple(tasks))


def _open_task(task: TaskData, discount: float, cache: bool) -> HostTask:
    columns = {name: np.asarray(column) for name, column in task.columns.items()}
    returns = _mc_return(task, discount, cache)
    read = [*(task.columns[name] for name in ("obs", "action", "reward", "terminated")), returns]
    last = task.only(np.array([task.num_episodes - 1]))
    cut = mc_return(last.reward, last.episode_start, discount) if last.selected.tail else []
    return HostTask(
        files=tuple(MappedFile.of(column) for column in read if isinstance(column, np.memmap)),
        data=replace(task, columns=columns),
        discount=discount,
        mc_return=np.asarray(returns),
        cut_return=np.asarray(cut, np.float32),
        starts=task.episode_start,
        origins=task.rows("action")[0],
    )


def _mc_return(task: TaskData, discount: float, cache: bool) -> Float32[np.ndarray, " rows"]:
    """Of the whole lifetime: from the cache, which is filled first if it can be, or in memory."""
    if cache:
        columns = task.record.columns
        of = "-".join(columns[name].sha256[:12] for name in ("reward", "episode_start"))
        path = task.path / CACHE / f"{task.record.folder}-mc-return-{discount!r}-{of}.npy"
        with contextlib.suppress(OSError):
            if not _holds(path, task.record.transitions):
                _write_cache(path, task, discount)
            with HEADERS:
                return np.load(path, mmap_mode="r", allow_pickle=False)
    return np.concatenate(list(_mc_blocks(task, discount)))


def _write_cache(path: Path, task: TaskData, discount: float) -> None:
    """Behind the array comes the sha256 of all before, since nothing else vouches for it."""
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (task.record.transitions,)}
    np.lib.format.write_array_header_1_0(header, fields)
    digest = hashlib.sha256()
    with atomic_write(path) as file:
        blocks = (block.tobytes() for block in _mc_blocks(task, discount))
        for part in itertools.chain([header.getvalue()], blocks):
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def _holds(path: Path, num_rows: int) -> bool:
    """Whether the file is a whole column of that length, as it was written."""
    if not path.is_file():
        return False
    with contextlib.suppress(ValueError):
        shape, dtype, offset = read_header(path)
        size = offset + dtype.itemsize * num_rows
        whole = path.stat().st_size == size + hashlib.sha256().digest_size
        return whole and (shape, dtype) == ((num_rows,), np.float32) and _is_intact(path, size)
    return False


def _is_intact(path: Path, size: int) -> bool:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size and (block := file.read(min(size, 1 << 20))):
            digest.update(block)
            size -= len(block)
        return file.read() == digest.digest()


def _mc_blocks(task: TaskData, discount: float) -> Iterator[Float32[np.ndarray, " rows"]]:
    """Monte-Carlo returns of the whole lifetime, some whole episodes at a time."""
    starts, reward = np.asarray(task.columns["episode_start"]), task.columns["reward"]
    for first, stop in episode_blocks(starts, BLOCK_ROWS):
        rows = np.asarray(reward[starts[first] : starts[stop]])
        block = mc_return(rows, starts[first : stop + 1] - starts[first], discount)
        yield block.astype(np.float32)
