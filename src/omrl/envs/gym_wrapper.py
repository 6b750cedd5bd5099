"""The same MDPs as Gymnasium environments: `gymnasium.make("omrl/cheetah-vel.macaw-v1", task=3)`.

Both classes step through `engine.advance`. `make` adds the time limit; `make_vec` uses
`GymVectorEnv`, which equals `SyncVectorEnv` of `GymEnv` in every number and is as fast as the
engine (autoreset mode: next step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from omrl.envs.base import EnvSpec, TaskEnv
from omrl.envs.engine import advance, available_cpus, check_actions, check_shape
from omrl.envs.gym_hook import gymnasium_id
from omrl.envs.registry import make
from omrl.errors import InputError


def _observation_space(spec: EnvSpec) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (spec.obs_dim,), np.float32)


def _action_space(spec: EnvSpec) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (spec.act_dim,), np.float32)


def task_index(env: TaskEnv, task: Any) -> int:
    """`task` as an index of the canonical tasks. InputError for anything else."""
    whole = isinstance(task, int | np.integer) and not isinstance(task, bool)
    num_tasks = len(env.task_table)
    if not whole or not 0 <= task < num_tasks:
        raise InputError(
            f"task of {env.spec.id} must be an index from 0 to {num_tasks - 1}, not {task!r}"
        )
    return int(task)


def _checked(env: TaskEnv, task: Any) -> int | None:
    return None if task is None else task_index(env, task)


def _single(env: TaskEnv, task: Any) -> int | None:
    """The task of one environment. Gymnasium's own vectorizations give each the whole list."""
    if isinstance(task, Sequence | np.ndarray) and not isinstance(task, str):
        raise InputError(
            f"task of {env.spec.id}: one environment has one, not {len(task)}; for one each, call "
            "make_vec without vectorization_mode, or SyncVectorEnv([partial(gymnasium.make, "
            f"{gymnasium_id(env.spec.id)!r}, task=task) for task in tasks])"
        )
    return _checked(env, task)


