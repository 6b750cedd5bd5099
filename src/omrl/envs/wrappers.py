"""Wrappers for the Gymnasium environments; each function takes a single environment or a vector.

    normalize_obs    (obs - mean) / std with the scales of a dataset; Gymnasium's own wrapper
                     estimates them while it runs, so two runs would differ
    scale_reward     reward / scale, with that of a dataset
    append_task      which of the training tasks it is: for one policy of all tasks (multi-task
                     baseline of MACAW, arXiv:2008.06043)
    append_belief    what the agent believes of the task (BOReL, arXiv:2008.02598)

`omrl.data.statistics.measure` gives the scales. An earlier end of episodes needs no wrapper here:
`gymnasium.make` and `make_vec` take `max_episode_steps`.

Vectors have to reset an environment in the step after the end of its episode, as `make_vec` makes
them: in Gymnasium's other modes an observation comes in `info`, where no wrapper here looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Float32

from omrl.arrays import check_real
from omrl.envs.gym_wrapper import task_index
from omrl.errors import InputError
from omrl.scales import divisors

AnyEnv = TypeVar("AnyEnv", gymnasium.Env, VectorEnv)
Numbers = Sequence[float] | np.ndarray
Update = Callable[[Any, Any, Any, Any, Any], Any]
"""(belief, obs, action, reward, next_obs) -> belief, all with the leading axes of the environment:
none for a single one, [env] for a vector."""


# --- Scales of a dataset ---


def normalize_obs(env: AnyEnv, mean: Numbers, std: Numbers) -> AnyEnv:
    """Observations become (obs - mean) / std, entry by entry, in float32.

    `mean` and `std`: `obs_mean` and `obs_std` of a `Spec`. A `std` below 1e-6, or that part of the
    mean, counts as 1, as where it is measured. `InputError` where there is not one of each per
    entry, or a `std` is not above 0.
    """
    space = _single_space(env)
    check_real("mean", mean)
    check_real("std", std)
    offset, scale = np.asarray(mean, np.float64), np.asarray(std, np.float64)
    if offset.shape != space.shape or scale.shape != space.shape:
        raise InputError(
            f"mean and std must have one number for each of the {space.shape[0]} entries of an "
            f"observation, not {offset.size} and {scale.size}; was the spec measured?"
        )
    if not (np.isfinite(offset).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise InputError("mean and std must be finite, and std above 0")
    scale = divisors(offset, scale)
    standardise = partial(
        _standardise, mean=offset.astype(np.float32), std=scale.astype(np.float32)
    )
    scaled = spaces.Box(standardise(space.low), standardise(space.high), dtype=np.float32)
    if isinstance(env, VectorEnv):
        return gymnasium.wrappers.vector.TransformObservation(
            env, standardise, single_observation_space=scaled
        )
    return gymnasium.wrappers.TransformObservation(env, standardise, scaled)


def scale_reward(env: AnyEnv, scale: float) -> AnyEnv:
    """Rewards become reward / scale, for instance with `return_std` of a `Spec`.

    The mean is not subtracted: where episodes may end early that would be another task.
    """
    if not (np.isfinite(scale) and scale > 0):
        raise InputError(f"scale of rewards must be finite and above 0, not {scale}")
    divide = partial(_divide, scale=float(scale))
    if isinstance(env, VectorEnv):
        return gymnasium.wrappers.vector.TransformReward(env, divide)
    return gymnasium.wrappers.TransformReward(env, divide)


def _standardise(
    obs: Float[np.ndarray, "*env obs"],
    mean: Float32[np.ndarray, " obs"],
    std: Float32[np.ndarray, " obs"],
) -> Float32[np.ndarray, "*env obs"]:
    return ((obs - mean) / std).astype(np.float32)


def _divide(reward: Any, scale: float) -> Any:
    return reward / scale


# --- Which task it is ---


def append_task(env: AnyEnv, tasks: Sequence[int] | np.ndarray) -> AnyEnv:
    """Observations get `len(tasks)` more entries: 1 at the place of the episode's task in `tasks`.

    All are 0 in a task that is not listed. Give the training tasks: a policy of all of them is
    then told nothing of a test task.
    """
    listed = [_index(env, task) for task in tasks]
    if not listed or len(set(listed)) != len(listed):
        raise InputError(f"tasks must be one or more different indices, not {listed}")
    if isinstance(env, VectorEnv):
        return _VectorTaskOneHot(env, tuple(listed))
    return _TaskOneHot(env, tasks=tuple(listed))


def _index(env: gymnasium.Env | VectorEnv, task: Any) -> int:
    """`task` if it may be one of the environment's. InputError for anything else."""
    known = getattr(env.unwrapped, "task_env", None)
    if known is not None:
        return task_index(known, task)
    if task < 0:  # Gymnasium's own vectors do not tell what they hold.
        raise InputError(f"tasks must be indices from 0, not {task}")
    return int(task)


