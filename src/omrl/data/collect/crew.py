"""Who plays the lifetimes of a group: one interface for those who learn and those who do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int64

from omrl.data.collect.config import CollectConfig, OracleConfig, RandomConfig, ScriptedConfig
from omrl.data.collect.explorer import Explorer
from omrl.data.collect.fixed import Fixed, Mixture, RandomActions
from omrl.data.collect.oracle import Oracles
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import KeptPolicies
from omrl.data.collect.rounds import Player
from omrl.data.collect.scripted import Scripted
from omrl.data.growing import GrowingTask
from omrl.envs.base import TaskEnv


@runtime_checkable
class Crew(Player, Protocol):
    """A player of whole lifetimes. Arrays are over the tasks of the group."""

    def compile(self) -> None:
        """Run every program once, without effect, so that no round waits for a compiler."""

    def start_round(
        self, number: int, active: Bool[np.ndarray, " task"], before: Int64[np.ndarray, " task"]
    ) -> None:
        """Called before round `number` with the tasks' transitions so far."""

    def end_round(
        self,
        active: Bool[np.ndarray, " task"],
        before: Int64[np.ndarray, " task"],
        after: Int64[np.ndarray, " task"],
    ) -> None:
        """Called with the transitions before and after the round."""

    def best(self) -> Player | None:
        """The final agents without exploration, if there are agents."""
        ...

    def policies(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """The policies to keep, by file."""
        ...

    def account(self, position: int, transitions: Int64[np.ndarray, " round"]) -> Mapping[str, Any]:
        """What else to put on record about the behaviour of the task at `position`.

        Args:
            transitions: of this task, after each round.
        """
        ...

    def state(self) -> Any:
        """A tree of arrays: all that later rounds depend on beside the data so far."""
        ...

    def restore(self, state: Any, files: Callable[[int], GrowingTask]) -> None:
        """The inverse; `files` of each task hold just the transitions up to it."""


def make_crew(
    config: CollectConfig,
    env: TaskEnv,
    tasks: tuple[int, ...],
    kept: KeptPolicies | None,
    progress: CollectProgress,
) -> Crew:
    """At the beginning of the lifetimes of `tasks`."""
    if config.learns:
        return Explorer(config, env.spec, tasks, progress)
    if isinstance(config.agent, RandomConfig):
        behaviour = RandomActions(config, env.spec, tasks)
    elif isinstance(config.agent, OracleConfig):
        behaviour = Oracles(config, env, tasks)
    elif isinstance(config.agent, ScriptedConfig):
        behaviour = Scripted(config, env, tasks)
    else:
        assert kept is not None
        behaviour = Mixture(config, tasks, kept)
    return Fixed(behaviour, (len(tasks), config.envs), env, progress)
