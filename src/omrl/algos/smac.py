"""SMAC: offline meta-RL with online self-supervision (Pong et al. 2022, arXiv:2107.03974).

A task is a latent z, as in PEARL: an encoder makes of every transition a Gaussian factor, whose
product over a context h is the posterior q(z|h); policy and critics are told z. What differs: the
policy is drawn to logged actions by their advantage (AWAC) and away from none, so that critics are
not asked for actions they know nothing of; and the encoder learns to tell rewards, from which a
decoder r_d(s, a, z) reconstructs them, and not values.

That is the offline phase. The decoder then labels what the policy collects without rewards, and
policy and critics go on learning from it, encoder and decoder frozen: `label` and
`self_supervised_update` are what that phase takes.

Files: the settings (`smac_config.py`), losses and step (`smac_learner.py`), what PEARL does too
(`latent_context.py`, `latent_algorithm.py`), and here the algorithm behind the contract.
`docs/algorithms/smac.md` lists where paper and reference code differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from omrl.algorithm import Stage
from omrl.algos import smac_learner
from omrl.algos.latent_algorithm import LatentAlgorithm, LatentTask
from omrl.algos.smac_config import SmacConfig
from omrl.algos.smac_learner import Learner, noise_of_task
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp
from omrl.types import Batch, Key, Metrics, Scalar, Spec


class SmacState(NamedTuple):
    step: Int[Array, ""]
    learner: Learner


@dataclass(frozen=True)
class Smac(LatentAlgorithm[SmacState]):
    """SMAC behind the contract of `omrl.algorithm`."""

    config: SmacConfig
    spec: Spec

    def init(self, key: Key) -> SmacState:
        return SmacState(jnp.zeros((), jnp.int32), smac_learner.init(self.config, self.spec, key))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        batches, tasks = (config.batch, config.context), config.task_batch
        return (Stage("offline", config.steps, tasks, batches, self.update, with_tasks=True),)

    def networks(self, state: SmacState) -> tuple[Encoder, LatentMlp]:
        return state.learner.representation.encoder, state.learner.actor_critic.policy

    def update(
        self,
        state: SmacState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[SmacState, Metrics]:
        """One offline step on batches [task, sample, ...]. A task's noise goes with its number, so
        that the order of `tasks` changes nothing."""
        return self._step(self.config, state, batches, key, tasks, frozen=False)

    def self_supervised_update(
        self,
        state: SmacState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[SmacState, Metrics]:
        """The same step of the self-supervised phase: encoder and decoder stay as they are, and the
        actor also climbs Q (C.3)."""
        return self._step(self.config.self_supervised, state, batches, key, tasks, frozen=True)

    def label(
        self,
        state: SmacState,
        z: Float[Array, " latent"],
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
    ) -> Scalar:
        """r_d(s, a, z), the reward of a transition in the task that z stands for, in units of the
        environment's (Eq. 4). `adapt` draws such a z of logged data."""
        decoder = state.learner.representation.decoder
        x = jnp.concatenate([self.scaled_obs(obs), action])
        return decoder(x, decoder.shift(z))[0]

    def predict_reward(
        self,
        state: SmacState,
        task: LatentTask,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
    ) -> Scalar:
        """`label` of the z that is acted with."""
        return self.label(state, task.z, obs, action)

    def _step(
        self,
        config: SmacConfig,
        state: SmacState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
        *,
        frozen: bool,
    ) -> tuple[SmacState, Metrics]:
        batch, context = (self.scaled(batches[name]) for name in ("batch", "context"))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)
        noise = jax.vmap(partial(noise_of_task, config, *batch.action.shape[1:]))(keys)
        learner, _, metrics = smac_learner.step(
            config, state.learner, batch, context, noise, frozen=frozen
        )
        return SmacState(state.step + 1, learner), metrics
