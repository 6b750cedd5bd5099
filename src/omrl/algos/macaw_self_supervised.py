"""MACAW with SMAC's self-supervision: meta-trained to adapt to what it explores itself.

MACAW learns to adapt to logged data. Where it has to gather its data itself, with its unadapted
policy, it adapts to other data than it was meta-trained on. SMAC (arXiv:2107.03974) closes such a
gap with rewards that it predicts itself, and says that this is "orthogonal" to the algorithm:

* offline: MACAW's meta-step (arXiv:2008.06043, Algorithm 1) on logged data, and beside it SMAC's
  encoder q(z|h) and decoder r_d(s, a, z) learn to reconstruct rewards (Eq. 3). Neither sees the
  other.
* self-supervised: encoder and decoder stay as they are. The unadapted policy explores as it will at
  meta-test, the adapted one too, and each trajectory is labelled by the decoder with one z of a
  logged history of its task (Eq. 4). MACAW goes on with inner batches of what its unadapted policy
  explored, and outer batches of all there is, logged or labelled.

Nobody has published this combination. Losses and networks are those of the two papers, in
`macaw_losses.py` and `smac_learner.py`; `docs/algorithms/macaw-self-supervised.md` tells the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.algos import latent_context, smac_learner
from omrl.algos.latent_algorithm import drawn
from omrl.algos.latent_context import ADAM
from omrl.algos.macaw import Macaw, MacawState
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_losses import MacawTask
from omrl.algos.smac_config import BATCH, CONTEXT, SmacConfig
from omrl.algos.smac_learner import Representation
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.nets.encoder import Spread
from omrl.nets.mlp import Dense
from omrl.ops import latent
from omrl.ops.latent import Evidence
from omrl.ops.scale import scaled_obs
from omrl.ranges import Natural, NonNegative, Positive, Size, check_ranges
from omrl.types import Batch, Key, Metrics, Scalar, Spec, Step

INNER_BATCH = BatchSpec("inner", 256, "without_replacement", buffer="encoder")
OUTER_BATCH = BatchSpec("outer", 256)
EXPLORATION = Exploration(
    every=1000,
    explored_tasks=20,
    initial_steps=400,
    prior_steps=400,
    posterior_steps=600,
    prior_first=False,
    draw="union-main",
    label_context=256,
)


@dataclass(frozen=True)
class RewardModelConfig:
    """Encoder of contexts and decoder of rewards: the fields of `SmacConfig` with the same names
    and defaults."""

    encoder_hidden: tuple[Size, ...] = (200, 200, 200)
    """Widths of the encoder's hidden layers."""
    decoder_hidden: tuple[Size, ...] = (64, 64)
    """The same of the reward decoder."""
    latent: Size = 5
    """Dimensions of z."""
    encoder_spread: Spread = "variance"
    """What the encoder's second half of outputs is of a factor behind its softplus."""
    next_obs_in_context: bool = False
    """Show s' to the encoder too."""
    initial: Literal["small-outputs", "uniform"] = "small-outputs"
    """Initial weights, as SMAC's reference code has them or within 1/sqrt(inputs)."""
    kl_weight: NonNegative = 0.1
    """Of the KL to the prior beside the decoder's error."""
    kl_reduction: Literal["mean", "sum"] = "mean"
    """Of the KL, over the tasks of a batch."""
    reward_reduction: Literal["mean", "sum"] = "mean"
    """Of the decoder's squared errors, over the transitions of a task."""
    decoder_batch: Literal["batch", "context"] = "batch"
    """What the decoder learns from: h', or the context h itself."""
    encoder_lr: Positive = 3e-4
    """Adam rate of the encoder."""
    decoder_lr: Positive = 3e-4
    """Of the decoder."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @classmethod
    def like(cls, smac: SmacConfig) -> RewardModelConfig:
        """The encoder and decoder of `smac`."""
        return cls(**{field.name: getattr(smac, field.name) for field in fields(cls)})

    @property
    def smac(self) -> SmacConfig:
        """As `smac_learner` takes them."""
        return SmacConfig(**{field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class MacawSelfSupervisedConfig(MacawConfig):
    """Settings of MACAW, of the model of rewards, and of exploration. `steps` and the batches of
    MACAW are as in MACAW; its inner batches are of the encoder buffer."""

    TAG: ClassVar[str] = "macaw-self-supervised"

    inner_batch: BatchSpec = INNER_BATCH
    """D_tr: logged, then what the unadapted policy explored."""
    outer_batch: BatchSpec = OUTER_BATCH
    """D_ts: logged, then that and all that was explored."""

    # --- The model of rewards ---
    rewards: RewardModelConfig = field(default_factory=RewardModelConfig)
    """Encoder and decoder."""
    batch: BatchSpec = BATCH
    """h', logged transitions that the decoder learns from."""
    context: BatchSpec = CONTEXT
    """h, logged transitions that z is inferred from."""

    # --- Self-supervision ---
    online_steps: Natural = 50_000
    """Updates of the second stage; 0: there is none."""
    exploration: Exploration = EXPLORATION
    """What is collected in it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.batch.name, self.context.name) != ("batch", "context"):
            raise InputError(
                "batch, context: what encoder and decoder learn from is named 'batch' and 'context'"
            )

    @property
    def macaw(self) -> MacawConfig:
        """MACAW's part, whose rates decay over both stages if they do."""
        own = {field.name: getattr(self, field.name) for field in fields(MacawConfig)}
        return replace(MacawConfig(**own), steps=self.steps + self.online_steps)


