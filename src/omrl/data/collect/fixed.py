"""Behaviour that does not learn: random actions, and policies kept from other lifetimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int64, UInt

from omrl.data.collect.config import CollectConfig, KeptConfig
from omrl.data.collect.learner import env_keys, random_action, task_streams
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import FinalAgents, KeptPolicies
from omrl.data.collect.rounds import States
from omrl.data.growing import GrowingTask
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.envs.engine import Transition, initial_state
from omrl.nets.mlp import Dense, forward
from omrl.types import Key


@runtime_checkable
class Behaviour(Protocol):
    """Chooses the actions of all tasks of a group."""

    def start_round(self, before: Int64[np.ndarray, " task"]) -> None:
        """Called with the tasks' transitions so far."""

    def act(
        self, obs: Float32[np.ndarray, "task env obs"], states: States, step: int
    ) -> jax.Array | np.ndarray:
        """Actions [task, env, act] at `step` of the lifetimes."""
        ...

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """See `Crew.account`."""
        ...


class Fixed:
    """Plays a behaviour that does not learn. Implements `Crew`."""

    def __init__(
        self,
        behaviour: Behaviour,
        shape: tuple[int, int],
        env: TaskEnv,
        progress: CollectProgress,
    ):
        """`shape` is the numbers of tasks and of environments per task."""
        self._behaviour = behaviour
        self._shape = shape
        self._env = env
        self._progress = progress
        self._step = 0

    def compile(self) -> None:
        """See `Crew.compile`."""
        self._behaviour.start_round(np.zeros(self._shape[0], np.int64))
        state = initial_state(self._env, seed=0, index=0, episode=0)
        states = np.tile(state, (math.prod(self._shape), 1))
        self._behaviour.act(self._env.observe(states).reshape(*self._shape, -1), states, 0)

    def start_round(
        self, number: int, active: Bool[np.ndarray, " task"], before: Int64[np.ndarray, " task"]
    ) -> None:
        """See `Crew.start_round`."""
        self._step = number * (self._env.spec.horizon + 1)  # As while learning.
        self._behaviour.start_round(before)

    def begin(
        self, obs: Float32[np.ndarray, "task env obs"], states: States
    ) -> jax.Array | np.ndarray:
        """See `Player.begin`."""
        return self._behaviour.act(obs, states, self._step)

    def meanwhile(self) -> None:
        """Nothing to learn."""

    def see(
        self, after: Transition, alive: Bool[np.ndarray, " row"], shape: tuple[int, int]
    ) -> jax.Array | np.ndarray:
        """See `Player.see`."""
        self._step += 1
        self._progress.step(int(alive.sum()), 0)
        return self.begin(after.obs.reshape(*shape, -1), after.states)

    def end_round(
        self,
        active: Bool[np.ndarray, " task"],
        before: Int64[np.ndarray, " task"],
        after: Int64[np.ndarray, " task"],
    ) -> None:
        """Nothing has changed."""

    def best(self) -> None:
        """See `Crew.best`: there is no agent."""

    def policies(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """See `Crew.policies`."""
        return {}

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """See `Crew.account`."""
        return self._behaviour.account(position, transitions)

    def state(self) -> Any:
        """Nothing: rounds depend on the transitions so far alone."""
        return ()

    def restore(self, state: Any, files: Callable[[int], GrowingTask]) -> None:
        """See `state`."""


class RandomActions:
    """Uniform over the box, as learners play in their warm-up rounds. Implements `Behaviour`."""

    def __init__(self, config: CollectConfig, spec: EnvSpec, tasks: tuple[int, ...]):
        self._keys = task_streams(config.seed, jnp.asarray(tasks, jnp.int32)).act
        self._act_dim = spec.act_dim

    def start_round(self, before: Int64[np.ndarray, " task"]) -> None:
        """All rounds are alike."""

    def act(self, obs: Float32[np.ndarray, "task env obs"], states: States, step: int) -> jax.Array:
        """See `Behaviour.act`."""
        return _random_actions(self._keys, np.int32(step), obs.shape[1], self._act_dim)

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """Nothing to add."""
        return {}


class _Policy(NamedTuple):
    """Mapped over tasks every leaf has a leading axis, the task."""

    obs_mean: Any
    obs_scale: Any
    affine: tuple[Any, ...]
    """Of each `Dense` layer."""


class Mixture:
    """Kept policies with noise, each for its share of the transitions. Implements `Behaviour`."""

    def __init__(self, config: CollectConfig, tasks: tuple[int, ...], kept: KeptPolicies):
        agent = config.agent
        assert isinstance(agent, KeptConfig)
        self._steps, self._envs, self._noise = config.steps, config.envs, agent.noise
        self._numbers = agent.policies or tuple(range(1, len(kept.agents) + 1))
        shares = np.asarray(agent.shares or [1.0] * len(self._numbers))
        self._ends = np.cumsum(shares) / shares.sum()
        chosen = [kept.agents[number - 1] for number in self._numbers]
        self._act_dim, self._limit = chosen[0].act_dim, chosen[0].obs_limit
        policies = [_stack(agents, tasks) for agents in chosen]
        self._policies = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *policies)
        self._keys = task_streams(config.seed, jnp.asarray(tasks, jnp.int32)).act

    def start_round(self, before: Int64[np.ndarray, " task"]) -> None:
        """Choose the policies of this round."""
        turn = self._turns(before)
        playing = jax.tree.map(lambda leaf: leaf[np.arange(len(turn)), turn], self._policies)
        self._playing = jax.device_put(playing)

    def act(self, obs: Float32[np.ndarray, "task env obs"], states: States, step: int) -> jax.Array:
        """See `Behaviour.act`."""
        return _policy_actions(
            self._playing, self._keys, obs, np.int32(step), self._limit, self._noise, self._act_dim
        )

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """Numbers of the policies and their episodes, in the order of the data."""
        before = np.concatenate([[0], transitions[:-1]])
        played = before < self._steps
        turns, rounds = np.unique(self._turns(before[played]), return_counts=True)
        return {
            "episodes_of_policies": [
                [self._numbers[turn], int(count) * self._envs]
                for turn, count in zip(turns, rounds, strict=True)
            ]
        }

    def _turns(self, before: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Whose turn it is after so many transitions: a position in `policies`."""
        turns = np.searchsorted(self._ends, before / self._steps, side="right")
        return np.minimum(turns, len(self._ends) - 1)


def _stack(agents: FinalAgents, tasks: tuple[int, ...]) -> _Policy:
    """The policies of these tasks, in this order."""
    rows = np.array([int(np.flatnonzero(agents.tasks == task)[0]) for task in tasks])
    affine = [
        np.concatenate([weight[rows], bias[rows, None]], axis=1)
        for weight, bias in zip(agents.weights, agents.biases, strict=True)
    ]
    return _Policy(agents.obs_mean[rows], agents.obs_scale[rows], tuple(affine))


@partial(jax.jit, static_argnums=(2, 3))
def _random_actions(
    keys: UInt[Array, "task 2"], step: Int[Array, ""], num_envs: int, act_dim: int
) -> Float[Array, "task env act"]:
    def one_task(key: Key) -> Float[Array, "env act"]:
        return jax.vmap(lambda k: random_action(k, act_dim))(env_keys(key, step, num_envs))

    return jax.vmap(one_task)(keys)


@partial(jax.jit, static_argnums=(4, 5, 6))
def _policy_actions(
    policies: _Policy,
    keys: UInt[Array, "task 2"],
    obs: Float[Array, "task env obs"],
    step: Int[Array, ""],
    limit: float,
    noise: float,
    act_dim: int,
) -> Float[Array, "task env act"]:
    """clip(tanh(mean(obs)) + noise, -1, 1); see `FinalAgents.act`."""

    def one_env(policy: _Policy, obs: Float[Array, " obs"], key: Key) -> Float[Array, " act"]:
        x = jnp.clip((obs - policy.obs_mean) / policy.obs_scale, -limit, limit)
        layers = tuple(Dense(affine) for affine in policy.affine)
        best = jnp.tanh(forward(layers, x)[:act_dim])
        return jnp.clip(best + noise * jax.random.normal(key, (act_dim,)), -1, 1)

    def one_task(
        policy: _Policy, key: Key, obs: Float[Array, "env obs"]
    ) -> Float[Array, "env act"]:
        return jax.vmap(one_env, (None, 0, 0))(policy, obs, env_keys(key, step, obs.shape[0]))

    return jax.vmap(one_task)(policies, keys, obs)
