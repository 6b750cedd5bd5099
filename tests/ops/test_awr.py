"""The equations of advantage-weighted regression against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.ops import awr
from omrl.types import Batch

WEIGHTS: dict[str, Any] = {"temperature": 1.0, "max_weight": 20.0, "normalize": True}


def batch(**columns) -> Batch:
    size = len(columns["mc_return"])
    blank = {
        "obs": jnp.zeros((size, 1)),
        "action": jnp.zeros((size, 1)),
        "reward": jnp.zeros(size),
        "next_obs": jnp.zeros((size, 1)),
        "terminated": jnp.zeros(size, bool),
        "terminal_obs": jnp.zeros((size, 1)),
        "terminal_discount": jnp.zeros(size),
    }
    return Batch(**blank | columns)


def test_returns_are_continued_past_the_end_of_the_episode():
    ended = batch(
        mc_return=jnp.array([1.0, 2.0]),
        terminal_obs=jnp.array([[3.0], [4.0]]),
        terminal_discount=jnp.array([0.5, 0.25]),
        terminated=jnp.array([False, True]),  # the reference does not look at it
    )
    # V(s) = 10 s: 1 + .5 * 30 = 16; 2 + .25 * 40 = 12
    returns = awr.bootstrapped_return(ended, lambda obs: 10 * obs[0])
    np.testing.assert_allclose(returns, [16.0, 12.0])


def test_value_loss_and_its_gradient():
    value, target = jnp.array([1.0, 5.0]), jnp.array([3.0, 2.0])
    # ((-2)^2 + 3^2) / 2 = 6.5; gradient 2 (V - y) / 2 = (-2, 3), none to the target
    assert awr.value_loss(value, target) == pytest.approx(6.5)
    to_value, to_target = jax.grad(awr.value_loss, argnums=(0, 1))(value, target)
    np.testing.assert_allclose(to_value, [-2.0, 3.0])
    np.testing.assert_array_equal(to_target, [0.0, 0.0])


# --- Advantage weights ---


def test_weights_standardise_with_ddof_1_then_divide_by_temperature():
    # mean 4, squared deviations 4 + 0 + 4 = 8, over n - 1 = 2: deviation 2; A becomes -1, 0, 1
    advantage = jnp.array([2.0, 4.0, 6.0])
    weights = awr.advantage_weights(advantage, **WEIGHTS)
    np.testing.assert_allclose(weights, [math.exp(-1), 1.0, math.e], rtol=1e-6)
    # T = .5 doubles the logits; e^2 = 7.39 is clipped to 5
    weights = awr.advantage_weights(advantage, temperature=0.5, max_weight=5.0, normalize=True)
    np.testing.assert_allclose(weights, [math.exp(-2), 1.0, 5.0], rtol=1e-6)


def test_normalised_weights_are_clipped_above_only():
    # One outlier among n = 20 is (n - 1) / sqrt(n) = 4.249 deviations from the mean.
    advantage = jnp.zeros(20).at[3].set(7.0)
    high = awr.advantage_weights(advantage, **WEIGHTS)
    low = awr.advantage_weights(-advantage, **WEIGHTS)
    assert high[3] == pytest.approx(20.0, rel=1e-5)
    assert low[3] == pytest.approx(math.exp(-19 / math.sqrt(20)), rel=1e-4)
    assert low[3] < 1 / 20


def test_raw_weights_are_clipped_on_both_sides():
    options = WEIGHTS | {"normalize": False, "max_weight": 4.0}
    weights = awr.advantage_weights(jnp.array([-10.0, 0.0, 1.0, 10.0]), **options)
    np.testing.assert_allclose(weights, [0.25, 1.0, math.e, 4.0], rtol=1e-6)
    options["temperature"] = 2.0
    weights = awr.advantage_weights(jnp.array([1.0]), **options)
    np.testing.assert_allclose(weights, [math.exp(0.5)], rtol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e-7, 1e6])
@pytest.mark.parametrize("size", [2, 256])
def test_a_constant_advantage_gives_ones(constant, size):
    weights = awr.advantage_weights(jnp.full(size, constant), **WEIGHTS)
    np.testing.assert_allclose(weights, np.ones(size), rtol=1e-6)


def test_normalised_weights_ignore_shift_and_scale(getkey):
    advantage = jax.random.normal(getkey(), (64,))
    expected = awr.advantage_weights(advantage, **WEIGHTS)
    moved = awr.advantage_weights(100 * advantage - 7, **WEIGHTS)
    np.testing.assert_allclose(moved, expected, rtol=1e-4)


def test_weights_are_constants(getkey):
    advantage = jax.random.normal(getkey(), (8,))
    for normalize in (True, False):
        options = WEIGHTS | {"normalize": normalize}
        grad = jax.grad(lambda a, o=options: awr.advantage_weights(a, **o).sum())(advantage)
        np.testing.assert_array_equal(grad, np.zeros(8))


# --- Losses ---


def test_weighted_regression_loss():
    log_prob = jnp.array([-1.0, 2.0, 4.0])
    # -(3 * -1 + 1 * 2 + .5 * 4) / 3 = -1 / 3
    loss = awr.weighted_regression_loss(log_prob, jnp.array([3.0, 1.0, 0.5]))
    assert loss == pytest.approx(-1 / 3)
    # Unit weights: minus the mean log-likelihood, -5 / 3
    assert awr.weighted_regression_loss(log_prob, jnp.ones(3)) == pytest.approx(-5 / 3)


def test_advantage_head_loss():
    predicted, advantage = jnp.array([1.0, -1.0]), jnp.array([0.0, 2.0])
    # (1 + 9) / 2 = 5; gradient (p - A) = (1, -3), none to the advantage
    assert awr.advantage_head_loss(predicted, advantage) == pytest.approx(5.0)
    grads = jax.grad(awr.advantage_head_loss, argnums=(0, 1))(predicted, advantage)
    np.testing.assert_allclose(grads[0], [1.0, -3.0])
    np.testing.assert_array_equal(grads[1], [0.0, 0.0])
