"""Named parts of a lifetime: which episodes of a task a run reads.

A view is a name, printed with every result and parsed back to the same view. A slice selects whole
episodes in time order, so that Monte-Carlo returns and terminal observations keep their meaning:

    all  start  middle  end              the lifetime, or a third of it
    first-500  middle-500  last-500      that many episodes
    spread-500                           that many, evenly over the lifetime
    first-1200-transitions  ...          exactly that many transitions, in the same four ways
    every-7                              episodes 0, 7, 14, ...
    return-0.5-1.0                       episodes from the median return upwards

Where the number of transitions does not fall on the border of an episode, the episode there is cut:
nothing behind the cut is read, and its last transition counts as truncated. A `Mixture` is of two
slices, of the same or of two datasets, in a given ratio of transitions:

    0.3:all+0.7:end                      30 % of all of the first, 70 % of the last third of the
                                         second

`macaw_buffer_rows` is the other way to choose: single rows, as the reference code of MACAW does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from omrl.errors import InputError

GRAMMAR = (
    "all, start, middle, end, every-K, return-LOW-HIGH, part-LOW-HIGH, first-N, middle-N, last-N "
    "or spread-N episodes, or as in first-N-transitions"
)
_THIRDS = ("start", "middle", "end")
_COUNTED = re.compile(r"(first|middle|last|spread)-([1-9][0-9]{0,8})(-transitions)?")
_EVERY = re.compile(r"every-([1-9][0-9]{0,8})")
# Digits match in one way only: a run from elsewhere may have a name that is a megabyte of them.
_NUMBER = r"(?:[0-9]*\.)?[0-9]+"
_SHARE = re.compile(rf"(return|part)-({_NUMBER})-({_NUMBER})")
_MIXTURE = re.compile(rf"({_NUMBER}):([^:+]*)\+({_NUMBER}):([^:+]*)")


@dataclass(frozen=True)
class Selection:
    """What a slice selects of one task."""

    episodes: Int64[np.ndarray, " selected"]
    """Numbers of the episodes, ascending."""
    head: int = 0
    """Transitions left out at the start of the first of them."""
    tail: int = 0
    """Transitions left out at the end of the last of them."""


@dataclass(frozen=True)
class Slice:
    """A selection of episodes; make one with `Slice.parse`."""

    kind: Literal[
        "all", "third", "first", "middle", "last", "spread", "every", "return", "part"
    ] = "all"
    count: int = 0
    """Third 0, 1 or 2; number of episodes or transitions; or the distance between episodes."""
    quantiles: tuple[float, float] = (0.0, 1.0)
    """Of the episodes by their return, or in time order."""
    unit: Literal["episodes", "transitions"] = "episodes"
    """Of `count`."""

    @classmethod
    def parse(cls, name: str) -> Slice:
        """The slice of that name; `InputError` where there is none."""
        if name == "all":
            return cls()
        if name in _THIRDS:
            return cls("third", _THIRDS.index(name))
        if match := _COUNTED.fullmatch(name):
            unit = "transitions" if match[3] else "episodes"
            return cls(match[1], int(match[2]), unit=unit)  # pyright: ignore[reportArgumentType]
        if match := _EVERY.fullmatch(name):
            return cls("every", int(match[1]))
        if match := _SHARE.fullmatch(name):
            low, high = float(match[2]), float(match[3])
            if 0 <= low < high <= 1:
                return cls(match[1], 0, (low, high))  # pyright: ignore[reportArgumentType]
        raise InputError(
            f"no slice {name!r}; a slice is {GRAMMAR} (N and K from 1 to 999999999, "
            "0 <= LOW < HIGH <= 1)"
        )

    def __str__(self) -> str:
        if self.kind == "all":
            return "all"
        if self.kind == "third":
            return _THIRDS[self.count]
        if self.kind in ("return", "part"):
            low, high = map(_decimal, self.quantiles)
            return f"{self.kind}-{low}-{high}"
        return f"{self.kind}-{self.count}{'-transitions' * (self.unit == 'transitions')}"

    def select(
        self, lengths: Int64[np.ndarray, " episodes"], returns: Float64[np.ndarray, " episodes"]
    ) -> Selection:
        """What it selects of a lifetime, given the transitions and the return of every episode.

        Raises `InputError` where the lifetime is too short for the slice.
        """
        if self.kind == "every":
            return Selection(np.arange(0, len(lengths), self.count))
        if self.kind in ("return", "part"):
            return Selection(self._share(returns))
        # Of its count, an episode is one or as many as it has transitions.
        sizes = lengths if self.unit == "transitions" else np.ones_like(lengths)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        held = int(bounds[-1])
        self._check(held)
        if self.kind == "spread":
            episodes = spread(sizes, self.count)
            return Selection(episodes, 0, int(sizes[episodes].sum()) - self.count)
        first, stop = self._span(held)
        begin, end = np.searchsorted(bounds, [first, stop - 1], side="right") - 1
        head, tail = first - int(bounds[begin]), int(bounds[end + 1]) - stop
        return Selection(np.arange(begin, end + 1), head, tail)

    def _check(self, held: int) -> None:
        if self.count > held and self.kind != "third":
            thirds = {"first": "start", "middle": "middle", "last": "end"}
            third = thirds.get(self.kind)
            raise InputError(
                f"slice {self}: the task has {held} {self.unit}; ask for "
                f"{replace(self, count=held)} or fewer"
                f"{f', or for {third!r}, its {self.kind} third' if third else ''}"
            )
        first, stop = self._span(held)
        if first == stop:
            raise InputError(f"slice {self}: empty for a task of {held} episodes; use 'all'")

    def _span(self, held: int) -> tuple[int, int]:
        if self.kind == "third":
            return self.count * held // 3, (self.count + 1) * held // 3
        first = {"first": 0, "middle": (held - self.count) // 2, "last": held - self.count}
        if self.kind in first:
            return first[self.kind], first[self.kind] + self.count
        return 0, held

    def _share(self, returns: np.ndarray) -> np.ndarray:
        low, high = (int(np.ceil(q * len(returns))) for q in self.quantiles)
        if low == high:
            raise InputError(f"slice {self}: empty for a task of {len(returns)} episodes; widen it")
        if self.kind == "part":
            return np.arange(low, high)
        # Ranks, not values: ties must not change how many episodes a slice has.
        by_return = np.argsort(returns, kind="stable")
        return np.sort(by_return[low:high])


ALL = Slice()


@dataclass(frozen=True)
class Mixture:
    """Two slices and the shares that they have of the transitions of every task."""

    shares: tuple[float, float]
    """Above 0, and 1 together."""
    slices: tuple[Slice, Slice]

    @classmethod
    def parse(cls, name: str) -> Mixture:
        """The mixture of that name; `InputError` where there is none."""
        match = _MIXTURE.fullmatch(name)
        if match:
            shares = float(match[1]), float(match[3])
            if min(shares) > 0 and abs(sum(shares) - 1) < 1e-9:
                return cls(shares, (Slice.parse(match[2]), Slice.parse(match[4])))
        raise InputError(
            f"no mixture {name!r}; a mixture is SHARE:SLICE+SHARE:SLICE, as in 0.3:all+0.7:end, of "
            "two shares above 0 that add up to 1"
        )

    def __str__(self) -> str:
        terms = zip(self.shares, self.slices, strict=True)
        return "+".join(f"{_decimal(share)}:{part}" for share, part in terms)


def parse_view(name: str) -> Slice | Mixture:
    """The slice or the mixture of that name; `InputError` where there is none."""
    return Mixture.parse(name) if "+" in name else Slice.parse(name)


def check_name(field: str, name: str) -> None:
    """`InputError` that begins with `field`, which a config has for it, unless a view is so
    called."""
    try:
        parse_view(name)
    except InputError as error:
        raise InputError(f"{field}: {error}") from None


def spread(sizes: Int64[np.ndarray, " episodes"], count: int) -> Int64[np.ndarray, " kept"]:
    """Episodes evenly over a lifetime that have `count` of its sum of `sizes`, or more.

    Up to the end of any episode they have that share of what lies before it, or more; what is more
    is less than the last kept one. An episode is taken where the share would else not be reached.
    """
    kept, total, lifetime, episodes = 0, 0, int(sizes.sum()), []
    for episode, size in enumerate(sizes.tolist()):
        total += size
        if kept * lifetime < count * total:
            episodes.append(episode)
            kept += size
    return np.array(episodes)


def _decimal(number: float) -> str:
    return np.format_float_positional(number, trim="0")


def macaw_buffer_rows(
    num_rows: int, size: int, skip: int, mode: Literal["start", "middle", "end"]
) -> Int64[np.ndarray, " kept"]:
    """Rows of a stored lifetime that MACAW's reference code keeps on loading it.

    A buffer of `size` rows (-1: no limit) reads a window at one end, or in the `middle`, and keeps
    every `skip`-th row of it. The reference halves the centre twice, so that its middle lies around
    a quarter of the lifetime; this is reproduced here. Source: eric-mitchell/macaw@3dfd4f9,
    `src/utils.py`, `ReplayBuffer`.

    Raises `InputError` for a middle that begins before row 0, which the reference cannot load.
    """
    kept = min(num_rows, num_rows if size < 0 else size) // skip
    window = kept * skip
    first = {"start": 0, "middle": num_rows // 2 // 2 - window // 2, "end": num_rows - window}[mode]
    if first < 0:
        raise InputError(
            f"buffer mode 'middle': {window} rows around row {num_rows // 4} begin before row 0; "
            f"give a size of at most {num_rows // 2}"
        )
    return first + skip * np.arange(kept)
