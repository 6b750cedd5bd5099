"""The checker of annotated types in tests: beartype, once per signature.

Functions within functions are made anew at every call, and so would be their checkers, which cost
more than most of what they check.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from types import FunctionType
from typing import Any

from beartype import beartype


class Signature:
    """A function by what its checker depends on: jaxtyping gives ones without a body of their own,
    and without variables of a scope around them."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        # By identity: 1, 1.0 and True are equal. The function keeps them alive.
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        self.key: Hashable = (
            function.__code__,
            function.__module__,
            function.__qualname__,
            tuple(function.__annotations__.items()),
            tuple(map(id, defaults)),
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self.key == other.key


@lru_cache(maxsize=10_000)
def _checker(signature: Signature) -> Callable[..., Any]:
    return beartype(signature.function)


def checked(function: FunctionType) -> Callable[..., Any]:
    """`function` with its types checked at every call."""
    try:
        return _checker(Signature(function))
    except TypeError:  # An annotation without a hash.
        return beartype(function)
