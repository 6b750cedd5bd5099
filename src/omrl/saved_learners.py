"""Learners of an evaluation by `finetune` amid their curve, in a folder beside what was measured.

They are all that an interruption would have to learn again. They are written after a trajectory, at
most every `EVERY` seconds, so short evaluations write none, and when a signal ends the evaluation;
removed once their tasks are finished. Where they cannot be written that is told, once, and the
evaluation goes on.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from omrl.checkpoint import Checkpoints
from omrl.config import json_hash
from omrl.curve import Curve
from omrl.errors import InputError

EVERY = 300.0
"""Seconds between two of them."""


def learners_of(unfinished: Path) -> Path:
    """The folder that belongs to a file of `omrl.curve`."""
    return unfinished.with_name(f"{unfinished.name}.learners")


class Moment(NamedTuple):
    """Where learners stood."""

    number: int
    """Trajectories that they had learned from."""
    tasks: tuple[int, ...]
    """By position among those of the evaluation."""
    env_steps: Int64[np.ndarray, "seed task"]


class SavedLearners:
    """The newest learners of one evaluation.

    Args:
        unfinished: file of the curve; None: nothing is saved.
        identity: of the evaluation.
        report: is told of a folder that cannot be written.
    """

    def __init__(self, unfinished: Path | None, identity: str, report: Callable[[str], None]):
        self._folder = None if unfinished is None else learners_of(unfinished)
        self._config = {"evaluation": json_hash(identity)}
        self._report = report
        self._open: Checkpoints | None = None
        self._failed = False
        self._saved = time.monotonic()

    def close(self) -> None:
        """Returns when what is being written is on the disk."""
        if self._open is not None:
            self._written(self._open.wait)
            self._open.close()
            self._open = None

    def moment(self) -> Moment | None:
        """Where the saved learners stood, if there are any. `InputError` for those of another
        evaluation, and damaged ones."""
        if self._folder is None or not self._folder.is_dir() or not self._checkpoints().steps:
            return None
        with _deletable(self._folder):
            meta = self._checkpoints().read_meta(self._config)
        env_steps = np.array(meta["env_steps"], np.int64)
        return Moment(int(meta["step"]), tuple(meta["tasks"]), env_steps)

    def restore(self, like: Any) -> Any:
        """The learners of `moment`; `like` as in `Checkpoints.restore`, whose errors it has."""
        assert self._folder is not None
        with _deletable(self._folder):
            return self._checkpoints().restore(like, self._config)[0]

    def save(self, moment: Moment, learners: Any, *, now: bool) -> None:
        """Begins to write them, if it is time, or has to be `now`: with what acts for them, which
        another program would compute with other rounding."""
        due = now or time.monotonic() - self._saved >= EVERY
        if self._folder is None or self._failed or not due:
            return
        self._saved = time.monotonic()
        extra = {"tasks": list(moment.tasks), "env_steps": moment.env_steps.tolist()}
        self._written(
            lambda: self._checkpoints().save(moment.number, learners, self._config, extra)
        )

    def forget(self) -> None:
        """Removes them; nothing is being written then."""
        self.close()
        if self._folder is not None and self._folder.is_dir():
            shutil.rmtree(self._folder)

    def _checkpoints(self) -> Checkpoints:
        assert self._folder is not None
        if self._open is None:
            self._open = Checkpoints(self._folder, keep=1)
        return self._open

    def _written(self, write: Callable[[], None]) -> None:
        try:
            write()
        except (InputError, OSError) as error:
            self._failed = True
            what = str(error).partition("; ")[0]
            self._report(f"learners cannot be saved on the way: {what}")
            assert self._folder is not None
            for part in self._folder.glob("*.orbax-checkpoint-tmp"):  # The curve needs its room.
                shutil.rmtree(part, ignore_errors=True)


def starting_moments(
    moment: Moment | None, curve: Curve, points: tuple[int, ...], size: int
) -> list[Moment]:
    """Where every group of unfinished tasks begins, no more than `size` of them side by side: those
    of `moment` there, if the curve has all its `points` until then, the others at 0."""
    waiting = ~curve.finished
    found: list[Moment] = []
    if moment is not None and len(moment.tasks) <= size:
        tasks = np.array(moment.tasks)
        until = curve.returns[:, tasks][:, :, np.array(points) <= moment.number]
        if waiting[tasks].all() and np.isfinite(until).all():
            found = [moment]
            waiting[tasks] = False
    others = np.flatnonzero(waiting)
    num_groups = -(-len(others) // size)
    fresh = np.array_split(others, num_groups) if num_groups else []
    num_seeds = len(curve.returns)
    zeros = [np.zeros((num_seeds, len(group)), np.int64) for group in fresh]
    return found + [
        Moment(0, tuple(group.tolist()), none) for group, none in zip(fresh, zeros, strict=True)
    ]


@contextmanager
def _deletable(folder: Path) -> Iterator[None]:
    """Adds to errors of a checkpoint what to do about this one."""
    try:
        yield
    except InputError as error:
        what = str(error).partition("; ")[0]
        raise InputError(f"{what}; delete {folder} to begin these tasks again") from error
