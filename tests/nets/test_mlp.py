"""Dense layers against numbers worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.mlp import Dense, Mlp, forward, init_layers, num_parameters

FIRST = Dense.of(jnp.array([[1.0, -1.0], [0.0, 2.0]]), jnp.array([0.0, 1.0]))
SECOND = Dense.of(jnp.array([[2.0], [3.0]]), jnp.array([-1.0]))


def test_dense():
    # [1, -2] W = [1, -1 - 4] = [1, -5], plus b = [1, -4]
    np.testing.assert_array_equal(FIRST(jnp.array([1.0, -2.0])), [1.0, -4.0])


def test_relu_between_layers_and_none_at_the_end():
    # relu([1, -4]) = [1, 0]; 2 - 1 = 1
    np.testing.assert_array_equal(forward((FIRST, SECOND), jnp.array([1.0, -2.0])), [1.0])
    # [-1, 0] W + b = [-1, 2]; relu = [0, 2]; 3 * 2 - 1 = 5; and with a last layer of -1: -5
    np.testing.assert_array_equal(forward((FIRST, SECOND), jnp.array([-1.0, 0.0])), [5.0])
    negative = Dense.of(-SECOND.weight, -SECOND.bias)
    np.testing.assert_array_equal(forward((FIRST, negative), jnp.array([-1.0, 0.0])), [-5.0])


def test_init_is_uniform_within_one_over_root_in(getkey):
    layer = Dense.init(getkey(), 400, 50)
    for array in (layer.weight, layer.bias):
        assert np.max(np.abs(array)) <= 0.05
    # The deviation of U(-c, c) is c / sqrt(3).
    assert np.std(layer.weight) == pytest.approx(0.05 / np.sqrt(3), rel=0.02)


def test_init_with_small_outputs(getkey):
    first, last = init_layers(getkey(), (400, 100, 50), 3e-3)
    # 1/sqrt(100) = 0.1, of the outputs and not of the 400 inputs.
    assert np.max(np.abs(first.weight)) == pytest.approx(0.1, rel=0.01)
    np.testing.assert_array_equal(first.bias, np.full(100, 0.1, np.float32))
    assert np.max(np.abs(last.affine)) == pytest.approx(3e-3, rel=0.01)


def test_mlp_and_its_size(getkey):
    mlp = Mlp.init(getkey(), (3, 5, 4, 2))
    assert num_parameters(mlp) == (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2)
    x = jax.random.normal(getkey(), (3,))
    np.testing.assert_array_equal(mlp(x), forward(mlp.layers, x))
