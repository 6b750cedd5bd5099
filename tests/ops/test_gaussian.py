"""Gaussian and tanh-Gaussian densities against scipy and against numerical integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from omrl.ops.gaussian import (
    clipped_tanh_log_slope,
    gaussian_log_prob,
    sample_squashed,
    squashed_log_prob,
    squashed_log_prob_of_action,
    tanh_log_slope,
)


def test_gaussian_log_prob_equals_scipy():
    x, mean = jnp.array([0.3, -1.2, 2.0]), jnp.array([0.0, 0.5, -1.0])
    log_std = jnp.array([-0.7, 0.0, 1.1])
    expected = stats.norm(np.asarray(mean), np.exp(np.asarray(log_std))).logpdf(np.asarray(x))
    assert gaussian_log_prob(x, mean, log_std) == pytest.approx(expected.sum(), rel=1e-6)


def test_squashed_density_integrates_to_one():
    mean, log_std = jnp.array([0.4]), jnp.array([-0.3])
    actions = np.linspace(-1, 1, 20001)[1:-1]
    pre_tanh = jnp.arctanh(jnp.asarray(actions, jnp.float32))[:, None]
    density = jnp.exp(jax.vmap(squashed_log_prob, (0, None, None))(pre_tanh, mean, log_std))
    assert np.trapezoid(np.asarray(density), actions) == pytest.approx(1.0, abs=1e-3)


def test_log_slope_is_finite_and_right_where_tanh_rounds_to_one():
    # 1 - tanh(x)^2 = 4 e^(-2x) / (1 + e^(-2x))^2, so the logarithm tends to log 4 - 2x.
    x = jnp.array([0.0, 1.0, 30.0, -30.0])
    expected = [0.0, np.log(1 - np.tanh(1.0) ** 2), np.log(4) - 60, np.log(4) - 60]
    np.testing.assert_allclose(tanh_log_slope(x), expected, rtol=1e-5, atol=1e-6)


def test_the_clipped_log_slope_stops_at_log_of_a_millionth():
    # log(1 - tanh(1)^2) = -0.867562, and 1e-6 of slope 0.41997 more is nothing.
    x = jnp.array([0.0, 1.0, 30.0])
    expected = [1e-6, -0.867562 + 1e-6 / 0.41997, np.log(1e-6)]
    np.testing.assert_allclose(clipped_tanh_log_slope(x), expected, rtol=1e-5, atol=2e-7)


def test_density_of_logged_actions_also_where_tanh_never_goes():
    mean, log_std = jnp.array([0.4, -0.2]), jnp.array([-0.3, 0.1])
    u = jnp.array([0.7, -1.1])
    inside = squashed_log_prob_of_action(jnp.tanh(u), mean, log_std)
    assert inside == pytest.approx(float(squashed_log_prob(u, mean, log_std)), rel=1e-5)
    edge, grads = jax.value_and_grad(squashed_log_prob_of_action, (0, 1))(
        jnp.array([1.0, -1.0]), mean, log_std
    )
    # At +-(1 - 1e-6), u is 7.2543 and 1 - tanh(u)^2 is 2e-6.
    normal = stats.norm(np.asarray(mean), np.exp(np.asarray(log_std)))
    expected = normal.logpdf([7.2543, -7.2543]).sum() - 2 * np.log(2e-6)
    assert edge == pytest.approx(expected, rel=1e-2)
    np.testing.assert_array_equal(grads[0], 0)
    assert np.all(np.isfinite(grads[1]))


def test_samples_follow_the_density_they_come_with(getkey):
    mean, log_std = jnp.array([0.5, -0.2]), jnp.array([-0.5, 0.3])
    keys = jax.random.split(getkey(), 20000)
    action, log_prob = jax.vmap(sample_squashed, (0, None, None))(keys, mean, log_std)
    assert np.abs(action).max() <= 1
    normal = stats.norm(np.asarray(mean), np.exp(np.asarray(log_std)))
    for dim in range(2):
        cdf = normal.cdf(np.arctanh(np.asarray(action, np.float64)))[:, dim]
        assert stats.kstest(cdf, "uniform").pvalue > 1e-5
    # The entropy of the sample agrees with that of the Gaussian plus the mean log slope.
    pre_tanh = jnp.arctanh(action)
    slope = np.asarray(jax.vmap(tanh_log_slope)(pre_tanh)).sum(1).mean()
    entropy = float(normal.entropy().sum()) + slope
    assert -float(log_prob.mean()) == pytest.approx(entropy, abs=0.03)


def test_sample_is_differentiable_in_its_parameters(getkey):
    key = getkey()

    def first(mean):
        return sample_squashed(key, mean, jnp.array([-1.0]))[0][0]

    action, slope = jax.value_and_grad(first)(jnp.array([0.2]))
    assert slope[0] == pytest.approx(1 - float(action) ** 2, rel=1e-5)
