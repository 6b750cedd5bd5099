"""How fast PEARL's updates are, beside a bare chain of the matrix products that they are made of.

At 16 tasks of 256 transitions, contexts of 64, z of 5, nets of 3 x 300 and an encoder of 3 x 200
nearly all of an update is products of a [4096, 300] and a [300, 300] matrix. A layer between two
hidden ones takes one such product forward, one for the gradient of its weights and one for that of
its input. What an update cannot do without:

    Q_1, Q_2 at the data       2 nets x 2 layers x (forward, weights, input)    12
    V_target at s'             2 layers x forward                                2
    V at s                     2 layers x (forward, weights, input)              6
    policy at s                2 layers x (forward, weights, input)              6
    Q_1, Q_2 at its actions    2 nets x 2 layers x (forward, input)              8

which are 34. First and last layers and the encoder's are thinner; by their multiplications they are
as much as 1.8 more. The chain is 34 of the square ones, each on the result of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from omrl.algos.pearl_config import PearlConfig
from omrl.algos.registry import network_sizes
from omrl.bench import SPEC, Chunks
from omrl.types import Spec

CONFIG = PearlConfig()
SQUARE_PRODUCTS = 34
NUM_WEIGHTS = 4
"""Different matrices in the chain, so that none stays in a cache that it would not stay in."""


@dataclass(frozen=True)
class PearlBench:
    """Speed of PEARL's updates and of the chain, of one seed."""

    device: str
    parameters: int
    """Of all networks, the target's too."""
    gradient_steps_per_s: float
    """Median of the rounds."""
    chain_products_per_s: float
    """Of 4096 x 300 x 300; median of the rounds."""
    square_products: int
    """Of that size in an update."""
    products: float
    """All products in an update, in multiplications of that size."""
    ratio_square: float
    """Time of the chain over that of an update, which has as many square products; median."""
    ratio: float
    """The same, the other products at the chain's speed added to the chain; median."""
    rounds: list[tuple[float, float]]
    """Updates and chain products per second of every round."""
    compile_s: float


def bench_pearl(devices: Sequence[Any], *, seconds: float = 2.0, repeats: int = 5) -> PearlBench:
    """Updates of at least `seconds`, then as long a chain, in turns."""
    run = Chunks(CONFIG, devices[:1], 1)
    compile_s = run.measure(0)
    length = min(4096, max(1, int(4 / run.measure(4) * seconds)))
    chain = _Chain(devices[0])
    chain.measure(1)
    rounds = [
        (length / run.measure(length), length * SQUARE_PRODUCTS / chain.measure(length))
        for _ in range(repeats)
    ]
    updates, products = np.array(rounds).T
    of_an_update = num_products(CONFIG, SPEC)
    return PearlBench(
        device=devices[0].device_kind,
        parameters=sum(network_sizes(CONFIG, SPEC).values()),
        gradient_steps_per_s=float(np.median(updates)),
        chain_products_per_s=float(np.median(products)),
        square_products=SQUARE_PRODUCTS,
        products=of_an_update,
        ratio_square=float(np.median(updates * SQUARE_PRODUCTS / products)),
        ratio=float(np.median(updates * of_an_update / products)),
        rounds=rounds,
        compile_s=compile_s,
    )


def num_products(config: PearlConfig, spec: Spec) -> float:
    """Multiplications that an update cannot do without, in those of one [rows, width] by
    [width, width] product. The few of z, one row per task, are left out."""
    rows, seen = (config.task_batch * batch.size for batch in (config.batch, config.context))
    obs, act, hidden = spec.obs_dim, spec.act_dim, config.hidden
    context = obs * (2 if config.next_obs_in_context else 1) + act + 1

    def learned(rows: int, sizes: tuple[int, ...]) -> int:
        """Forward, gradients of weights and of all inputs but the first."""
        layers = [rows * i * o for i, o in pairwise(sizes)]
        return 3 * sum(layers) - layers[0]

    q, v = (obs + act, *hidden, 1), (obs, *hidden, 1)
    forward_q, forward_v = (rows * sum(i * o for i, o in pairwise(sizes)) for sizes in (q, v))
    # The policy's gradient comes by way of the actions, which are a part of the first input.
    through_q = 2 * forward_q - rows * obs * hidden[0]
    total = (
        2 * learned(rows, q)
        + forward_v
        + learned(rows, v)
        + learned(rows, (obs, *hidden, 2 * act))
        + 2 * through_q
        + learned(seen, (context, *config.encoder_hidden, 2 * config.latent))
    )
    return total / (rows * hidden[0] ** 2)


class _Chain:
    """Products of the size of the hidden layers, one after the other."""

    def __init__(self, device: Any):
        rows, width = CONFIG.task_batch * CONFIG.batch.size, CONFIG.hidden[0]
        keys = jax.random.split(jax.random.PRNGKey(0), 2)
        weights = jax.random.normal(keys[0], (NUM_WEIGHTS, width, width)) * width**-0.5
        start = jax.random.normal(keys[1], (rows, width))
        self.arguments = jax.device_put((start, weights), device)

    def measure(self, number: int) -> float:
        """Seconds that `number` chains took, one after the other; the first time to compile too."""
        begin = time.perf_counter()
        jax.block_until_ready(_chains(*self.arguments, number))
        return time.perf_counter() - begin


@jax.jit
def _chains(
    start: Float[Array, "row width"],
    weights: Float[Array, "weight width width"],
    number: int | Int[Array, ""],
) -> Float[Array, "row width"]:
    def one(_: Array, x: Array) -> Array:
        for product in range(SQUARE_PRODUCTS):
            x = x @ weights[product % NUM_WEIGHTS]
        return x

    return jax.lax.fori_loop(0, number, one, start)
