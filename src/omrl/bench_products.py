"""What the benchmarks of PEARL and SMAC have in common: the matrix products of an update, counted,
and a bare chain of as many, timed in turns with it.

At 256 transitions per task and nets of 3 x 300 nearly all of an update is products of a [rows, 300]
and a [300, 300] matrix, rows being the transitions of all its tasks. A layer between two hidden
ones takes one such product forward, one for the gradient of its weights and one for that of its
input. Speed is told as a share of that of the chain, on the same device in the same minutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from omrl.algos.pearl_config import PearlConfig
from omrl.algos.smac_config import SmacConfig
from omrl.bench import Chunks
from omrl.types import Spec

NUM_WEIGHTS = 4
"""Different matrices in the chain, so that none stays in a cache that it would not stay in."""


# --- Counts, in multiplications ---


def forward(rows: int, sizes: tuple[int, ...]) -> int:
    """Of a perceptron on so many rows; `sizes` = (input, hidden ..., output)."""
    return rows * sum(i * o for i, o in pairwise(sizes))


def learned(rows: int, sizes: tuple[int, ...]) -> int:
    """Forward, gradients of weights and of all inputs but the first."""
    return 3 * forward(rows, sizes) - rows * sizes[0] * sizes[1]


def climbed(rows: int, sizes: tuple[int, ...], num_inputs: int) -> int:
    """Forward, and the gradient of the last `num_inputs` numbers of the input alone."""
    return 2 * forward(rows, sizes) - rows * (sizes[0] - num_inputs) * sizes[1]


@dataclass(frozen=True)
class Sizes:
    """Of the networks of PEARL or SMAC in an update, z's own rows, one per task, left out."""

    rows: int
    """Transitions of all tasks."""
    seen: int
    """Those of all contexts."""
    q: tuple[int, ...]
    policy: tuple[int, ...]
    encoder: tuple[int, ...]

    @classmethod
    def of(cls, config: PearlConfig | SmacConfig, spec: Spec) -> Sizes:
        obs, act, hidden = spec.obs_dim, spec.act_dim, config.hidden
        context = obs * (2 if config.next_obs_in_context else 1) + act + 1
        return cls(
            rows=config.task_batch * config.batch.size,
            seen=config.task_batch * config.context.size,
            q=(obs + act, *hidden, 1),
            policy=(obs, *hidden, 2 * act),
            encoder=(context, *config.encoder_hidden, 2 * config.latent),
        )

    @property
    def square(self) -> int:
        """Multiplications of one product between hidden layers."""
        return self.rows * self.q[1] ** 2


# --- Times ---


@dataclass(frozen=True)
class Rounds:
    """Updates and, in turns with them, the chain of their products."""

    per_second: list[tuple[float, float]]
    """Updates and products of the chain, of every round."""
    compile_s: float

    @property
    def updates(self) -> float:
        """Per second, median."""
        return float(np.median([updates for updates, _ in self.per_second]))

    @property
    def products(self) -> float:
        """Of the chain per second, median."""
        return float(np.median([products for _, products in self.per_second]))

    def ratio(self, products: int | float) -> float:
        """Time of a chain of so many products over that of an update, median."""
        return float(np.median([each * products / chain for each, chain in self.per_second]))


def measure(
    run: Chunks,
    config: PearlConfig | SmacConfig,
    square_products: int,
    device: Any,
    *,
    seconds: float,
    repeats: int,
) -> Rounds:
    """Updates of at least `seconds`, then as long a chain, in turns; those of all seeds count."""
    compile_s = run.measure(0)
    length = min(4096, max(1, int(4 / run.measure(4) * seconds)))
    rows, width = config.task_batch * config.batch.size, config.hidden[0]
    chain = Chain(rows, width, square_products, device)
    chain.measure(1)
    per_second = [
        (
            length * len(run.seeds) / run.measure(length),
            length * square_products / chain.measure(length),
        )
        for _ in range(repeats)
    ]
    return Rounds(per_second, compile_s)


class Chain:
    """Products of the size of the hidden layers, each on the result of the one before."""

    def __init__(self, rows: int, width: int, products: int, device: Any):
        keys = jax.random.split(jax.random.PRNGKey(0), 2)
        weights = jax.random.normal(keys[0], (NUM_WEIGHTS, width, width)) * width**-0.5
        start = jax.random.normal(keys[1], (rows, width))
        self.products = products
        self.arguments = jax.device_put((start, weights), device)

    def measure(self, number: int) -> float:
        """Seconds that `number` chains took, one after the other; the first time to compile too."""
        begin = time.perf_counter()
        jax.block_until_ready(_chains(*self.arguments, number, self.products))
        return time.perf_counter() - begin


@partial(jax.jit, static_argnames="products")
def _chains(
    start: Float[Array, "row width"],
    weights: Float[Array, "weight width width"],
    number: int | Int[Array, ""],
    products: int,
) -> Float[Array, "row width"]:
    def one(_: Array, x: Array) -> Array:
        for product in range(products):
            x = x @ weights[product % NUM_WEIGHTS]
        return x

    return jax.lax.fori_loop(0, number, one, start)
