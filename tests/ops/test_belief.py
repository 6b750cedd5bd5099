"""KLs of a belief that changes with every transition, against numbers and integrals."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from omrl.ops import belief


def test_kl_by_hand():
    # First entry: variances 1 and 4, means 1 apart: (1/4 + 1/4 - 1 + log 4) / 2; second: equal.
    mean, log_variance = jnp.array([1.0, 0.5]), jnp.array([0.0, -0.3])
    other = jnp.array([2.0, 0.5]), jnp.array([jnp.log(4.0), -0.3])
    expected = (0.5 - 1 + np.log(4)) / 2
    assert belief.kl(mean, log_variance, *other) == pytest.approx(expected, rel=1e-6)


def test_kl_is_the_integral():
    one, other = stats.norm(0.4, np.exp(0.1)), stats.norm(-0.3, np.exp(-0.25))
    z = np.linspace(-12, 12, 100_001)
    expected = np.trapezoid(one.pdf(z) * (one.logpdf(z) - other.logpdf(z)), z)
    ours = belief.kl(jnp.array([0.4]), jnp.array([0.2]), jnp.array([-0.3]), jnp.array([-0.5]))
    assert ours == pytest.approx(expected, rel=1e-5)


def test_every_posterior_has_the_one_before_as_its_prior():
    mean = jnp.array([[0.0], [2.0], [2.0]])
    log_variance = jnp.array([[0.0], [0.0], [1.0]])
    # N(0, 1) to itself; means 2 apart: 4 / 2; variances e and 1: (e - 1 - 1) / 2.
    expected = [0.0, 2.0, (np.e - 2) / 2]
    np.testing.assert_allclose(belief.kl_chain(mean, log_variance), expected, rtol=1e-6)


def test_sample():
    z = belief.sample(jnp.array([1.0]), jnp.array([jnp.log(9.0)]), jnp.array([-0.5]))
    np.testing.assert_allclose(z, [1 - 3 * 0.5], rtol=1e-6)
