"""How fast SMAC's updates are, offline and self-supervised, beside a bare chain of the matrix
products that they are made of.

At 4 tasks of 256 transitions, contexts of 64, z of 5, nets of 3 x 300, an encoder of 3 x 200 and a
decoder of 2 x 64 nearly all of an update is products of a [1024, 300] and a [300, 300] matrix, see
`bench_products`. What an update cannot do without:

    Q_1, Q_2 at the data             2 nets x 2 layers x (forward, weights, input)    12
    target Q_1, Q_2 at s'            2 nets x 2 layers x forward                       4
    policy at s                      2 layers x (forward, weights, input)              6
    policy at s'                     2 layers x forward                                2
    Q_1, Q_2 at its actions at s     2 nets x 2 layers x forward                       4

which are 28 offline. In the self-supervised phase the actor climbs the Qs, which takes the gradient
of their input too, 4 more; the encoder, which is frozen then, takes its forward pass alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omrl.algorithm import Stage
from omrl.algos.registry import network_sizes
from omrl.algos.smac import Smac
from omrl.algos.smac_config import SmacConfig
from omrl.bench import SPEC, Chunks
from omrl.bench_products import Sizes, climbed, forward, learned, measure
from omrl.types import Spec

CONFIG = SmacConfig()
SQUARE_PRODUCTS = {"offline": 28, "self-supervised": 32}


@dataclass(frozen=True)
class PhaseBench:
    """Speed of the updates of one phase and of the chain."""

    gradient_steps_per_s: float
    """Of all seeds together; median of the rounds."""
    chain_products_per_s: float
    """Of 1024 x 300 x 300; median of the rounds."""
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


@dataclass(frozen=True)
class SmacBench:
    """Speed of SMAC's updates."""

    device: str
    seeds: int
    """Trained in one program."""
    parameters: int
    """Of all networks, the targets' too."""
    offline: PhaseBench
    self_supervised: PhaseBench


def bench_smac(
    devices: Sequence[Any], *, seeds: int = 1, seconds: float = 2.0, repeats: int = 5
) -> SmacBench:
    """Of each phase updates of at least `seconds`, then as long a chain, in turns."""
    algorithm = Smac(CONFIG, SPEC)
    (offline, *_) = algorithm.stages()
    self_supervised = Stage(
        "self-supervised",
        offline.steps,
        offline.task_batch,
        offline.batches,
        algorithm.self_supervised_update,
        with_tasks=True,
    )

    def phase(stage: Stage) -> PhaseBench:
        square = SQUARE_PRODUCTS[stage.name]
        run = Chunks(CONFIG, devices[:1], seeds, stage)
        rounds = measure(run, CONFIG, square, devices[0], seconds=seconds, repeats=repeats)
        products = num_products(CONFIG, SPEC, frozen=stage is self_supervised)
        return PhaseBench(
            gradient_steps_per_s=rounds.updates,
            chain_products_per_s=rounds.products,
            square_products=square,
            products=products,
            ratio_square=rounds.ratio(square),
            ratio=rounds.ratio(products),
            rounds=rounds.per_second,
            compile_s=rounds.compile_s,
        )

    return SmacBench(
        device=devices[0].device_kind,
        seeds=seeds,
        parameters=sum(network_sizes(CONFIG, SPEC).values()),
        offline=phase(offline),
        self_supervised=phase(self_supervised),
    )


def num_products(config: SmacConfig, spec: Spec, *, frozen: bool) -> float:
    """Multiplications that an update cannot do without, in those of one [rows, width] by
    [width, width] product; `frozen`: of the self-supervised phase."""
    sizes = Sizes.of(config, spec)
    decoder = (spec.obs_dim + spec.act_dim, *config.decoder_hidden, 1)
    total = (
        2 * learned(sizes.rows, sizes.q)
        + 2 * forward(sizes.rows, sizes.q)
        + learned(sizes.rows, sizes.policy)
        + forward(sizes.rows, sizes.policy)
    )
    if frozen:
        # The policy's gradient comes by way of the actions.
        total += 2 * climbed(sizes.rows, sizes.q, spec.act_dim) + forward(sizes.seen, sizes.encoder)
    else:
        total += 2 * forward(sizes.rows, sizes.q) + learned(sizes.seen, sizes.encoder)
        total += learned(sizes.rows, decoder)
    return total / sizes.square
