"""Diagonal Gaussians, plain and squashed by tanh; for one example, batch with `jax.vmap`."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Key, Scalar

Vector = Float[Array, " dim"]


def gaussian_log_prob(x: Vector, mean: Vector, log_std: Vector) -> Scalar:
    """log N(x; mean, diag(exp(log_std))^2), summed over the dimensions."""
    standard = (x - mean) * jnp.exp(-log_std)
    return -jnp.sum(0.5 * standard**2 + log_std + 0.5 * jnp.log(2 * jnp.pi))


def fixed_width_log_prob(
    action: Float[Array, "sample dim"], mean: Float[Array, "sample dim"], sigma: float
) -> Float[Array, " sample"]:
    """log N(a; mean, sigma^2) of every sample."""
    log_std = jnp.full(action.shape[-1:], math.log(sigma), mean.dtype)
    return jax.vmap(gaussian_log_prob, (0, 0, None))(action, mean, log_std)


def fixed_width_action(key: Key, mean: Vector, sigma: float, deterministic: bool) -> Vector:
    """A draw from N(mean, sigma^2), or the mean, clipped to [-1, 1]."""
    action = mean if deterministic else mean + sigma * jax.random.normal(key, mean.shape)
    return jnp.clip(action, -1.0, 1.0)


def tanh_log_slope(x: Vector) -> Vector:
    """log(d tanh(x) / dx) = log(1 - tanh(x)^2), in the form that does not overflow."""
    return 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))


def squashed_log_prob(pre_tanh: Vector, mean: Vector, log_std: Vector) -> Scalar:
    """Log density of the action tanh(u), u = `pre_tanh` Gaussian (Eq. 21, arXiv:1801.01290).

    It takes u and not the action, because tanh rounds to 1 in float32 from u = 9 on.
    """
    return gaussian_log_prob(pre_tanh, mean, log_std) - jnp.sum(tanh_log_slope(pre_tanh))


def sample_squashed(key: Key, mean: Vector, log_std: Vector) -> tuple[Vector, Scalar]:
    """An action in [-1, 1] and its log density, differentiable in mean and log_std."""
    pre_tanh = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
    return jnp.tanh(pre_tanh), squashed_log_prob(pre_tanh, mean, log_std)
