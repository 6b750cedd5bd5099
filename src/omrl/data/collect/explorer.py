"""Agents that learn from scratch while they collect, one per task of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int64

from omrl.arrays import map_npy
from omrl.data.collect.budget import capacity
from omrl.data.collect.config import CollectConfig
from omrl.data.collect.learner import Brain, Learner, Streams, task_streams, where_task
from omrl.data.collect.moments import OBS_LIMIT, scale
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import FinalAgents, agents_file
from omrl.data.collect.rounds import Player, States, live_order
from omrl.data.growing import GrowingTask
from omrl.envs.base import EnvSpec
from omrl.envs.engine import Transition


class Explorer:
    """Collects, and learns while the physics runs. Implements `Crew`."""

    def __init__(
        self,
        config: CollectConfig,
        spec: EnvSpec,
        tasks: tuple[int, ...],
        progress: CollectProgress,
    ):
        """At the beginning of the tasks' lifetimes."""
        self._config = config
        self._spec = spec
        self._tasks = tasks
        self._progress = progress
        self._learner = learner = Learner(config.make_agent(spec), config.updates_per_step)
        self._streams = task_streams(config.seed, jnp.asarray(tasks, jnp.int32))
        self.brains = learner.init(self._streams)
        self.replay = learner.empty_replay(len(tasks), capacity(config, spec))
        # Those before the final ones, in the layout of their files.
        self._kept = [self._agents().arrays() for _ in range(config.keep_agents - 1)]
        self._step = 0
        self._learns = False

    # --- Rounds ---

    def compile(self) -> None:
        """See `Crew.compile`."""
        learner, shape = self._learner, (len(self._tasks), self._config.envs)
        obs = jax.device_put(np.zeros((*shape, self._spec.obs_dim), np.float32))
        first = np.int32(0)
        for mode in ("explore", "random"):
            action = learner.act(self.brains, self._streams, obs, first, mode)
        # Nobody is alive, so nothing is inserted; what a copy learns is thrown away.
        packed = np.zeros((*shape, self._spec.obs_dim + 3), np.float32)
        self.replay, _ = learner.insert(self.replay, obs, action, packed)
        copy = jax.tree.map(jnp.copy, self.brains)
        copy = learner.learn(copy, self._streams, self.replay, first)
        copy = learner.end_round(
            copy, self.replay, np.zeros(len(self._tasks), np.int32), self._longest
        )
        where_task(np.ones(len(self._tasks), bool), copy, copy)

    def start_round(
        self, number: int, active: Bool[np.ndarray, " task"], before: Int64[np.ndarray, " task"]
    ) -> None:
        """See `Crew.start_round`. Without learning all actions are random."""
        # One step more than an episode has: the observation that ends a round gets actions too.
        self._step = number * (self._spec.horizon + 1)
        self._learns = number >= self._config.warmup_rounds
        self._resting = None if active.all() else jax.tree.map(jnp.copy, self.brains)

    def begin(self, obs: Float32[np.ndarray, "task env obs"], states: States) -> jax.Array:
        """See `Player.begin`."""
        self._obs = jax.device_put(obs)
        return self._choose()

    def meanwhile(self) -> None:
        """Dispatch the updates of this step; returns before they are done."""
        if self._learns:
            self.brains = self._learner.learn(
                self.brains, self._streams, self.replay, np.int32(self._step)
            )

    def see(
        self, after: Transition, alive: Bool[np.ndarray, " row"], shape: tuple[int, int]
    ) -> jax.Array:
        """See `Player.see`. One array goes to the device."""
        flags = np.stack([after.reward, after.terminated, alive], axis=1)
        packed = np.concatenate([after.obs, flags], axis=1, dtype=np.float32)
        self.replay, self._obs = self._learner.insert(
            self.replay, self._obs, self._action, packed.reshape(*shape, -1)
        )
        self._step += 1
        playing = alive.reshape(shape).any(axis=1).sum()
        self._progress.step(
            int(alive.sum()), int(playing) * self._learner.updates_per_step * self._learns
        )
        return self._choose()

    def end_round(
        self,
        active: Bool[np.ndarray, " task"],
        before: Int64[np.ndarray, " task"],
        after: Int64[np.ndarray, " task"],
    ) -> None:
        """See `Crew.end_round`."""
        brains = self._learner.end_round(
            self.brains, self.replay, before.astype(np.int32), self._longest
        )
        resting = self._resting
        self.brains = brains if resting is None else where_task(active, brains, resting)
        self._keep(before, after)

    def _choose(self) -> jax.Array:
        mode = "explore" if self._learns else "random"
        self._action = self._learner.act(
            self.brains, self._streams, self._obs, np.int32(self._step), mode
        )
        return self._action

    @property
    def _longest(self) -> int:
        """Most transitions that a round adds to a task."""
        return self._config.envs * self._spec.horizon

    # --- Results ---

    def best(self) -> Player:
        """See `Crew.best`."""
        return Best(self._learner, self._streams, self.brains)

    def policies(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """See `Crew.policies`."""
        everyone = [*self._kept, self._agents().arrays()]
        count = len(everyone)
        return {agents_file(i, count): arrays for i, arrays in enumerate(everyone, start=1)}

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """See `Crew.account`: the agent's settings tell it all."""
        return {}

    def _keep(self, before: Int64[np.ndarray, " task"], after: Int64[np.ndarray, " task"]) -> None:
        """Keep the policies of tasks that have just come to one of the points to keep them at."""
        count = self._config.keep_agents
        for number, held in enumerate(self._kept, start=1):
            target = number * self._config.steps / count
            due = (before < target) & (after >= target)
            if due.any():
                for name, array in self._agents().arrays().items():
                    held[name] = np.where(
                        due.reshape(-1, *(1,) * (array.ndim - 1)), array, held[name]
                    )

    def _agents(self) -> FinalAgents:
        """The agents as they are."""
        moments = self.brains.moments
        layers = jax.vmap(self._learner.agent.actor)(self.brains.agent).layers
        return FinalAgents(
            np.asarray(self._tasks),
            np.asarray(moments.mean),
            np.asarray(scale(moments)),
            OBS_LIMIT,
            tuple(np.asarray(layer.weight) for layer in layers),
            tuple(np.asarray(layer.bias) for layer in layers),
            self._learner.agent.act_dim,
        )

    # --- Checkpoints ---

    def state(self) -> Any:
        """See `Crew.state`."""
        return self.brains, self._kept

    def restore(self, state: Any, files: Callable[[int], GrowingTask]) -> None:
        """See `Crew.restore`."""
        brains, self._kept = state
        self.brains = jax.device_put(brains)
        for position, task in enumerate(self._tasks):
            self._refill(position, files(task))

    def _refill(self, position: int, files: GrowingTask) -> None:
        """The replay buffer of one task, in the order in which it was filled at first."""
        files.seal()
        column = {
            name: map_npy(files.path(name), "collect again")
            for name in ("obs", "action", "reward", "terminated", "episode_start")
        }
        lengths = np.diff(column["episode_start"])
        obs_row = np.arange(lengths.sum()) + np.repeat(np.arange(len(lengths)), lengths)
        order = live_order(column["episode_start"], self._config.envs)
        rows = np.zeros(self.replay.rows.shape[1:], np.float32)
        rows[: len(order)] = np.concatenate(
            [
                column["obs"][obs_row],
                column["action"],
                column["reward"][:, None],
                column["terminated"][:, None],
                column["obs"][obs_row + 1],
            ],
            axis=1,
        )[order]
        self.replay = self._learner.refill(
            self.replay, np.int32(position), rows, np.int32(len(order))
        )


class Best:
    """Plays the deterministic policies of the agents. Implements `Player`."""

    def __init__(self, learner: Learner, streams: Streams, brains: Brain):
        self._learner, self._streams, self._brains = learner, streams, brains

    def begin(self, obs: Float32[np.ndarray, "task env obs"], states: States) -> jax.Array:
        """See `Player.begin`."""
        return self._learner.act(self._brains, self._streams, obs, np.int32(0), "best")

    def meanwhile(self) -> None:
        """Nothing to learn."""

    def see(
        self, after: Transition, alive: Bool[np.ndarray, " row"], shape: tuple[int, int]
    ) -> Any:
        """See `Player.see`."""
        return self.begin(after.obs.reshape(*shape, -1), after.states)