class SelfSupervisedState(NamedTuple):
    macaw: MacawState
    representation: Representation
    representation_opt: Any

    @property
    def step(self) -> Any:
        """Updates so far, an int32 scalar, or its shape and sharding where only they are known."""
        return self.macaw.step


class SelfSupervisedTask(NamedTuple):
    """What is acted with, and by which rewards are predicted."""

    macaw: MacawTask
    evidence: Evidence
    z: Float[Array, " latent"]
    """Drawn from what the evidence says of the task."""


# --- The model of rewards ---


def step_rewards(
    config: SmacConfig,
    representation: Representation,
    opt: Any,
    batch: Batch,
    context: Batch,
    noise: Float[Array, "task latent"],
) -> tuple[Representation, Any, Metrics]:
    """Encoder and decoder after one Adam step on Eq. 3 of arXiv:2107.03974, and the losses by task.
    Batches are [task, sample, ...]; the noise is standard normal."""

    def loss(representation: Representation) -> tuple[Scalar, Metrics]:
        inferred = latent_context.infer(representation.encoder, context, noise)
        errors = smac_learner.reward_error(
            config, representation.decoder, batch, context, inferred.z
        )
        total = smac_learner.representation_loss(config, errors, inferred.kl)
        return total, {"reward_loss": errors, "kl": inferred.kl}

    grads, metrics = jax.grad(loss, has_aux=True)(representation)
    return *smac_learner.move_representation(config, representation, grads, opt), metrics


# --- The algorithm ---


