"""Running policies: whole episodes to measure them, or one trajectory each to learn from.

All seeds and tasks are in one batch of environments. Initial states and noise are functions of (run
seed, task index, episode), never of a position in a list.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Float64, Int, UInt32

from omrl.algorithm import Algorithm
from omrl.context import seed_task_keys
from omrl.data.online import Trajectories
from omrl.envs.base import Physics, TaskEnv
from omrl.envs.engine import Moment, initial_states, play
from omrl.errors import NonFiniteError
from omrl.protocol import EvalConfig

COLLECTED = 2**32
"""Number of the episode that the first collected trajectory is: behind all that are measured."""


@dataclass(frozen=True)
class Labels:
    """What stands at each position of the axes [seed, task, shot, episode]."""

    seeds: tuple[int, ...]
    """Run seeds."""
    tasks: tuple[int, ...]
    """Indices into the environment's list."""
    shots: tuple[int, ...]
    num_episodes: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.seeds), len(self.tasks), len(self.shots), self.num_episodes


# --- Acting ---


class Actor(abc.ABC):
    """What is measured."""

    labels: Labels

    @abc.abstractmethod
    def __call__(
        self, obs: Float32[np.ndarray, "row obs"], time: int
    ) -> Float[np.ndarray, "row act"]:
        """Rows are [seed, task, shot, episode] in this order."""


class Policies(Actor):
    """Policies of adapted tasks as one function of all observations: compiled once, batched by
    vmap."""

    def __init__(
        self,
        algorithm: Algorithm,
        states: Any,
        tasks: Any,
        keys: UInt32[Array, "seed task episode 2"],
        labels: Labels,
        *,
        deterministic: bool,
    ):
        """
        Args:
            states: leaves [seed, ...].
            tasks: adapted, leaves [seed, task, shot, ...].
            keys: of the noise; every step of an episode folds in its time.
        """
        self.labels = labels
        self._act_dim = algorithm.spec.act_dim
        self._act = partial(_act, algorithm, deterministic, states, tasks, keys)

    def __call__(
        self, obs: Float32[np.ndarray, "row obs"], time: int
    ) -> Float[np.ndarray, "row act"]:
        """Rows are [seed, task, shot, episode] in this order."""
        actions = np.asarray(self._act(obs.reshape(*self.labels.shape, -1), time))
        return checked(actions, self.labels, self._act_dim, time)


def checked(
    actions: Float[np.ndarray, "seed task shot episode act"],
    labels: Labels,
    act_dim: int,
    time: int,
) -> Float[np.ndarray, "row act"]:
    """The actions by row. `NonFiniteError` with the first one that is not finite."""
    if actions.shape != (*labels.shape, act_dim):
        raise TypeError(f"act must return [{act_dim}], not {actions.shape[4:]}")
    finite = np.isfinite(actions).all(-1)
    if not finite.all():
        seed, task, shot, _ = np.argwhere(~finite)[0]
        raise NonFiniteError(
            f"action at step {time} is not finite: seed {labels.seeds[seed]}, "
            f"task {labels.tasks[task]}, shot {labels.shots[shot]}; what was learned, or "
            "adaptation to it, diverged"
        )
    return actions.reshape(-1, act_dim)


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    algorithm: Algorithm,
    deterministic: bool,
    states: Any,
    tasks: Any,
    keys: UInt32[Array, "seed task episode 2"],
    obs: Float32[Array, "seed task shot episode obs"],
    time: int | Int[Array, ""],
) -> Float[Array, "seed task shot episode act"]:
    def one(state: Any, task: Any, obs: Array, key: Array) -> Array:
        return algorithm.act(state, task, obs, jax.random.fold_in(key, time), deterministic)

    over_episodes = jax.vmap(one, (None, None, 0, 0))
    over_shots = jax.vmap(over_episodes, (None, 0, 0, None))
    over_tasks = jax.vmap(over_shots, (None, 0, 0, 0))
    return jax.vmap(over_tasks)(states, tasks, obs, keys)


def measured_keys(config: EvalConfig, labels: Labels) -> UInt32[Array, "seed task episode 2"]:
    """Of the noise in the episodes that are measured."""
    per_task = seed_task_keys("act", config.episode_seed, labels.seeds, labels.tasks)
    return fold_numbers(per_task, jnp.arange(labels.num_episodes))


