"""A reward of your own on the physics, the observations and the tasks of an environment.

    def jump(terms, action, task):
        return terms[:, 0] - np.abs(action).sum(axis=1)

    env = with_reward(base, jump, "my-cheetah/fast-v1", "x_velocity - sum |action|")

The result is another MDP, so it has an id and a spec hash of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs import registry
from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.errors import InputError, reason

ARGUMENTS = ("terms", "action", "task", "obs", "next_obs")
"""What a reward function may ask for, by the names of its parameters."""


@dataclass(frozen=True)
class OwnReward(TaskEnv):
    """`base` with another reward; make one with `with_reward`."""

    base: TaskEnv
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    """Of `ARGUMENTS`, those that the function has."""
    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    # Of the base: every instance has its own.
    task_minimum: float  # pyright: ignore[reportIncompatibleVariableOverride]
    task_changes_physics: bool  # pyright: ignore[reportIncompatibleVariableOverride]
    discrete_actions: bool  # pyright: ignore[reportIncompatibleVariableOverride]
    task_values: tuple[float, ...]  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def reads_obs(self) -> bool:
        """Then it can relabel data, also such without terms, but not be stepped."""
        return not {"obs", "next_obs"}.isdisjoint(self.arguments)

    def rewards(self, **given: np.ndarray) -> Float64[np.ndarray, " row"]:
        """What the function returns for `ARGUMENTS`, each [row, feature].

        `InputError` where that is not one number per row, or the function raises an error.
        """
        rows = len(given["action"])
        try:
            returned = self.function(**{name: given[name] for name in self.arguments})
            values = np.asarray(returned)
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {reason(error)}"
            raise InputError(f"{self.spec.id}: its reward function raised {what}") from error
        if np.ma.isMaskedArray(returned):
            raise InputError(
                f"{self.spec.id}: its reward function returned a masked array; return an array "
                "without a mask"
            )
        if values.shape != (rows,) or values.dtype.kind not in "fiub":
            raise InputError(
                f"{self.spec.id}: its reward function returned {values.dtype} {values.shape} for "
                f"{rows} rows; return one number per row, of shape ({rows},)"
            )
        return values.astype(np.float64)

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """What the function returns. `InputError` where it asks for observations."""
        if self.reads_obs:
            raise InputError(
                f"{self.spec.id}: its reward function reads observations, so it relabels data and "
                "cannot be stepped; compute the reward from terms, action and task"
            )
        given = {"terms": terms, "action": action, "task": task}
        batch = np.broadcast_shapes(*(array.shape[:-1] for array in given.values()))
        rows = {
            name: np.broadcast_to(array, (*batch, array.shape[-1])).reshape(-1, array.shape[-1])
            for name, array in given.items()
        }
        return self.rewards(**rows).reshape(batch)[()]

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """As the base."""
        return self.base.sample_tasks(rng, num)

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """As the base."""
        return self.base.reset(rng)

    def place(
        self,
        state: Float64[np.ndarray, "*batch state"],
        task: Float64[np.ndarray, "*batch parameter"],
    ) -> Float64[np.ndarray, "*batch state"]:
        """As the base."""
        return self.base.place(state, task)

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """As the base."""
        return self.base.observe(state)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """As the base."""
        return self.base.terms(state, action, next_state)

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """As the base."""
        return self.base.terminated(state)

    def physics(self, num_threads: int) -> Physics:
        """As the base."""
        return self.base.physics(num_threads)


def with_reward(
    base: TaskEnv, function: Callable[..., Any], env_id: str, description: str
) -> OwnReward:
    """The MDP of `base` with the reward that `function` computes.

    Args:
        function: pure; its parameters are some of `terms`, `action`, `task`, `obs`, `next_obs`, in
            any order. Each is a float64 array [row, feature], with the terms `base.spec.term_names`
            and the parameters `base.spec.task_names`; it returns the rewards, [row].
        env_id: of the new MDP, `name/version`, which no registered environment has.
        description: of the reward, for the spec; another reward must have another one.

    Raises `InputError` for a function with other parameters, an id that is taken or malformed, and
    an empty description.
    """
    if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+-v\d+", env_id, re.ASCII):
        raise InputError(f"id {env_id!r}: must be like my-cheetah/fast-v1, in small letters")
    if env_id in registry.all_ids():
        raise InputError(f"id {env_id!r}: is that of a registered environment; choose another")
    if not description.strip():
        raise InputError(f"{env_id}: describe the reward; it is all that the data says of it")
    arguments = _arguments(function, env_id)
    if "terms" in arguments and not base.spec.term_names:
        raise InputError(f"{env_id}: {base.spec.id} has no terms; use obs and next_obs")
    return OwnReward(
        base=base,
        function=function,
        arguments=arguments,
        spec=dataclasses.replace(base.spec, id=env_id, reward=description),
        task_table=base.task_table,
        split_table=base.split_table,
        task_minimum=base.task_minimum,
        task_changes_physics=base.task_changes_physics,
        discrete_actions=base.discrete_actions,
        task_values=base.task_values,
    )


def _arguments(function: Callable[..., Any], env_id: str) -> tuple[str, ...]:
    allowed = f"its parameters must be some of {', '.join(ARGUMENTS)}"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise InputError(f"{env_id}: {function!r} tells no parameters; {allowed}") from None
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    for parameter in needed:
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if parameter.name not in ARGUMENTS or not by_name:
            raise InputError(f"{env_id}: its reward function has {str(parameter)!r}; {allowed}")
    return tuple(parameter.name for parameter in needed)
