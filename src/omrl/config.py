"""Configs as JSON and back, strictly: a config file is untrusted text, so nothing is guessed.

A config is a frozen dataclass of numbers, strings, booleans, None, Literals, tuples of these and
further such dataclasses; what is only read may have mappings by name as well. Where one of several
dataclasses can stand, each has a `TAG`, a ClassVar that its JSON carries as `name`. `from_json`
names the first field that is unknown, missing or of another type by its full path
(`algo.inner_lr`) and evaluates no text.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from omrl.errors import InputError, at, reason
from omrl.files import read_bytes

Config = TypeVar("Config")
Json = Any
"""What `json.loads` returns: dict, list, str, int, float, bool or None."""
MAX_DEPTH = 50
"""Lists and objects in each other: more than any file has, less than recursive functions bear."""
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that paths or UTF-8 cannot have."""


def to_json(config: Any) -> Json:
    """`config` as JSON values; tuples become lists."""
    if dataclasses.is_dataclass(config):
        fields = {f.name: to_json(getattr(config, f.name)) for f in dataclasses.fields(config)}
        tag = _tag(type(config))
        return {"name": tag} | fields if tag else fields
    if isinstance(config, tuple | list):
        return [to_json(item) for item in config]
    if config is None or isinstance(config, str | bool | int | float):
        return config
    raise TypeError(f"a config holds only plain values, not {type(config).__name__}: {config!r}")


def from_json(kind: type[Config], value: Json, path: str = "config", fix: str = "") -> Config:
    """The config of dataclass `kind` that `to_json` made `value` of.

    Raises `InputError` with the `path` of the first wrong field, and what to do if that is told.
    """
    try:
        return _parse(kind, value, path)
    except InputError as error:
        raise InputError(f"{error}; {fix}" if fix else str(error)) from error


def read_json(path: Path, fix: str = "correct the file or restore it from a copy") -> Json:
    """Contents of a JSON file; see `parse_json`. Raises `InputError`."""
    return parse_json(read_bytes(path), str(path), fix)


def parse_json(text: str | bytes, source: str, fix: str) -> Json:
    """The values of JSON text from outside: all JSON that is not our own memory is read here.

    Raises `InputError` naming `source` and what to do for what is no JSON, and for what nothing
    behind could hold: NaN, infinity, integers of over 64 bits, characters that UTF-8 or paths
    cannot have, more than `MAX_DEPTH` levels.
    """
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_int)
        _check_values(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON ({reason(error)}); {fix}") from None
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond 64-bit floating point")
    return value


def _int(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{text[:40]} is beyond 64-bit integers")
    return int(text)


def _check_values(value: Json) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        for item in level:
            if isinstance(item, str) and UNSTORABLE.search(item):
                raise ValueError(f"{_shown(item)} has a character that files cannot have")
        lists = [item for item in level if isinstance(item, list)]
        lists += [[*item, *item.values()] for item in level if isinstance(item, dict)]
        level = [inner for items in lists for inner in items]
        if not level:
            return
    raise ValueError(f"more than {MAX_DEPTH} lists and objects in each other")


def _shown(value: Json) -> str:
    """`value` as it is written, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


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
        raise InputError(f"{path}: {_shown(value)} is not one of {', '.join(map(repr, arguments))}")
    if origin in (Union, types.UnionType):
        return _parse_union(arguments, value, path)
    if origin is tuple:
        return _parse_tuple(arguments, value, path)
    if origin is Mapping:
        return _parse_mapping(arguments[1], value, path)
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    if kind in (bool, int, float, str):
        if type(value) is kind:
            return value
        raise InputError(f"{path}: {_shown(value)} is not of type {kind.__name__}")
    raise TypeError(f"{path}: a config field cannot be of type {kind!r}")


def _parse_dataclass(kind: Any, value: Json, path: str) -> Any:
    if not isinstance(value, dict):
        fields = f"an object with the fields of {kind.__name__}"
        raise InputError(f"{path}: {_shown(value)} is not {fields}")
    names = [field.name for field in dataclasses.fields(kind)]
    tag = _tag(kind)
    keys = ["name", *names] if tag else names
    for name in value:
        if name not in keys:
            raise InputError(f"{path}.{name}: no such field; there are {', '.join(keys)}")
    for name in keys:
        if name not in value:
            raise InputError(f"{path}.{name}: missing; every field has to be there")
    if tag:
        _parse(Literal[tag], value["name"], f"{path}.name")
    hints = _hints(kind)
    parsed = {name: _parse(hints[name], value[name], f"{path}.{name}") for name in names}
    try:
        return kind(**parsed)
    except InputError as error:  # from __post_init__, which does not know where it stands
        raise InputError(at(path, str(error))) from error


_hints = cache(typing.get_type_hints)
"""They are evaluated from strings, which takes longer than all else here."""


def _parse_union(arguments: tuple[Any, ...], value: Json, path: str) -> Any:
    inner = [argument for argument in arguments if argument is not type(None)]
    if len(inner) == 1:
        return None if value is None else _parse(inner[0], value, path)
    by_name = {_tag(kind): kind for kind in inner}
    if len(inner) < len(arguments) or None in by_name:
        raise TypeError(f"{path}: a union in a config is `X | None` or of dataclasses with a TAG")
    if not isinstance(value, dict) or "name" not in value:
        raise InputError(f"{path}.name: missing; it is one of {', '.join(map(repr, by_name))}")
    if not isinstance(value["name"], str) or value["name"] not in by_name:
        return _parse(Literal[tuple(by_name)], value["name"], f"{path}.name")
    return _parse(by_name[value["name"]], value, path)


def _tag(kind: Any) -> str | None:
    return getattr(kind, "TAG", None)


def _parse_tuple(arguments: tuple[Any, ...], value: Json, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InputError(f"{path}: {_shown(value)} is not a list")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise InputError(f"{path}: {len(value)} values where {len(arguments)} are needed")
    items = zip(arguments, value, strict=True)
    return tuple(_parse(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(items))


def _parse_mapping(kind: Any, value: Json, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {_shown(value)} is not an object")
    return {name: _parse(kind, item, f"{path}.{name}") for name, item in value.items()}
