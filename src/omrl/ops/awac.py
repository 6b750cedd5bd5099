"""Weights of advantage-weighted actor-critic (AWAC, Nair et al. 2020, arXiv:2006.09359; Eq. 2 of
SMAC, arXiv:2107.03974): how much the policy's log-likelihood of a logged action counts.

The loss is the mean of -w log pi(a|s, z) over all transitions. Every function makes w of the scores
Q(s, a, z) - V(s, z) of some transitions, in units of scaled reward, and looks at all of them
together: apply it to those of one task with `jax.vmap`. Give it scores that carry no gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Scores = Float[Array, "*n"]

SMALLEST_DEVIATION = 1e-5
"""Added to the scores' deviation before they are divided by it, as in the reference code."""


def softmax_weights(scores: Scores, temperature: float) -> Scores:
    """n softmax(score / temperature) of n scores: their mean is 1, whatever V is."""
    return scores.size * jax.nn.softmax(scores.reshape(-1) / temperature).reshape(scores.shape)


def exponential_weights(
    scores: Scores, temperature: float, largest_score: float | None = None
) -> Scores:
    """exp(score / temperature), as Eq. 2 has it; larger scores count as `largest_score`."""
    clipped = scores if largest_score is None else jnp.minimum(scores, largest_score)
    return jnp.exp(clipped / temperature)


def whitened_weights(
    scores: Scores, temperature: float, largest_score: float | None = None
) -> Scores:
    """`exponential_weights` of the standardised scores, by the sample standard deviation (ddof 1).

    Where few scores stand out these are tens of deviations, and at low temperatures their weights
    overflow without a largest one.
    """
    deviation = jnp.std(scores, ddof=1) + SMALLEST_DEVIATION
    return exponential_weights((scores - jnp.mean(scores)) / deviation, temperature, largest_score)


def uniform_weights(scores: Scores) -> Scores:
    """All 1: behaviour cloning."""
    return jnp.ones_like(scores)
