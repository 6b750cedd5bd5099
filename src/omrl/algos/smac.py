"""SMAC: offline meta-RL with online self-supervision (Pong et al. 2022, arXiv:2107.03974).

A task is a latent z, as in PEARL: an encoder makes of every transition a Gaussian factor, whose
product over a context h is the posterior q(z|h); policy and critics are told z. What differs: the
policy is drawn to logged actions by their advantage (AWAC) and away from none, so that critics are
not asked for actions they know nothing of; and the encoder learns to tell rewards, from which a
decoder r_d(s, a, z) reconstructs them, and not values.

That is the offline phase. In the self-supervised phase the policy collects without rewards, the
decoder labels what was collected, and policy and critics go on learning from logged and labelled
data together, encoder and decoder frozen. The stage collects by the `exploration` of the settings
(`omrl.collector`); its oracle is shown the environment's rewards and learns all of its networks.

Files: the settings (`smac_config.py`), losses and step (`smac_learner.py`), what PEARL does too
(`latent_context.py`, `latent_algorithm.py`), and here the algorithm behind the contract.
`docs/algorithms/smac.md` lists where paper and reference code differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        """Algorithm 1: lines 2 to 5, and 6 to 12 if there are online updates."""
        config = self.config
        batches, tasks = (config.batch, config.context), config.task_batch
        offline = Stage("offline", config.steps, tasks, batches, self.update, with_tasks=True)
        if not config.online_steps:
            return (offline,)
        online = replace(
            offline,
            name="online_oracle" if config.oracle else "self_supervised",
            steps=config.online_steps,
            batches=(config.online_batch, config.context),
            update=self.oracle_update if config.oracle else self.self_supervised_update,
            exploration=config.exploration,
            left_out_by="--algo.online-steps 0",
        )
        return offline, online

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

    def oracle_update(
        self,
        state: SmacState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[SmacState, Metrics]:
        """The same step where true rewards go on coming: encoder and decoder learn too."""
        return self._step(self.config.self_supervised, state, batches, key, tasks, frozen=False)

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
