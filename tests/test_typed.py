"""Checkers that functions share: of each signature its own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, jaxtyped

import typed
from omrl.ops.gaussian import tanh_log_slope


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
