"""The range of every number in a config, declared where the field is: `latent: Size = 100`.

    @dataclass(frozen=True)
    class MyConfig:
        hidden: tuple[Size, ...] = (256, 256)
        learning_rate: Positive = 3e-4
        warmup: Annotated[int, Range(0, 500)] = 10

        def __post_init__(self) -> None:
            check_ranges(self)

So a number that no run could use is refused where the config is made, in Python, by an option of
the command line or by a JSON file, before anything else is done. Type checkers see int and float.
"""

from __future__ import annotations

import functools
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Union

from omrl.errors import InputError

INT32_MAX = 2**31 - 1
"""Counters and seeds are int32 on the device."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: int | float
    high: int | float

    def check(self, path: str, kind: type, value: Any) -> None:
        """`InputError` naming `path` unless `value` is a number of type `kind` in the range."""
        whole = kind is int
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not (number and self.low <= value <= self.high):  # NaN is in no range.
            noun = "whole number" if whole else "number"
            raise InputError(f"{path}: {value!r} is not a {noun} from {self.low} to {self.high}")


Count = Annotated[int, Range(1, INT32_MAX)]
Natural = Annotated[int, Range(0, INT32_MAX)]
"""Indices, seeds, and counts of which there may be none."""
Size = Annotated[int, Range(1, 10_000)]
"""What memory or the length of a program grows with: widths of layers, seeds, gradient steps."""
Fraction = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(1e-9, 10**9)]
"""Squares and cubes are far from the ends of float32."""
NonNegative = Annotated[float, Range(0, 10**9)]
Finite = Annotated[float, Range(-(10**9), 10**9)]


def check_ranges(config: Any) -> None:
    """`InputError` for the first number of a dataclass outside the range that its field declares.

    Looks into tuples and `X | None`. Configs within `config` have checked themselves.
    """
    for name, hint in _hints(type(config)).items():
        _check(name, hint, getattr(config, name))


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _check(path: str, hint: Any, value: Any) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        for extra in arguments[1:]:
            if isinstance(extra, Range):
                extra.check(path, arguments[0], value)
    elif origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        for number, (kind, item) in enumerate(zip(kinds, value, strict=True)):
            _check(f"{path}[{number}]", kind, item)
    elif origin in (Union, types.UnionType) and value is not None:
        for kind in arguments:
            _check(path, kind, value)
