"""What a run tells: `log.jsonl`, TensorBoard events, optionally W&B, and a progress bar.

`log.jsonl` is the record; one row per interval of updates, per evaluation and per exploration:

    {"step": 200, "stage": "meta", "seconds": 3.1, "steps_per_s": 95.2, "metrics": {"loss": [0.1]}}
    {"step": 200, "seconds": 3.4, "evaluation": {"return": -41.2}}
    {"step": 200, "seconds": 3.6, "exploration": {"env_steps": 5000, "prior_return": -90.1}}

A metric has one mean per seed, over the interval's updates and tasks; `steps_per_s` counts updates
of each seed in the last chunk, `seconds` are since the run's start, resumed parts added up. A
number that is not finite is null. The rows do not depend on how updates were cut into chunks, nor
on interruptions: the unfinished interval is part of a checkpoint, later rows are dropped on resume.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num

from omrl.config import from_json, parse_json
from omrl.errors import InputError
from omrl.files import naming, read_bytes

ChunkMetrics = Mapping[str, Num[np.ndarray, "seed update ..."]]
Writer = Callable[[int, dict[str, float]], None]


class Averages:
    """Means per seed over an interval of updates: the same bits however the interval was cut."""

    def __init__(self, sums: Mapping[str, list[float]] | None = None, count: int = 0):
        self._sums = {name: np.asarray(row, np.float64) for name, row in (sums or {}).items()}
        self._count = count

    def add(self, metrics: ChunkMetrics) -> None:
        """Adds updates in order, one after the other, since float addition does not associate."""
        for name, values in metrics.items():
            tasks = tuple(range(2, values.ndim))
            by_seed = values.astype(np.float64).mean(axis=tasks)
            start = self._sums.get(name, np.zeros(len(by_seed)))[:, None]
            self._sums[name] = np.cumsum(np.concatenate([start, by_seed], axis=1), axis=1)[:, -1]
            num_updates = values.shape[1]
        self._count += num_updates

    def means(self) -> dict[str, list[float]]:
        """The means per seed; empty without updates."""
        return {name: (row / self._count).tolist() for name, row in self._sums.items()}

    def take(self) -> dict[str, list[float]]:
        """The means per seed; empties the interval."""
        means = self.means()
        self._sums, self._count = {}, 0
        return means

    def to_json(self) -> dict[str, Any]:
        """Arguments that make an equal one."""
        return {"sums": {n: row.tolist() for n, row in self._sums.items()}, "count": self._count}


class RunLog:
    """The log of one run folder. With `write=False` it only averages (processes other than 0)."""

    def __init__(
        self,
        folder: Path,
        *,
        every: int,
        step: int = 0,
        evaluated: int = 0,
        averages: Averages | None = None,
        wandb_config: Mapping[str, Any] | None = None,
        write: bool = True,
    ):
        """Opens the log at `step` and drops what was written beyond it.

        Args:
            every: updates per row.
            evaluated: the step of the last evaluation that counts.
            averages: the unfinished interval at `step`, from the checkpoint.
            wandb_config: log to W&B too, with this config.
        """
        self._every = every
        self._averages = averages or Averages()
        self._stage = ""
        self._last: dict[str, list[float]] = {}
        self._write = write
        self._writers: list[Writer] = []
        self._closers: list[Callable[[], Any]] = []
        if not write:
            return
        if wandb_config is not None:
            require_wandb()
        path = folder / "log.jsonl"
        _truncate(path, step, evaluated)
        self._path, self._file = path, path.open("a", encoding="utf-8")
        self._closers.append(self._close_file)
        self._open_tensorboard(folder, step)
        if wandb_config is not None:
            self._open_wandb(folder, wandb_config)

    def add(
        self,
        metrics: ChunkMetrics,
        *,
        stage: str,
        first: int,
        last_of_stage: int,
        seconds: float,
        steps_per_s: float,
    ) -> dict[str, list[float]]:
        """Takes in the updates `first + 1, first + 2, …`; writes a row where an interval ends.

        Returns:
            What a person may be shown: the metrics of the stage's last row, per seed. Before there
            is one, or after a resume, the means of the updates so far.
        """
        if stage != self._stage:
            self._stage, self._last = stage, {}
        num_updates = next(iter(metrics.values())).shape[1]
        start = 0
        while start < num_updates:
            interval_end = min(
                (first + start) // self._every * self._every + self._every, last_of_stage
            )
            stop = min(num_updates, interval_end - first)
            self._averages.add({n: values[:, start:stop] for n, values in metrics.items()})
            if first + stop == interval_end:
                self._last = means = self._averages.take()
                timing = {"seconds": seconds, "steps_per_s": steps_per_s}
                self._row({"step": interval_end, "stage": stage, **timing, "metrics": means})
                scalars = {f"train/{name}": float(np.mean(row)) for name, row in means.items()}
                self._scalars(interval_end, scalars | {"speed/steps_per_s": steps_per_s})
            start = stop
        return self._last or self._averages.means()

    def evaluation(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Writes the result of an evaluation after `step` updates."""
        self._row({"step": step, "seconds": seconds, "evaluation": dict(values)})
        self._scalars(step, {f"evaluation/{name}": value for name, value in values.items()})

    def exploration(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Writes what was collected between the updates `step` and `step + 1`."""
        self._row({"step": step, "seconds": seconds, "exploration": dict(values)})
        self._scalars(step, {f"exploration/{name}": value for name, value in values.items()})

    def pending(self) -> dict[str, Any]:
        """The unfinished interval as JSON, for the checkpoint."""
        return self._averages.to_json()

    def flush(self) -> None:
        """Returns when every row is on the disk."""
        if self._write:
            with naming(self._path):
                self._file.flush()
                os.fsync(self._file.fileno())

    def close(self) -> None:
        for close in self._closers:
            close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _row(self, row: dict[str, Any]) -> None:
        if self._write:
            with naming(self._path):
                self._file.write(json.dumps(_finite(row), allow_nan=False) + "\n")
                self._file.flush()

    def _close_file(self) -> None:
        with naming(self._path):
            self._file.close()

    def _scalars(self, step: int, scalars: dict[str, float]) -> None:
        for write in self._writers:
            write(step, scalars)

    def _open_tensorboard(self, folder: Path, step: int) -> None:
        from tensorboardX import SummaryWriter

        # Events after `step` that an interrupted run left behind are hidden by `purge_step`.
        writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

        def write(step: int, scalars: dict[str, float]) -> None:
            for name, value in scalars.items():
                writer.add_scalar(name, value, step)

        self._writers.append(write)
        self._closers.append(naming(folder)(writer.close))

    def _open_wandb(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        # The same folder is the same W&B run, so that a resumed run continues it.
        run_id = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        run = wandb.init(
            project="omrl", name=folder.name, id=run_id, resume="allow", dir=folder, config=config
        )
        self._writers.append(lambda step, scalars: run.log(scalars, step=step))
        self._closers.append(run.finish)


def require_wandb() -> None:
    """Raises `InputError` if W&B is not installed; to be asked before a run folder is made."""
    try:
        import wandb  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            "wandb: logging to W&B was asked for, but the package is not installed; "
            "pip install 'omrl[wandb]'"
        ) from None


@dataclass(frozen=True)
class _TrainingRow:
    step: int
    stage: str
    seconds: float
    steps_per_s: float
    metrics: Mapping[str, tuple[float | None, ...]]
    """Per seed; null: not finite."""


@dataclass(frozen=True)
class _EvaluationRow:
    step: int
    seconds: float
    evaluation: Mapping[str, float | None]


@dataclass(frozen=True)
class _ExplorationRow:
    step: int
    seconds: float
    exploration: Mapping[str, float | None]


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run folder's `log.jsonl`, without a last one cut off by a kill.

    Raises `InputError` for a damaged one.
    """
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    rows, fix = [], "remove that line"
    for number, line in enumerate(read_bytes(path).splitlines(keepends=True), 1):
        where = f"{path}: line {number}"
        try:
            row = parse_json(line, where, fix)
        except InputError:
            if line.endswith(b"\n"):
                raise
            break
        from_json(_kind(row), row, where, fix)
        rows.append(row)
    widths = {len(seeds) for row in rows for seeds in row.get("metrics", {}).values()}
    if widths == {0} or len(widths) > 1:
        raise InputError(f"{path}: its rows are of different numbers of seeds; remove the file")
    return rows


def _kind(row: Any) -> type[_TrainingRow | _EvaluationRow | _ExplorationRow]:
    names = row if isinstance(row, dict) else ()
    if "evaluation" in names:
        return _EvaluationRow
    return _ExplorationRow if "exploration" in names else _TrainingRow


def _truncate(path: Path, step: int, evaluated: int) -> None:
    if not path.exists():
        return
    # A run explores behind the checkpoint of the same step, so a resumed one does it again.
    last = {_TrainingRow: step, _EvaluationRow: evaluated, _ExplorationRow: step - 1}
    rows = [row for row in read_log(path.parent) if row["step"] <= last[_kind(row)]]
    part = path.with_suffix(".jsonl.part")
    part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    part.replace(path)


def _finite(value: Any) -> Any:
    """`value` with null for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
