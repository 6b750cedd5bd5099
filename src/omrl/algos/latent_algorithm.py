"""Meta-test of the methods that know a task by a latent z (PEARL, SMAC), behind the contract."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.algorithm import Algorithm, State
from omrl.algos import latent_context
from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp
from omrl.nets.mlp import Dense
from omrl.ops import latent
from omrl.ops.gaussian import sample_squashed
from omrl.ops.latent import Evidence
from omrl.ops.scale import scaled_obs
from omrl.types import Batch, Key, Spec, Step


class LatentTask(NamedTuple):
    """What is known of one task, the z that is acted with, and the policy that is told it."""

    evidence: Evidence
    z: Float[Array, " latent"]
    policy: LatentMlp
    """The meta-trained one, if it was not tuned to the task."""


class LatentAlgorithm(Algorithm[State, LatentTask]):
    """All but training. Of the config it reads `latent`, `adapted_z` and `normalize_obs`."""

    config: Any
    spec: Spec
    online_context: ClassVar = "trajectory"

    @abc.abstractmethod
    def networks(self, state: State) -> tuple[Encoder, LatentMlp]:
        """Context encoder and policy."""

    def begin(self, state: State, key: Key) -> LatentTask:
        """The prior, and a z drawn from it."""
        nothing = jnp.zeros(self.config.latent)
        known = Evidence(nothing, nothing)
        return LatentTask(known, self._z(known, key), self.networks(state)[1])

    def adapt(self, state: State, task: LatentTask, support: Batch, key: Key) -> LatentTask:
        """The factors of all transitions are multiplied in, and z is drawn anew."""
        known = latent.combined(task.evidence, self.evidence(state, support))
        return task._replace(evidence=known, z=self._z(known, key))

    def observe(self, state: State, task: LatentTask, step: Step, key: Key) -> LatentTask:
        """One more factor. z stays as it is, as it does for a whole trajectory in PEARL's paper."""
        obs, next_obs = self.scaled_obs(step.obs), self.scaled_obs(step.next_obs)
        encoder, _ = self.networks(state)
        seen = latent.factor(*encoder(obs, step.action, step.reward, next_obs))
        return task._replace(evidence=latent.combined(task.evidence, seen))

    def resample(self, state: State, task: LatentTask, key: Key) -> LatentTask:
        """z drawn from the posterior, also where `adapted_z` acts on its mean."""
        return task._replace(z=drawn(task.evidence, key))

    def posterior(
        self, state: State, task: LatentTask
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """Mean and variance of q(z|c); of the prior before any context."""
        return latent.posterior(task.evidence)

    def act(
        self,
        state: State,
        task: LatentTask,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        shift = task.policy.shift(task.z)
        mean, log_std = latent_context.distribution(task.policy, self.scaled_obs(obs), shift)
        return jnp.tanh(mean) if deterministic else sample_squashed(key, mean, log_std)[0]

    def policy_layers(self, state: State, task: LatentTask) -> tuple[Dense, ...]:
        """z folded into the first layer's bias, and of the outputs the means alone."""
        *hidden, last = task.policy.told(task.z)
        return (*hidden, Dense(last.affine[:, : self.spec.act_dim]))

    # --- Parts ---

    def evidence(self, state: State, context: Batch) -> Evidence:
        """What a context, leaves [sample, ...], says about its task: q(z|c) without the prior; its
        mean and variance are `ops.latent.posterior` of it."""
        encoder, _ = self.networks(state)
        one_task = jax.tree.map(lambda leaf: leaf[None], self.scaled(context))
        found = latent_context.evidence(encoder, one_task)
        return jax.tree.map(lambda leaf: leaf[0], found)

    def scaled_obs(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b obs"]:
        """Observations as the networks take them."""
        return scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)

    def scaled(self, batch: Batch) -> Batch:
        """A batch as the networks take it."""
        return batch._replace(
            obs=self.scaled_obs(batch.obs), next_obs=self.scaled_obs(batch.next_obs)
        )

    def _z(self, known: Evidence, key: Key) -> Float[Array, " latent"]:
        if self.config.adapted_z == "mean":
            return latent.posterior(known)[0]
        return drawn(known, key)


def drawn(known: Evidence, key: Key) -> Float[Array, " latent"]:
    """z ~ q(z|c), or from the prior without evidence."""
    mean, variance = latent.posterior(known)
    return latent.sample(mean, variance, jax.random.normal(key, mean.shape))
