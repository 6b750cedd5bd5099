"""Configs as JSON and back, strictly: a config file is untrusted text, so nothing is guessed.

A config is a frozen dataclass of numbers, strings, booleans, None, Literals, tuples of these and
further such dataclasses. `from_json` names the first field that is unknown, missing or of another
type by its full path (`algo.inner_lr`) and evaluates no text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from omrl.errors import InputError

Config = TypeVar("Config")
Json = Any
"""What `json.loads` returns: dict, list, str, int, float, bool or None."""


def to_json(config: Any) -> Json:
    """`config` as JSON values; tuples become lists."""
    if dataclasses.is_dataclass(config):
        return {f.name: to_json(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, tuple | list):
        return [to_json(item) for item in config]
    if config is None or isinstance(config, str | bool | int | float):
        return config
    raise TypeError(f"a config holds only plain values, not {type(config).__name__}: {config!r}")


def from_json(kind: type[Config], value: Json, path: str = "config") -> Config:
    """The config of dataclass `kind` that `to_json` made `value` of. Raises `InputError`."""
    return _parse(kind, value, path)


def read_json(path: Path) -> Json:
    """Contents of a JSON file. Raises `InputError`, also for NaN and infinity."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def json_hash(value: Json) -> str:
    """sha256 of the canonical JSON (sorted keys, no blanks) of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(left: Json, right: Json, path: str = "") -> Iterator[str]:
    """`algo.inner_lr: 0.1 is not 0.2` for every field in which two JSON configs differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted(left.keys() | right.keys()):
            inner = f"{path}.{name}" if path else name
            if name not in left or name not in right:
                yield f"{inner}: only in one of them"
            else:
                yield from differences(left[name], right[name], inner)
    elif left != right:
        yield f"{path}: {left!r} is not {right!r}"


def _parse(kind: Any, value: Json, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _parse_dataclass(kind, value, path)
    if origin is Literal:
        # `True == 1`, so the types are compared too.
        if any(type(value) is type(choice) and value == choice for choice in arguments):
            return value
        raise InputError(f"{path}: {value!r} is not one of {', '.join(map(repr, arguments))}")
    if origin in (Union, types.UnionType):
        return _parse_optional(arguments, value, path)
    if origin is tuple:
        return _parse_tuple(arguments, value, path)
    if kind is float and type(value) is int:
        return float(value)
    if kind in (bool, int, float, str):
        if type(value) is kind:
            return value
        raise InputError(f"{path}: {value!r} is not of type {kind.__name__}")
    raise TypeError(f"{path}: a config field cannot be of type {kind!r}")


def _parse_dataclass(kind: Any, value: Json, path: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {value!r} is not an object with the fields of {kind.__name__}")
    names = [field.name for field in dataclasses.fields(kind)]
    for name in value:
        if name not in names:
            raise InputError(f"{path}.{name}: no such field; there are {', '.join(names)}")
    for name in names:
        if name not in value:
            raise InputError(f"{path}.{name}: missing; a complete config names every field")
    hints = typing.get_type_hints(kind)
    parsed = {name: _parse(hints[name], value[name], f"{path}.{name}") for name in names}
    try:
        return kind(**parsed)
    except InputError as error:  # from __post_init__, which does not know where it stands
        raise InputError(f"{path}: {error}") from error


def _parse_optional(arguments: tuple[Any, ...], value: Json, path: str) -> Any:
    inner = [argument for argument in arguments if argument is not type(None)]
    if len(inner) != 1 or len(arguments) != 2:
        raise TypeError(f"{path}: the only union that a config field can be is `X | None`")
    return None if value is None else _parse(inner[0], value, path)


def _parse_tuple(arguments: tuple[Any, ...], value: Json, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InputError(f"{path}: {value!r} is not a list")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise InputError(f"{path}: {len(value)} values where {len(arguments)} are needed")
    items = zip(arguments, value, strict=True)
    return tuple(_parse(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(items))
