"""Settings of PEARL, offline and online; presets are named sets of them (`omrl.presets`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.ranges import Count, Fraction, NonNegative, Positive, Size, check_ranges

BATCH = BatchSpec("batch", 256)
CONTEXT = BatchSpec("context", 64, buffer="encoder")

TuneEncoder: TypeAlias = Literal["keep", "infer", "learn"]


@dataclass(frozen=True)
class PearlConfig:
    """Settings of PEARL. Defaults are the reference code's, but for what each field says."""

    TAG: ClassVar[str] = "pearl"

    # --- Networks ---
    hidden: tuple[Size, ...] = (300, 300, 300)
    """Widths of the hidden layers of Q, V and policy."""
    encoder_hidden: tuple[Size, ...] = (200, 200, 200)
    """The same of the context encoder."""
    latent: Size = 5
    """Dimensions of z."""
    next_obs_in_context: bool = False
    """Show s' to the encoder too: for tasks that differ in their dynamics."""
    initial: Literal["small-outputs", "uniform"] = "small-outputs"
    """Hidden weights within 1/sqrt(outputs), biases 0.1 and last layers near 0 (reference code), or
    all within 1/sqrt(inputs)."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""

    # --- Losses ---
    discount: Fraction = 0.99
    """gamma of the Bellman target."""
    reward_scale: Positive = 5.0
    """Factor of rewards in the Bellman target, so the inverse of the entropy's weight. The encoder
    sees them as they are."""
    kl_weight: NonNegative = 0.1
    """beta, of the KL to the prior, which is summed over the tasks of a batch."""
    log_prob: Literal["exact", "clipped"] = "exact"
    """log(1 - tanh(u)^2), or log(1 - tanh(u)^2 + 1e-6), which the reference code has."""
    mean_penalty: NonNegative = 1e-3
    """Of the squared mean of actions before tanh. Not in the paper."""
    log_std_penalty: NonNegative = 1e-3
    """Of the squared log_std. Not in the paper."""

    # --- Adaptation ---
    adapted_z: Literal["sample", "mean"] = "sample"
    """The z that is acted with: a draw from prior or posterior, or their mean."""
    tune_encoder: TuneEncoder = "keep"
    """Of fine-tuning: keep the z that the context gave; infer it anew from every batch; or let the
    encoder learn from the Q-loss as in training, besides. The papers do not say which."""

    # --- Training ---
    steps: Count = 1_000_000
    """Updates."""
    task_batch: Size = 16
    """Tasks per update."""
    target_rate: Fraction = 0.005
    """tau of the target of V."""
    encoder_lr: Positive = 3e-4
    """Adam rate of the context encoder."""
    critic_lr: Positive = 3e-4
    """Of both Qs."""
    value_lr: Positive = 3e-4
    """Of V."""
    policy_lr: Positive = 3e-4
    """Of the policy."""
    batch: BatchSpec = BATCH
    """Transitions of a task that Q, V and policy learn from."""
    context: BatchSpec = CONTEXT
    """Transitions that z is inferred from."""
    distinct_tasks: bool = True
    """The tasks of an update are drawn without replacement; the reference code draws with it."""
    exploration: Exploration | None = None
    """What is collected while it trains; None: offline, from logged data alone."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("batch", "context"):
            if getattr(self, name).name != name:
                raise InputError(f"{name}: its name is {name!r}, not {getattr(self, name).name!r}")

    @property
    def gradient_steps(self) -> int:
        """Of one round of adaptation, which is inference."""
        return 0

    def for_rounds(self, rounds: int) -> PearlConfig:
        """The same: a task needs no more room for more rounds."""
        return self