class _TaskOneHot(gymnasium.Wrapper, RecordConstructorArgs):
    def __init__(self, env: gymnasium.Env, tasks: tuple[int, ...]):
        RecordConstructorArgs.__init__(self, tasks=tasks)
        gymnasium.Wrapper.__init__(self, env)
        self.observation_space = _longer(_single_space(env), len(tasks))
        self._tasks = tasks

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return _join(obs, _one_hot(info, self._tasks)), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return _join(obs, _one_hot(info, self._tasks)), reward, terminated, truncated, info


class _VectorTaskOneHot(VectorWrapper):
    def __init__(self, env: VectorEnv, tasks: tuple[int, ...]):
        super().__init__(env)
        _lengthen(self, len(tasks))
        self._tasks = tasks

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        obs, infos = self.env.reset(seed=seed, options=options)
        return _join(obs, _one_hot(infos, self._tasks)), infos

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        return _join(obs, _one_hot(infos, self._tasks)), rewards, terminated, truncated, infos


def _one_hot(info: dict[str, Any], tasks: tuple[int, ...]) -> Bool[np.ndarray, "*env task"]:
    if "task_index" not in info:
        raise InputError("only the environments of omrl have tasks")
    return np.asarray(info["task_index"])[..., None] == np.array(tasks)


# --- What the agent believes of the task ---


def append_belief(
    env: AnyEnv, prior: Numbers, update: Update, *, episodes_per_trial: int = 1
) -> AnyEnv:
    """Observations get the belief of the task, in BOReL [mean, logvar] of a latent: at first
    `prior`, then updated after every transition.

    `update(belief, obs, action, reward, next_obs)` sees observations as `env` returns them (so
    normalise inside) and actions as the MDP takes them, clipped to [-1, 1].

    A trial is `episodes_per_trial` episodes of one task, through which the belief is kept. A single
    environment keeps its task through the trial; a seed or a task given to `reset` begins a new
    trial, as every `reset` of a vector does. A vector draws a task for each episode unless
    `make_vec` is given `task`, which longer trials need: InputError where the task changes.
    """
    if not isinstance(episodes_per_trial, int) or episodes_per_trial < 1:
        raise InputError(f"episodes_per_trial must be 1 or more, not {episodes_per_trial}")
    check_real("prior", prior)
    initial = np.asarray(prior, np.float32)
    if initial.ndim != 1 or not np.isfinite(initial).all():
        raise InputError(f"prior must be a list of finite numbers, not of shape {initial.shape}")
    if isinstance(env, VectorEnv):
        return _VectorBelief(env, initial, update, episodes_per_trial)
    return _Belief(env, prior=initial, update=update, episodes_per_trial=episodes_per_trial)


