"""Where numbers may have been before they were rounded."""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float64

MOST_TERMS = 6
"""With more terms, not all ways of moving them are tried."""
DRAWN = 64


def directions(num_terms: int) -> Float64[np.ndarray, "direction term"]:
    """Ways in which rounding may have moved `num_terms` numbers, each up or down: all there are of
    a few numbers; of many, of whose ways there are too many, each number alone, and `DRAWN` ways
    that are always the same, which have nearly all ways of moving any three."""
    if num_terms <= MOST_TERMS:
        return np.array(list(itertools.product((-1.0, 1.0), repeat=num_terms)))
    alone = np.eye(num_terms)
    drawn = np.random.default_rng(0).choice((-1.0, 1.0), size=(DRAWN // 2, num_terms))
    return np.concatenate([alone, -alone, drawn, -drawn])