def _chosen(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options of a reset. InputError for any but `task`."""
    unknown = sorted(map(str, set(options or ()) - {"task"}))
    if unknown:
        raise InputError(f"options of reset: no {unknown[0]!r}; there is only 'task'")
    return options or {}


def _begin(env: TaskEnv, task: int | None, rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """The episode's task index, drawn from the canonical tasks if None, and initial state."""
    if task is None:
        task = int(rng.integers(len(env.task_table)))
    return task, env.place(env.reset(rng), np.array(env.task_table[task]))


class GymEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One environment.

    `info` has `task` (its parameters) and `task_index`, and after a step `terms`, the physical
    quantities by name from which the reward of any task can be computed.
    """

    # Declared by Gymnasium as a plain attribute.
    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env_id: str, task: Any = None):
        """`task`: index of the canonical task; None draws one at every reset.

        `InputError` for anything else, as for the lists that Gymnasium hands on.
        """
        self.task_env = make(env_id)
        self.observation_space = _observation_space(self.task_env.spec)
        self.action_space = _action_space(self.task_env.spec)
        self._task = _single(self.task_env, task)
        self._task_index = 0
        self._tasks = np.zeros((1, len(self.task_env.spec.task_names)))
        self._states: np.ndarray | None = None
        self._physics = self.task_env.physics(num_threads=1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; `options={"task": index}` chooses its task, for this episode only."""
        task = _single(self.task_env, _chosen(options).get("task", self._task))
        super().reset(seed=seed)
        self._task_index, state = _begin(self.task_env, task, self.np_random)
        self._tasks = self.task_env.tasks[[self._task_index]]
        self._states = state[None]
        return self.task_env.observe(state), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step. Never truncates: the horizon is Gymnasium's TimeLimit, which `make` adds."""
        if self._states is None:
            raise RuntimeError("call reset before the first step")
        batch = np.asarray(action)[None]
        check_shape(batch[0], (self.task_env.spec.act_dim,))
        active = np.ones(1, bool)
        after = advance(self.task_env, self._physics, self._states, batch, self._tasks, active)
        self._states = after.states
        names = self.task_env.spec.term_names
        terms = {name: float(value) for name, value in zip(names, after.terms[0], strict=True)}
        info = self._info() | {"terms": terms}
        return after.obs[0], float(after.reward[0]), bool(after.terminated[0]), False, info

    def close(self) -> None:
        """Stop the physics."""
        self._physics.close()
        self._states = None

    def __getstate__(self) -> dict[str, Any]:
        # Threads and scratch memory are made again.
        return {**self.__dict__, "_physics": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._physics = self.task_env.physics(num_threads=1)

    def _info(self) -> dict[str, Any]:
        return {"task": self._tasks[0].copy(), "task_index": self._task_index}


class GymVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`num_envs` environments on C threads, each with episodes of its own.

    An environment whose episode ended is reset by the next step, whose action it ignores.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        task: int | Sequence[int] | np.ndarray | None = None,
        max_episode_steps: int | None = None,
        num_threads: int | None = None,
    ):
        """`task`: one index for all, or one per environment; None draws at every reset."""
        self.task_env = make(env_id)
        spec = self.task_env.spec
        limit = spec.horizon if max_episode_steps is None else max_episode_steps
        threads = available_cpus() if num_threads is None else num_threads
        if min(num_envs, limit, threads) < 1:
            raise InputError(
                "num_envs, max_episode_steps and num_threads must be 1 or more, not "
                f"{num_envs}, {limit} and {threads}"
            )
        self.num_envs = num_envs
        self.single_observation_space = _observation_space(spec)
        self.single_action_space = _action_space(spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._horizon = limit
        self._task = self._per_env(task)
        self._canonical = self.task_env.tasks
        self._task_index = np.zeros(num_envs, np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, bool)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._states: np.ndarray | None = None
        self._threads = min(threads, num_envs)
        self.physics = self.task_env.physics(self._threads)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all episodes. An int seeds environment n with seed + n; `options`: see `GymEnv`."""
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + index for index in range(self.num_envs)]
        if seed is not None and len(seed) != self.num_envs:
            raise InputError(f"seed must have {self.num_envs} numbers, not {len(seed)}")
        options = _chosen(options)
        tasks = self._per_env(options["task"]) if "task" in options else self._task
        self._rngs = [
            old if own is None else seeding.np_random(own)[0]
            for old, own in zip(self._rngs, seed or [None] * self.num_envs, strict=True)
        ]
        pairs = zip(tasks, self._rngs, strict=True)
        begun = [_begin(self.task_env, task, rng) for task, rng in pairs]
        self._task_index = np.array([index for index, _ in begun])
        self._states = np.stack([state for _, state in begun])
        self._elapsed[:] = 0
        self._ended[:] = False
        return self.task_env.observe(self._states), self._infos()

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step; environments that ended are reset instead, with reward 0 and no `terms`."""
        if self._states is None:
            raise RuntimeError("call reset before the first step")
        batch = np.asarray(actions)
        check_shape(batch, (self.num_envs, self.task_env.spec.act_dim))
        active = ~self._ended
        check_actions(batch, active)  # Before anything is drawn: what is refused changes nothing.
        states = self._states.copy()
        for index in np.flatnonzero(self._ended):
            self._task_index[index], states[index] = _begin(
                self.task_env, self._task[index], self._rngs[index]
            )
        tasks = self._canonical[self._task_index]
        after = advance(self.task_env, self.physics, states, batch, tasks, active)
        self._states = after.states
        self._elapsed = np.where(active, self._elapsed + 1, 0)
        terminated = after.terminated & active
        truncated = self._elapsed >= self._horizon
        self._ended = terminated | truncated
        infos = self._infos(after.terms, active)
        return after.obs, after.reward.astype(np.float64), terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the physics threads."""
        self.physics.close()
        self._states = None

    def __getstate__(self) -> dict[str, Any]:
        # As for `GymEnv`.
        return {**self.__dict__, "physics": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.physics = self.task_env.physics(self._threads)

    def _per_env(self, task: Any) -> list[int | None]:
        if isinstance(task, str) or not isinstance(task, Sequence | np.ndarray):
            return [_checked(self.task_env, task)] * self.num_envs
        if len(task) != self.num_envs:
            raise InputError(f"task must have {self.num_envs} indices, not {len(task)}")
        return [_checked(self.task_env, own) for own in task]

    def _infos(
        self, terms: np.ndarray | None = None, active: np.ndarray | None = None
    ) -> dict[str, Any]:
        """Gymnasium's layout: an array per key, and under `_key` which environments have it."""
        everyone = np.ones(self.num_envs, bool)
        infos: dict[str, Any] = {
            "task": self._canonical[self._task_index],
            "_task": everyone,
            "task_index": self._task_index.copy(),
            "_task_index": everyone,
        }
        if terms is not None and active is not None and active.any():
            named = dict(zip(self.task_env.spec.term_names, terms.T, strict=True))
            infos |= {"terms": named | {f"_{name}": active for name in named}, "_terms": active}
        return infos
