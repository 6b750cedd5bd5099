"""All environments by id. A new family is one file with `ENVIRONMENTS` and one line here.

Those of an optional extra are made when one of them, or the list, is asked for.

`register` adds those of other programs, see docs/environments/your-own.md.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from contextlib import closing
from functools import cache

import numpy as np

from omrl.envs import ant, gridnav, half_cheetah, humanoid, locomotion_params, point_robot, sawyer
from omrl.envs.base import TaskEnv
from omrl.envs.engine import advance
from omrl.envs.gym_hook import register_with_gymnasium
from omrl.errors import InputError, nearest

_ENVIRONMENTS: dict[str, TaskEnv] = {
    env.spec.id: env
    for family in (half_cheetah, ant, locomotion_params, humanoid, point_robot, gridnav, sawyer)
    for env in family.ENVIRONMENTS
}


@cache
def _optional() -> dict[str, TaskEnv]:
    from omrl.envs import metaworld  # more than a hundred, which most programs do not need

    return {env.spec.id: env for env in metaworld.ENVIRONMENTS}


def ids() -> tuple[str, ...]:
    """Every id that needs no extra, families together."""
    return tuple(_ENVIRONMENTS)


def optional_ids() -> tuple[str, ...]:
    """Those that need an extra to be stepped (`TaskEnv.extra`), whether it is installed or not."""
    return tuple(_optional())


def all_ids() -> tuple[str, ...]:
    """Those that need no extra, then those that do."""
    return (*ids(), *optional_ids())


def make(env_id: str) -> TaskEnv:
    """The environment of that id. Raises InputError with the nearest ids for an unknown one."""
    found = _ENVIRONMENTS.get(env_id) or _optional().get(env_id)
    if found is None:
        raise InputError(
            f"unknown environment {env_id!r}; {nearest(env_id, all_ids())} (one of your own has to "
            "be registered: omrl --import MODULE)"
        )
    return found


def register(env: TaskEnv) -> None:
    """Makes an MDP of your own known by its id: to data, runs, the commands and Gymnasium.

    One step is taken to see that it is what its spec says. The same MDP may be registered again.
    Raises `InputError` for another one of a known id, and for one that does not fit its spec.
    """
    _check(env)
    name = env.spec.id
    known = _ENVIRONMENTS.get(name) or _optional().get(name)
    if known and (known.spec, known.task_table, known.split_table) != (
        env.spec,
        env.task_table,
        env.split_table,
    ):
        raise InputError(f"{name}: is another MDP already; give a changed one a new version")
    _ENVIRONMENTS[name] = env
    if "gymnasium" in sys.modules:
        register_with_gymnasium(name, env.spec.horizon)


def _check(env: TaskEnv) -> None:
    spec = env.spec
    if not re.fullmatch(r"[\w-]+/[\w-]+-v\d+", spec.id):
        raise InputError(f"spec.id: {spec.id!r} is not FAMILY/NAME-vNUMBER, as my-family/first-v1")
    if not dataclasses.is_dataclass(env):
        raise InputError(f"{spec.id}: {type(env).__name__} has to be a frozen dataclass")
    if missing := {"train", "test"} - env.splits.keys():
        raise InputError(f"{spec.id}: split_table has no {min(missing)!r}; train and test are used")
    env.with_tasks(env.tasks, env.splits)
    states = env.place(env.reset(np.random.default_rng(0)), env.tasks[0])[None]
    action = np.zeros((1, spec.act_dim))
    with closing(env.physics(1)) as physics:
        after = advance(env, physics, states, action, env.tasks[:1], np.ones(1, bool))
    expected = {
        "states": states.shape,
        "obs": (1, spec.obs_dim),
        "reward": (1,),
        "terminated": (1,),
        "terms": (1, len(spec.term_names)),
    }
    for field, shape in expected.items():
        found = getattr(after, field).shape
        if found != shape:
            raise InputError(f"{spec.id}: {field} of one environment are {found}, not {shape}")
