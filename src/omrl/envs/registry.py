"""All environments by id. A new family is one file with `ENVIRONMENTS` and one line here."""

from __future__ import annotations

from omrl.envs import ant, gridnav, half_cheetah, humanoid, locomotion_params, point_robot
from omrl.envs.base import TaskEnv
from omrl.errors import InputError, nearest

_ENVIRONMENTS: dict[str, TaskEnv] = {
    env.spec.id: env
    for family in (half_cheetah, ant, locomotion_params, humanoid, point_robot, gridnav)
    for env in family.ENVIRONMENTS
}


def ids() -> tuple[str, ...]:
    """Every id, families together."""
    return tuple(_ENVIRONMENTS)


def make(env_id: str) -> TaskEnv:
    """The environment of that id. Raises InputError with the nearest ids for an unknown one."""
    if env_id not in _ENVIRONMENTS:
        raise InputError(f"unknown environment {env_id!r}; {nearest(env_id, ids())}")
    return _ENVIRONMENTS[env_id]


def register(env: TaskEnv) -> None:
    """Make an environment of your own known by its id, for the rest of this process.

    Raises InputError where another MDP has that id.
    """
    known = _ENVIRONMENTS.setdefault(env.spec.id, env)
    if known.spec.hash != env.spec.hash:
        raise InputError(f"{env.spec.id}: another environment has this id; choose another")
    _ENVIRONMENTS[env.spec.id] = env
