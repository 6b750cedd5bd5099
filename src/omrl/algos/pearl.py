"""Offline PEARL: probabilistic embeddings for actor-critic RL (Rakelly et al. 2019,
arXiv:1903.08254) on fixed data, "batch PEARL" in MACAW's comparisons (arXiv:2008.06043, Table 3).

The task is a latent z. An encoder makes of every transition a Gaussian factor, whose product over a
context c is the posterior q(z|c); policy and critics are told z. Meta-training is soft actor-critic
on batches of many tasks, z drawn from the posterior of a second batch of the same task, and the
encoder learns from the critics' loss and from the KL to the prior N(0, 1). Adaptation is inference
alone: no gradient step, one pass of the encoder over the context.

Nothing is collected: both batches are of logged data, which is all that makes it offline. Four
files: the settings (`pearl_config.py`), losses and step (`pearl_learner.py`), going on learning on
one task (`pearl_finetune.py`), and here the algorithm behind the contract.
`docs/algorithms/pearl.md` lists the differences to paper and reference code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.algos import pearl_finetune, pearl_learner
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_finetune import PearlTuning
from omrl.algos.pearl_learner import Learner, PearlTask, noise_of_task
from omrl.nets.mlp import Dense
from omrl.ops import latent
from omrl.ops.gaussian import sample_squashed
from omrl.ops.latent import Evidence
from omrl.ops.scale import scaled_obs
from omrl.tuning import FinetuneConfig
from omrl.types import Batch, Key, Metrics, Spec, Step


class PearlState(NamedTuple):
    step: Int[Array, ""]
    learner: Learner


@dataclass(frozen=True)
class Pearl(Algorithm[PearlState, PearlTask]):
    """Offline PEARL behind the contract of `omrl.algorithm`."""

    config: PearlConfig
    spec: Spec
    online_context: ClassVar = "trajectory"

    def init(self, key: Key) -> PearlState:
        return PearlState(jnp.zeros((), jnp.int32), pearl_learner.init(self.config, self.spec, key))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches, tasks = (config.batch, config.context), config.task_batch
        return (Stage("meta", config.steps, tasks, batches, self.update, with_tasks=True),)

    def update(
        self,
        state: PearlState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[PearlState, Metrics]:
        """One step on batches [task, sample, ...]. A task's noise goes with its number, so that the
        order of `tasks` changes nothing."""
        batch, context = (self._scaled(batches[name]) for name in ("batch", "context"))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)
        draw = partial(noise_of_task, self.config, *batch.action.shape[1:])
        z_noise, action_noise = jax.vmap(draw)(keys)
        infer = partial(pearl_learner.infer, context=context, noise=z_noise)
        learner, _, metrics = pearl_learner.step(
            self.config, state.learner, batch, infer, action_noise
        )
        return PearlState(state.step + 1, learner), metrics

    def begin(self, state: PearlState, key: Key) -> PearlTask:
        """The prior, and a z drawn from it."""
        nothing = jnp.zeros(self.config.latent)
        known = Evidence(nothing, nothing)
        return PearlTask(known, self._z(known, key), state.learner.improvement.policy)

    def adapt(self, state: PearlState, task: PearlTask, support: Batch, key: Key) -> PearlTask:
        """The factors of all transitions are multiplied in, and z is drawn anew."""
        encoder = state.learner.evaluation.encoder
        one_task = jax.tree.map(lambda leaf: leaf[None], self._scaled(support))
        found = jax.tree.map(lambda leaf: leaf[0], pearl_learner.evidence(encoder, one_task))
        known = latent.combined(task.evidence, found)
        return task._replace(evidence=known, z=self._z(known, key))

    def observe(self, state: PearlState, task: PearlTask, step: Step, key: Key) -> PearlTask:
        """One more factor. z stays as it is, as it does for a whole trajectory in the paper."""
        obs, next_obs = self._scaled_obs(step.obs), self._scaled_obs(step.next_obs)
        encoder = state.learner.evaluation.encoder
        seen = latent.factor(*encoder(obs, step.action, step.reward, next_obs))
        return task._replace(evidence=latent.combined(task.evidence, seen))

    def resample(self, state: PearlState, task: PearlTask, key: Key) -> PearlTask:
        """z drawn from the posterior, also where `adapted_z` acts on its mean."""
        return task._replace(z=_drawn(task.evidence, key))

    def posterior(
        self, state: PearlState, task: PearlTask
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        return latent.posterior(task.evidence)

    def act(
        self,
        state: PearlState,
        task: PearlTask,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        shift = task.policy.shift(task.z)
        mean, log_std = pearl_learner.distribution(task.policy, self._scaled_obs(obs), shift)
        return jnp.tanh(mean) if deterministic else sample_squashed(key, mean, log_std)[0]

    def policy_layers(self, state: PearlState, task: PearlTask) -> tuple[Dense, ...]:
        """z folded into the first layer's bias, and of the outputs the means alone."""
        *hidden, last = task.policy.told(task.z)
        return (*hidden, Dense(last.affine[:, : self.spec.act_dim]))

    # --- Learning on online ---

    def for_tuning(self, settings: FinetuneConfig) -> Pearl:
        """With the rates of `settings`, that of the value for Q and V; without any with those of
        meta-training (D.4)."""
        settings.check_left_alone(("parameters", "advantage_head"), "Pearl")
        config = self.config
        rates = {
            "critic_lr": settings.value_lr or config.critic_lr,
            "value_lr": settings.value_lr or config.value_lr,
            "policy_lr": settings.policy_lr or config.policy_lr,
        }
        return replace(self, config=replace(config, **rates))

    def begin_tuning(self, state: PearlState, task: PearlTask, key: Key) -> PearlTuning:
        return pearl_finetune.begin_tuning(state.learner, task)

    def tune(self, state: PearlState, tuning: PearlTuning, batch: Batch, key: Key) -> PearlTuning:
        return pearl_finetune.tune(self.config, tuning, self._scaled(batch), key)

    def tuned(self, state: PearlState, tuning: PearlTuning) -> PearlTask:
        return pearl_finetune.tuned(tuning)

    def _z(self, known: Evidence, key: Key) -> Float[Array, " latent"]:
        if self.config.adapted_z == "mean":
            return latent.posterior(known)[0]
        return _drawn(known, key)

    def _scaled_obs(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b obs"]:
        return scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)

    def _scaled(self, batch: Batch) -> Batch:
        return batch._replace(
            obs=self._scaled_obs(batch.obs), next_obs=self._scaled_obs(batch.next_obs)
        )


def _drawn(known: Evidence, key: Key) -> Float[Array, " latent"]:
    mean, variance = latent.posterior(known)
    return latent.sample(mean, variance, jax.random.normal(key, mean.shape))
