"""What is in a dataset, measured: `omrl data info` before anybody trains on it.

One pass over whole episodes, block by block, tells what can be counted: returns, ends, actions at
their bounds, entries that never change, transitions and episodes that occur again. A sample of the
rows (`omrl.data.info_sample`) tells the rest. What of it looks wrong is said by
`omrl.data.info_warnings`.

In memory at a time are the blocks, 8 bytes per episode and, of a task, up to `MOST_HASHES` hashes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from omrl.config import from_json, json_hash, read_json, to_json
from omrl.data.dataset import Dataset, TaskData
from omrl.data.info_sample import (
    DEAD,
    draw,
    occupied_cells,
    recomputed_noise,
    sample_size,
    unexplained_noise,
)
from omrl.data.manifest import CACHE
from omrl.data.success import success_rate
from omrl.data.validate import check_hash, episode_blocks
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.files import atomic_write

VERSION = 2
"""Of what is measured; cached results of another one are not used."""
CACHE_FROM = 1_000_000
"""Transitions from which on the result is kept in the dataset's folder."""
BOUND = 1e-3
"""Actions so near to -1 or 1 are at a bound."""
MOST_HASHES = 2**22
"""Of the transitions of a task; of longer lifetimes only those that a number divides are kept."""
CURVE_POINTS = 100
BINS = 30
_BLOCK_ENTRIES = 2**22
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Returns:
    """Undiscounted sums of rewards of the episodes of a task."""

    minimum: float
    median: float
    mean: float
    maximum: float
    curve: tuple[float, ...]
    """Means of up to `CURVE_POINTS` equal parts of the lifetime, in time order."""
    histogram: tuple[int, ...]
    """Episodes in each of `BINS` equal parts from the lowest to the highest return of any task."""


@dataclass(frozen=True)
class Ends:
    """How episodes end; every one is counted once."""

    time_limit: int
    """Truncated at the horizon."""
    cut_off: int
    """Truncated before it."""
    terminated: int
    """By the MDP."""
    terminated_at_horizon: int
    """Those of them that have as many steps as the horizon."""


@dataclass(frozen=True)
class Duplicates:
    """What occurs again bit for bit within the task; the first occurrence is none."""

    transitions: float
    """Share of (s, a, r, s', terminated)."""
    episodes: float
    """Share of whole episodes."""
    compared: int
    """Transitions that were compared: all, or those whose hash some number divides."""


