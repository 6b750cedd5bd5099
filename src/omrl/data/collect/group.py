"""The collection of the tasks that fit side by side, from their first round to their agents' last.

    round: physics on the CPU's threads while the agents learn on the device
    then:  statistics of observations, the round goes to the writer's thread, now and then a
           checkpoint behind it

A task is finished by the round in which it has its transitions. In environments that end early
that is not the same round for all; a finished task rests while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float64, Int64

from omrl.arrays import map_npy
from omrl.data.collect.budget import capacity
from omrl.data.collect.config import CollectConfig
from omrl.data.collect.learner import Learner, task_streams, where_task
from omrl.data.collect.moments import OBS_LIMIT, scale
from omrl.data.collect.players import Best, Explorer
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import FinalAgents
from omrl.data.collect.rounds import EVALUATION_EPISODE, Round, Simulation, live_order, play
from omrl.data.collect.storage import Checkpoint
from omrl.data.growing import GrowingTask
from omrl.envs.base import TaskEnv
from omrl.errors import InputError, NonFiniteError


class Group:
    """Plays rounds and holds what they lead to."""

    def __init__(
        self,
        config: CollectConfig,
        env: TaskEnv,
        learner: Learner,
        simulation: Simulation,
        progress: CollectProgress,
    ):
        """At the beginning of the lifetimes of the simulation's tasks."""
        self.tasks = simulation.tasks
        self._config = config
        self._env = env
        self._learner = learner
        self._simulation = simulation
        num_tasks = len(self.tasks)
        self._streams = task_streams(config.seed, jnp.asarray(self.tasks, jnp.int32))
        self._explorer = Explorer(
            learner,
            self._streams,
            learner.init(self._streams),
            learner.empty_replay(num_tasks, capacity(config, env.spec)),
            progress,
        )
        self.episodes = np.zeros(num_tasks, np.int64)
        self.returns = np.zeros((0, num_tasks))
        self.transitions = np.zeros((0, num_tasks), np.int64)

    # --- Rounds ---

    @property
    def rounds(self) -> int:
        """Rounds played."""
        return len(self.returns)

    @property
    def active(self) -> Bool[np.ndarray, " task"]:
        """Tasks that have not yet all their transitions."""
        return self._counts() < self._config.steps

    def play_round(self) -> Round:
        """One episode of every environment of the active tasks."""
        active, before = self.active, self._counts()
        explorer, horizon = self._explorer, self._env.spec.horizon
        resting = None if active.all() else jax.tree.map(jnp.copy, explorer.brains)
        # One step more than an episode has: the observation that ends a round gets actions too.
        explorer.start_round(
            self.rounds * (horizon + 1), learns=self.rounds >= self._config.warmup_rounds
        )
        played = play(self._simulation, explorer, episode=self.rounds, active=active)
        brains = self._learner.end_round(
            explorer.brains,
            explorer.replay,
            before.astype(np.int32),
            self._config.envs * horizon,
        )
        explorer.brains = brains if resting is None else where_task(active, brains, resting)
        means = np.where(active, played.returns().mean(axis=1), np.nan)
        self.returns = np.concatenate([self.returns, means[None]])
        counts = before + played.length.sum(axis=1)
        self.transitions = np.concatenate([self.transitions, counts[None]])
        self.episodes = self.episodes + self._config.envs * active
        return played

    def evaluate(self) -> Float64[np.ndarray, "task episode"]:
        """Returns of the agents at their best, one episode per environment."""
        best = Best(self._learner, self._streams, self._explorer.brains)
        everyone = np.ones(len(self.tasks), bool)
        played = play(self._simulation, best, episode=EVALUATION_EPISODE, active=everyone)
        return played.returns()

    def final_agents(self) -> FinalAgents:
        """The agents as they are."""
        brains = self._explorer.brains
        layers = jax.vmap(self._learner.agent.actor)(brains.agent).layers
        return FinalAgents(
            np.asarray(self.tasks),
            np.asarray(brains.moments.mean),
            np.asarray(scale(brains.moments)),
            OBS_LIMIT,
            tuple(np.asarray(layer.weight) for layer in layers),
            tuple(np.asarray(layer.bias) for layer in layers),
            self._learner.agent.act_dim,
        )

    def _counts(self) -> Int64[np.ndarray, " task"]:
        return self.transitions[-1] if self.rounds else np.zeros(len(self.tasks), np.int64)

    # --- Checkpoints ---

    def checkpoint(self, record: Any) -> Checkpoint:
        """All of it but the transitions, copied off the device.

        Raises:
            NonFiniteError: an agent has diverged; names task and tensor.
        """
        named, _ = jax.tree_util.tree_flatten_with_path(jax.device_get(self._explorer.brains))
        for path, leaf in named:
            finite = np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
            if not finite.all():
                raise NonFiniteError(
                    f"task {self.tasks[int(np.argmin(finite))]}, round {self.rounds}: "
                    f"{jax.tree_util.keystr(path).lstrip('.')} is not finite, its agent has "
                    "diverged; lower the learning rate"
                )
        leaves = tuple(leaf for _, leaf in named)
        return Checkpoint(record, self.tasks, self.episodes, self.returns, self.transitions, leaves)

    def restore(self, checkpoint: Checkpoint, files: Callable[[int], GrowingTask]) -> None:
        """Continue from a checkpoint; `files` of each task hold just the transitions up to it."""
        leaves, structure = jax.tree.flatten(self._explorer.brains)
        if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in checkpoint.leaves]:
            raise InputError(
                "checkpoint: holds other agents than this version of omrl makes; use the version "
                "that began the collection"
            )
        brains = jax.device_put(list(checkpoint.leaves))
        self._explorer.brains = jax.tree.unflatten(structure, brains)
        self.episodes = checkpoint.episodes
        self.returns, self.transitions = checkpoint.returns, checkpoint.transitions
        for position, task in enumerate(self.tasks):
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
        rows = np.zeros(self._explorer.replay.rows.shape[1:], np.float32)
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
        self._explorer.replay = self._learner.refill(
            self._explorer.replay, np.int32(position), rows, np.int32(len(order))
        )
