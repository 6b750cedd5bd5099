"""The result of a diagnosis: raw numbers with all that is needed to read them. No JAX here.

One `.npz` per checkpoint, by the way of `omrl.results`, in a folder of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from omrl import stats
from omrl.arrays import check_array
from omrl.config import json_hash, to_json
from omrl.errors import InputError
from omrl.protocol import EvalConfig
from omrl.result_files import FIX, Head, Provenance, read_arrays, write_arrays
from omrl.results import estimate_to_json, test_tasks_note
from omrl.tables import print_rows

FORMAT = "omrl-shift-1"
FOLDER = "diagnose-shift"
"""Of the files, in a run's `eval`."""
SOURCES = ("offline", "online")
"""Where a context is from: the task's data, or the run's own trajectories."""
SETS = ("dataset", "exploration", "offline", "online")
"""Trajectories: logged, from the prior, and after adaptation to each kind of context."""


@dataclass(frozen=True)
class ShiftResult:
    """What one checkpoint does with contexts of data and with its own."""

    config: EvalConfig
    provenance: Provenance
    task_indices: Int64[np.ndarray, " task"]
    task_parameters: Float64[np.ndarray, "task parameter"]
    trained_on: Bool[np.ndarray, " task"]
    context_size: np.int64
    """Transitions asked for."""
    used: Int64[np.ndarray, "seed task repetition"] | None
    """Transitions of either context: fewer where fewer were explored. None, of a result from before
    they were told: then the online context alone was smaller."""
    kl: Float64[np.ndarray, "source seed task repetition"]
    """KL(q(z|c) || N(0, 1)) in nats, summed over the dimensions."""
    returns: Float64[np.ndarray, "source seed task repetition"]
    """Undiscounted, of the trajectory after adaptation."""
    exploration: Float64[np.ndarray, "seed task trajectory repetition"]
    """Undiscounted, of those from the prior."""
    decoder_error: Float64[np.ndarray, "source seed task"] | None
    """Mean squared error of predicted rewards, told the offline context, on transitions of each
    source; None: no decoder."""
    xy: Float64[np.ndarray, "set task repetition time 2"] | None
    """Positions after every step, of the first run seed; NaN behind the end. None: no positions
    among the environment's terms."""

    @property
    def groups(self) -> dict[str, Bool[np.ndarray, " task"]]:
        """Which tasks are of a group; without those that there are none of."""
        groups = {"test": ~self.trained_on, "train": self.trained_on}
        return {name: tasks for name, tasks in groups.items() if tasks.any()}

    def kl_of(self, source: str, group: str) -> stats.Estimate:
        """Median over all contexts of the tasks of a group, with quartiles."""
        kl = self.kl[SOURCES.index(source)][:, self.groups[group]]
        low, value, high = map(float, np.percentile(kl, (25, 50, 75)))
        method = (
            f"median and quartiles over {kl.size} contexts, of all seeds, tasks and repetitions"
        )
        return stats.Estimate(value, low, high, method)

    def return_of(self, source: str, group: str) -> stats.Estimate:
        """Mean over the tasks of a group, with its interval; of `prior` before adaptation."""
        tasks = self.groups[group]
        if source == "prior":
            return stats.bootstrap(self.exploration.mean(2)[:, tasks], stats.mean)
        return stats.bootstrap(self.returns[SOURCES.index(source)][:, tasks], stats.mean)

    def change_of(self, group: str) -> stats.Estimate:
        """Mean of return with the online minus return with the offline context, paired."""
        offline, online = self.returns[:, :, self.groups[group]]
        return stats.improvement(online, offline)

    def error_of(self, source: str, group: str) -> float | None:
        if self.decoder_error is None:
            return None
        return float(self.decoder_error[SOURCES.index(source)][:, self.groups[group]].mean())

    def to_json(self) -> dict[str, Any]:
        """Statistics as JSON values; null stands for what is not known."""
        return {
            "config": to_json(self.config),
            "provenance": to_json(self.provenance),
            "tasks": {
                name: self.task_indices[tasks].tolist() for name, tasks in self.groups.items()
            },
            "context_size": int(self.context_size),
            "used": None if self.used is None else [int(self.used.min()), int(self.used.max())],
            "groups": {name: self._group(name) for name in self.groups},
        }

    def _group(self, group: str) -> dict[str, Any]:
        per_source = {
            source: {
                "kl": estimate_to_json(self.kl_of(source, group)),
                "return": estimate_to_json(self.return_of(source, group)),
                "decoder_error": self.error_of(source, group),
            }
            for source in SOURCES
        }
        return per_source | {
            "prior": {"return": estimate_to_json(self.return_of("prior", group))},
            "online_minus_offline": estimate_to_json(self.change_of(group)),
        }

    # --- Files ---

    def save(self, path: Path) -> Path:
        """Writes one `.npz` in one step."""
        arrays = {
            field.name: np.asarray(getattr(self, field.name))
            for field in fields(self)
            if field.name not in _HEAD and getattr(self, field.name) is not None
        }
        return write_arrays(path, Head(FORMAT, self.config, self.provenance), arrays)

    @classmethod
    def load(cls, path: str | Path) -> ShiftResult:
        """The result in `path`. Raises `InputError` for anything but a complete one."""
        path = Path(path)
        names = [f.name for f in fields(cls) if f.name not in (*_HEAD, *_OPTIONAL)]
        head, arrays = read_arrays(path, FORMAT, names)
        _check(path, head, arrays)
        given: dict[str, Any] = {name: arrays.get(name) for name in (*names, *_OPTIONAL)}
        given["context_size"] = given["context_size"][()]
        return cls(head.config, head.provenance, **given)


