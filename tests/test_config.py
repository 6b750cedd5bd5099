"""Configs to JSON and back, and every way in which a config file can be wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from omrl.config import differences, from_json, to_json
from omrl.errors import InputError


@dataclass(frozen=True)
class Inner:
    lr: float = 0.1
    layers: tuple[int, ...] = (3, 4)

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise InputError(f"lr: {self.lr} is not positive")


@dataclass(frozen=True)
class Outer:
    name: str = "toy"
    mode: Literal["fast", 1] = "fast"
    clip: float | None = None
    pair: tuple[int, str] = (1, "x")
    inner: Inner = Inner()
    several: tuple[Inner, ...] = (Inner(), Inner(lr=0.2))
    flag: bool = False


@dataclass(frozen=True)
class Square:
    TAG: ClassVar[str] = "square"
    side: float = 1.0


@dataclass(frozen=True)
class Circle:
    TAG: ClassVar[str] = "circle"
    radius: float = 1.0


@dataclass(frozen=True)
class Drawing:
    shape: Square | Circle


@dataclass(frozen=True)
class Record:
    by_name: Mapping[str, Inner]
    free: Any


def test_there_and_back_through_text():
    for config in (Outer(), Outer(mode=1, clip=0.5, inner=Inner(1e-9, ()), several=(), flag=True)):
        assert from_json(Outer, json.loads(json.dumps(to_json(config)))) == config


def test_an_integer_is_a_float_where_a_float_is_meant():
    parsed = from_json(Inner, {"lr": 1, "layers": []})
    assert parsed == Inner(1.0, ())
    assert type(parsed.lr) is float


def changed(**fields) -> dict:
    return to_json(Outer()) | fields


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (changed(nmae="x"), r"^config\.nmae: no such field; there are name, mode, clip"),
        ({"name": "x"}, r"^config\.mode: missing"),
        ([], r"^config: \[\] is not an object with the fields of Outer$"),
        (changed(name=1), r"^config\.name: 1 is not of type str$"),
        (changed(flag=1), r"^config\.flag: 1 is not of type bool$"),
        (changed(mode="slow"), r"^config\.mode: 'slow' is not one of 'fast', 1$"),
        (changed(mode=True), r"^config\.mode: True is not one of"),
        (changed(clip="1"), r"^config\.clip: '1' is not of type float$"),
        (changed(pair=[1]), r"^config\.pair: 1 values where 2 are needed$"),
        (changed(pair="1x"), r"^config\.pair: '1x' is not a list$"),
        (changed(inner={"lr": True, "layers": []}), r"^config\.inner\.lr: True is not of type"),
        (changed(inner={"lr": 0.1, "layers": [1.5]}), r"^config\.inner\.layers\[0\]: 1\.5 is not"),
        (changed(several=[{"lr": -1.0, "layers": []}]), r"^config\.several\[0\]\.lr: -1\.0 is not"),
    ],
)
def test_what_is_wrong_is_named(value, expected):
    with pytest.raises(InputError, match=expected):
        from_json(Outer, value)


@pytest.mark.parametrize("shape", [Square(2.0), Circle(3.0)])
def test_a_constant_name_tells_which_of_several_it_is(shape):
    value = to_json(Drawing(shape))
    assert value["shape"]["name"] == shape.TAG
    assert from_json(Drawing, value) == Drawing(shape)
    with pytest.raises(InputError, match=r"^config\.name: 'other' is not one of"):
        from_json(type(shape), value["shape"] | {"name": "other"})


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"side": 1.0}, r"\.name: missing; it is one of 'square', 'circle'$"),
        ([], r"\.name: missing; it is one of 'square', 'circle'$"),
        ({"name": "cube", "side": 1.0}, r"\.name: 'cube' is not one of 'square', 'circle'$"),
        ({"name": ["square"], "side": 1.0}, r"\.name: \['square'\] is not one of"),
        ({"name": "circle", "side": 1.0}, r"\.side: no such field; there are name, radius$"),
    ],
)
def test_a_wrong_name_is_told(shape, expected):
    with pytest.raises(InputError, match=r"^config\.shape" + expected):
        from_json(Drawing, {"shape": shape})


def test_long_values_are_cut_off():
    with pytest.raises(InputError) as caught:
        from_json(Outer, changed(flag=list(range(10_000))))
    assert len(str(caught.value)) < 150


def test_mappings_are_read_by_name_and_the_fix_ends_the_line():
    read = from_json(Record, {"by_name": {"a": {"lr": 1, "layers": []}}, "free": {"x": [1, None]}})
    assert read == Record({"a": Inner(1.0, ())}, {"x": [1, None]})
    with pytest.raises(InputError, match=r"^file\.by_name\.a\.lr: 'x' is not .*float; mend it$"):
        from_json(
            Record, {"by_name": {"a": {"lr": "x"} | {"layers": []}}, "free": 1}, "file", "mend it"
        )
    with pytest.raises(InputError, match=r"^config\.by_name: \[\] is not an object$"):
        from_json(Record, {"by_name": [], "free": 1})


def test_only_plain_values_are_written():
    with pytest.raises(TypeError, match="plain values, not object"):
        to_json(Outer(name=object()))  # type: ignore


def test_differences_name_the_fields():
    other = to_json(Outer(inner=Inner(lr=0.3), several=(Inner(),)))
    del other["flag"]
    assert list(differences(to_json(Outer()), other)) == [
        "flag: only in one of them",
        "inner.lr: 0.1 is not 0.3",
        "several: [{'lr': 0.1, 'layers': [3, 4]}, {'lr': 0.2, 'layers': [3, 4]}] is not "
        "[{'lr': 0.1, 'layers': [3, 4]}]",
    ]