@dataclass(frozen=True)
class MacawSelfSupervised(Algorithm[SelfSupervisedState, SelfSupervisedTask]):
    """The combination behind the contract of `omrl.algorithm`. It acts and adapts as MACAW does;
    z is for `predict_reward` alone."""

    config: MacawSelfSupervisedConfig
    spec: Spec

    @property
    def macaw(self) -> Macaw:
        return Macaw(self.config.macaw, self.spec)

    def init(self, key: Key) -> SelfSupervisedState:
        macaw_key, encoder_key, decoder_key = jax.random.split(key, 3)
        representation = smac_learner.init_representation(
            self.config.rewards.smac, self.spec, encoder_key, decoder_key
        )
        opt = ADAM.init(representation)
        return SelfSupervisedState(self.macaw.init(macaw_key), representation, opt)

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        of_macaw = (config.inner_batch, config.outer_batch)
        of_all = (*of_macaw, config.batch, config.context)
        offline = Stage(
            "offline", config.steps, config.task_batch, of_all, self.update, with_tasks=True
        )
        if not config.online_steps:
            return (offline,)
        return offline, Stage(
            "self_supervised",
            config.online_steps,
            config.task_batch,
            of_macaw,
            self.self_supervised_update,
            exploration=config.exploration,
            left_out_by="--algo.online-steps 0",
        )

    def update(
        self,
        state: SelfSupervisedState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[SelfSupervisedState, Metrics]:
        """One offline step on batches [task, sample, ...]: MACAW's, and that of encoder and
        decoder, whose noise goes with the number of the task."""
        state, metrics = self.self_supervised_update(state, batches, key)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)
        shape = (self.config.rewards.latent,)
        representation, opt, of_rewards = step_rewards(
            self.config.rewards.smac,
            state.representation,
            state.representation_opt,
            self._scaled(batches["batch"]),
            self._scaled(batches["context"]),
            jax.vmap(lambda key: jax.random.normal(key, shape))(keys),
        )
        state = state._replace(representation=representation, representation_opt=opt)
        return state, metrics | of_rewards

    def self_supervised_update(
        self, state: SelfSupervisedState, batches: dict[str, Batch], key: Key
    ) -> tuple[SelfSupervisedState, Metrics]:
        """One step of MACAW; encoder and decoder stay as they are."""
        macaw, metrics = self.macaw.update(state.macaw, batches, key)
        return state._replace(macaw=macaw), metrics

    def begin(self, state: SelfSupervisedState, key: Key) -> SelfSupervisedTask:
        nothing = jnp.zeros(self.config.rewards.latent)
        known = Evidence(nothing, nothing)
        return SelfSupervisedTask(self.macaw.begin(state.macaw, key), known, drawn(known, key))

    def adapt(
        self, state: SelfSupervisedState, task: SelfSupervisedTask, support: Batch, key: Key
    ) -> SelfSupervisedTask:
        """MACAW's inner loop; and z drawn from the posterior of the support."""
        one_task = jax.tree.map(lambda leaf: leaf[None], self._scaled(support))
        found = latent_context.evidence(state.representation.encoder, one_task)
        known = latent.combined(task.evidence, jax.tree.map(lambda leaf: leaf[0], found))
        macaw = self.macaw.adapt(state.macaw, task.macaw, support, key)
        return SelfSupervisedTask(macaw, known, drawn(known, key))

    def observe(
        self, state: SelfSupervisedState, task: SelfSupervisedTask, step: Step, key: Key
    ) -> SelfSupervisedTask:
        return task

    def act(
        self,
        state: SelfSupervisedState,
        task: SelfSupervisedTask,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        return self.macaw.act(state.macaw, task.macaw, obs, key, deterministic)

    def policy_layers(
        self, state: SelfSupervisedState, task: SelfSupervisedTask
    ) -> tuple[Dense, ...]:
        return self.macaw.policy_layers(state.macaw, task.macaw)

    def predict_reward(
        self,
        state: SelfSupervisedState,
        task: SelfSupervisedTask,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
    ) -> Scalar:
        """r_d(s, a, z) in units of the environment's (Eq. 4)."""
        rewards = smac_learner.decoded_rewards(
            state.representation.decoder,
            self._scaled_obs(obs)[None, None],
            action[None, None],
            task.z[None],
        )
        return rewards[0, 0]

    def _scaled_obs(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b obs"]:
        return scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)

    def _scaled(self, batch: Batch) -> Batch:
        """As encoder and decoder take it; MACAW scales its own."""
        return batch._replace(
            obs=self._scaled_obs(batch.obs), next_obs=self._scaled_obs(batch.next_obs)
        )
