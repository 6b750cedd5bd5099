"""Products of Gaussian factors against the product of their densities."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from omrl.ops import latent
from omrl.ops.latent import Evidence

MEANS, VARIANCES = jnp.array([[1.0], [3.0]]), jnp.array([[0.5], [2.0]])
NOTHING = Evidence(jnp.zeros(2), jnp.zeros(2))


def test_product_of_two_factors():
    # 1/v = 2 + 0.5 = 2.5; m/v = 2 * 1 + 0.5 * 3 = 3.5
    evidence = latent.product(latent.factor(MEANS, VARIANCES))
    np.testing.assert_allclose(evidence, [[2.5], [3.5]])
    mean, variance = latent.posterior(evidence)
    np.testing.assert_allclose([mean, variance], [[1.4], [0.4]], rtol=1e-6)


def test_product_is_that_of_the_densities():
    mean, variance = latent.posterior(latent.product(latent.factor(MEANS, VARIANCES)))
    z = np.linspace(-8, 12, 100_001)
    density = np.prod(stats.norm(MEANS, np.sqrt(VARIANCES)).pdf(z), axis=0)
    density /= np.trapezoid(density, z)
    assert np.trapezoid(density * z, z) == pytest.approx(float(mean[0]), rel=1e-5)
    assert np.trapezoid(density * (z - mean[0]) ** 2, z) == pytest.approx(
        float(variance[0]), rel=1e-5
    )


def test_a_factor_more_is_the_product_of_all():
    factors = latent.factor(MEANS, VARIANCES)
    one, other = (Evidence(*(leaf[i] for leaf in factors)) for i in (0, 1))
    np.testing.assert_allclose(latent.combined(one, other), latent.product(factors))


def test_without_evidence_it_is_the_prior_which_is_no_factor():
    np.testing.assert_array_equal(latent.posterior(NOTHING), [[0, 0], [1, 1]])
    one = latent.factor(jnp.array([2.0, 0.0]), jnp.array([4.0, 1.0]))
    np.testing.assert_allclose(
        latent.posterior(latent.combined(NOTHING, one)), [[2, 0], [4, 1]], rtol=1e-6
    )


def test_tiny_variances_count_as_the_smallest():
    evidence = latent.factor(jnp.array([3.0]), jnp.array([0.0]))
    np.testing.assert_allclose(latent.posterior(evidence), [[3.0], [1e-7]], rtol=1e-6)


def test_kl_to_the_prior():
    # By dimension: (v + m^2 - 1 - ln v) / 2 = 0 and (4 + 9 - 1 - ln 4) / 2.
    kl = latent.kl_to_prior(jnp.array([0.0, 3.0]), jnp.array([1.0, 4.0]))
    assert kl == pytest.approx((12 - np.log(4)) / 2, rel=1e-6)


def test_a_sample_is_the_mean_and_noise_deviations():
    z = latent.sample(jnp.array([1.0, 2.0]), jnp.array([4.0, 9.0]), jnp.array([-1.0, 0.5]))
    np.testing.assert_allclose(z, [-1.0, 3.5])
