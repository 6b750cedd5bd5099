"""How fast PEARL's updates are, beside a bare chain of the matrix products that they are made of.

At 16 tasks of 256 transitions, contexts of 64, z of 5, nets of 3 x 300 and an encoder of 3 x 200
nearly all of an update is products of a [4096, 300] and a [300, 300] matrix, see `bench_products`.
What an update cannot do without:

    Q_1, Q_2 at the data       2 nets x 2 layers x (forward, weights, input)    12
    V_target at s'             2 layers x forward                                2
    V at s                     2 layers x (forward, weights, input)              6
    policy at s                2 layers x (forward, weights, input)              6
    Q_1, Q_2 at its actions    2 nets x 2 layers x (forward, input)              8

which are 34. First and last layers and the encoder's are thinner; by their multiplications they are
as much as 1.8 more. The chain is 34 of the square ones, each on the result of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omrl.algos.pearl_config import PearlConfig
from omrl.algos.registry import network_sizes
from omrl.bench import SPEC, Chunks
from omrl.bench_products import Sizes, climbed, forward, learned, measure
from omrl.types import Spec

CONFIG = PearlConfig()
SQUARE_PRODUCTS = 34


@dataclass(frozen=True)
class PearlBench:
    """Speed of PEARL's updates and of the chain."""

    device: str
    seeds: int
    """Trained in one program."""
    parameters: int
    """Of all networks, the target's too."""
    gradient_steps_per_s: float
    """Of all seeds together; median of the rounds."""
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


def bench_pearl(
    devices: Sequence[Any], *, seeds: int = 1, seconds: float = 2.0, repeats: int = 5
) -> PearlBench:
    """Updates of at least `seconds`, then as long a chain, in turns."""
    run = Chunks(CONFIG, devices[:1], seeds)
    rounds = measure(run, CONFIG, SQUARE_PRODUCTS, devices[0], seconds=seconds, repeats=repeats)
    products = num_products(CONFIG, SPEC)
    return PearlBench(
        device=devices[0].device_kind,
        seeds=seeds,
        parameters=sum(network_sizes(CONFIG, SPEC).values()),
        gradient_steps_per_s=rounds.updates,
        chain_products_per_s=rounds.products,
        square_products=SQUARE_PRODUCTS,
        products=products,
        ratio_square=rounds.ratio(SQUARE_PRODUCTS),
        ratio=rounds.ratio(products),
        rounds=rounds.per_second,
        compile_s=rounds.compile_s,
    )


def num_products(config: PearlConfig, spec: Spec) -> float:
    """Multiplications that an update cannot do without, in those of one [rows, width] by
    [width, width] product."""
    sizes = Sizes.of(config, spec)
    v = (spec.obs_dim, *config.hidden, 1)
    total = (
        2 * learned(sizes.rows, sizes.q)
        + forward(sizes.rows, v)
        + learned(sizes.rows, v)
        + learned(sizes.rows, sizes.policy)
        # The policy's gradient comes by way of the actions.
        + 2 * climbed(sizes.rows, sizes.q, spec.act_dim)
        + learned(sizes.seen, sizes.encoder)
    )
    return total / sizes.square
