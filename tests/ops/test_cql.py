"""CQL's term: literals, an integral in closed form, and what its gradient does."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.ops.cql import discrete_gap, log_integral, uniform_log_density


def test_by_hand():
    # e^0 / 0.5 = 2 and e^(log 3) / 0.25 = 12, whose mean is 7.
    values, densities = jnp.array([0.0, math.log(3)]), jnp.log(jnp.array([0.5, 0.25]))
    assert log_integral(values, densities) == pytest.approx(math.log(7), rel=1e-6)
    # log(1 + 2 + 5) - log 2
    assert discrete_gap(jnp.log(jnp.array([1.0, 2.0, 5.0])), jnp.log(2.0)) == pytest.approx(
        math.log(4), rel=1e-6
    )
    assert uniform_log_density(3) == pytest.approx(math.log(1 / 8))


@pytest.mark.parametrize("slope", [0.5, -3.0])
def test_the_integral_of_an_exponential(slope):
    """Over [-1, 1] that of exp(k a) is 2 sinh(k) / k, whichever proposals estimate it: uniform
    ones, and ones more likely on the right, p(a) = (a + 1.5) / 3, a = sqrt(6 u + 0.25) - 1.5."""
    u = (jnp.arange(20_000) + 0.5) / 20_000
    uniform, right = 2 * u - 1, jnp.sqrt(6 * u + 0.25) - 1.5
    flat = jnp.full_like(u, uniform_log_density(1))
    rising = jnp.log((right + 1.5) / 3)
    expected = math.log(2 * math.sinh(slope) / slope)
    assert log_integral(slope * uniform, flat) == pytest.approx(expected, abs=1e-3)
    assert log_integral(slope * right, rising) == pytest.approx(expected, abs=3e-3)
    both = jnp.concatenate([uniform, right]), jnp.concatenate([flat, rising])
    assert log_integral(slope * both[0], both[1]) == pytest.approx(expected, abs=3e-3)


def test_the_gradient_moves_value_from_what_looks_good_to_what_was_done():
    """By softmax(Q) down, and by 1 up at the logged action; in sum nothing."""
    grad = jax.grad(lambda q: discrete_gap(q, q[1]))(jnp.log(jnp.array([1.0, 2.0, 5.0])))
    np.testing.assert_allclose(grad, [1 / 8, 2 / 8 - 1, 5 / 8], rtol=1e-5)
