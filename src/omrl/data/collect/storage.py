"""What is written while learning goes on: rounds by a thread, checkpoints behind them.

A checkpoint appears, whole, only after the rounds before it are durable. So whatever is killed
when, data on the disk reach at least as far as the newest checkpoint, to which a resumed collection
cuts them back.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from omrl.config import Json, differences
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


def load_checkpoint(folder: Path, record: Json) -> Checkpoint | None:
    """The checkpoint of a folder, or None where there is none.

    Raises:
        InputError: it is damaged, or of a collection with another config.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        # Every member of the archive has a checksum, which is compared as it is read.
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        found = Checkpoint(
            record=meta["record"],
            tasks=tuple(meta["tasks"]),
            episodes=arrays.pop("episodes"),
            returns=arrays.pop("returns"),
            transitions=arrays.pop("transitions"),
            leaves=tuple(arrays[f"leaf.{i}"] for i in range(len(arrays))),
        )
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError, EOFError) as error:
        detail = " ".join(str(error).split())
        raise InputError(
            f"{path}: damaged ({detail}); delete {folder} and collect again"
        ) from error
    changed = list(differences(found.record, record))
    if changed:
        raise InputError(
            f"{path}: a collection goes on with its own config, this one differs: "
            f"{'; '.join(changed)}"
        )
    return found
