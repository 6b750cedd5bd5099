"""Diagonal Gaussians, plain and squashed by tanh; for one example, batch with `jax.vmap`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Key, Scalar

Vector = Float[Array, " dim"]
LogSlope: TypeAlias = Callable[[Vector], Vector]
"""log(d tanh(x) / dx), exact or nearly so."""

LARGEST_ACTION = 1 - 1e-6
"""Of an action that shall be a tanh."""


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


@jax.custom_jvp
def tanh_log_slope(x: Vector) -> Vector:
    """log(d tanh(x) / dx) = log(1 - tanh(x)^2), in the form that does not overflow."""
    return 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))


@tanh_log_slope.defjvp
def _tanh_log_slope_jvp(primals: tuple[Vector], tangents: tuple[Vector]) -> tuple[Vector, Vector]:
    # That of the expression above, in one function that the action needs anyway.
    return tanh_log_slope(*primals), -2 * jnp.tanh(*primals) * tangents[0]


def clipped_tanh_log_slope(x: Vector) -> Vector:
    """log(1 - tanh(x)^2 + 1e-6), the approximation of the code of SAC and PEARL: at least -13.8."""
    return jnp.log(1 - jnp.tanh(x) ** 2 + 1e-6)


LOG_SLOPES: Mapping[str, LogSlope] = {
    "exact": tanh_log_slope,
    "clipped": clipped_tanh_log_slope,
}
"""By the names that configs give them."""


def squashed_log_prob(
    pre_tanh: Vector, mean: Vector, log_std: Vector, log_slope: LogSlope = tanh_log_slope
) -> Scalar:
    """Log density of the action tanh(u), u = `pre_tanh` Gaussian (Eq. 21, arXiv:1801.01290).

    It takes u and not the action, because tanh rounds to 1 in float32 from u = 9 on.
    """
    return gaussian_log_prob(pre_tanh, mean, log_std) - jnp.sum(log_slope(pre_tanh))


def squashed_log_prob_of_action(action: Vector, mean: Vector, log_std: Vector) -> Scalar:
    """Log density of a given action, one of logged data for example.

    tanh reaches no action at +-1, so they are clipped to +-(1 - 1e-6), as the reference code of
    SMAC does; the gradient goes to mean and log_std alone.
    """
    inside = jnp.clip(jax.lax.stop_gradient(action), -LARGEST_ACTION, LARGEST_ACTION)
    return squashed_log_prob(jnp.arctanh(inside), mean, log_std)


def reparametrized(noise: Vector, mean: Vector, log_std: Vector) -> Vector:
    """The sample of N(mean, exp(log_std)^2) that a standard normal `noise` stands for."""
    return mean + jnp.exp(log_std) * noise


def squash(
    noise: Vector, mean: Vector, log_std: Vector, log_slope: LogSlope = tanh_log_slope
) -> tuple[Vector, Scalar]:
    """The action of a standard normal `noise` in [-1, 1], and its log density; differentiable in
    mean and log_std."""
    pre_tanh = reparametrized(noise, mean, log_std)
    # `squashed_log_prob` with (pre_tanh - mean) / exp(log_std) = noise.
    standard = jnp.zeros_like(noise)
    log_prob = gaussian_log_prob(noise, standard, standard) - jnp.sum(log_std)
    return jnp.tanh(pre_tanh), log_prob - jnp.sum(log_slope(pre_tanh))


def sample_squashed(key: Key, mean: Vector, log_std: Vector) -> tuple[Vector, Scalar]:
    """An action in [-1, 1] and its log density, differentiable in mean and log_std."""
    return squash(jax.random.normal(key, mean.shape), mean, log_std)
