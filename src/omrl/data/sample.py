"""Sampling rows of one task on the device.

All functions are pure in the key, work under `vmap` over tasks and seeds, and see only the number
of rows of a task, so padding cannot change a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32

from omrl.data.device import DeviceData
from omrl.data.trajectories import (
    AnyInt,
    TrajectorySpec,
    gather_trajectories,
    num_trajectories,
)
from omrl.errors import InputError
from omrl.ranges import Count, Fraction, Range, check_ranges
from omrl.types import Batch, Key, Trajectory

BufferName = Literal["main", "encoder"]


@dataclass(frozen=True)
class BatchSpec:
    """How the rows of one batch are drawn from one task's lifetime."""

    name: str
    size: Count
    mode: Literal["contiguous", "iid", "without_replacement"] = "iid"
    """`contiguous`: `size` rows at a distance of `stride` from a random start; `iid`: with
    replacement."""
    start: Fraction = 0.0
    """Rows before this fraction of the lifetime are never drawn."""
    stop: Fraction = 1.0
    """Rows from this fraction of the lifetime on are never drawn."""
    stride: Count = 1
    recency: Annotated[float, Range(0, 100)] = 0.0
    """Density over the slice is proportional to position^recency: 0 uniform, 1 linear (iid)."""
    disjoint_from: str = ""
    """Name of an earlier contiguous batch of the same update whose span of rows is left out."""
    buffer: BufferName = "main"
    """Which of the two that a run may have (see `omrl.data.buffers`); with one, both are that."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.start >= self.stop:
            raise InputError(f"stop: {self.stop} must be above start ({self.start})")
        if self.stride > 1 and self.mode != "contiguous":
            raise InputError(f"stride: {self.stride} needs mode contiguous, not {self.mode}")
        if self.recency and self.mode != "iid":
            raise InputError(f"recency: {self.recency} needs mode iid, not {self.mode}")

    @property
    def span(self) -> int:
        """Rows from the first to the last row of a contiguous batch."""
        return (self.size - 1) * self.stride + 1


AnyBatchSpec = BatchSpec | TrajectorySpec


def sample_rows(
    spec: BatchSpec, num_rows: AnyInt, key: Key, excluded: tuple[AnyInt, AnyInt] | None = None
) -> Int32[Array, "{spec.size}"]:
    """Rows of a task of `num_rows` transitions; none from `excluded[0]` to `excluded[1]`.

    Contiguous starts are uniform over all that fit. The density of `recency` counts positions among
    the rows that may be drawn.
    """
    first, stop = _bounds(spec, num_rows)
    gap, gap_stop = first, first
    if excluded is not None:
        gap, gap_stop = (jnp.clip(row, first, stop) for row in (excluded[0], excluded[1] + 1))
    if spec.mode == "contiguous":
        starts_before = jnp.maximum(gap - first - spec.span + 1, 0)
        starts_after = jnp.maximum(stop - gap_stop - spec.span + 1, 0)
        number = jax.random.randint(key, (), 0, starts_before + starts_after)
        behind = gap_stop + number - starts_before
        start = jnp.where(number < starts_before, first + number, behind)
        return start + spec.stride * jnp.arange(spec.size)
    allowed = (stop - first) - (gap_stop - gap)
    if spec.mode == "without_replacement":
        position = _distinct(key, spec.size, allowed)
    elif spec.recency:
        # Inverse of the cumulative density (position / allowed)^(1 + recency).
        quantile = jax.random.uniform(key, (spec.size,)) ** (1 / (1 + spec.recency))
        position = jnp.minimum((quantile * allowed).astype(jnp.int32), allowed - 1)
    else:
        position = jax.random.randint(key, (spec.size,), 0, allowed)
    row = first + position
    return jnp.where(row < gap, row, row + (gap_stop - gap))


def sample_all_rows(
    specs: tuple[AnyBatchSpec, ...], num_rows: AnyInt | dict[str, Any], key: Key
) -> dict[str, Array]:
    """Rows [size] of one batch per spec, by name, all of one task; of a `TrajectorySpec` numbers of
    trajectories.

    It has `num_rows` transitions (or trajectories), or that many for the batch of each name.
    """
    check_specs(specs)
    rows: dict[str, Array] = {}
    for number, spec in enumerate(specs):
        count = num_rows[spec.name] if isinstance(num_rows, dict) else num_rows
        own_key = jax.random.fold_in(key, number)
        if isinstance(spec, TrajectorySpec):
            rows[spec.name] = jax.random.randint(own_key, (spec.size,), 0, count)
            continue
        chunk = rows.get(spec.disjoint_from)
        excluded = None if chunk is None else (chunk[0], chunk[-1])
        rows[spec.name] = sample_rows(spec, count, own_key, excluded)
    return rows


def gather(data: DeviceData, task: AnyInt, rows: Int32[Array, "*b"]) -> Batch:
    """The transitions of `rows` of one task."""
    obs_row = data.obs_index[task, rows]

    def obs(row: Int32[Array, "*b"]) -> Float32[Array, "*b obs"]:
        return data.obs[task, row].astype(jnp.float32)

    return Batch(
        obs=obs(obs_row),
        action=data.action[task, rows],
        reward=data.reward[task, rows],
        next_obs=obs(obs_row + 1),
        terminated=data.terminated[task, rows],
        mc_return=data.mc_return[task, rows],
        terminal_obs=obs(data.terminal_index[task, rows]),
        terminal_discount=data.terminal_discount[task, rows],
    )


def count(data: Any, spec: AnyBatchSpec) -> Any:
    """Of every task, int32 [task], what a batch is drawn from: transitions, or trajectories. `data`
    is on the device or on the disk."""
    if isinstance(spec, TrajectorySpec):
        return num_trajectories(data, spec.episodes)
    return data.num_rows


def sample_batches(
    data: DeviceData, specs: tuple[AnyBatchSpec, ...], task: AnyInt, key: Key
) -> dict[str, Batch | Trajectory]:
    """One batch per spec, by name, all of the same task."""
    counts = {spec.name: count(data, spec)[task] for spec in specs}
    rows = sample_all_rows(specs, counts, key)
    return {
        spec.name: gather_trajectories(data, spec, task, rows[spec.name])
        if isinstance(spec, TrajectorySpec)
        else gather(data, task, rows[spec.name])
        for spec in specs
    }


# --- Checks, before anything is compiled ---


def check_specs(specs: Sequence[AnyBatchSpec]) -> None:
    """`InputError` where names occur twice or `disjoint_from` is no earlier contiguous batch."""
    contiguous: dict[str, list[str]] = {"main": [], "encoder": []}
    names = [spec.name for spec in specs]
    for spec in specs:
        if names.count(spec.name) > 1:
            raise InputError(f"batch {spec.name!r}: the name occurs twice; rename one")
        if isinstance(spec, TrajectorySpec):
            continue
        earlier = contiguous[spec.buffer]
        if spec.disjoint_from and spec.disjoint_from not in earlier:
            raise InputError(
                f"batch {spec.name!r}: disjoint_from must name an earlier contiguous batch of its "
                f"buffer, not {spec.disjoint_from!r}; there are {earlier}"
            )
        if spec.mode == "contiguous":
            earlier.append(spec.name)


def check_sizes(
    specs: Sequence[BatchSpec],
    num_rows: Iterable[int],
    task_indices: Sequence[int] | None = None,
) -> None:
    """`InputError` for the first task that has too few rows for a batch, wherever chunks may lie.

    `num_rows` has one number per task; `task_indices` are their names, by default 0, 1, ...
    """
    check_specs(specs)
    by_name = {spec.name: spec for spec in specs}
    for position, rows in enumerate(map(int, num_rows)):
        for spec in specs:
            first, stop = _host_bounds(spec, rows)
            overlap = 0
            if spec.disjoint_from:
                chunk = by_name[spec.disjoint_from]
                chunk_first, chunk_stop = _host_bounds(chunk, rows)
                common = min(stop, chunk_stop) - max(first, chunk_first)
                overlap = min(chunk.span, max(common, 0))
            needed = _needed(spec, overlap)
            if stop - first < needed:
                index = position if task_indices is None else task_indices[position]
                raise InputError(
                    f"task {index}: batch {spec.name!r} needs {needed} rows from {spec.start:g} to "
                    f"{spec.stop:g} of the lifetime, there are {stop - first} (of {rows}); take a "
                    f"smaller batch or stride, or more data"
                )


def _needed(spec: BatchSpec, overlap: int) -> int:
    """Rows that the slice of `spec` must have where `overlap` of them are excluded in one piece."""
    if spec.mode == "contiguous":
        # The gap may leave one row too few on both sides.
        return spec.span if overlap == 0 else 2 * spec.span - 1 + overlap
    # A context is evidence, which a few transitions drawn over and over again would pretend to be.
    few_will_do = spec.mode == "iid" and spec.buffer == "main"
    return overlap + (1 if few_will_do else spec.size)


def _host_bounds(spec: BatchSpec, num_rows: int) -> tuple[int, int]:
    first, stop = _bounds(spec, num_rows)
    return int(first), int(stop)


# --- Parts ---


def _bounds(spec: BatchSpec, num_rows: AnyInt) -> tuple[Array, Array]:
    """First row of the slice of `spec` and the row behind its last."""

    def boundary(fraction: float) -> Array:
        rows = jnp.asarray(num_rows, jnp.int32)
        # Exact where float32 could not count the rows.
        if fraction in (0.0, 1.0):
            return rows * int(fraction)
        return jnp.ceil(jnp.float32(fraction) * rows.astype(jnp.float32)).astype(jnp.int32)

    return boundary(spec.start), boundary(spec.stop)


def _distinct(key: Key, size: int, count: Array) -> Int32[Array, "{size}"]:
    """`size` distinct integers below `count`: every ordered choice is equally likely.

    The first `size` steps of a Fisher-Yates shuffle, all at once. Step i takes what lies at place
    target[i] ~ U{i, ..., count - 1} and puts there what lies at place i. So what step i takes was
    put there by the latest earlier step s with the same target, if any, and came from place s; what
    lay at place s had been put there by the latest step before s with target s; and so on, back to
    a place that nothing was put at and that holds its own number.
    """
    step = jnp.arange(size)
    target = jax.random.randint(key, (size,), step, count)

    def latest(place: Array) -> Array:
        """The latest step before i with target place[i], or -1."""
        put = (target[None, :] == place[:, None]) & (step[None, :] < step[:, None])
        return jnp.max(jnp.where(put, step[None, :], -1), axis=1)

    origin = latest(step)
    origin = jnp.where(origin < 0, step, origin)
    # Each round doubles how many steps back it looks.
    for _ in range(math.ceil(math.log2(size))):
        origin = origin[origin]
    taken_from = latest(target)
    return jnp.where(taken_from < 0, target, origin[taken_from])
