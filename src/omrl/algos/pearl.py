"""PEARL: probabilistic embeddings for actor-critic RL (Rakelly et al. 2019, arXiv:1903.08254), also
on fixed data: "batch PEARL" in MACAW's comparisons (arXiv:2008.06043, Table 3).

The task is a latent z. An encoder makes of every transition a Gaussian factor, whose product over a
context c is the posterior q(z|c); policy and critics are told z. Meta-training is soft actor-critic
on batches of many tasks, z drawn from the posterior of a second batch of the same task, and the
encoder learns from the critics' loss and from the KL to the prior N(0, 1). Adaptation is inference
alone: no gradient step, one pass of the encoder over the context.

What is learned from is all that tells offline and online apart: logged data, or what the run
collects itself by its `exploration` (`omrl.collector`), acting on the prior and then on the
posterior with one z for a whole trajectory.

Files: the settings (`pearl_config.py`), losses and step (`pearl_learner.py`), going on learning on
one task (`pearl_finetune.py`), what SMAC does too (`latent_context.py`, `latent_algorithm.py`), and
here the algorithm behind the contract.
`docs/algorithms/pearl.md` lists the differences to paper and reference code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from omrl.algorithm import Stage
from omrl.algos import latent_context, pearl_finetune, pearl_learner
from omrl.algos.latent_algorithm import LatentAlgorithm, LatentTask
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_finetune import PearlTuning
from omrl.algos.pearl_learner import Learner, noise_of_task
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp
from omrl.tuning import FinetuneConfig
from omrl.types import Batch, Key, Metrics, Spec


class PearlState(NamedTuple):
    step: Int[Array, ""]
    learner: Learner


@dataclass(frozen=True)
class Pearl(LatentAlgorithm[PearlState]):
    """PEARL behind the contract of `omrl.algorithm`."""

    config: PearlConfig
    spec: Spec

    def init(self, key: Key) -> PearlState:
        return PearlState(jnp.zeros((), jnp.int32), pearl_learner.init(self.config, self.spec, key))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches, tasks = (config.batch, config.context), config.task_batch
        return (
            Stage(
                "meta",
                config.steps,
                tasks,
                batches,
                self.update,
                with_tasks=True,
                distinct_tasks=config.distinct_tasks,
                exploration=config.exploration,
            ),
        )

    def update(
        self,
        state: PearlState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[PearlState, Metrics]:
        """One step on batches [task, sample, ...]. A task's noise goes with its number, so that the
        order of `tasks` changes nothing."""
        batch, context = (self.scaled(batches[name]) for name in ("batch", "context"))
        fold_each = jax.vmap(jax.random.fold_in, (None, 0))
        keys = fold_each(key, tasks)
        if not self.config.distinct_tasks:  # The second of a task is not to have the first's noise.
            keys = jax.vmap(jax.random.fold_in)(keys, jnp.arange(len(tasks)))
        draw = partial(noise_of_task, self.config, *batch.action.shape[1:])
        z_noise, action_noise = jax.vmap(draw)(keys)
        infer = partial(latent_context.infer, context=context, noise=z_noise)
        learner, _, metrics = pearl_learner.step(
            self.config, state.learner, batch, infer, action_noise
        )
        return PearlState(state.step + 1, learner), metrics

    def networks(self, state: PearlState) -> tuple[Encoder, LatentMlp]:
        return state.learner.evaluation.encoder, state.learner.improvement.policy

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

    def begin_tuning(self, state: PearlState, task: LatentTask, key: Key) -> PearlTuning:
        return pearl_finetune.begin_tuning(state.learner, task)

    def tune(self, state: PearlState, tuning: PearlTuning, batch: Batch, key: Key) -> PearlTuning:
        return pearl_finetune.tune(self.config, tuning, self.scaled(batch), key)

    def tuned(self, state: PearlState, tuning: PearlTuning) -> LatentTask:
        return pearl_finetune.tuned(tuning)
