"""What is written while learning goes on: rounds by a thread, checkpoints behind them.

A checkpoint appears, whole, only after the rounds before it are durable. So whatever is killed
when, data on the disk reach at least as far as the newest checkpoint, to which a resumed collection
cuts them back.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from omrl.arrays import check_array, read_npz
from omrl.config import Json, differences, from_json, parse_json
from omrl.errors import InputError
from omrl.files import atomic_write

NAME = "checkpoint.npz"


class Background:
    """Runs jobs one after the other in a thread. A job's failure is raised by the next call."""

    def __init__(self, most_waiting: int = 2):
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="collect-writer")
        self._jobs: deque[Future[None]] = deque()
        self._most_waiting = most_waiting

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job; waits while too many are unfinished, since each holds a round's arrays."""
        while self._jobs and (self._jobs[0].done() or len(self._jobs) >= self._most_waiting):
            self._jobs.popleft().result()
        self._jobs.append(self._executor.submit(job))

    def drain(self) -> None:
        """Return when all jobs are done."""
        while self._jobs:
            self._jobs.popleft().result()

    def __enter__(self) -> Background:
        # The main thread feeds the device every few milliseconds and needs the interpreter only
        # briefly: by default it would wait 5 ms for the writer each time.
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(2e-4)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setswitchinterval(self._interval)
        self._executor.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Checkpoint:
    """All that a group's collection is, beside the transitions on the disk."""

    record: Json
    """`CollectConfig.record()` and the spec's hash: what decides the data."""
    tasks: tuple[int, ...]
    episodes: Int64[np.ndarray, " task"]
    """Episodes of each task that belong to it."""
    returns: Float64[np.ndarray, "round task"]
    transitions: Int64[np.ndarray, "round task"]
    leaves: tuple[np.ndarray, ...]
    """Of the tree of `Brain`s."""

    def save(self, folder: Path) -> None:
        """Take the place of the folder's checkpoint."""
        meta = {"record": self.record, "tasks": list(self.tasks)}
        arrays = {"episodes": self.episodes, "returns": self.returns,
                  "transitions": self.transitions}  # fmt: skip
        arrays |= {f"leaf.{i}": leaf for i, leaf in enumerate(self.leaves)}
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with atomic_write(folder / NAME) as file:
            np.savez(file, meta=text, **arrays)  # pyright: ignore


@dataclass(frozen=True)
class _Meta:
    """The JSON in a checkpoint."""

    record: Mapping[str, Any]
    tasks: tuple[int, ...]


def load_checkpoint(folder: Path, record: Json) -> Checkpoint | None:
    """The checkpoint of a folder, or None where there is none.

    Raises:
        InputError: it is damaged, or of a collection with another config.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    fix = f"delete {folder} and collect again"
    # Every member of the archive has a checksum, which is compared as it is read.
    arrays = read_npz(path, fix)
    names = {"meta", "episodes", "returns", "transitions"}
    leaves = [f"leaf.{i}" for i in range(len(arrays) - len(names))]
    if arrays.keys() != names | set(leaves):
        raise InputError(f"{path}: damaged (holds {', '.join(sorted(arrays))}); {fix}")
    text = parse_json(arrays["meta"].tobytes(), f"{path}: meta", fix)
    meta = from_json(_Meta, text, f"{path}: meta", fix)
    num_tasks, rounds = len(meta.tasks), len(np.atleast_1d(arrays["returns"]))
    if not num_tasks or not rounds:
        raise InputError(f"{path}: damaged (holds no task or no round); {fix}")
    check_array(path, "episodes", arrays["episodes"], np.int64, (num_tasks,), fix)
    check_array(path, "returns", arrays["returns"], np.float64, (rounds, num_tasks), fix)
    check_array(path, "transitions", arrays["transitions"], np.int64, (rounds, num_tasks), fix)
    found = Checkpoint(
        record=meta.record,
        tasks=meta.tasks,
        episodes=arrays["episodes"],
        returns=arrays["returns"],
        transitions=arrays["transitions"],
        leaves=tuple(arrays[name] for name in leaves),
    )
    changed = list(differences(found.record, record))
    if changed:
        raise InputError(
            f"{path}: a collection goes on with its own config, this one differs: "
            f"{'; '.join(changed)}"
        )
    return found
