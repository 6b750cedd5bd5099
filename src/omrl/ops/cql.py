"""What conservative Q-learning adds to the loss of a Q (CQL, Kumar et al. 2020, arXiv:2006.04779).

    C = log sum_a exp Q(s, a) - Q(s, a_logged)            (Eq. 4: CQL(H), of one transition)

Its gradient lowers Q at actions that look good and raises it at the logged one, so that what the
data does not tell of is not overestimated. Continuous actions have an integral in place of the sum,
which importance sampling estimates (appendix F): `log_integral`.

In the paper C has the weight alpha beside half of the squared Bellman error. Losses here have all
of that, so that the same weight has to be 2 alpha.
"""

from __future__ import annotations

import math

import jax
from jaxtyping import Array, Float

from omrl.types import Scalar


def log_integral(values: Float[Array, " sample"], log_densities: Float[Array, " sample"]) -> Scalar:
    """log of (1/n) sum_i exp(Q(s, a_i)) / p(a_i), which estimates log integral exp Q(s, a) da.

    Args:
        values: Q(s, a_i) of n actions.
        log_densities: log p(a_i), p the density that a_i was drawn from. Samples of several
            proposals may stand beside each other, in equal numbers: each alone is an estimate.
    """
    return jax.nn.logsumexp(values - log_densities) - math.log(values.size)


def discrete_gap(values: Float[Array, " choice"], logged: Scalar) -> Scalar:
    """C of a few actions, `values` those of all and `logged` that of the logged one."""
    return jax.nn.logsumexp(values) - logged


def uniform_log_density(act_dim: int) -> float:
    """log p of an action that is uniform over [-1, 1]^act_dim."""
    return -act_dim * math.log(2.0)
