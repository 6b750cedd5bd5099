"""Behaviour that an environment comes with, see `omrl.envs.base.ScriptedEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from omrl.data.collect.config import CollectConfig, ScriptedConfig
from omrl.data.collect.rounds import States, seed_of_task
from omrl.envs.base import Script, ScriptedEnv, TaskEnv
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
        self._seed, self._num_envs = config.seed, config.envs
        self._script: Script | None = None

    def start_round(self, before: Int64[np.ndarray, " task"]) -> None:
        """All rounds are alike but for their random numbers."""
        self._script = None

    def act(
        self,
        obs: Float32[np.ndarray, "task env obs"],
        states: States,
        step: int,
    ) -> Float64[np.ndarray, "task env act"]:
        """See `Behaviour.act`."""
        number, time = divmod(step, self._env.spec.horizon + 1)
        if self._script is None:
            self._script = self._begin(number)
        if time == self._env.spec.horizon:  # The round is over; nobody plays this.
            return np.zeros((*obs.shape[:2], self._env.spec.act_dim))
        return self._script.act(states).reshape(*obs.shape[:2], -1)

    def _begin(self, number: int) -> Script:
        """Of round `number`: functions of (seed, task, environment of the task, round)."""
        rngs = [
            rng
            for task in self._tasks
            for rng in script_rngs(
                seed=seed_of_task(self._seed, task), num_envs=self._num_envs, episode=number
            )
        ]
        tasks = np.repeat(self._env.tasks[list(self._tasks)], self._num_envs, axis=0)
        return self._env.script(tasks, rngs, self._agent.noise)

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """Nothing to add."""
        return {}