@jax.jit
def fold_numbers(
    keys: UInt32[Array, "seed task 2"], numbers: Int[Array, " number"]
) -> UInt32[Array, "seed task number 2"]:
    """A key per seed, task and number."""
    fold_each = jax.vmap(jax.random.fold_in, (None, 0))
    return jax.vmap(jax.vmap(fold_each, (0, None)), (0, None))(keys, numbers)


# --- Measuring ---


@dataclass(frozen=True)
class Outcome:
    """Undiscounted returns."""

    returns: Float64[np.ndarray, "seed task shot episode"]
    baselines: Float64[np.ndarray, "kind task episode"]
    """Of uniform actions, then of zeros; of none if they were not asked for."""
    traces: dict[str, Float64[np.ndarray, "seed task shot time"]]
    success: Float64[np.ndarray, "seed task shot episode"] | None
    """1 of episodes in which a transition did what the task asks for; None: there is no such."""


def measure(
    policies: Actor,
    env: TaskEnv,
    config: EvalConfig,
    physics: Physics,
    *,
    baselines: bool,
    first_episode: int = 0,
    watch: Callable[[Moment], None] | None = None,
) -> Outcome:
    """All episodes at once: those of the policies first, then random, then zero actions.

    Args:
        first_episode: number of the episode that the first one starts as.
        watch: is shown every step, with rows in the same order.
    """
    spec, labels = env.spec, policies.labels
    num_rows = int(np.prod(labels.shape))
    states, tasks = _rows(env, config, labels, first_episode, num_baselines=2 * baselines)
    random_actions = _random_actions(env, config, labels) if baselines else None

    def act(obs: Float32[np.ndarray, "row obs"], time: int) -> Float[np.ndarray, "row act"]:
        chosen = policies(obs[:num_rows], time)
        if random_actions is None:
            return chosen
        random = random_actions[:, :, time].reshape(-1, spec.act_dim)
        return np.concatenate([chosen, random, np.zeros_like(random)])

    returns = np.zeros(len(states))
    steps = np.zeros((*labels.shape, spec.horizon), bool)
    traced = [spec.term_names.index(name) for name in config.traces]
    terms = np.zeros((*labels.shape, spec.horizon, len(traced)))
    success: np.ndarray | None = None
    for moment in play(env, physics, states, tasks, act):
        if watch is not None:
            watch(moment)
        returns += moment.after.reward
        achieved = env.achieved(moment.after.terms[:num_rows], tasks[:num_rows])
        if achieved is not None:
            now = achieved & moment.alive[:num_rows]
            success = now if success is None else success | now
        steps[..., moment.time] = moment.alive[:num_rows].reshape(labels.shape)
        terms[..., moment.time, :] = moment.after.terms[:num_rows, traced].reshape(
            *labels.shape, len(traced)
        )
    return Outcome(
        returns[:num_rows].reshape(labels.shape),
        returns[num_rows:].reshape(2 * baselines, len(labels.tasks), labels.num_episodes),
        {
            name: _mean_over_alive(terms[..., position], steps)
            for position, name in enumerate(config.traces)
        },
        None if success is None else success.astype(np.float64).reshape(labels.shape),
    )


def _rows(
    env: TaskEnv, config: EvalConfig, labels: Labels, first_episode: int, *, num_baselines: int
) -> tuple[Float64[np.ndarray, "row state"], Float64[np.ndarray, "row parameter"]]:
    """Initial state and task parameters of every episode, in the order of `measure`."""
    episodes = range(first_episode, first_episode + labels.num_episodes)
    starts = np.stack([_starts(env, config, labels, seed, episodes) for seed in labels.seeds])
    state_dim = starts.shape[-1]
    methods = np.broadcast_to(starts[:, :, None], (*labels.shape, state_dim))
    parameters = env.tasks[list(labels.tasks)][:, None]
    num_parameters = parameters.shape[-1]
    rows = [methods.reshape(-1, state_dim)]
    tasks = [np.broadcast_to(parameters[:, None], (*labels.shape, num_parameters))]
    if num_baselines:
        baseline = _starts(env, config, labels, 0, episodes)
        rows += [baseline.reshape(-1, state_dim)] * num_baselines
        one_of_each = np.broadcast_to(parameters, (*baseline.shape[:-1], num_parameters))
        tasks += [one_of_each] * num_baselines
    return np.concatenate(rows), np.concatenate(
        [part.reshape(-1, num_parameters) for part in tasks]
    )


