"""Stepping a batch of environments: `advance` moves any MDP, `VectorEnv` adds seeds and episodes.

Initial states are a function of (seed, environment index, episode), so results do not depend on how
many environments run beside each other. Physics is float64; what agents see and do is float32, so
that replaying stored actions repeats a trajectory exactly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.arrays import check_real
from omrl.envs.base import Physics, TaskEnv
from omrl.errors import InputError

_RESET_STREAM, _SCRIPT_STREAM = 0x7265736574, 0x736372697074
"""Keep initial states and scripts apart from other uses of the same (seed, index) key."""


class Transition(NamedTuple):
    """One environment step of a batch, with the states that `VectorStep` does not show."""

    states: Float64[np.ndarray, "env state"]
    obs: Float32[np.ndarray, "env obs"]
    reward: Float32[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    terms: Float64[np.ndarray, "env term"]


class Moment(NamedTuple):
    """One step of `play`, with what there was before it."""

    time: int
    alive: Bool[np.ndarray, " env"]
    obs: Float32[np.ndarray, "env obs"]
    action: Float[np.ndarray, "env act"]
    after: Transition


class VectorStep(NamedTuple):
    """What `VectorEnv.step` returns. A finished environment has reward and terms 0."""

    obs: Float32[np.ndarray, "env obs"]
    reward: Float32[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    """Stays true until reset."""
    truncated: Bool[np.ndarray, " env"]
    """The horizon ended the episode, not the MDP."""
    terms: Float64[np.ndarray, "env term"]


def advance(
    env: TaskEnv,
    physics: Physics,
    states: Float64[np.ndarray, "env state"],
    action: Float[np.ndarray, "env act"],
    tasks: Float64[np.ndarray, "env parameter"],
    active: Bool[np.ndarray, " env"],
) -> Transition:
    """One step of every active environment, the others keep their state. Actions are clipped.

    Raises ValueError for an action that is not finite, SimulationError where physics diverged.
    """
    clipped = np.clip(check_actions(action, active).astype(np.float64), -1.0, 1.0)
    next_states = physics.step(states, clipped, tasks, active)
    terms = np.where(active[:, None], env.terms(states, clipped, next_states), 0.0)
    reward = np.where(active, env.reward(terms, clipped, tasks), 0.0).astype(np.float32)
    return Transition(
        next_states, env.observe(next_states), reward, env.terminated(next_states), terms
    )


def play(
    env: TaskEnv,
    physics: Physics,
    states: Float64[np.ndarray, "env state"],
    tasks: Float64[np.ndarray, "env parameter"],
    act: Callable[[Float32[np.ndarray, "env obs"], int], Float[np.ndarray, "env act"]],
    active: Bool[np.ndarray, " env"] | None = None,
) -> Iterator[Moment]:
    """One episode of every environment, step by step, until the horizon or until all are over.

    `act` is given the observations and the time. Only the `active` environments take part, by
    default all.
    """
    alive = np.ones(len(states), bool) if active is None else active.copy()
    obs = env.observe(states)
    for time in range(env.spec.horizon):
        action = act(obs, time)
        after = advance(env, physics, states, action, tasks, alive)
        yield Moment(time, alive, obs, action, after)
        states, obs, alive = after.states, after.obs, alive & ~after.terminated
        if not alive.any():
            return


def check_actions(
    action: np.ndarray, active: Bool[np.ndarray, " env"]
) -> Float32[np.ndarray, "env act"]:
    """The actions in float32. ValueError for one of an active environment that is not finite.

    InputError, which is one too, where actions are not real numbers.
    """
    check_real("action", action)
    with np.errstate(over="ignore"):
        rounded = np.asarray(action, np.float32)
    finite = np.isfinite(rounded)
    if not finite.all():  # by rows only if need be: it takes much longer
        wrong = active & ~finite.all(axis=1)
        if wrong.any():
            row = np.flatnonzero(wrong)[0]
            raise ValueError(f"action of environment {row} is not finite: {rounded[row].tolist()}")
    return rounded


def check_shape(action: np.ndarray, expected: tuple[int, ...]) -> None:
    """ValueError unless that is the shape. (Arithmetic would broadcast many others.)"""
    if action.shape != expected:
        raise ValueError(f"action must have shape {expected}, not {action.shape}")


def initial_states(
    env: TaskEnv,
    *,
    seed: int,
    num_envs: int,
    episode: int,
    tasks: Float64[np.ndarray, "env parameter"] | None = None,
) -> Float64[np.ndarray, "env state"]:
    """Row n is a function of (seed, n, episode) and, where `TaskEnv.place` needs it, its task."""
    if seed < 0 or episode < 0:
        raise InputError(f"seed and episode must be 0 or more, not {seed} and {episode}")
    rows = range(num_envs)
    drawn = np.stack([initial_state(env, seed=seed, index=n, episode=episode) for n in rows])
    return drawn if tasks is None else env.place(drawn, tasks)


def initial_state(
    env: TaskEnv, *, seed: int, index: int, episode: int
) -> Float64[np.ndarray, " state"]:
    """Row `index` of `initial_states` without tasks."""
    counter = np.array([0, 0, _RESET_STREAM, episode], np.uint64)
    key = np.array([seed, index], np.uint64)
    return env.reset(np.random.Generator(np.random.Philox(key=key, counter=counter)))


def script_rngs(*, seed: int, num_envs: int, episode: int) -> list[np.random.Generator]:
    """Of `ScriptedEnv.script`: generator n is a function of (seed, n, episode)."""
    counter = np.array([0, 0, _SCRIPT_STREAM, episode], np.uint64)
    keys = (np.array([seed, index], np.uint64) for index in range(num_envs))
    return [np.random.Generator(np.random.Philox(key=key, counter=counter)) for key in keys]


def available_cpus() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class VectorEnv:
    """N environments of one family, each with its own task, all starting episodes together."""

    def __init__(
        self,
        env: TaskEnv,
        tasks: Float[np.ndarray, "env parameter"],
        *,
        seed: int,
        num_threads: int | None = None,
    ):
        """`num_threads`: physics threads, by default one per core; results do not depend on it."""
        env.check_tasks(tasks)
        if num_threads is not None and num_threads < 1:
            raise InputError(f"num_threads must be 1 or more, not {num_threads}")
        self.env = env
        self.tasks = tasks.astype(np.float64)
        self.seed = seed
        threads = min(num_threads or available_cpus(), len(tasks))
        self._physics = env.physics(threads)
        self._states: np.ndarray | None = None
        self._alive = np.zeros(len(tasks), bool)
        self._elapsed = 0

    @property
    def num_envs(self) -> int:
        """N."""
        return len(self.tasks)

    @property
    def alive(self) -> Bool[np.ndarray, " env"]:
        """Environments whose episode is not over."""
        return self._alive.copy()

    @property
    def states(self) -> Float64[np.ndarray, "env state"]:
        """Physics states now."""
        return self._started().copy()

    def reset(self, episode: int = 0) -> Float32[np.ndarray, "env obs"]:
        """Start episode number `episode` in all environments."""
        self._states = initial_states(
            self.env, seed=self.seed, num_envs=self.num_envs, episode=episode, tasks=self.tasks
        )
        self._alive = np.ones(self.num_envs, bool)
        self._elapsed = 0
        return self.env.observe(self._states)

    def step(self, action: Float[np.ndarray, "env act"]) -> VectorStep:
        """One environment step. Actions are rounded to float32 and clipped to [-1, 1].

        Raises ValueError for an action of the wrong shape or not finite, RuntimeError before the
        first reset and after the horizon, SimulationError where physics diverged; in all cases
        nothing has moved.
        """
        states = self._started()
        if self._elapsed == self.env.spec.horizon:
            raise RuntimeError("the episode is over: call reset before the next step")
        check_shape(action, (self.num_envs, self.env.spec.act_dim))
        after = advance(self.env, self._physics, states, action, self.tasks, self._alive)
        self._states = after.states
        self._elapsed += 1
        at_horizon = self._elapsed == self.env.spec.horizon
        truncated = self._alive & ~after.terminated & at_horizon
        self._alive = self._alive & ~after.terminated & ~truncated
        return VectorStep(after.obs, after.reward, after.terminated, truncated, after.terms)

    def close(self) -> None:
        """Stop the physics threads."""
        self._physics.close()

    def _started(self) -> np.ndarray:
        if self._states is None:
            raise RuntimeError("call reset before the first step")
        return self._states
