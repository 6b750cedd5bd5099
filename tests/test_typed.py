"""Which checker a function has, and that functions of one signature share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PyTree, jaxtyped

import typed
from omrl.ops.gaussian import tanh_log_slope
from omrl.stats import Estimate, Returns
from omrl.tables import print_lines


def made(kind: Any) -> Any:
    """A function made anew, as one within a function is."""

    def same(x):
        return x

    same.__annotations__ = {"x": kind}
    return jaxtyped(same, typechecker=typed.checked)


def test_functions_of_equal_code_are_checked_by_their_own_annotations():
    for kind, good, bad in ((int, 1, "a"), (str, "a", 1), (int | None, None, "a")):
        for _ in range(2):
            function = made(kind)
            assert function(good) == good
            with pytest.raises(TypeError, match="x"):
                function(bad)


def test_a_signature_is_prepared_once():
    made(tuple[int, ...])
    before = typed._checker.cache_info()
    made(tuple[int, ...])
    assert typed._checker.cache_info().misses == before.misses
    assert (
        typed._checker.cache_info().hits == before.hits + 2
    )  # Arguments, and these with a result.


def test_axes_of_a_call_have_one_length():
    def dot(x, y):
        return x @ y

    dot.__annotations__ = dict.fromkeys(("x", "y"), Float[Array, "n"])
    for _ in range(2):
        function = jaxtyped(dot, typechecker=typed.checked)
        assert function(jnp.ones(3), jnp.ones(3)) == 3
        with pytest.raises(TypeError, match="y"):
            function(jnp.ones(3), jnp.ones(2))


def test_the_library_is_checked():
    with pytest.raises(TypeError, match="x"):
        tanh_log_slope(jnp.ones((2, 2)))


def test_results_are_checked_with_the_axes_of_their_arguments():
    def given(x):
        return result

    given.__annotations__ = {"x": Float[Array, "n"], "return": Float[Array, "n"]}
    function = jaxtyped(given, typechecker=typed.checked)
    for result in (jnp.ones(3), jnp.ones(4), jnp.ones((3, 1)), 3.0):
        if getattr(result, "shape", ()) == (3,):
            assert function(jnp.ones(3)) is result
        else:
            with pytest.raises(TypeError, match="return value"):
                function(jnp.ones(3))


# --- Calls that are alike ---


def test_a_call_that_differs_in_anything_is_checked_after_many_that_are_right():
    def first(x, y):
        return result

    first.__annotations__ = {
        "x": Float[Array, "n"],
        "y": Float[Array, "n"],
        "return": Float[Array, "n"],
    }
    function = typed.jaxtyped(first, typechecker=typed.checked)
    right = result = jnp.ones(3)
    for _ in range(3):
        assert function(right, right) is right
    for wrong in (jnp.ones(2), jnp.ones((3, 1)), jnp.ones(3, int), np.ones(3), 1.0, [1.0], None):
        with pytest.raises(TypeError, match="y"):
            function(right, wrong)
        result = wrong
        with pytest.raises(TypeError, match="return value"):
            function(right, right)
        result = right
    result = jnp.ones(4)
    assert function(result, result) is result


class Looking(type):
    looks = 0

    def __instancecheck__(cls, value):
        Looking.looks += 1
        return True


class Looked(metaclass=Looking):
    """All are of it, and every look is counted."""


def test_calls_that_are_alike_are_looked_at_once(monkeypatch):
    monkeypatch.setattr(Looking, "looks", 0)

    def both(x, y):
        return x

    both.__annotations__ = {"x": Float[Array, "n"], "y": Looked}
    function = typed.jaxtyped(both, typechecker=typed.checked)
    counts = []
    for length in (3, 3, 3, 4, 4, 3):
        function(jnp.ones(length), jnp.ones(length))
        counts.append(Looking.looks)
    assert 0 < counts[0] == counts[1] == counts[2] < counts[3] == counts[4] == counts[5]
    function(jnp.ones(3), {1: 1})  # What is in a mapping may differ.
    function(jnp.ones(3), {1: 1})
    assert Looking.looks > counts[5] + 1


# --- With jaxtyping where there are axes, else without ---


NAMED = Mapping, Sequence, Literal, PyTree, Returns
"""In the hints below."""


def hinted(x):
    return x


@pytest.mark.parametrize(
    ("hint", "plain"),
    [
        ("Sequence[int] | None", True),
        ("Mapping[str, tuple[float, ...]]", True),
        ("Literal['a', 'b']", True),
        ("np.ndarray", True),
        ("Plain", True),
        (int | None, True),
        (Annotated[float, "positive"], True),
        (Literal["Float"], True),
        (list["Plain"], True),
        (list["Returns"], False),
        (Sequence["Returns"] | None, False),
        ("Float[Array, 'n']", False),
        ("dict[str, Float[Array, 'n']]", False),
        (dict[str, Float[Array, " n"]], False),
        ("PyTree[int]", False),
        ("Returns", False),  # Another name of arrays.
        ("NotThereYet", False),
        ("np.not_there", False),
    ],
)
def test_what_has_axes_or_may_have_them_is_told(hint, plain):
    hinted.__annotations__ = {"x": hint}
    assert typed._is_plain(hinted) == plain


def test_functions_without_axes_are_checked():
    hinted.__annotations__ = {"x": "int", "return": "str"}
    function = typed.jaxtyped(hinted, typechecker=None)
    with pytest.raises(TypeError, match="x"):
        function("1")
    with pytest.raises(TypeError, match="return"):
        function(1)


@dataclass
class Plain:
    number: int


@dataclass
class Pair:
    """Of arrays that are equally long."""

    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " n"]


def test_dataclasses_are_checked_with_and_without_axes():
    assert typed._is_plain(Plain.__init__)
    assert not typed._is_plain(Pair.__init__)
    plain, pair = (typed.jaxtyped(each, typechecker=typed.checked) for each in (Plain, Pair))
    assert plain(1).number == len(pair(np.ones(1), np.ones(1)).x)
    with pytest.raises(TypeError, match="number"):
        plain("1")
    with pytest.raises(TypeError, match="y"):
        pair(np.ones(1), np.ones(2))


def test_of_the_library_both_are_checked():
    with pytest.raises(TypeError, match="value"):
        Estimate("1", 0.0, 0.0, "")
    with pytest.raises(TypeError, match="title"):
        print_lines(1, [])
