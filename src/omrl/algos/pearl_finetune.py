"""PEARL with fine-tuning: going on learning on the data of one task (MACAW, appendix D.4).

Policy and value functions are trained on, with the losses and rates of meta-training, on batches of
one task alone and with fresh optimisers. What becomes of z the papers do not say; here it is an
option, `PearlConfig.tune_encoder`:

* `keep`: z is what adaptation made of its context, to the end. The encoder learns nothing.
* `infer`: every batch is a context too, of which z is inferred anew; the encoder learns nothing.
* `learn`: the same, and the encoder learns from the Q-loss and the KL, as in meta-training.

`begin_tuning`, `tune` and `tuned` are pure functions; batches come in scaled as the config says.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.algos import latent_context, pearl_learner
from omrl.algos.latent_algorithm import LatentTask
from omrl.algos.latent_context import Inferred
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_learner import Learner, noise_of_task
from omrl.nets.encoder import Encoder
from omrl.ops.latent import Evidence
from omrl.types import Batch, Key


class PearlTuning(NamedTuple):
    """The learner of one task, and what is known of it."""

    learner: Learner
    evidence: Evidence
    z: Float[Array, " latent"]


def begin_tuning(learner: Learner, task: LatentTask) -> PearlTuning:
    """All networks as they were meta-trained, the target of V too, but the task's own policy."""
    improvement = learner.improvement._replace(policy=task.policy)
    fresh = pearl_learner.start(learner.evaluation, improvement, learner.target_value)
    return PearlTuning(fresh, task.evidence, task.z)


def tune(config: PearlConfig, tuning: PearlTuning, batch: Batch, key: Key) -> PearlTuning:
    """One step on a batch [sample, ...] of the task."""
    one_task = jax.tree.map(lambda leaf: leaf[None], batch)
    num_samples, act_dim = batch.action.shape
    noise = noise_of_task(config, num_samples, act_dim, key)
    z_noise, action_noise = (each[None] for each in noise)

    def known(encoder: Encoder) -> Inferred:
        evidence = jax.tree.map(lambda leaf: leaf[None], tuning.evidence)
        return Inferred(evidence, tuning.z[None], jnp.zeros(1))

    def inferred(encoder: Encoder) -> Inferred:
        fixed = encoder if config.tune_encoder == "learn" else jax.lax.stop_gradient(encoder)
        noise = jnp.zeros_like(z_noise) if config.adapted_z == "mean" else z_noise
        return latent_context.infer(fixed, one_task, noise)

    infer = known if config.tune_encoder == "keep" else inferred
    learner, told, _ = pearl_learner.step(config, tuning.learner, one_task, infer, action_noise)
    return PearlTuning(learner, *jax.tree.map(lambda leaf: leaf[0], (told.evidence, told.z)))


def tuned(tuning: PearlTuning) -> LatentTask:
    """What `act` takes: the task with the policy as it is now."""
    return LatentTask(tuning.evidence, tuning.z, tuning.learner.improvement.policy)
