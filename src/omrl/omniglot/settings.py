"""What the paper says of its Omniglot study, the networks that it compares, and the scales.

The paper has the sizes of the networks and no more: no rates, no numbers of tasks or steps. Rates
are searched for on validation classes, for every network over the same grid; everything else is
the same for all networks, an option, and printed with the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

from omrl.experiments.declare import Claim, Scale
from omrl.nets.adaptive import LayerKind
from omrl.omniglot.images import SIDE
from omrl.ranges import Count, Fraction, Natural, Positive, Range, Size, check_ranges

ID = "macaw-fig6-omniglot"
TITLE = "MACAW, Figure 6, Omniglot: weight transforms outside RL"
CLAIM = Claim(
    words="Of three perceptrons the one with weight-transform layers combines fast convergence "
    "with good accuracy in the end. As many parameters in wide plain layers converge faster than "
    "few, too, but overfit the training classes.",
    source="arXiv:2008.06043, Figure 6 (7 in the ICML version) and appendix C.1",
)
DEVIATES = (
    "the paper tells no rates, steps, numbers of tasks or of queries, and splits by the lists of "
    "Vinyals et al.; here rates are chosen on validation classes, and alphabets are split"
)


@dataclass(frozen=True)
class Learner:
    """MAML on one network: all that decides an update beside rates and images."""

    layer: LayerKind = "weight_transform"
    hidden: tuple[Size, ...] = (128, 128, 128, 128)
    """Widths of the hidden layers."""
    latent: Size = 32
    """Length of z in weight-transform layers."""
    ways: Size = 20
    """Classes of an episode."""
    queries: Size = 1
    """Drawings of every class that the adapted network is judged on; it has adapted to one."""
    inner_steps: Size = 1
    learn_inner_lr: bool = True
    """Meta-learn the inner rates, one per layer."""
    lr_lr: Positive = 1e-3
    """Adam rate of the logarithms of the inner rates."""
    first_order: bool = False
    """Treat inner gradients as constants in the meta-gradient."""
    meta_batch: Size = 16
    """Episodes per meta-step."""
    eval_episodes: Size = 200
    """Per side at every evaluation: always the same ones, for all networks and seeds."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Input, hidden layers, output."""
        return (SIDE * SIDE, *self.hidden, self.ways)

    @property
    def num_weights(self) -> int:
        """Numbers that the paper counts: of weight-transform layers those in the kernels that make
        weight matrices, of plain layers all."""
        if self.layer == "linear":
            return sum((i + 1) * o for i, o in pairwise(self.sizes))
        return self.latent * sum(i * o for i, o in pairwise(self.sizes))


@dataclass(frozen=True)
class Start:
    """What differs between the learners that are trained side by side."""

    seed: Natural
    inner_lr: Positive
    """Initial rate of the inner step, of every layer."""
    outer_lr: Positive
    """Adam rate of the meta-parameters."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Training:
    """Everything that decides what a training leaves behind."""

    learner: Learner
    starts: tuple[Start, ...]
    steps: Count
    """Meta-steps."""
    eval_every: Count
    """Meta-steps between two evaluations, besides which there is one at either end."""
    checkpoint_every: Count
    data: str
    """sha256 of the images and of their split."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def eval_steps(self) -> tuple[int, ...]:
        """Meta-steps before every evaluation."""
        return (*range(0, self.steps, self.eval_every), self.steps)


@dataclass(frozen=True)
class Network:
    """A curve of the figure."""

    label: str
    learner: Learner


@dataclass(frozen=True)
class Scaled:
    """What a scale means."""

    networks: tuple[Network, ...]
    seeds: Size
    steps: Count
    eval_every: Count
    search_steps: Count
    """Meta-steps of every pair of rates in the search."""
    targets: tuple[float, ...]
    """Validation accuracies, the meta-steps to which are in the table."""
    inner_lrs: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    outer_lrs: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3)
    checkpoint_every: Count = 2000
    notes: tuple[str, ...] = ()
    """What has to be said of it beside its numbers."""


def _networks(like: Learner, equal_width: int) -> tuple[Network, ...]:
    """That of weight-transform layers, and plain ones as wide, and with as many parameters."""
    plain = replace(like, layer="linear")
    wide = replace(plain, hidden=(equal_width,) * len(like.hidden))
    return (
        Network("weight transform", like),
        Network("plain, equal width", plain),
        Network("plain, equal parameters", wide),
    )


SEARCH_SEED = 1000
"""The rates are searched for with another seed than any curve has."""

SCALES: Mapping[Scale, Scaled] = {
    "smoke": Scaled(
        networks=_networks(
            Learner(hidden=(32,) * 4, latent=8, meta_batch=8, eval_episodes=100), equal_width=174
        ),
        seeds=3,
        steps=1000,
        eval_every=100,
        search_steps=200,
        targets=(0.2, 0.3),
        inner_lrs=(0.1, 0.3, 1.0, 3.0),
        outer_lrs=(1e-3, 3e-3),
        checkpoint_every=500,
        notes=("networks are a quarter as wide as the paper's, with latents a quarter as long",),
    ),
    "gpu": Scaled(
        networks=_networks(Learner(), equal_width=1150),
        seeds=3,
        steps=10_000,
        eval_every=250,
        search_steps=1000,
        targets=(0.5, 0.7),
    ),
}


@dataclass(frozen=True)
class Choices:
    """What may be asked for in place of a scale's settings; None: those."""

    seeds: Annotated[int, Range(1, SEARCH_SEED)] | None = None
    """Of every network; without it what the scale says, as of all numbers below."""
    only: tuple[str, ...] = ()
    """Networks, as the table names them ('plain, equal width'); none: all."""
    steps: Count | None = None
    """Meta-steps."""
    search_steps: Count | None = None
    """Meta-steps of every pair of rates that is tried on validation classes."""
    meta_batch: Size | None = None
    """Episodes per meta-step."""
    inner_steps: Size | None = None
    """Gradient steps of one adaptation."""
    queries: Size | None = None
    """Drawings of every class that an adapted network is judged on."""
    inner_lr: Positive | None = None
    """Initial inner rate; where the outer one is given too nothing is searched for."""
    outer_lr: Positive | None = None
    """Adam rate of the meta-parameters."""
    target: tuple[Fraction, ...] | None = None
    """Validation accuracies, from 0 to 1, the meta-steps to which are in the table."""

    def __post_init__(self) -> None:
        check_ranges(self)
