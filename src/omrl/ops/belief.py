"""A belief about the task that changes with every transition: diagonal Gaussians q_0, q_1, ..., q_T
of a latent z, as VariBAD (arXiv:1910.08348) and BOReL (arXiv:2008.02598) infer them.

Variances are given by their logarithms. For one trajectory; batch with `jax.vmap`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Scalar

Vector = Float[Array, " latent"]
Sequence = Float[Array, "posterior latent"]


def kl(
    mean: Vector, log_variance: Vector, other_mean: Vector, other_log_variance: Vector
) -> Scalar:
    """KL(N(mean, variance) || N(other_mean, other_variance)) in nats."""
    ratio = log_variance - other_log_variance
    distance = (mean - other_mean) ** 2 * jnp.exp(-other_log_variance)
    return 0.5 * jnp.sum(jnp.exp(ratio) + distance - 1 - ratio)


def kl_chain(mean: Sequence, log_variance: Sequence) -> Float[Array, " posterior"]:
    """KL(q_0 || N(0, 1)), KL(q_1 || q_0), ..., KL(q_T || q_(T-1)): every posterior has the one
    before as its prior (VariBAD, section 3.1)."""
    standard = jnp.zeros_like(mean[:1])
    before = (jnp.concatenate([standard, x[:-1]]) for x in (mean, log_variance))
    return jax.vmap(kl)(mean, log_variance, *before)


def sample(mean: Vector, log_variance: Vector, noise: Vector) -> Vector:
    """z = mean + sqrt(variance) noise, differentiable in both; `noise` is standard normal."""
    return mean + jnp.exp(0.5 * log_variance) * noise