_HEAD = ("config", "provenance")
_OPTIONAL = ("used", "decoder_error", "xy")


def _check(path: Path, head: Head, arrays: dict[str, np.ndarray]) -> None:
    """`InputError` for the first array that is not as config and provenance say."""
    tasks, config = arrays["task_indices"].size, head.config
    if not tasks or not head.provenance.seeds:
        raise InputError(f"{path}: holds no task or no seed; {FIX}")
    rows = (len(head.provenance.seeds), tasks)
    horizon = arrays["xy"].shape[3] if arrays.get("xy", np.zeros(())).ndim == 5 else 1
    kinds: dict[str, tuple[Any, tuple[int, ...]]] = {
        "task_indices": (np.int64, (tasks,)),
        "task_parameters": (np.float64, (tasks, len(head.provenance.task_names))),
        "trained_on": (np.bool_, (tasks,)),
        "context_size": (np.int64, ()),
        "used": (np.int64, (*rows, config.episodes)),
        "kl": (np.float64, (2, *rows, config.episodes)),
        "returns": (np.float64, (2, *rows, config.episodes)),
        "exploration": (np.float64, (*rows, config.explore.episodes, config.episodes)),
        "decoder_error": (np.float64, (2, *rows)),
        "xy": (np.float64, (len(SETS), tasks, config.episodes, horizon, 2)),
    }
    for name, array in arrays.items():
        if name not in kinds:
            raise InputError(f"{path}: {name} is no array of a diagnosis; {FIX}")
        check_array(path, name, array, *kinds[name], FIX)
    for name in ("kl", "returns", "exploration"):
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{path}: {name} must be finite; {FIX}")


def file_of(folder: Path, config: EvalConfig, step: int) -> Path:
    """The file of the checkpoint after `step` updates."""
    return folder / f"{json_hash(to_json(config))[:8]}-{step:08d}.npz"


def grouped(folder: Path) -> list[list[ShiftResult]]:
    """Results in a folder that differ in nothing but the number of updates, ascending."""
    groups: dict[Any, dict[int, ShiftResult]] = {}
    for result in map(ShiftResult.load, sorted(folder.glob("*.npz"))):
        source = result.provenance
        key = (result.config, source.spec_hash, source.dataset_hash, source.seeds)
        groups.setdefault(key, {})[source.step] = result
    return [[by_step[step] for step in sorted(by_step)] for by_step in groups.values()]


# --- The printed table ---


def table(results: Sequence[ShiftResult]) -> tuple[list[str], list[list[str]]]:
    """Header and a row per checkpoint, group of tasks and kind of context."""
    decoder = results[-1].decoder_error is not None
    header = ["updates", "tasks", "context", "KL to prior (nats)", "return"]
    rows = []
    for result in results:
        step = f"{result.provenance.step:,}"
        for group in result.groups:
            for source in SOURCES:
                kl, told = result.kl_of(source, group), result.return_of(source, group)
                quartiles = f"{kl.value:.2f} ({kl.low:.2f}, {kl.high:.2f})"
                error = [_number(result.error_of(source, group))] if decoder else []
                rows.append([step, group, source, quartiles, str(told), *error])
            prior = str(result.return_of("prior", group))
            rows.append([step, group, "none", "-", prior, *["-"] * decoder])
    return [*header, *["decoder error"] * decoder], rows


def describe(results: Sequence[ShiftResult]) -> list[str]:
    """What has to be printed with the numbers."""
    last = results[-1]
    config, source = last.config, last.provenance
    group = next(iter(last.groups))
    lines = [
        f"environment {source.env_id}, spec {source.spec_hash[:12]}",
        *test_tasks_note(source),
        f"offline: {_sizes(results)} transitions of {config.context_slice} of {source.dataset} "
        f"({source.dataset_hash[:12]}), seed {config.context_seed} and following",
        f"online: {'as many' if last.used is not None else 'as many, at most,'} of "
        f"{config.explore.episodes} trajectories from the prior, true rewards; guesses of the task "
        f"are drawn every {config.explore.resample_every}",
        f"{source.algorithm}, seeds {', '.join(map(str, source.seeds))}; {config.episodes} "
        f"repetitions per seed and task, seed {config.episode_seed}",
        f"KL: {last.kl_of('offline', group).method}",
        f"return: {last.return_of('offline', group).method}",
    ]
    for name, tasks in last.groups.items():
        listed = ", ".join(map(str, last.task_indices[tasks]))
        lines.append(
            f"{name} tasks {listed}: online minus offline {last.change_of(name)} after "
            f"{source.step:,} updates ({last.change_of(name).method})"
        )
    if last.decoder_error is not None:
        lines.append(
            "decoder error: mean squared error of predicted rewards, told the offline context, on "
            "other transitions of the data (offline) and on the explored ones (online)"
        )
    return lines


def _sizes(results: Sequence[ShiftResult]) -> str:
    """How many transitions contexts have, and that it is not what was asked for."""
    asked = int(results[-1].context_size)
    used = [result.used for result in results if result.used is not None]
    least, most = (min(map(np.min, used)), max(map(np.max, used))) if used else (asked, asked)
    if least == asked:
        return str(asked)
    sizes = str(most) if least == most else f"{least} to {most}"
    return f"{sizes} (asked for {asked}; explored no more, see --explore.episodes)"


def print_shift(results: Sequence[ShiftResult]) -> None:
    """The table, then what its numbers are; Markdown where the output is no terminal."""
    header, rows = table(results)
    print_rows(header, rows, [], describe(results))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
