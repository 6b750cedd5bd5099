"""Settings of BOReL (arXiv:2008.02598): of its model of the tasks, of its policy, and of both."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from omrl.algos.dqn import DqnConfig
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.belief import FeatureSizes, Part
from omrl.ranges import Count, Finite, Fraction, Natural, NonNegative, Positive, Size, check_ranges

BATCH = BatchSpec("batch", 256)


@dataclass(frozen=True)
class VaeConfig:
    """Settings of the VAE. Defaults are the reference code's for Cheetah-Velocity."""

    # --- Encoder ---
    latent: Size = 5
    """Dimensions of z."""
    gru: Size = 128
    """Width of the recurrent state."""
    keep_bias: Finite = 0.0
    """First bias of the gate that keeps the recurrent state: above 0 it forgets less to begin with
    (Jozefowicz et al. 2015)."""
    obs_features: Natural = 32
    """Features of an observation, in encoder and decoders; 0: observations are not seen."""
    action_features: Natural = 16
    """The same of an action."""
    reward_features: Natural = 16
    """The same of a reward, which decoders never see."""

    # --- Decoders ---
    reward_hidden: tuple[Size, ...] = (32, 32)
    """Widths of the hidden layers of the reward decoder."""
    reward_sees: tuple[Part, ...] = ("next_obs", "action", "obs")
    """What it sees of a transition besides z; nothing: it decodes z alone."""
    reward_head: Literal["squared", "bernoulli"] = "squared"
    """Error of a decoded reward: squared, or the negative log-likelihood in nats of whether it is
    `reward_success`."""
    reward_success: Finite = 1.0
    """Of head bernoulli: rewards from here on count as 1, others as 0."""
    reward_failure: Finite = 0.0
    """Of head bernoulli: the other reward. Only predictions read it."""
    reward_cells: tuple[Size, ...] = ()
    """Of head bernoulli, on a grid: how many values each of the first entries of an observation
    has, from 0. There is one output per cell then, and that of the cell of s' counts."""
    state_head: Literal["none", "squared", "gaussian"] = "none"
    """Error of s' decoded from z, s and a: none at all, squared, or the negative log-likelihood in
    nats of a diagonal Gaussian; for tasks that differ in their dynamics."""
    state_hidden: tuple[Size, ...] = (32, 32)
    """Widths of the hidden layers of the state decoder."""

    # --- Loss ---
    decoded_reduction: Literal["mean", "sum"] = "mean"
    """Of errors over the decoded transitions of a trajectory. The reference code has the mean with
    squared errors and the sum with head bernoulli, the paper the sum."""
    kl_weight: NonNegative = 0.05
    """Of the KLs between successive posteriors."""
    state_weight: NonNegative = 1.0
    """Of the state decoder's errors."""
    elbo_terms: Count | None = None
    """Posteriors of a trajectory that an update decodes from, other ones each time; None: all. The
    loss is scaled so that on average it is that of all."""

    # --- Training ---
    learning_rate: Positive = 3e-4
    """Of Adam."""
    decoder_block: Size = 16
    """Posteriors of a trajectory decoded at once: more take more memory and change no result."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not (self.obs_features or self.action_features or self.reward_features):
            raise InputError(
                "reward_features: 0 beside obs_features 0 and action_features 0 leaves the encoder "
                "nothing to see; set one"
            )
        if len(set(self.reward_sees)) < len(self.reward_sees):
            raise InputError(f"reward_sees: {', '.join(self.reward_sees)} has one part twice")
        for part in self.reward_sees:
            name = "action_features" if part == "action" else "obs_features"
            if not getattr(self, name):
                raise InputError(
                    f"{name}: 0, and the reward decoder has to see {part}; set it above 0, or take "
                    f"{part} out of reward_sees"
                )
        if self.reward_cells and self.reward_head != "bernoulli":
            raise InputError(
                f"reward_cells: is of head bernoulli, not {self.reward_head}; leave it empty"
            )

    @property
    def sizes(self) -> FeatureSizes:
        """Of the features."""
        return FeatureSizes(self.obs_features, self.action_features, self.reward_features)

    @property
    def num_cells(self) -> int:
        """Outputs of the reward decoder."""
        return math.prod(self.reward_cells)


@dataclass(frozen=True)
class BeliefSacConfig:
    """Settings of soft actor-critic on states with beliefs. Defaults are the reference code's."""

    TAG: ClassVar[str] = "sac"

    hidden: tuple[Size, ...] = (256, 256)
    """Widths of the hidden layers of Q and policy."""
    initial: Literal["small-outputs", "uniform"] = "small-outputs"
    """Hidden weights within 1/sqrt(outputs), biases 0.1 and last layers near 0 (reference code), or
    all within 1/sqrt(inputs)."""
    discount: Fraction = 0.99
    """gamma of the Bellman target."""
    temperature: Positive | None = 0.2
    """alpha, the entropy's weight; None: learned, from 1 on."""
    target_entropy: Finite | None = None
    """Of a learned alpha, in nats; None: minus the number of action dimensions."""
    log_prob: Literal["exact", "clipped"] = "exact"
    """Density of an action: exact, or with 1e-6 added to tanh's slope, as the reference code."""
    target_rate: Fraction = 0.005
    """tau, of the target Qs."""
    conservative: NonNegative = 0.0
    """Weight of CQL's term (arXiv:2006.04779, Eq. 4) beside the squared error of each Q, twice the
    alpha of its paper; 0: none, as in BOReL's."""
    conservative_actions: Size = 10
    """Actions of each transition that it is estimated with: so many uniform ones, and as many of
    the policy."""
    critic_lr: Positive = 3e-4
    """Adam rate of both Qs."""
    policy_lr: Positive = 3e-4
    """Of the policy, and of a learned alpha."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.target_entropy is not None and self.temperature is not None:
            raise InputError(
                f"target_entropy: {self.target_entropy:g} is of a learned temperature, not of "
                f"{self.temperature:g}; leave it None, or set temperature None"
            )


@dataclass(frozen=True)
class BorelConfig:
    """Settings of BOReL. Defaults are the reference code's for Cheetah-Velocity, but for what each
    field says."""

    TAG: ClassVar[str] = "borel"

    vae: VaeConfig = field(default_factory=VaeConfig)
    """Of the model of the tasks."""
    policy: BeliefSacConfig | DqnConfig = field(default_factory=BeliefSacConfig)
    """SAC, or DQN where actions are discrete: an entry each, of which the largest counts."""
    episodes: Size = 2
    """Of a trajectory: the belief goes through so many episodes of a task in training."""
    reset_belief: bool = False
    """The policy learns with beliefs that begin anew with every transition that ends the MDP, as in
    the reference code; the VAE's and those at the test do not."""
    last_leads: Literal["nowhere", "to-start"] = "nowhere"
    """What follows on the last transition of a trajectory: the observation that it leads to, from
    which the policy bootstraps, or a start, as if one more episode followed. The former may be one
    that no action is ever taken on, with any value."""
    normalize_obs: bool = False
    """Standardise observations with the training tasks' mean and deviation."""
    one_hot_cells: bool = False
    """On a grid networks see the cell of an observation, of `vae.reward_cells`, as a one-hot vector
    in place of its numbers."""

    # --- Training ---
    vae_steps: Count = 640_000
    """Updates of stage vae."""
    vae_task_batch: Size = 4
    """Tasks per update of it."""
    rollouts: Size = 8
    """Trajectories of each of these."""
    steps: Count = 1_000_000
    """Updates of stage policy."""
    lr_decay: bool = False
    """All Adam rates fall to 0 along a cosine, in each of the two stages anew."""
    task_batch: Size = 16
    """Tasks per update of it."""
    batch: BatchSpec = BATCH
    """Transitions of each of these."""
    distinct_tasks: bool = True
    """The tasks of an update of the policy are drawn without replacement; in the reference code
    with it."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.batch.name != "batch":
            raise InputError(f"batch: its name is 'batch', not {self.batch.name!r}")
        if self.one_hot_cells and not self.vae.reward_cells:
            raise InputError(
                "one_hot_cells: on, and vae.reward_cells names none; give the sizes of the grid "
                "there, or switch it off"
            )

    @property
    def gradient_steps(self) -> int:
        """Of one round of adaptation, which is inference."""
        return 0

    def for_rounds(self, rounds: int) -> BorelConfig:
        """The same: a task needs no more room for more rounds."""
        return self
