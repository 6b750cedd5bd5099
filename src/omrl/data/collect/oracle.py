"""Behaviour of those who know: the best policies of tasks, with random actions between theirs.

An agent of another task's best policy explores, where tasks are goals. So episodes that turn from
task to task, with rewards of the own one, have what a method needs that learns to explore (BOReL),
and that neither random walks nor each task's own best policy has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int64, UInt

from omrl.data.collect.config import CollectConfig, OracleConfig
from omrl.data.collect.learner import env_keys, random_action, task_streams
from omrl.data.collect.rounds import States
from omrl.envs.base import SolvedEnv, TaskEnv
from omrl.errors import InputError
from omrl.types import Key


class Choices(NamedTuple):
    """What chance decides at a step, [task, env]."""

    turn: Float[Array, "*b"]
    """In [0, 1): below the probability of it the agent turns to another task, if the episode goes
    on; to the one that it begins with anyway."""
    own: Bool[Array, "*b"]
    """That is its own."""
    other: Int[Array, "*b"]
    """A number of the training tasks, if it is not."""
    random: Bool[Array, "*b"]
    """The action is."""
    action: Float[Array, "*b act"]
    """If it is random."""


class Oracles:
    """Best policies of tasks chosen at random. Implements `Behaviour`."""

    def __init__(self, config: CollectConfig, env: TaskEnv, tasks: tuple[int, ...]):
        assert isinstance(config.agent, OracleConfig)
        self._agent = config.agent
        self._env = solved(env)
        self._own = env.tasks[list(tasks)]
        self._others = env.tasks[list(env.splits["train"])]
        self._keys = task_streams(config.seed, jnp.asarray(tasks, jnp.int32)).act
        self._goals: np.ndarray | None = None

    def start_round(self, before: Int64[np.ndarray, " task"]) -> None:
        """Episodes begin with a new task: rounds do not depend on those before."""
        self._goals = None

    def act(
        self, obs: Float32[np.ndarray, "task env obs"], states: States, step: int
    ) -> Float[np.ndarray, "task env act"]:
        """See `Behaviour.act`."""
        act_dim = self._env.spec.act_dim
        chosen = jax.device_get(
            _choices(
                self._agent, len(self._others), self._keys, np.int32(step), obs.shape[1], act_dim
            )
        )
        new = np.where(chosen.own[..., None], self._own[:, None], self._others[chosen.other])
        states = states.reshape(*obs.shape[:2], -1)
        self._goals = new if self._goals is None else self._turned(states, chosen.turn, new)
        best = self._env.oracle_action(states, self._goals)
        return np.where(chosen.random[..., None], chosen.action, best).astype(np.float32)

    def _turned(
        self,
        states: Float[np.ndarray, "task env state"],
        turn: Float32[np.ndarray, "task env"],
        new: Float[np.ndarray, "task env parameter"],
    ) -> Float[np.ndarray, "task env parameter"]:
        """The tasks from now on: `new` ones of who turns."""
        assert self._goals is not None
        done = self._env.done(states, self._goals)
        turns = turn < np.where(done, max(self._agent.turn, self._agent.leave), self._agent.turn)
        return np.where(turns[..., None], new, self._goals)

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """Nothing to add."""
        return {}


def solved(env: TaskEnv) -> SolvedEnv:
    """`InputError` unless the environment's best policy is known."""
    if isinstance(env, SolvedEnv):
        return env
    raise InputError(
        f"--agent oracle: the best policy of {env.spec.id} has no closed form; "
        "use --from-agents with a dataset that kept its agents"
    )


@partial(jax.jit, static_argnums=(0, 1, 4, 5))
def _choices(
    agent: OracleConfig,
    num_tasks: int,
    keys: UInt[Array, "task 2"],
    step: Int[Array, ""],
    num_envs: int,
    act_dim: int,
) -> Choices:
    def one_env(key: Key) -> Choices:
        turn, own, other, random, action = jax.random.split(key, 5)
        return Choices(
            jax.random.uniform(turn),
            jax.random.bernoulli(own, agent.own),
            jax.random.randint(other, (), 0, num_tasks),
            jax.random.bernoulli(random, agent.random),
            random_action(action, act_dim),
        )

    return jax.vmap(lambda key: jax.vmap(one_env)(env_keys(key, step, num_envs)))(keys)