class _Belief(gymnasium.Wrapper, RecordConstructorArgs):
    def __init__(
        self,
        env: gymnasium.Env,
        prior: Float32[np.ndarray, " belief"],
        update: Update,
        episodes_per_trial: int,
    ):
        RecordConstructorArgs.__init__(
            self, prior=prior, update=update, episodes_per_trial=episodes_per_trial
        )
        gymnasium.Wrapper.__init__(self, env)
        self.observation_space = _longer(_single_space(env), len(prior))
        self._prior = prior
        self._update = update
        self._episodes_per_trial = episodes_per_trial
        self._episodes_left = 0
        self._task = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        options = dict(options or {})
        first = self._episodes_left == 0 or seed is not None or "task" in options
        if not first:
            options["task"] = self._task
        self._obs, info = self.env.reset(seed=seed, options=options)
        if first:
            self._belief = self._prior
            self._episodes_left = self._episodes_per_trial
        self._task = info["task_index"]
        self._episodes_left -= 1
        return _join(self._obs, self._belief), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._belief = _updated(self._update, self._belief, self._obs, action, reward, obs)
        self._obs = obs
        return _join(obs, self._belief), reward, terminated, truncated, info


class _VectorBelief(VectorWrapper):
    def __init__(
        self,
        env: VectorEnv,
        prior: Float32[np.ndarray, " belief"],
        update: Update,
        episodes_per_trial: int,
    ):
        super().__init__(env)
        _lengthen(self, len(prior))
        self._prior = prior
        self._update = update
        self._episodes_per_trial = episodes_per_trial

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._obs, infos = self.env.reset(seed=seed, options=options)
        self._belief = np.tile(self._prior, (self.num_envs, 1))
        self._task = infos["task_index"]
        self._episodes = np.ones(self.num_envs, int)
        self._ended = np.zeros(self.num_envs, bool)
        return _join(self._obs, self._belief), infos

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        updated = _updated(self._update, self._belief, self._obs, actions, rewards, obs)
        # An environment that was reset in this step went through no transition.
        began = self._ended
        updated[began] = self._belief[began]
        fresh = began & (self._episodes == self._episodes_per_trial)
        updated[fresh] = self._prior
        moved = np.flatnonzero(~fresh & (infos["task_index"] != self._task))
        if moved.size:
            raise InputError(
                f"environment {moved[0]} drew another task within a trial of "
                f"{self._episodes_per_trial} episodes: give make_vec a `task` for every environment"
            )
        self._episodes = np.where(fresh, 1, self._episodes + began)
        self._obs, self._belief, self._task = obs, updated, infos["task_index"]
        self._ended = terminated | truncated
        return _join(obs, updated), rewards, terminated, truncated, infos


def _updated(
    update: Update,
    belief: Float32[np.ndarray, "*env belief"],
    obs: np.ndarray,
    action: np.ndarray,
    reward: Any,
    next_obs: np.ndarray,
) -> Float32[np.ndarray, "*env belief"]:
    taken = np.clip(np.asarray(action, np.float32), -1.0, 1.0)
    returned = update(belief, obs, taken, reward, next_obs)
    check_real("what update returns", returned)
    updated = np.array(returned, np.float32)
    if updated.shape != belief.shape:
        raise InputError(
            f"update must return a belief of shape {belief.shape}, not {updated.shape}"
        )
    return updated


# --- Observation spaces ---


def _single_space(env: gymnasium.Env | VectorEnv) -> spaces.Box:
    """That of one environment. `InputError` for a vector whose observations may be in `info`."""
    if not isinstance(env, VectorEnv):
        space = env.observation_space
    elif env.metadata.get("autoreset_mode") is AutoresetMode.NEXT_STEP:
        space = env.single_observation_space
    else:
        raise InputError(
            "the vector must reset environments in the step after the end of an episode: make it "
            f"with AutoresetMode.NEXT_STEP, not {env.metadata.get('autoreset_mode')}"
        )
    assert isinstance(space, spaces.Box)
    return space


def _longer(space: spaces.Box, extra: int) -> spaces.Box:
    edge = np.full(extra, np.inf, np.float32)
    low, high = np.concatenate([space.low, -edge]), np.concatenate([space.high, edge])
    return spaces.Box(low, high, dtype=np.float32)


def _lengthen(env: VectorWrapper, extra: int) -> None:
    env.single_observation_space = _longer(_single_space(env.env), extra)
    env.observation_space = batch_space(env.single_observation_space, env.num_envs)


def _join(obs: np.ndarray, extra: np.ndarray) -> Float32[np.ndarray, "*env obs"]:
    return np.concatenate([obs, extra], axis=-1, dtype=np.float32)
