"""From the layouts of other programs to our columns: whole episodes, T + 1 observations each.

Other programs keep transitions as separate episodes (`episode`, then `batches`), or as rows of
`obs`, `next_obs`, … one after another, in which the ends of the episodes have to be found (`Rows`).
Both come out as batches of whole episodes of bounded size, so that a file larger than memory can be
read; `omrl.data.store.Writer.append` takes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import ArrayLike

from omrl.data import manifest as manifests
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

Columns = dict[str, np.ndarray]
BATCH_BYTES = 32 << 20
"""Of the columns that are in memory at a time; one longer episode is a batch of its own."""

_FLAGS = ("terminated", "truncated")


# --- Episodes ---


def episode(spec: EnvSpec, where: str, fields: Mapping[str, ArrayLike]) -> Columns:
    """The columns of one episode of T steps.

    Fields: obs [T + 1, obs], action [T, act], reward [T], terminated [T], truncated [T], and
    perhaps terms [T, term]. Columns of width one may have the axis or not, and flags may be the
    numbers 0 and 1. `InputError` names the first field that does not fit.
    """
    num_rows = np.size(fields["reward"])
    if num_rows == 0:
        raise InputError(f"{where}: no transition; an episode has at least one, leave it out")
    columns = {
        name: _column(where, name, value, manifests.column_shape(name, spec, num_rows, 1))
        for name, value in fields.items()
    }
    return columns | {"episode_start": np.array([0, num_rows])}


def batches(episodes: Iterable[Columns]) -> Iterator[Columns]:
    """Join episodes to batches of about `BATCH_BYTES`."""
    held: list[Columns] = []
    size = 0
    for columns in episodes:
        held.append(columns)
        size += sum(column.nbytes for column in columns.values())
        if size >= BATCH_BYTES:
            yield _join(held)
            held, size = [], 0
    if held:
        yield _join(held)


def split(columns: Columns) -> Iterator[Columns]:
    """The inverse of `batches`: the columns of each episode, as views."""
    starts = columns["episode_start"]
    for number, (first, stop) in enumerate(itertools.pairwise(starts)):
        rows, obs = slice(first, stop), slice(first + number, stop + number + 1)
        yield {
            name: column[obs if name == "obs" else rows]
            for name, column in columns.items()
            if name != "episode_start"
        }


def _join(episodes: list[Columns]) -> Columns:
    names = episodes[0].keys()
    if any(columns.keys() != names for columns in episodes):
        raise InputError("terms are in some episodes only; give them for all or for none")
    joined = {
        name: np.concatenate([columns[name] for columns in episodes])
        for name in names
        if name != "episode_start"
    }
    lengths = [len(columns["reward"]) for columns in episodes]
    return joined | {"episode_start": np.concatenate([[0], np.cumsum(lengths)])}


# --- Rows ---


@dataclass(frozen=True)
class Rows:
    """`count` transitions of a task in time order."""

    spec: EnvSpec
    where: str
    """Names the source in messages."""
    count: int
    read: Callable[[int, int], Mapping[str, np.ndarray]]
    """Of a range of rows: obs, next_obs, action, reward, terminated, perhaps truncated, terms."""

    @classmethod
    def of(cls, spec: EnvSpec, where: str, columns: Mapping[str, Any]) -> Rows:
        """The rows that arrays hold, or what is sliced like them."""

        def read(first: int, stop: int) -> Columns:
            return {name: column[first:stop] for name, column in columns.items()}

        return cls(spec, where, count_rows(where, columns), read)

    def block(self, first: int, stop: int) -> Columns:
        """Rows first to stop - 1, checked for shape and kind."""
        columns = {}
        for name, value in self.read(first, stop).items():
            like = "obs" if name == "next_obs" else name
            shape = manifests.column_shape(like, self.spec, stop - first, 0)
            columns[name] = _column(self.where, name, value, shape)
        return columns

    def find_ends(self, path_length: int, *, headless: bool = False) -> Bool[np.ndarray, " rows"]:
        """Which rows are the last of their episode, where only terminal states were recorded.

        An episode ends at a terminal state, where the next row does not go on from `next_obs`, and
        after `path_length` steps. Raises `InputError` where rows do not go on at any other place
        than after `path_length` steps: then they are not in time order, or not whole episodes. The
        first episode may be any part of one where the buffer was `headless`, a ring that overwrote
        its oldest rows.
        """
        if self.count == 0:
            raise InputError(f"{self.where}: no transition; leave the task out")
        ends, cut = np.zeros(self.count, bool), np.zeros(self.count, bool)
        step = max(1, BATCH_BYTES // _row_bytes(self.spec))
        for first in range(0, self.count, step):
            stop = min(first + step, self.count)
            block = self.block(first, min(stop + 1, self.count))
            ends[first:stop] = block["terminated"][: stop - first]
            broken = _breaks(block)
            cut[first : first + len(broken)] = broken
        cut &= ~ends
        ends |= cut
        ends[-1:] = True
        starts = np.concatenate([[0], np.flatnonzero(ends)[:-1] + 1])
        lengths = np.diff(np.append(starts, self.count))
        wrong = cut[starts + lengths - 1] & (lengths % path_length != 0)
        wrong[0] &= not headless
        if wrong.any():
            row = int((starts + lengths)[np.flatnonzero(wrong)[0]])
            raise InputError(
                f"{self.where}, row {row}: does not go on where row {row - 1} led, and no episode "
                f"ended there by a terminal state or after {path_length} steps; give rows in time "
                "order and whole, or the steps after which episodes were cut as the path length"
            )
        return ends | after_steps(ends, path_length)

    def batches(self, last: Bool[np.ndarray, " rows"]) -> Iterator[Columns]:
        """Batches of whole episodes, given the last row of each.

        `truncated`, where it was not recorded, is set at ends without a terminal state. Raises
        `InputError` where a row within an episode does not go on from the one before.
        """
        bounds = np.concatenate([[0], np.flatnonzero(last) + 1])
        for first, stop in ranges(bounds, _row_bytes(self.spec)):
            yield self._assembled(bounds[first:stop])

    def _assembled(self, bounds: Int64[np.ndarray, " boundaries"]) -> Columns:
        first, num_episodes = int(bounds[0]), len(bounds) - 1
        block = self.block(first, int(bounds[-1]))
        starts = bounds - first
        last = np.zeros(starts[-1], bool)
        last[starts[1:] - 1] = True
        wrong = np.flatnonzero(_breaks(block) & ~last[:-1])
        if len(wrong):
            row = first + int(wrong[0]) + 1
            raise InputError(
                f"{self.where}, row {row}: does not go on where row {row - 1} led, within an "
                "episode; give rows in time order"
            )
        block.setdefault("truncated", last & ~block["terminated"])
        next_obs = block.pop("next_obs")
        obs = np.empty((len(last) + num_episodes, self.spec.obs_dim), block["obs"].dtype)
        obs[np.arange(len(last)) + np.cumsum(last) - last] = block["obs"]
        obs[starts[1:] + np.arange(num_episodes)] = next_obs[last]
        return block | {"obs": obs, "episode_start": starts}


def after_steps(last: Bool[np.ndarray, " rows"], length: int) -> Bool[np.ndarray, " rows"]:
    """Every `length`-th row of each episode, given the last rows of episodes."""
    bounds = np.concatenate([[0], np.flatnonzero(last) + 1])
    position = np.arange(len(last)) - np.repeat(bounds[:-1], np.diff(bounds))
    return position % length == length - 1


def count_rows(where: str, columns: Mapping[str, Any]) -> int:
    """The length of arrays, or what has a shape like them; `InputError` where they have several."""
    count = next(iter(columns.values())).shape[:1]
    for name, column in columns.items():
        if column.shape[:1] != count or not count:
            first = next(iter(columns))
            raise InputError(
                f"{where}, {name}: shape {column.shape}; must have as many rows as {first}"
            )
    return count[0]


def ranges(bounds: Int64[np.ndarray, " boundaries"], row_bytes: int) -> Iterator[tuple[int, int]]:
    """Slices of `bounds` that hold the episodes of one batch each: neighbours share a boundary."""
    limit, first = max(1, BATCH_BYTES // row_bytes), 0
    while first < len(bounds) - 1:
        stop = int(np.searchsorted(bounds, bounds[first] + limit, "right"))
        stop = max(stop, first + 2)
        yield first, stop
        first = stop - 1


def _breaks(block: Columns) -> Bool[np.ndarray, " pairs"]:
    """After which rows but the last the next one does not go on from `next_obs`."""
    left, right = block["next_obs"][:-1], block["obs"][1:]
    return ~((left == right) | (np.isnan(left) & np.isnan(right))).all(axis=1)


def episode_bytes(spec: EnvSpec) -> int:
    """Of a column of one episode, an upper bound: the longest one, in float64."""
    return 8 * (spec.horizon + 1) * max(spec.obs_dim, spec.act_dim, len(spec.term_names))


def _row_bytes(spec: EnvSpec) -> int:
    """Of a transition in float64, an upper bound."""
    return 8 * (2 * spec.obs_dim + spec.act_dim + len(spec.term_names) + 3)


# --- Both ---


def _column(where: str, name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """`value` as an array of `shape` and of the kind that the column has."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{where}, {name}: rows of different lengths; make them equal") from None
    if array.shape == (*shape, 1) or (*array.shape, 1) == shape:
        array = array.reshape(shape)
    if array.shape != shape:
        raise InputError(f"{where}, {name}: shape {array.shape}, must be {shape}")
    if name in _FLAGS:
        return flags(where, name, array)
    if array.dtype.kind != "f":
        raise InputError(f"{where}, {name}: dtype {array.dtype}, must be floating-point")
    return array


def flags(where: str, name: str, array: np.ndarray) -> Bool[np.ndarray, "*shape"]:
    """Truth values, also given as the numbers 0 and 1."""
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise InputError(f"{where}, {name}: must be truth values, or the numbers 0 and 1")
    return array.astype(bool)
