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
import numpy as np
from jaxtyping import Bool, Float64, Int64

from omrl.data.collect.config import CollectConfig
from omrl.data.collect.crew import Crew
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.rounds import EVALUATION_EPISODE, Round, Simulation, play
from omrl.data.collect.storage import Checkpoint
from omrl.data.growing import GrowingTask
from omrl.errors import InputError, NonFiniteError


class Group:
    """Plays rounds and holds what they lead to."""

    def __init__(
        self, config: CollectConfig, simulation: Simulation, crew: Crew, progress: CollectProgress
    ):
        """At the beginning of the lifetimes of the simulation's tasks."""
        self.tasks = simulation.tasks
        self.crew = crew
        self._config = config
        self._simulation = simulation
        self._progress = progress
        num_tasks = len(self.tasks)
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
        self.crew.start_round(self.rounds, active, before)
        played = play(self._simulation, self.crew, episode=self.rounds, active=active)
        counts = before + played.length.sum(axis=1)
        self.crew.end_round(active, before, counts)
        means = np.where(active, played.returns().mean(axis=1), np.nan)
        self.returns = np.concatenate([self.returns, means[None]])
        self.transitions = np.concatenate([self.transitions, counts[None]])
        self.episodes = self.episodes + self._config.envs * active
        self._progress.round(means[active])
        return played

    def evaluate(self) -> Float64[np.ndarray, "task episode"] | None:
        """Returns of the agents at their best, one episode per environment, if there are any."""
        best = self.crew.best()
        if best is None:
            return None
        everyone = np.ones(len(self.tasks), bool)
        played = play(self._simulation, best, episode=EVALUATION_EPISODE, active=everyone)
        return played.returns()

    def _counts(self) -> Int64[np.ndarray, " task"]:
        return self.transitions[-1] if self.rounds else np.zeros(len(self.tasks), np.int64)

    # --- Checkpoints ---

    def checkpoint(self, record: Any) -> Checkpoint:
        """All of it but the transitions, copied off the device.

        Raises:
            NonFiniteError: an agent has diverged; names task and tensor.
        """
        state = jax.device_get(self.crew.state())
        named, _ = jax.tree_util.tree_flatten_with_path(state)
        for path, leaf in named:
            finite = np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
            if not finite.all():
                # The first key is the position in the state.
                name = jax.tree_util.keystr(path[1:]).lstrip(".")
                raise NonFiniteError(
                    f"task {self.tasks[int(np.argmin(finite))]}, round {self.rounds}: "
                    f"{name} is not finite, its agent has "
                    "diverged; lower the learning rate"
                )
        leaves = tuple(leaf for _, leaf in named)
        return Checkpoint(record, self.tasks, self.episodes, self.returns, self.transitions, leaves)

    def restore(self, checkpoint: Checkpoint, files: Callable[[int], GrowingTask]) -> None:
        """Continue from a checkpoint; `files` of each task hold just the transitions up to it."""
        leaves, structure = jax.tree.flatten(self.crew.state())
        if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in checkpoint.leaves]:
            raise InputError(
                "checkpoint: holds other agents than this version of omrl makes; use the version "
                "that began the collection"
            )
        self.episodes = checkpoint.episodes
        self.returns, self.transitions = checkpoint.returns, checkpoint.transitions
        self.crew.restore(jax.tree.unflatten(structure, checkpoint.leaves), files)
