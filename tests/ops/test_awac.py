"""Weights of logged actions by hand, and what does not change them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.ops import awac

# exp is 1, 2 and 5.
SCORES = jnp.log(jnp.array([[1.0], [2.0], [5.0]]))


def test_softmax_has_mean_one_whatever_the_value_is():
    expected = np.array([[1], [2], [5]]) * 3 / 8
    np.testing.assert_allclose(awac.softmax_weights(SCORES, 1.0), expected, rtol=1e-6)
    np.testing.assert_allclose(awac.softmax_weights(2 * SCORES - 7, 2.0), expected, rtol=1e-5)


def test_softmax_is_over_all_tasks_or_over_each():
    scores = jnp.log(jnp.array([[1.0, 3.0], [8.0, 8.0]]))
    together = awac.softmax_weights(scores, 1.0)
    np.testing.assert_allclose(together, np.array([[1, 3], [8, 8]]) * 4 / 20, rtol=1e-6)
    apart = jax.vmap(lambda of_task: awac.softmax_weights(of_task, 1.0))(scores)
    np.testing.assert_allclose(apart, [[0.5, 1.5], [1, 1]], rtol=1e-6)


def test_exponential_weights_count_larger_scores_as_the_largest():
    np.testing.assert_allclose(awac.exponential_weights(SCORES, 1.0), [[1], [2], [5]], rtol=1e-6)
    clipped = awac.exponential_weights(SCORES, 0.5, largest_score=float(np.log(3)))
    np.testing.assert_allclose(clipped, [[1], [4], [9]], rtol=1e-5)


def test_whitened_weights_forget_mean_and_size():
    # Deviation of (-1, 0, 1) with ddof 1 is 1.
    scores = jnp.array([-1.0, 0.0, 1.0])
    expected = np.exp([-0.5, 0, 0.5])
    for size, shift in ((1.0, 0.0), (100.0, -7.0)):
        weights = awac.whitened_weights(size * scores + shift, 2.0)
        np.testing.assert_allclose(weights, expected, rtol=1e-4)
    np.testing.assert_allclose(awac.whitened_weights(jnp.full(3, 4.0), 2.0), 1.0)


def test_whitened_weights_of_one_that_stands_out_stay_finite():
    scores = jnp.zeros(1000).at[7].set(1.0)  # 32 deviations above the mean
    assert not np.all(np.isfinite(awac.whitened_weights(scores, 0.3)))
    clipped = awac.whitened_weights(scores, 0.3, largest_score=3.0)
    np.testing.assert_allclose(clipped[7], np.exp(3.0 / 0.3), rtol=1e-6)
    np.testing.assert_allclose(clipped[0], np.exp(float(-(0.001**0.5)) / 0.3), rtol=1e-2)


def test_uniform_weights_are_behaviour_cloning():
    np.testing.assert_array_equal(awac.uniform_weights(SCORES), np.ones((3, 1)))


@pytest.mark.parametrize("size", [1e4, 1e-4])
def test_softmax_stays_finite(size):
    assert np.all(np.isfinite(awac.softmax_weights(size * jnp.array([-1.0, 0.0, 1.0]), 0.3)))