@dataclass(frozen=True)
class Column:
    """Each entry of the observations or actions of a task."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def constant(self) -> tuple[int, ...]:
        """Entries that vary by no more than `DEAD`."""
        return tuple(np.flatnonzero(np.subtract(self.high, self.low) <= DEAD).tolist())


@dataclass(frozen=True)
class TaskInfo:
    """What is in the data of a task."""

    index: int
    episodes: int
    transitions: int
    returns: Returns
    success: float | None
    """Share of the episodes that succeed; None where that is not known (`success_rate`)."""
    ends: Ends
    duplicates: Duplicates
    obs: Column
    obs_mean: tuple[float, ...]
    """Of the sample, as the next three."""
    obs_std: tuple[float, ...]
    reward_std: float
    reward_noise: float | None
    """None where there are too few rows to tell."""
    noise_by: Literal["recomputed", "neighbours"]
    """Whether it is what is left of the reward without that of the recorded terms
    (`recomputed_noise`), or what (s, a, s') does not explain (`unexplained_noise`)."""
    action: Column
    saturation: tuple[float, ...]
    """Of each entry of the action the share of rows in which it is within `BOUND` of a bound."""
    reward_low: float
    reward_high: float
    coverage: float
    """See `omrl.data.info_sample.occupied_cells`."""

    @property
    def saturated(self) -> float:
        """Share of all entries of the actions that are at a bound."""
        return float(np.mean(self.saturation))


@dataclass(frozen=True)
class Info:
    """What is in a dataset."""

    tasks: tuple[TaskInfo, ...]
    sample_rows: int
    """Transitions of each task in the sample, at most."""
    cells: int
    """Of the grid of states, those that any task is in."""


def measure(
    dataset: Dataset, env: TaskEnv | None, progress: Callable[[int], object] = lambda rows: None
) -> Info:
    """What is in a dataset; the same data gives the same numbers.

    Args:
        dataset: one that is validated, or of which `validate` finds nothing.
        env: with it rewards are compared with those of recorded terms, and successes counted.
        progress: told of transitions as they are done.

    From `CACHE_FROM` transitions on the result is kept in the folder `CACHE` of the dataset, and
    taken from there the next time. Raises `InputError` where a file is not the one on record.
    """
    name = json_hash([VERSION, dataset.hash, env is not None])
    path = dataset.path / CACHE / f"info-{name[:16]}.json"
    with contextlib.suppress(InputError):
        kept = read_json(path)
        # Nothing else vouches for the numbers.
        if isinstance(kept, dict) and kept.get("hash") == json_hash(kept.get("info")):
            return from_json(Info, kept["info"])
    result = _measure(dataset, env, progress)
    if sum(task.transitions for task in result.tasks) >= CACHE_FROM:
        fields = to_json(result)
        with contextlib.suppress(OSError), atomic_write(path) as file:
            file.write(json.dumps({"hash": json_hash(fields), "info": fields}).encode())
    return result


def _measure(dataset: Dataset, env: TaskEnv | None, progress: Callable[[int], object]) -> Info:
    indices, spec, records = dataset.task_indices, dataset.spec, dataset.manifest.tasks
    size = sample_size(len(indices), spec.obs_dim)
    span = min(task.return_min for task in records), max(task.return_max for task in records)

    def states(index: int) -> np.ndarray:
        record = dataset.manifest.record(index)
        for name in record.columns:
            check_hash(dataset.path, record, name)
        return draw(dataset.task(index), size).obs

    def of_task(index: int, coverage: float) -> TaskInfo:
        task = dataset.task(index)
        return task_info(
            task, env, horizon=spec.horizon, coverage=coverage, span=span, progress=progress
        )

    # Hashing and most of numpy release the interpreter's lock.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        occupied = occupied_cells(list(threads.map(states, indices)))
        cells = int(occupied.any(0).sum())
        tasks = tuple(threads.map(of_task, indices, (occupied.sum(1) / cells).tolist()))
    return Info(tasks, size, cells)


def task_info(
    task: TaskData,
    env: TaskEnv | None,
    *,
    horizon: int,
    coverage: float,
    span: tuple[float, float],
    progress: Callable[[int], object] = lambda rows: None,
) -> TaskInfo:
    """What is in the data of a task. `span`: that of the histogram of returns."""
    scan = _scan(task, progress)
    sample = draw(task, sample_size(1, task.obs.shape[1]))
    if env is not None and (sample.terms is not None or not env.spec.term_names):
        noise, noise_by = recomputed_noise(sample, env, task.parameters), "recomputed"
    else:
        noise, noise_by = unexplained_noise(sample), "neighbours"
    return TaskInfo(
        index=task.record.index,
        episodes=task.num_episodes,
        transitions=task.num_rows,
        returns=_returns(task.returns, span),
        success=None if env is None else success_rate(task, env),
        ends=_ends(task, horizon),
        duplicates=scan.duplicates,
        obs=scan.obs,
        obs_mean=_floats(sample.obs.mean(0, dtype=np.float64)),
        obs_std=_floats(sample.obs.std(0, dtype=np.float64)),
        reward_std=float(sample.reward.std()),
        reward_noise=noise,
        noise_by=noise_by,
        action=scan.action,
        saturation=scan.saturation,
        reward_low=scan.reward.low[0],
        reward_high=scan.reward.high[0],
        coverage=coverage,
    )


def _returns(returns: Float64[np.ndarray, " episodes"], span: tuple[float, float]) -> Returns:
    points = min(CURVE_POINTS, len(returns))
    bounds = np.arange(points + 1) * len(returns) // points
    curve = np.add.reduceat(returns, bounds[:-1]) / np.diff(bounds)
    return Returns(
        minimum=float(returns.min()),
        median=float(np.median(returns)),
        mean=float(returns.mean()),
        maximum=float(returns.max()),
        curve=_floats(curve),
        histogram=_histogram(returns, span),
    )


def _histogram(
    returns: Float64[np.ndarray, " episodes"], span: tuple[float, float]
) -> tuple[int, ...]:
    """In the middle where all are equal; numpy's own refuses a span of few distinct numbers."""
    low, width = span[0], span[1] - span[0]
    place = np.clip((returns - low) / width, 0, 1) if width else np.full(len(returns), 0.5)
    bins = np.minimum((place * BINS).astype(np.int64), BINS - 1)
    return tuple(np.bincount(bins, minlength=BINS).tolist())


def _ends(task: TaskData, horizon: int) -> Ends:
    terminated = np.asarray(task.terminated[task.episode_start[1:] - 1])
    full = task.lengths == horizon
    return Ends(
        time_limit=int((~terminated & full).sum()),
        cut_off=int((~terminated & ~full).sum()),
        terminated=int(terminated.sum()),
        terminated_at_horizon=int((terminated & full).sum()),
    )


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(values.astype(np.float64).tolist())


# --- The pass over all rows ---


@dataclass(frozen=True)
class _Scan:
    obs: Column
    action: Column
    reward: Column
    saturation: tuple[float, ...]
    duplicates: Duplicates


def _scan(task: TaskData, progress: Callable[[int], object]) -> _Scan:
    starts, num_rows = task.episode_start, task.num_rows
    ranges: dict[str, list[np.ndarray]] = {"obs": [], "action": [], "reward": []}
    columns = {name: task.column(name) for name in ("obs", "action", "reward", "terminated")}
    at_bound = np.zeros(columns["action"].shape[1], np.int64)
    hashes: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    every = np.uint64(-(-num_rows // MOST_HASHES))
    for first, stop in episode_blocks(starts, _BLOCK_ENTRIES // max(1, columns["obs"].shape[1])):
        rows = slice(int(starts[first]), int(starts[stop]))
        of_states = slice(rows.start + first, rows.stop + stop)
        block = {
            name: np.asarray(column[of_states if name == "obs" else rows])
            for name, column in columns.items()
        }
        for name, found in ranges.items():
            values = block[name].reshape(len(block[name]), -1).astype(np.float32, copy=False)
            found += [values.min(0), values.max(0)]
        at_bound += (np.abs(block["action"]) >= 1 - BOUND).sum(0)
        lengths = np.diff(starts[first : stop + 1])
        for kept, values in zip(hashes, _hashes(block, lengths), strict=True):
            # By its value, so that all copies of a transition are looked at or none.
            kept.append(values[values % every == 0])
        progress(rows.stop - rows.start)
    transitions, episodes = (np.concatenate(kept) for kept in hashes)
    bounds = {
        name: Column(_floats(np.min(found, axis=0)), _floats(np.max(found, axis=0)))
        for name, found in ranges.items()
    }
    return _Scan(
        **bounds,
        saturation=_floats(at_bound / num_rows),
        duplicates=Duplicates(_repeated(transitions), _repeated(episodes), len(transitions)),
    )


def _repeated(hashes: UInt64[np.ndarray, " hashes"]) -> float:
    return 1 - len(np.unique(hashes)) / len(hashes) if len(hashes) else 0.0


def _hashes(
    block: dict[str, np.ndarray], lengths: Int64[np.ndarray, " episodes"]
) -> tuple[UInt64[np.ndarray, " rows"], UInt64[np.ndarray, " episodes"]]:
    """Of every transition and of every whole episode of a block."""
    starts = np.cumsum(lengths) - lengths
    step = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    obs_row = np.arange(len(step)) + np.repeat(np.arange(len(lengths)), lengths)
    states = _mixed(_words(block["obs"], 0))
    transitions = states[obs_row] + _GOLDEN * states[obs_row + 1]
    for number, name in enumerate(("action", "reward", "terminated"), start=1):
        transitions += _words(block[name], number)
    transitions = _mixed(transitions)
    placed = _mixed(transitions + _GOLDEN * step.astype(np.uint64))
    return transitions, _mixed(np.add.reduceat(placed, starts))


def _words(column: np.ndarray, seed: int) -> UInt64[np.ndarray, " rows"]:
    """A multilinear hash of the bits of every row, [rows] or [rows, entries]."""
    bits = np.ascontiguousarray(column).view(f"u{column.itemsize}").reshape(len(column), -1)
    random = np.random.Generator(np.random.Philox(key=seed))
    factors = random.integers(0, 2**64, bits.shape[1], np.uint64) | np.uint64(1)
    return np.asarray(bits.astype(np.uint64) @ factors)


def _mixed(values: UInt64[np.ndarray, " rows"]) -> UInt64[np.ndarray, " rows"]:
    """Every bit of the result depends on all bits of a value: the finaliser of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
