"""The settings of MACAW (`algos/macaw.py`), one field for every choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.ranges import Count, Fraction, Positive, Size, check_ranges

INNER_BATCH = BatchSpec("inner", 256, "contiguous")
OUTER_BATCH = BatchSpec("outer", 256, start=0.6, disjoint_from="inner")


@dataclass(frozen=True)
class MacawConfig:
    """Settings of MACAW. Defaults are the paper's (Table 5 of the appendix, cheetah)."""

    TAG: ClassVar[str] = "macaw"

    # --- Networks ---
    layer: Literal["weight_transform", "bias_transform", "linear"] = "weight_transform"
    """What adapts: weights made from a latent, dense weights with an added bias, dense weights."""
    hidden: tuple[Size, ...] = (100, 100, 100)
    """Widths of the hidden layers of value and policy."""
    head_hidden: tuple[Size, ...] = (32,)
    """Hidden widths of the advantage head."""
    latent: Size = 100
    """Length of z in weight-transform layers."""
    offset: bool = False
    """Generated weights are z W + b; False: z W."""
    relu_action: bool = False
    """The advantage head sees only the positive part of actions."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""
    scale_returns: bool = False
    """Divide returns by the training tasks' standard deviation of returns."""

    # --- Inner loop ---
    inner_steps: Size = 1
    """K, gradient steps of one adaptation."""
    inner_lr: Positive = 1e-3
    """Initial eta and alpha, of every tensor."""
    learn_inner_lr: bool = True
    """Meta-learn the inner rates."""
    inner_lr_per: Literal["layer", "tensor"] = "layer"
    """What shares one inner rate."""
    split_inner_batch: bool = False
    """With K steps: give each one K-th of the batch; False: the whole batch each time."""
    advantage_head: bool = True
    """Eq. 3; False is MAML + AWR."""
    adv_coef: Positive = 1e-2
    """lambda, the weight of the advantage regression."""
    learn_adv_coef: bool = False
    """Meta-learn lambda."""
    first_order: bool = False
    """Treat inner gradients as constants in the meta-gradient."""
    inner_form: Literal["low_rank", "plain"] = "low_rank"
    """How weight-transform layers step; both give the same numbers, plain copies every kernel."""
    max_adapt_steps: Size = 1
    """Gradient steps that an adapted task has room for at meta-test."""

    # --- Losses ---
    sigma: Positive = 0.2
    """Standard deviation of the policy's Gaussian."""
    temperature: Positive = 1.0
    """T of the advantage weights."""
    max_weight: Positive = 20.0
    """Upper clip of the advantage weights."""
    normalize_advantage: bool = True
    """Standardise advantages over the batch before weighting."""
    imitate: bool = False
    """All advantage weights are 1: behaviour cloning in both loops."""
    bootstrap_advantage: bool = False
    """Continue returns past the episode's end with the adapted value, in advantages."""
    bootstrap_outer_value: bool = False
    """The same in the outer value target, with the target network."""
    bootstrap_inner_value: bool = False
    """The same in the inner value target."""
    target_decay: Fraction = 0.9
    """After every inner step the target network keeps this share of itself."""

    # --- Outer loop ---
    steps: Count = 100_000
    """Meta-steps."""
    task_batch: Size = 5
    """Tasks per meta-step."""
    value_lr: Positive = 1e-5
    """Adam rate of the value network."""
    policy_lr: Positive = 1e-4
    """Adam rate of the policy."""
    lr_lr: Positive = 1e-3
    """Adam rate of the inner rates and of lambda."""
    lr_decay: bool = False
    """Let all Adam rates fall to zero over the run along a cosine."""
    divide_by_train_tasks: bool = False
    """Divide the summed losses by the number of training tasks, not of sampled ones."""

    # --- Batches ---
    inner_batch: BatchSpec = INNER_BATCH
    """D_tr: what a task adapts to."""
    outer_batch: BatchSpec = OUTER_BATCH
    """D_ts: what the adapted networks are judged on."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.advantage_head and not self.hidden:
            raise InputError("hidden: no layer, and the advantage head reads one; give a width")
        if (self.inner_batch.name, self.outer_batch.name) != ("inner", "outer"):
            raise InputError("the batches of macaw are named 'inner' and 'outer'")
        if self.split_inner_batch and self.inner_batch.size % self.inner_steps:
            raise InputError(
                f"split_inner_batch: inner_batch.size ({self.inner_batch.size}) must be a multiple "
                f"of inner_steps ({self.inner_steps})"
            )
        if self.max_adapt_steps < self.inner_steps:
            raise InputError(
                f"max_adapt_steps: {self.max_adapt_steps} must be at least inner_steps "
                f"({self.inner_steps})"
            )

    def for_rounds(self, rounds: int) -> MacawConfig:
        """With room for so many adaptation rounds."""
        return replace(self, max_adapt_steps=max(self.max_adapt_steps, rounds * self.inner_steps))
