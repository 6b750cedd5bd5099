"""The checker of annotated types in tests: beartype, once per signature, each value once per call.

Functions within functions are made anew at every call, and so would be their checkers, which cost
more than most of what they check. Of every function jaxtyping has two of them made: of the
arguments, and, called after it in the same scope of axes, of the arguments and the result.
"""

from __future__ import annotations

import dis
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
    return _made(signature.function)


def checked(function: FunctionType) -> Callable[..., Any]:
    """`function` with its types checked at every call."""
    try:
        return _checker(Signature(function))
    except TypeError:  # An annotation without a hash.
        return _made(function)


def _made(function: FunctionType) -> Callable[..., Any]:
    name = _result_name(function)
    if not name:
        return beartype(function)

    def same(result):
        return result

    same.__annotations__ = {"return": function.__annotations__["return"]}
    same.__name__, same.__qualname__ = function.__name__, function.__qualname__
    same.__module__ = function.__module__  # Names in quotes are of this.
    of_result = beartype(same)
    return lambda *_, **arguments: of_result(arguments[name])


def _result_name(function: FunctionType) -> str:
    """The last keyword of a function that returns it and does nothing else, as that has of which
    the arguments are checked already; empty: it is another one."""
    code = function.__code__
    if not code.co_kwonlyargcount or "return" not in function.__annotations__:
        return ""
    last = code.co_varnames[code.co_argcount + code.co_kwonlyargcount - 1]
    returned = [each.argval for each in dis.get_instructions(function)][-2]
    return last if returned == last else ""
