"""One episode of every environment of every task: the physics side, on the CPU's threads.

While `play` steps the physics the device is free to learn: see `Player`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from omrl.envs.base import Physics, TaskEnv
from omrl.envs.engine import Transition, advance, available_cpus, initial_states
from omrl.errors import NonFiniteError

EVALUATION_EPISODE = 2**32
"""Episode number of the final evaluation: no round has it."""


States: TypeAlias = Float64[np.ndarray, "row state"]
"""Of the simulator, a row for every environment of every task."""


@runtime_checkable
class Player(Protocol):
    """Who chooses the actions. All arrays are [task, env, ...]."""

    def begin(self, obs: Float32[np.ndarray, "task env obs"], states: States) -> Any:
        """The first actions, perhaps still being computed on a device."""

    def meanwhile(self) -> None:
        """Start work that shall run on the device during the physics step."""

    def see(
        self, after: Transition, alive: Bool[np.ndarray, " row"], shape: tuple[int, int]
    ) -> Any:
        """Take in a step, of which `alive` environments took part, and choose the next actions."""


class Round(NamedTuple):
    """What happened, time first. What follows the end of an episode means nothing."""

    obs: Float32[np.ndarray, "time_and_last task env obs"]
    action: Float32[np.ndarray, "time task env act"]
    reward: Float32[np.ndarray, "time task env"]
    terms: Float32[np.ndarray, "time task env term"]
    terminated: Bool[np.ndarray, "time task env"]
    length: Int64[np.ndarray, "task env"]
    """Steps of each episode, 0 where the task did not play."""

    def returns(self) -> Float64[np.ndarray, "task env"]:
        """Undiscounted sums of rewards."""
        return self.reward.sum(axis=0, dtype=np.float64)

    def columns(self, task: int) -> dict[str, np.ndarray]:
        """The episodes of one task as columns of a dataset."""
        length = self.length[task]
        horizon = len(self.action)
        lived = np.arange(horizon) < length[:, None]
        seen = np.arange(horizon + 1) <= length[:, None]
        last = np.arange(horizon) == length[:, None] - 1
        terminated = self.terminated[:, task].T
        return {
            "obs": self.obs[:, task].swapaxes(0, 1)[seen],
            "action": self.action[:, task].swapaxes(0, 1)[lived],
            "reward": self.reward[:, task].T[lived],
            "terms": self.terms[:, task].swapaxes(0, 1)[lived],
            "terminated": terminated[lived],
            "truncated": (last & ~terminated)[lived],
            "episode_start": np.concatenate([[0], np.cumsum(length)]),
        }


def seed_of_task(seed: int, task: int) -> int:
    """Apart from the seeds that evaluations use."""
    return ((seed + 1) << 20) + task


@dataclass(frozen=True)
class Simulation:
    """The environments of a group of tasks."""

    env: TaskEnv
    physics: Physics
    tasks: tuple[int, ...]
    num_envs: int
    """Per task."""
    seed: int

    @classmethod
    def start(
        cls, env: TaskEnv, tasks: tuple[int, ...], *, num_envs: int, seed: int, threads: int
    ) -> Simulation:
        threads = min(threads or available_cpus(), len(tasks) * num_envs)
        return cls(env, env.physics(threads), tasks, num_envs, seed)

    def close(self) -> None:
        """Stop the physics threads."""
        self.physics.close()

    def initial_states(self, episode: int) -> States:
        """Functions of (seed, task, environment of the task, episode)."""
        return np.concatenate(
            [
                initial_states(
                    self.env,
                    seed=seed_of_task(self.seed, task),
                    num_envs=self.num_envs,
                    episode=episode,
                    tasks=np.repeat(self.env.tasks[[task]], self.num_envs, axis=0),
                )
                for task in self.tasks
            ]
        )


def play(
    simulation: Simulation, player: Player, *, episode: int, active: Bool[np.ndarray, " task"]
) -> Round:
    """One episode of every environment of the active tasks.

    Raises:
        NonFiniteError: an agent's action is NaN or infinite; names its task.
    """
    env, spec = simulation.env, simulation.env.spec
    shape = (len(simulation.tasks), simulation.num_envs)
    parameters = np.repeat(env.tasks[list(simulation.tasks)], simulation.num_envs, axis=0)
    record = _empty_round(shape, spec.horizon, spec.obs_dim, spec.act_dim, len(spec.term_names))
    states = simulation.initial_states(episode)
    alive = np.repeat(active, simulation.num_envs)
    record.obs[0] = env.observe(states).reshape(*shape, -1)
    pending = player.begin(record.obs[0], states)
    for step in range(spec.horizon):
        action = np.asarray(pending)
        player.meanwhile()
        _check(action, alive, simulation.tasks, episode, step)
        after = advance(
            env, simulation.physics, states, action.reshape(-1, spec.act_dim), parameters, alive
        )
        pending = player.see(after, alive, shape)
        record.obs[step + 1] = after.obs.reshape(*shape, -1)
        record.action[step] = action
        record.reward[step] = after.reward.reshape(shape)
        record.terms[step] = after.terms.reshape(*shape, -1)
        record.terminated[step] = after.terminated.reshape(shape)
        record.length[...] += alive.reshape(shape)
        states, alive = after.states, alive & ~after.terminated
    return record


def live_order(
    episode_start: Int64[np.ndarray, " episode_and_end"], num_envs: int
) -> Int64[np.ndarray, " row"]:
    """The stored rows of a task in the order in which they happened: round, time, environment.

    Stored they are in the order of round, environment, time.
    """
    lengths = np.diff(episode_start)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    time = np.arange(len(episode)) - episode_start[episode]
    return np.lexsort((episode % num_envs, time, episode // num_envs))


def _empty_round(
    shape: tuple[int, int], horizon: int, obs_dim: int, act_dim: int, num_terms: int
) -> Round:
    return Round(
        np.empty((horizon + 1, *shape, obs_dim), np.float32),
        np.empty((horizon, *shape, act_dim), np.float32),
        np.empty((horizon, *shape), np.float32),
        np.empty((horizon, *shape, num_terms), np.float32),
        np.empty((horizon, *shape), bool),
        np.zeros(shape, np.int64),
    )


def _check(
    action: Float[np.ndarray, "task env act"],
    alive: Bool[np.ndarray, " row"],
    tasks: tuple[int, ...],
    episode: int,
    step: int,
) -> None:
    wrong = ~np.isfinite(action).all(axis=2) & alive.reshape(action.shape[:2])
    if wrong.any():
        task = tasks[int(np.argmax(wrong.any(axis=1)))]
        raise NonFiniteError(
            f"task {task}, round {episode + 1}, step {step + 1}: the action of its agent is not "
            "finite, it has diverged; lower the learning rate"
        )
