"""Adaptive layers: what dense layer they make, how they start, how large they are."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.adaptive import BiasTransform, Linear, WeightTransform
from omrl.nets.mlp import num_parameters


def test_linear_is_its_own_dense_layer():
    dense = Linear(jnp.array([[1.0, 2.0]]), jnp.array([3.0, 4.0])).dense()
    np.testing.assert_array_equal(dense(jnp.array([10.0])), [13.0, 24.0])


def test_bias_transform_adds_z_times_kernel():
    layer = BiasTransform(
        weight=jnp.array([[1.0, 2.0]]),
        bias=jnp.array([0.5, 0.0]),
        z=jnp.array([1.0, -1.0]),
        kernel=jnp.array([[1.0, 2.0], [3.0, 5.0]]),
    )
    # z B = [1 - 3, 2 - 5] = [-2, -3]; bias = [-1.5, -3]
    np.testing.assert_array_equal(layer.dense().bias, [-1.5, -3.0])
    np.testing.assert_array_equal(layer.dense()(jnp.array([10.0])), [8.5, 17.0])


def test_weight_transform_fills_the_weight_row_by_row_then_the_bias():
    # theta = z W + b = 2 [0, 1, 2, 3, 4, 5] + 1 = [1, 3, 5, 7, 9, 11]: two inputs, two outputs
    layer = WeightTransform(jnp.array([2.0]), jnp.arange(6.0)[None], jnp.ones(6), 2)
    dense = layer.dense()
    np.testing.assert_array_equal(dense.weight, [[1.0, 3.0], [5.0, 7.0]])
    np.testing.assert_array_equal(dense.bias, [9.0, 11.0])
    bare = WeightTransform(layer.z, layer.kernel, None, 2).dense()
    np.testing.assert_array_equal(bare.weight, [[0.0, 2.0], [4.0, 6.0]])


def test_init_with_offset_is_the_reference_codes(getkey):
    layer = WeightTransform.init(getkey(), 10, 5, latent=10_000, offset=True)
    # z ~ N(0, 1 / out): the deviation is 1 / 5.
    assert np.std(layer.z) == pytest.approx(0.2, rel=0.05)
    assert np.max(np.abs(layer.kernel)) == pytest.approx(0.01, rel=1e-3)
    assert layer.offset is not None
    assert np.max(np.abs(layer.offset)) <= 0.01


def test_init_without_offset_gives_weights_of_a_dense_layers_variance(getkey):
    layer = WeightTransform.init(getkey(), 48, 40, latent=100, offset=False)
    # 1 / (3 in) = 1 / 144; z alone makes the variance random by about 14 %
    assert np.std(layer.dense().weight) == pytest.approx(1 / 12, rel=0.3)
    assert layer.offset is None


def test_bias_transform_init(getkey):
    layer = BiasTransform.init(getkey(), 4, 400)
    assert np.std(layer.z) == pytest.approx(1 / 400, rel=0.15)
    # Xavier normal of a square matrix: variance 2 / (400 + 400)
    assert np.std(layer.kernel) == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Linear.init, 100 * 100 + 100),
        (BiasTransform.init, 100 * 100 + 100 + 100 + 100 * 100),
        (partial(WeightTransform.init, latent=100, offset=False), 100 + 100 * 10_100),
        (partial(WeightTransform.init, latent=100, offset=True), 100 + 101 * 10_100),
    ],
)
def test_sizes(make, expected):
    layer = jax.eval_shape(lambda key: make(key, 100, 100), jax.random.PRNGKey(0))
    assert num_parameters(layer) == expected
