"""Advantage-weighted regression: Monte-Carlo values, advantages, weights, the policy loss.

Equations of MACAW (arXiv:2008.06043, section 4) after Peng et al. 2019 (arXiv:1910.00177). Losses
see the transitions of one task, networks one observation. Returns are discounted sums of rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Batch, Scalar

ValueFn = Callable[[Float[Array, " obs"]], Scalar]
Column = Float[Array, " sample"]


def bootstrapped_return(batch: Batch, value: ValueFn) -> Column:
    """R + gamma^(T-t) V(s_T): the recorded return continued by a value past the episode's end.

    The reference code does this for every end, true terminations included.
    """
    return batch.mc_return + batch.terminal_discount * jax.vmap(value)(batch.terminal_obs)


def value_loss(value: Column, target: Column) -> Scalar:
    """Eq. 2: mean squared error to the return; the target is a constant."""
    return jnp.mean((value - jax.lax.stop_gradient(target)) ** 2)


def advantage(batch: Batch, value: ValueFn, *, bootstrap: bool) -> Column:
    """R - V(s), a constant: the value never learns from the policy's loss."""
    returns = bootstrapped_return(batch, value) if bootstrap else batch.mc_return
    return jax.lax.stop_gradient(returns - jax.vmap(value)(batch.obs))


def advantage_weights(
    advantage: Column, *, temperature: float, max_weight: float, normalize: bool
) -> Column:
    """exp(A/T), the weights of Eq. 1, as a constant.

    Normalised: A is standardised first (sample standard deviation, ddof 1) and only large weights
    are clipped; else the logit is clipped on both sides (both as in the reference code). The guard
    against a constant advantage is 1e-6 of the advantages' size: exact zeros divide to zero.
    """
    advantage = jax.lax.stop_gradient(advantage)
    limit = math.log(max_weight)
    if not normalize:
        return jnp.exp(jnp.clip(advantage / temperature, -limit, limit))
    centred = advantage - advantage.mean()
    spread = jnp.std(advantage, ddof=1)
    floor = 1e-6 * jnp.max(jnp.abs(advantage))
    logit = jnp.where(spread > floor, centred / jnp.where(spread > floor, spread, 1.0), 0.0)
    return jnp.exp(jnp.minimum(logit / temperature, limit))


def weighted_regression_loss(log_prob: Column, weights: Column) -> Scalar:
    """Eq. 1: minus the weighted mean log-likelihood. Unit weights give behaviour cloning."""
    return -jnp.mean(weights * log_prob)


def advantage_head_loss(predicted: Column, advantage: Column) -> Scalar:
    """Eq. 4: the advantage head's regression, which makes the inner update universal."""
    return jnp.mean((predicted - jax.lax.stop_gradient(advantage)) ** 2)
