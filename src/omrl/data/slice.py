"""Named parts of a lifetime: which episodes of a task a run reads.

A slice selects whole episodes, so that Monte-Carlo returns and terminal observations keep their
meaning. It is a name, printed with every result and parsed back to the same slice:

    all  start  middle  end            the lifetime, or a third of it
    first-500  middle-500  last-500    that many episodes
    every-7                            episodes 0, 7, 14, ...
    return-0.5-1.0                     episodes from the median return upwards

`macaw_buffer_rows` is the other way to choose: single rows, as the reference code of MACAW does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from omrl.errors import InputError

GRAMMAR = "all, start, middle, end, first-N, middle-N, last-N, every-K or return-LOW-HIGH"
_THIRDS = ("start", "middle", "end")
_COUNTED = re.compile(r"(first|middle|last|every)-([1-9][0-9]{0,8})")
_QUANTILE = re.compile(r"return-([0-9]*\.?[0-9]+)-([0-9]*\.?[0-9]+)")


@dataclass(frozen=True)
class Slice:
    """A selection of episodes; make one with `Slice.parse`."""

    kind: Literal["all", "third", "first", "middle", "last", "every", "return"] = "all"
    count: int = 0
    """Third 0, 1 or 2; number of episodes; or the distance between them."""
    quantiles: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def parse(cls, name: str) -> Slice:
        """The slice of that name; `InputError` where there is none."""
        if name == "all":
            return cls()
        if name in _THIRDS:
            return cls("third", _THIRDS.index(name))
        if match := _COUNTED.fullmatch(name):
            return cls(match[1], int(match[2]))  # pyright: ignore[reportArgumentType]
        if match := _QUANTILE.fullmatch(name):
            low, high = float(match[1]), float(match[2])
            if 0 <= low < high <= 1:
                return cls("return", 0, (low, high))
        raise InputError(
            f"no slice {name!r}; a slice is {GRAMMAR} (N and K from 1 to 999999999, "
            "0 <= LOW < HIGH <= 1)"
        )

    def __str__(self) -> str:
        if self.kind == "all":
            return "all"
        if self.kind == "third":
            return _THIRDS[self.count]
        if self.kind == "return":
            low, high = (np.format_float_positional(q, trim="0") for q in self.quantiles)
            return f"return-{low}-{high}"
        return f"{self.kind}-{self.count}"

    def episodes(self, returns: Float64[np.ndarray, " episodes"]) -> Int64[np.ndarray, " selected"]:
        """Numbers of the selected episodes in time order, given the return of every episode.

        Raises `InputError` where the lifetime is too short for the slice.
        """
        held = len(returns)
        if self.kind in ("first", "middle", "last") and self.count > held:
            third = {"first": "start", "middle": "middle", "last": "end"}[self.kind]
            raise InputError(
                f"slice {self}: the task has {held} episodes; ask for {self.kind}-{held} or fewer, "
                f"or for {third!r}, its {self.kind} third"
            )
        if self.kind == "every":
            return np.arange(0, held, self.count)
        if self.kind == "return":
            return self._by_return(returns)
        first, stop = self._span(held)
        if first == stop:
            raise InputError(f"slice {self}: empty for a task of {held} episodes; use 'all'")
        return np.arange(first, stop)

    def _span(self, held: int) -> tuple[int, int]:
        if self.kind == "third":
            return self.count * held // 3, (self.count + 1) * held // 3
        first = {"first": 0, "middle": (held - self.count) // 2, "last": held - self.count}
        if self.kind in first:
            return first[self.kind], first[self.kind] + self.count
        return 0, held

    def _by_return(self, returns: np.ndarray) -> np.ndarray:
        low, high = (int(np.ceil(q * len(returns))) for q in self.quantiles)
        if low == high:
            raise InputError(f"slice {self}: empty for a task of {len(returns)} episodes; widen it")
        # Ranks, not values: ties must not change how many episodes a slice has.
        by_return = np.argsort(returns, kind="stable")
        return np.sort(by_return[low:high])


ALL = Slice()


def check_name(field: str, name: str) -> None:
    """`InputError` that begins with `field`, which a config has for it, unless a slice is so
    called."""
    try:
        Slice.parse(name)
    except InputError as error:
        raise InputError(f"{field}: {error}") from None


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
