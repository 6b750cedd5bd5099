"""Behaviour that an environment comes with, see `omrl.envs.base.ScriptedEnv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from omrl.data.collect.config import CollectConfig, ScriptedConfig
from omrl.data.collect.rounds import States, seed_of_task
from omrl.envs.base import EnvSpec, Script, ScriptedEnv, TaskEnv
from omrl.envs.engine import script_rngs
from omrl.errors import InputError


class Scripted:
    """A script per round. Implements `Behaviour`."""

    def __init__(self, config: CollectConfig, env: TaskEnv, tasks: tuple[int, ...]):
        """InputError for an environment without a script."""
        agent = config.agent
        assert isinstance(agent, ScriptedConfig)
        if not isinstance(env, ScriptedEnv):
            raise InputError(
                f"agent: {env.spec.id} has no script; collect with another: --agent td3, sac or "
                "random"
            )
        self._env, self._agent, self._tasks = env, agent, tasks
        self._seed, self._num_envs, self._steps = config.seed, config.envs, config.steps
        self._random = np.zeros(len(tasks))
        self._round: _Round | None = None

    def start_round(self, before: Int64[np.ndarray, " task"]) -> None:
        """How many actions of this round are random."""
        first, last = self._agent.random
        lived = np.minimum(before / self._steps, 1.0)
        self._random = first + (last - first) * lived
        self._round = None

    def act(
        self,
        obs: Float32[np.ndarray, "task env obs"],
        states: States,
        step: int,
    ) -> Float64[np.ndarray, "task env act"]:
        """See `Behaviour.act`."""
        number, time = divmod(step, self._env.spec.horizon + 1)
        if self._round is None:
            self._round = self._begin(number)
        if time == self._env.spec.horizon:  # The round is over; nobody plays this.
            return np.zeros((*obs.shape[:2], self._env.spec.act_dim))
        return self._round.act(states, time).reshape(*obs.shape[:2], -1)

    def _begin(self, number: int) -> _Round:
        """Of round `number`: functions of (seed, task, environment of the task, round)."""
        rngs = [
            rng
            for task in self._tasks
            for rng in script_rngs(
                seed=seed_of_task(self._seed, task), num_envs=self._num_envs, episode=number
            )
        ]
        tasks = np.repeat(self._env.tasks[list(self._tasks)], self._num_envs, axis=0)
        script = self._env.script(tasks, rngs, self._agent.noise)
        shares = np.repeat(self._random, self._num_envs)
        return _Round(script, rngs, shares, self._env.spec)

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """Nothing to add."""
        return {}


class _Round:
    """A script, and random actions instead of some of its own."""

    def __init__(
        self,
        script: Script,
        rngs: Sequence[np.random.Generator],
        shares: Float64[np.ndarray, " row"],
        spec: EnvSpec,
    ):
        """`rngs` have made the script's choices; `shares` of the actions are random."""
        self._script = script
        self._instead = np.zeros((len(rngs), spec.horizon), bool)
        self._actions = np.zeros((len(rngs), spec.horizon, spec.act_dim))
        for row in np.flatnonzero(shares).tolist():
            self._instead[row] = rngs[row].random(spec.horizon) < shares[row]
            self._actions[row] = rngs[row].uniform(-1.0, 1.0, self._actions.shape[1:])

    def act(self, states: States, time: int) -> Float64[np.ndarray, "row act"]:
        """The script is asked in any case: it may count its steps."""
        own = self._script.act(states)
        return np.where(self._instead[:, time, None], self._actions[:, time], own)
