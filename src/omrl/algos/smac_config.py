"""Settings of SMAC, offline and online; presets are named sets of them (`omrl.presets`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.nets.encoder import Spread
from omrl.ranges import (
    Count,
    Finite,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Size,
    check_ranges,
)

BATCH = BatchSpec("batch", 256)
CONTEXT = BatchSpec("context", 64, buffer="encoder")

ONLINE = Exploration(
    every=16_000,
    initial_steps=0,
    resample_every="step",
    clear_encoder=False,
    draw="union",
    label_context=256,
)
"""Self-supervision as in the reference code; its problems differ in `into_encoder`."""


@dataclass(frozen=True)
class SmacConfig:
    """Settings of SMAC. Numbers are those of Tables 1 and 2 of arXiv:2107.03974; where its text and
    the reference code do different things, the default is what the code does."""

    TAG: ClassVar[str] = "smac"

    # --- Networks ---
    hidden: tuple[Size, ...] = (300, 300, 300)
    """Widths of the hidden layers of Q and policy."""
    encoder_hidden: tuple[Size, ...] = (200, 200, 200)
    """The same of the context encoder."""
    decoder_hidden: tuple[Size, ...] = (64, 64)
    """The same of the reward decoder."""
    latent: Size = 5
    """Dimensions of z."""
    encoder_spread: Spread = "variance"
    """What the encoder's second half of outputs is of a factor behind its softplus: variance
    (reference code) or standard deviation (paper)."""
    next_obs_in_context: bool = False
    """Show s' to the encoder too. Neither paper nor code does."""
    initial: Literal["small-outputs", "uniform"] = "small-outputs"
    """Hidden weights within 1/sqrt(outputs), biases 0 and last layers near 0 (reference code), or
    all within 1/sqrt(inputs)."""
    targets: Literal["independent", "copied"] = "independent"
    """The target Qs at first: networks of their own (reference code), or copies of the Qs."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""

    # --- Encoder and decoder ---
    kl_weight: NonNegative = 0.1
    """Of the KL to the prior beside the decoder's error; 1 in Eq. 3."""
    kl_reduction: Literal["mean", "sum"] = "mean"
    """Of the KL, over the tasks of a batch."""
    reward_reduction: Literal["mean", "sum"] = "mean"
    """Of the decoder's squared errors, over the transitions of a task; Eq. 3 has the sum. Tasks are
    averaged."""
    decoder_batch: Literal["batch", "context"] = "batch"
    """What the decoder learns from: h', as in Algorithm 1 and the reference code, or the context h
    itself, as in Eq. 3."""
    q_trains_encoder: bool = False
    """Let the Q-loss reach the encoder too, as in PEARL."""

    # --- Critics ---
    discount: Fraction = 0.99
    """gamma of the Bellman target."""
    reward_scale: Positive = 5.0
    """Factor of rewards in the Bellman target. Encoder and decoder see them as they are."""
    next_z: Literal["redrawn", "same"] = "redrawn"
    """The z that the policy is told at s': a second draw from the posterior (reference code), or
    the one that everything else is told."""

    # --- Actor ---
    temperature: Positive = 100.0
    """beta, by which scores Q - V are divided."""
    weights: Literal["softmax", "softmax-per-task", "exp", "whitened", "uniform"] = "softmax"
    """Of logged actions: softmax over all transitions of a batch (reference code) or over those of
    each task, exp of the score (Eq. 2) or of the standardised one, or all alike, which is meta
    behaviour cloning."""
    largest_score: Finite | None = None
    """Of weights exp, and of whitened in standard deviations: larger scores count as this; None:
    any."""
    advantage_q: Literal["min", "first"] = "min"
    """Q of the logged action in the score: the smaller of both, or the first."""
    awac_weight: NonNegative = 1.0
    """Of the weighted log-likelihood in the actor's loss; 0: SMAC (actor ablation)."""
    reparam_weight: NonNegative = 0.0
    """Of -min Q at the policy's own actions in it."""
    self_supervised_reparam_weight: NonNegative = 1.0
    """lambda_pearl: the same in the self-supervised phase."""
    entropy_weight: NonNegative = 0.0
    """alpha of soft actor-critic, in the actor's loss and in the Bellman target."""
    self_supervised_entropy_weight: NonNegative | None = None
    """The same in the self-supervised phase; None: as offline. PEARL's actor loss, which the paper
    adds in that phase (C.3), has 1."""
    entropy_in_target: bool = True
    """Entropy counts in the Bellman target; Eq. 1 has none there."""

    # --- Adaptation ---
    adapted_z: Literal["sample", "mean"] = "sample"
    """The z that is acted with: a draw from prior or posterior, or their mean."""

    # --- Training ---
    steps: Count = 50_000
    """Updates of the offline phase."""
    task_batch: Size = 4
    """Tasks per update."""
    target_rate: Fraction = 0.005
    """eta, of the target Qs."""
    encoder_lr: Positive = 3e-4
    """Adam rate of the context encoder."""
    decoder_lr: Positive = 3e-4
    """Of the reward decoder."""
    critic_lr: Positive = 3e-4
    """Of both Qs."""
    policy_lr: Positive = 3e-4
    """Of the policy."""
    batch: BatchSpec = BATCH
    """Transitions of a task that Qs, policy and decoder learn from."""
    context: BatchSpec = CONTEXT
    """Transitions that z is inferred from, in both phases."""

    # --- Online phase ---
    online_steps: Natural = 0
    """Updates of the self-supervised phase behind the offline one; 0: there is none."""
    online_batch: BatchSpec = BATCH
    """`batch` of that phase."""
    exploration: Exploration = ONLINE
    """What that phase collects."""
    oracle: bool = False
    """Online Oracle: that phase with the environment's rewards, from which encoder and decoder go
    on learning."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("batch", "online_batch", "context"):
            own, given = name.removeprefix("online_"), getattr(self, name).name
            if given != own:
                raise InputError(f"{name}: its name is {own!r}, not {given!r}")
        for name in ("reparam_weight", "self_supervised_reparam_weight"):
            if not (self.awac_weight or getattr(self, name)):
                raise InputError(
                    f"{name}: 0 beside awac_weight 0 leaves the actor nothing to learn; set one"
                )
        if self.largest_score is not None and self.weights not in ("exp", "whitened"):
            raise InputError(
                f"largest_score: {self.largest_score:g} is of weights exp or whitened, not "
                f"{self.weights}; leave it None"
            )
        self._check_online()

    def _check_online(self) -> None:
        labels = self.exploration.label_context
        if self.oracle and labels:
            raise InputError(
                f"exploration.label_context: {labels} has the decoder make the rewards, and with "
                "oracle they are the environment's; set it to 0, or oracle to False"
            )
        if not self.oracle and not labels:
            raise InputError(
                "exploration.label_context: 0 learns from the environment's rewards, which the "
                "self-supervised phase does not see; label from 256 transitions, say, or set oracle"
            )

    @property
    def self_supervised(self) -> SmacConfig:
        """Settings of a step of the online phase."""
        entropy = self.self_supervised_entropy_weight
        return replace(
            self,
            reparam_weight=self.self_supervised_reparam_weight,
            entropy_weight=self.entropy_weight if entropy is None else entropy,
        )

    @property
    def gradient_steps(self) -> int:
        """Of one round of adaptation, which is inference."""
        return 0

    def for_rounds(self, rounds: int) -> SmacConfig:
        """The same: a task needs no more room for more rounds."""
        return self
