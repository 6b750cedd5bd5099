"""All environments by id. A new family is one file with `ENVIRONMENTS` and one line here.

`register` adds those of other programs, see docs/environments/your-own.md.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from contextlib import closing

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


def ids() -> tuple[str, ...]:
    """Every id, families together."""
    return tuple(_ENVIRONMENTS)


def make(env_id: str) -> TaskEnv:
    """The environment of that id. Raises InputError with the nearest ids for an unknown one."""
    if env_id not in _ENVIRONMENTS:
        raise InputError(
            f"unknown environment {env_id!r}; {nearest(env_id, ids())} (one of your own has to be "
            "registered: omrl --import MODULE)"
        )
    return _ENVIRONMENTS[env_id]


def register(env: TaskEnv) -> None:
    """Makes an MDP of your own known by its id: to data, runs, the commands and Gymnasium.

    One step is taken to see that it is what its spec says. The same MDP may be registered again.
    Raises `InputError` for another one of a known id, and for one that does not fit its spec.
    """
    _check(env)
    name = env.spec.id
    known = _ENVIRONMENTS.get(name)
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