def _starts(
    env: TaskEnv, config: EvalConfig, labels: Labels, run_seed: int, episodes: range
) -> Float64[np.ndarray, "task episode state"]:
    """Those of `VectorEnv(env, env.tasks, seed=episode_seed * 2^32 + run_seed)`."""
    seed = config.episode_seed * 2**32 + run_seed
    num_envs = max(labels.tasks) + 1
    tasks = env.tasks[:num_envs]
    starts = [
        initial_states(env, seed=seed, num_envs=num_envs, episode=episode, tasks=tasks)[
            list(labels.tasks)
        ]
        for episode in episodes
    ]
    return np.stack(starts, axis=1)


def _random_actions(
    env: TaskEnv, config: EvalConfig, labels: Labels
) -> Float64[np.ndarray, "task episode time act"]:
    """U(-1, 1), a function of (episode seed, task index, episode)."""
    size = (labels.num_episodes, env.spec.horizon, env.spec.act_dim)
    keys = ((config.episode_seed, task) for task in labels.tasks)
    generators = (np.random.Generator(np.random.Philox(key=key)) for key in keys)
    return np.stack([generator.uniform(-1.0, 1.0, size) for generator in generators])


def _mean_over_alive(
    values: Float64[np.ndarray, "seed task shot episode time"], alive: np.ndarray
) -> Float64[np.ndarray, "seed task shot time"]:
    """NaN where no episode is alive any more."""
    count = alive.sum(3)
    total = np.where(alive, values, 0.0).sum(3)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


# --- Collecting ---


class Recorder:
    """Writes down the first rows of what `play` steps."""

    def __init__(self, env: TaskEnv, lead: tuple[int, ...]):
        """`lead`: what these rows are, [seed, task] or further axes."""
        self._lead = lead
        self._num_rows = num_rows = int(np.prod(lead))
        horizon = env.spec.horizon
        self._obs = np.zeros((num_rows, horizon + 1, env.spec.obs_dim), np.float32)
        self._action = np.zeros((num_rows, horizon, env.spec.act_dim), np.float32)
        self._reward = np.zeros((num_rows, horizon), np.float32)
        self._length = np.zeros(num_rows, np.int64)
        self._terminated = np.zeros(num_rows, bool)

    def __call__(self, moment: Moment) -> None:
        """Every step, in their order."""
        rows, time, after = slice(self._num_rows), moment.time, moment.after
        if time == 0:
            self._obs[:, 0] = moment.obs[rows]
        self._obs[:, time + 1] = after.obs[rows]
        self._action[:, time] = np.clip(moment.action[rows], -1.0, 1.0)
        self._reward[:, time] = after.reward[rows]
        self._length += moment.alive[rows]
        self._terminated |= moment.alive[rows] & after.terminated[rows]

    def trajectories(self) -> Trajectories:
        """What there was until now, leaves [*lead, ...]."""
        of_rows = (self._obs, self._action, self._reward, self._length, self._terminated)
        return Trajectories(*(array.reshape(*self._lead, *array.shape[1:]) for array in of_rows))


def one_step(moment: Moment, lead: tuple[int, ...]) -> Trajectories:
    """A step of the first rows as trajectories of one step, of none where they are over."""
    rows, after = slice(int(np.prod(lead))), moment.after
    of_rows = (
        np.stack([moment.obs[rows], after.obs[rows]], axis=1),
        np.clip(moment.action[rows, None], -1.0, 1.0).astype(np.float32),
        after.reward[rows, None],
        moment.alive[rows].astype(np.int64),
        moment.alive[rows] & after.terminated[rows],
    )
    return Trajectories(*(array.reshape(*lead, *array.shape[1:]) for array in of_rows))


def collect(
    policies: Policies, env: TaskEnv, config: EvalConfig, physics: Physics, number: int
) -> Trajectories:
    """Trajectory `number`, from 0, of every seed and task; the policies have one shot and episode.

    It starts in the state of episode 2^32 + `number`.
    """
    labels = policies.labels
    recorder = Recorder(env, labels.shape[:2])
    states, parameters = _rows(env, config, labels, COLLECTED + number, num_baselines=0)
    for moment in play(env, physics, states, parameters, policies):
        recorder(moment)
    return recorder.trajectories()
