"""How much memory and disk a collection takes, before it takes any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from omrl.data.collect.config import CollectConfig
from omrl.data.collect.learner import Learner, task_streams
from omrl.data.collect.results import KeptPolicies
from omrl.data.store import task_bytes
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

USABLE = 0.9
"""Part of the device's free memory that is planned for."""
FLOAT = 4


@dataclass(frozen=True)
class Budget:
    """Bytes per task."""

    replay: int
    agent: int
    """State, gradients and batches of the learner."""
    host: int
    """Rounds on their way to the disk and the agent's part of a checkpoint."""
    disk: int
    """Columns and checkpoint."""

    @property
    def device(self) -> int:
        return self.replay + self.agent

    def describe(self, num_tasks: int, group: int, room: int) -> str:
        """One line for a collection of `num_tasks` tasks, `group` of them side by side."""
        return (
            f"memory: {group} tasks side by side take {_text(group * self.replay)} of replay "
            f"and {_text(group * self.agent)} of agents, {_text(room)} are free on the "
            f"device; {_text(group * self.host)} on the host; "
            f"{_text(num_tasks * self.disk)} on the disk"
        )


def capacity(config: CollectConfig, spec: EnvSpec) -> int:
    """Transitions of a task at most: a round begins with one missing and adds all it can."""
    longest = config.envs * spec.horizon
    return config.steps - 1 + longest


def budget(config: CollectConfig, spec: EnvSpec, kept: KeptPolicies | None) -> Budget:
    """`kept` are the policies to play, if it is them that collect."""
    rows = capacity(config, spec)
    disk = task_bytes(spec, rows, math.ceil(rows / spec.horizon))
    # A round being played and two waiting, each copied when it is written.
    width = 2 * spec.obs_dim + spec.act_dim + 2
    host = 4 * config.envs * spec.horizon * width * FLOAT
    if not config.learns:
        # One policy on the device, all of them on the host; observations and actions of a step.
        policies = [agents.arrays().values() for agents in kept.agents] if kept else []
        size = sum(array[0].nbytes for arrays in policies for array in arrays)
        return Budget(0, size + config.envs * width * FLOAT, host + 2 * size, disk)
    learner = Learner(config.make_agent(spec), config.updates_per_step)
    streams = jax.eval_shape(lambda: task_streams(0, jnp.zeros(1, jnp.int32)))
    brains = jax.eval_shape(learner.init, streams)
    state = _size(brains)
    # What is kept in memory and in checkpoints until a lifetime ends.
    policies = (config.keep_agents - 1) * _size(
        jax.eval_shape(jax.vmap(learner.agent.actor), brains.agent)
    )
    batches = config.updates_per_step * learner.agent.config.batch_size * learner.row_width * FLOAT
    # Old and new state while an update runs, and its gradients; batches raw and normalised.
    return Budget(
        replay=rows * learner.row_width * FLOAT,
        agent=3 * state + 2 * batches,
        host=host + 2 * (state + policies),
        disk=disk + 2 * (state + policies),
    )


def _size(tree: Any) -> int:
    """Bytes of a tree of shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def split_into_groups(
    tasks: Sequence[int], needed: int, room: int, group_size: int
) -> list[tuple[int, ...]]:
    """The fewest groups that fit, of nearly equal sizes; of `group_size` tasks if that is not 0.

    Args:
        needed: bytes per task on a device with `room` bytes.
    """
    fitting = int(USABLE * room) // needed
    if fitting < max(group_size, 1):
        raise InputError(
            f"group_size: {max(group_size, 1)} tasks side by side need "
            f"{_text(max(group_size, 1) * needed)} on the device, {_text(room)} are "
            f"free: {'lower group_size' if group_size > 1 else 'lower steps'}"
        )
    size = group_size or math.ceil(len(tasks) / max(math.ceil(len(tasks) / fitting), 1)) or 1
    return [tuple(tasks[i : i + size]) for i in range(0, len(tasks), size)]


def _text(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
