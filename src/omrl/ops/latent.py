"""The latent task variable z: a product of Gaussian factors, one per transition (PEARL).

    q(z | c) is proportional to prod_n N(z; m_n, v_n)          Rakelly et al. 2019, section 4

A product of diagonal Gaussians adds up their natural parameters 1 / v and m / v, so what a context
says is one such sum, in any order and one transition at a time if need be.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Scalar

Latent = Float[Array, "*b latent"]

SMALLEST_VARIANCE = 1e-7
"""Of a factor, as in the reference code: smaller ones count as this and get no gradient."""


class Evidence(NamedTuple):
    """Natural parameters of one factor or of a product of them; zeros: no factor at all."""

    precision: Latent
    """Sum of 1 / v."""
    weighted_mean: Latent
    """Sum of m / v."""


def factor(mean: Latent, variance: Latent) -> Evidence:
    """N(z; mean, variance) as evidence."""
    precision = 1 / jnp.maximum(variance, SMALLEST_VARIANCE)
    return Evidence(precision, precision * mean)


def product(factors: Evidence) -> Evidence:
    """All factors along the first axis as one."""
    return Evidence(*(jnp.sum(parameter, axis=0) for parameter in factors))


def combined(one: Evidence, other: Evidence) -> Evidence:
    """The product of two."""
    return Evidence(one.precision + other.precision, one.weighted_mean + other.weighted_mean)


def posterior(evidence: Evidence) -> tuple[Latent, Latent]:
    """(mean, variance) of z. Without any evidence it is the prior N(0, 1), which is no factor of a
    posterior (as in the reference code)."""
    known = evidence.precision > 0
    variance = 1 / jnp.where(known, evidence.precision, 1.0)
    return variance * evidence.weighted_mean, variance


def kl_to_prior(mean: Float[Array, " latent"], variance: Float[Array, " latent"]) -> Scalar:
    """KL(N(mean, variance) || N(0, 1)) in nats, summed over the dimensions."""
    return 0.5 * jnp.sum(variance + mean**2 - 1 - jnp.log(variance))


def sample(mean: Latent, variance: Latent, noise: Latent) -> Latent:
    """z = m + sqrt(v) noise, differentiable in both; `noise` is standard normal."""
    return mean + jnp.sqrt(variance) * noise
