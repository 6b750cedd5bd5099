"""BOReL: Bayes-adaptive offline meta-RL (Dorfman, Shenfeld and Tamar 2021, arXiv:2008.02598).

The best behaviour on an unknown task weighs finding out more against making use of what is known:
it is the best policy of the belief MDP, whose state s+ is the observation and what is believed of
the task. BOReL learns both from logged data, in two stages.

    vae      a recurrent encoder, trained as a VAE on whole trajectories, turns transitions into a
             Gaussian belief over a latent z after each of them (VariBAD, arXiv:1910.08348)
    policy   the frozen encoder goes once through the data (`prepare`), and an off-policy method,
             SAC or DQN, learns on transitions (s+, a, r, s'+)

A trajectory is several episodes of a task, and so is what the policy plans for: the belief is
carried from one to the next, at the test by protocol `explore`.

Files: the settings (`borel_config.py`), the VAE (`borel_vae.py`, `nets/belief.py`), logged data as
those of the belief MDP (`borel_relabel.py`), the policies (`borel_policy.py`, `dqn.py`), and here
the algorithm behind the contract. `docs/algorithms/borel.md` lists the differences to paper and
reference code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from omrl.algorithm import Algorithm, Stage
from omrl.algos import borel_policy, borel_vae, dqn
from omrl.algos.borel_config import BorelConfig
from omrl.algos.borel_policy import belief_obs
from omrl.algos.borel_relabel import belief_columns
from omrl.algos.borel_vae import VaeLearner
from omrl.algos.dqn import DqnConfig, DqnState
from omrl.algos.sac import SacState, action_distribution
from omrl.data.device import DeviceData
from omrl.data.trajectories import TrajectorySpec
from omrl.errors import InputError
from omrl.nets.belief import Belief
from omrl.nets.mlp import Dense
from omrl.ops.descent import cosine_decay
from omrl.ops.gaussian import sample_squashed
from omrl.ops.scale import scaled_obs
from omrl.types import Batch, Key, Metrics, Scalar, Spec, Step, Trajectory


class BorelState(NamedTuple):
    step: Int[Array, ""]
    model: VaeLearner
    policy: SacState | DqnState


@dataclass(frozen=True)
class Borel(Algorithm[BorelState, Belief]):
    """BOReL behind the contract of `omrl.algorithm`. What is known of a task is the belief."""

    config: BorelConfig
    spec: Spec
    online_context: ClassVar = "step"

    def __post_init__(self) -> None:
        sizes, obs_dim = self.config.vae.reward_cells, self.spec.obs_dim
        if len(sizes) > obs_dim:
            raise InputError(
                f"vae.reward_cells: has sizes of {len(sizes)} entries of an observation, which has "
                f"{obs_dim} in all; give fewer"
            )

    def init(self, key: Key) -> BorelState:
        model_key, policy_key = jax.random.split(key)
        config, act_dim = self.config.policy, self.spec.act_dim
        model = borel_vae.init(self.config.vae, self.seen_dim, act_dim, model_key)
        obs_dim = self.seen_dim + 2 * self.config.vae.latent
        if isinstance(config, DqnConfig):
            policy = dqn.init(config, obs_dim, act_dim, policy_key)
        else:
            policy = borel_policy.init(config, obs_dim, act_dim, policy_key)
        return BorelState(jnp.zeros((), jnp.int32), model, policy)

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        trajectories = TrajectorySpec(
            "trajectories", config.rollouts, config.episodes, self.spec.horizon
        )
        return (
            Stage(
                "vae",
                config.vae_steps,
                config.vae_task_batch,
                (trajectories,),
                self.update_model,
                with_tasks=True,
            ),
            Stage(
                "policy",
                config.steps,
                config.task_batch,
                (config.batch,),
                self.update_policy,
                with_tasks=True,
                distinct_tasks=config.distinct_tasks,
                prepare=self.prepare,
            ),
        )

    # --- Meta-training. A task's noise goes with its number: their order changes nothing ---

    def update_model(
        self,
        state: BorelState,
        batches: dict[str, Trajectory],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[BorelState, Metrics]:
        """One step of the VAE on trajectories [task, rollout, step, ...]."""
        config, seen = self.config.vae, batches["trajectories"]
        num_rollouts, num_steps = seen.reward.shape[1:]

        def draw(task: Int[Array, ""]) -> borel_vae.Draws:
            keys = jax.random.split(jax.random.fold_in(key, task), num_rollouts)
            return jax.vmap(partial(borel_vae.draw, config, num_steps))(keys)

        draws, decay = jax.vmap(draw)(tasks), self.decay(state.step, self.config.vae_steps)
        model, metrics = borel_vae.step(config, state.model, seen, draws, decay, self.scaled)
        return state._replace(step=state.step + 1, model=model), metrics

    def prepare(self, state: BorelState, data: DeviceData) -> dict[str, Array]:
        """The data as that of the belief MDP, by the encoder as it is."""
        data = data._replace(obs=self.scaled(data.obs.astype(jnp.float32)))
        config, encoder = self.config, state.model.vae.encoder
        return belief_columns(
            encoder,
            data,
            episodes=config.episodes,
            reset=config.reset_belief,
            to_start=config.last_leads == "to-start",
        )

    def update_policy(
        self,
        state: BorelState,
        batches: dict[str, Batch],
        key: Key,
        tasks: Int[Array, " task"],
    ) -> tuple[BorelState, Metrics]:
        """One step of the policy on a prepared batch [task, sample, ...]."""
        config, batch = self.config.policy, batches["batch"]
        seen = Step(batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated)
        decay = self.decay(state.step - self.config.vae_steps, self.config.steps)
        if isinstance(config, DqnConfig):
            assert isinstance(state.policy, DqnState)
            policy, metrics = dqn.step(config, state.policy, seen, decay)
            return state._replace(step=state.step + 1, policy=policy), metrics
        assert isinstance(state.policy, SacState)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)
        if not self.config.distinct_tasks:  # The second of a task is not to have the first's noise.
            keys = jax.vmap(jax.random.fold_in)(keys, jnp.arange(len(tasks)))
        noise = jax.vmap(partial(borel_policy.draw, config, *batch.action.shape[1:]))(keys)
        policy, metrics = borel_policy.step(config, state.policy, seen, noise, decay)
        return state._replace(step=state.step + 1, policy=policy), metrics

    def decay(self, step: Int[Array, ""], num_steps: int) -> Scalar | float:
        """What the rates are multiplied with after `step` of the updates of a stage."""
        return cosine_decay(step, num_steps) if self.config.lr_decay else 1.0

    # --- Meta-test ---

    def begin(self, state: BorelState, key: Key) -> Belief:
        """The prior, which is learned."""
        return state.model.vae.encoder.prior()

    def adapt(self, state: BorelState, task: Belief, support: Batch, key: Key) -> Belief:
        """The belief after all transitions of `support`, in their order."""

        def observe(belief: Belief, step: Step) -> tuple[Belief, None]:
            return self.observe(state, belief, step, key), None

        steps = Step(
            support.obs, support.action, support.reward, support.next_obs, support.terminated
        )
        return jax.lax.scan(observe, task, steps)[0]

    def observe(self, state: BorelState, task: Belief, step: Step, key: Key) -> Belief:
        """The belief after one more transition."""
        encoder = state.model.vae.encoder
        return encoder.observe(task, step.action, step.reward, self.scaled(step.next_obs))

    def act(
        self,
        state: BorelState,
        task: Belief,
        obs: Float[Array, " obs"],
        key: Key,
        deterministic: bool,
    ) -> Float[Array, " act"]:
        seen = belief_obs(self.scaled(obs), task.mean, task.log_variance)
        if isinstance(state.policy, DqnState):
            assert isinstance(self.config.policy, DqnConfig)
            return dqn.act(self.config.policy, state.policy.q, seen, key, deterministic)
        mean, log_std = action_distribution(state.policy.actor, seen)
        return jnp.tanh(mean) if deterministic else sample_squashed(key, mean, log_std)[0]

    def policy_layers(self, state: BorelState, task: Belief) -> tuple[Dense, ...]:
        """The belief, as it is, folded into the first layer's bias; of the outputs the means."""
        if isinstance(state.policy, DqnState):
            raise InputError(
                "a policy of DQN has discrete actions and cannot be exported; evaluate it"
            )
        if self.config.one_hot_cells:
            raise InputError(
                "one_hot_cells: dense layers on numbers cannot tell cells, so that the policy "
                "cannot be exported; evaluate it, or train with it off"
            )
        first, *rest = state.policy.actor.layers
        known = jnp.concatenate([task.mean, task.log_variance])
        of_obs, of_known = jnp.split(first.weight, [self.spec.obs_dim])
        first = Dense.of(of_obs, first.bias + known @ of_known)
        *hidden, last = (first, *rest)
        return (*hidden, Dense(last.affine[:, : self.spec.act_dim]))

    def posterior(
        self, state: BorelState, task: Belief
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """Mean and variance of the belief; of the learned prior before any transition."""
        return task.mean, jnp.exp(task.log_variance)

    def predict_reward(
        self,
        state: BorelState,
        task: Belief,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
    ) -> Scalar:
        """What the reward decoder makes of the belief's mean; of head bernoulli the expectation."""
        seen, vae = (obs, action, next_obs), state.model.vae
        return borel_vae.predicted_reward(
            self.config.vae, vae, task.mean, *seen, scaled=self.scaled
        )

    def scaled(self, obs: Float[Array, "*b obs"]) -> Float[Array, "*b seen"]:
        """Observations as the networks take them: [*b, seen_dim]."""
        scaled = scaled_obs(self.spec, obs, normalize=self.config.normalize_obs)
        if not self.config.one_hot_cells:
            return scaled
        vae = self.config.vae
        others = scaled[..., len(vae.reward_cells) :]
        return jnp.concatenate([borel_vae.one_hot_cell(vae, obs), others], axis=-1)

    @property
    def seen_dim(self) -> int:
        """Entries of an observation as the networks take it."""
        vae = self.config.vae
        more = vae.num_cells - len(vae.reward_cells) if self.config.one_hot_cells else 0
        return self.spec.obs_dim + more
