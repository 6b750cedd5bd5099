"""The checkers of annotated types in tests: beartype, and around it jaxtyping where a signature has
axes.

Most have none. jaxtyping would open a scope for axes at each of their calls all the same, which
takes longer than to look at types.

Functions within functions are made anew at every call, and so would be their checkers, which cost
more than most of what they check: they have one per signature. Of every function jaxtyping has two
of them made: of the arguments, and, called after it in the same scope of axes, of the arguments and
the result. Here each value is looked at once.

What simulates calls the same thirty functions at every step. Of calls whose arguments and results
are alike in all that a check depends on, types, shapes and dtypes, the first is checked.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import re
from collections.abc import Callable, Hashable
from functools import lru_cache, partial, wraps
from types import FunctionType
from typing import Annotated, Any, ForwardRef, Literal, get_args, get_origin

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype

_jaxtyped = jaxtyping.jaxtyped
_plainly = beartype(conf=BeartypeConf(violation_type=TypeError))  # As that of jaxtyping is.


def install() -> None:
    """Checks all of omrl that is imported from now on."""
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook("omrl", f"{__name__}.checked")


# --- Which of the two ---


def jaxtyped(target: Any = None, *, typechecker: Any) -> Any:
    """`jaxtyping.jaxtyped`, for what has axes; for other functions and dataclasses beartype."""
    if target is None:
        return partial(jaxtyped, typechecker=typechecker)
    if isinstance(target, type) and dataclasses.is_dataclass(target) and _is_plain(target.__init__):
        target.__init__ = _plainly(target.__init__)
        return target
    if _is_plain(target):
        return _plainly(target)
    typed = _jaxtyped(target, typechecker=typechecker)
    if not isinstance(target, FunctionType) or _looks_into_values(target):
        return typed
    return _once_of_a_kind(target, typed)


def _looks_into_values(function: FunctionType) -> bool:
    """Whether a hint is of leaves of trees, or has an axis as long as a value says."""
    hints = " ".join(map(str, function.__annotations__.values()))
    return "PyTree" in hints or "{" in hints


def _once_of_a_kind(function: FunctionType, typed: Callable[..., Any]) -> Callable[..., Any]:
    """`typed`, which looks at no call whose arguments and result are of kinds that it has passed
    already: it would see nothing else than then."""
    passed: dict[Hashable, set[Hashable]] = {}

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = _kinds((*args, *kwargs.values()))
        if given is None:
            return typed(*args, **kwargs)
        key = len(args), tuple(kwargs), given
        results = passed.setdefault(key, set())
        if not results:
            result = typed(*args, **kwargs)
            if kind := _kinds((result,)):
                results.add(kind)
            return result
        result = function(*args, **kwargs)
        kind = _kinds((result,))
        if kind not in results:
            _result_of(function, result)(*args, **kwargs)
            results.add(kind)
        return result

    return called


def _result_of(function: FunctionType, result: Any) -> Callable[..., Any]:
    """The same signature, checked, with this result."""

    @wraps(function)
    def given(*_: Any, **__: Any) -> Any:
        return result

    return _jaxtyped(given, typechecker=beartype)


_ARRAYS = (np.ndarray, jax.Array)
_WHOLE = ("omrl.", "mujoco.", "numpy.random.")
"""Modules of classes of which a check looks at the class alone."""


def _kinds(values: tuple[Any, ...]) -> Hashable:
    """All that a check depends on; None where it may look into a value of another kind, as a
    mapping is."""
    kinds: list[Hashable] = []
    for value in values:
        kind = type(value)
        if isinstance(value, _ARRAYS):
            kinds.append((kind, value.shape, value.dtype))
        elif kind in (int, float):  # Literals are of strings.
            kinds.append(kind)
        elif kind in (str, bool, type(None)):
            kinds.append((kind, value))
        elif isinstance(value, tuple | list):
            parts = _kinds(value)
            if parts is None:
                return None
            kinds.append((kind, parts))
        elif kind.__module__.startswith(_WHOLE):
            kinds.append(kind)
        else:
            return None
    return tuple(kinds)


def _is_plain(function: Any) -> bool:
    """Whether it is a function without axes in its annotations; no as well where that cannot be
    told, and of functions within functions, which beartype would look at anew each time."""
    if not isinstance(function, FunctionType) or "<locals>" in function.__qualname__:
        return False
    return not any(_may_have_axes(hint, function) for hint in function.__annotations__.values())


_LITERAL = re.compile(r"Literal\[[^]]*\]")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def _may_have_axes(hint: Any, function: FunctionType) -> bool:
    if isinstance(hint, ForwardRef):
        hint = hint.__forward_arg__
    if not isinstance(hint, str):
        return type(hint).__module__.startswith("jaxtyping") or any(
            _may_have_axes(part, function) for part in _parts(hint)
        )
    hint = _LITERAL.sub("str", hint)
    if "'" in hint or '"' in hint:  # Axes are in quotes, and names that are not there yet.
        return True
    return any(_is_unclear(name, function) for name in _NAME.findall(hint))


def _parts(hint: Any) -> tuple[Any, ...]:
    """The hints within a hint."""
    if get_origin(hint) is Literal:
        return ()
    return get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)


def _is_unclear(name: str, function: FunctionType) -> bool:
    """Whether a name is of something with axes, or of nothing that is there yet."""
    first, *others = name.split(".")
    missing = object()
    found = function.__globals__.get(first, getattr(builtins, first, missing))
    for other in others:
        found = getattr(found, other, missing)
    return found is missing or _may_have_axes(found, function)


# --- One checker per signature ---


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
