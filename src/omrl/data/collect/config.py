"""What decides the data that `omrl collect` makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omrl.algos.sac import Sac, SacConfig
from omrl.algos.td3 import Td3, Td3Config
from omrl.config import to_json
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError


@dataclass(frozen=True)
class CollectConfig:
    """One agent per task, trained from scratch; its whole lifetime is the data of the task.

    A round is one episode of every environment. Lifetimes consist of whole rounds.
    """

    env: str = "cheetah-vel/macaw-v1"
    """Environment id."""
    agent: Td3Config | SacConfig = field(default_factory=Td3Config)
    """Learner of every task (MACAW, appendix D.2: TD3 for Cheetah-Velocity, SAC for the others)."""
    tasks: tuple[int, ...] = ()
    """Indices of the tasks to collect; none: all. What else is collected does not change a task."""
    steps: int = 500_000
    """Transitions per task at least: lifetimes end with the round in which they reach it."""
    envs: int = 32
    """Environments per task, stepped together."""
    updates_per_step: int = 8
    """Batches that every agent learns from per step of all its environments."""
    warmup_rounds: int = 2
    """Rounds of uniformly random actions, without learning, at the start of every lifetime."""
    seed: int = 0
    checkpoint_every: int = 10
    """Rounds after which everything so far survives a kill."""
    group_size: int = 0
    """Tasks collected side by side; 0: as many as fit into the device's memory."""
    threads: int = 0
    """Physics threads; 0: one per core. They do not change the data."""

    def __post_init__(self) -> None:
        lowest = {"steps": 1, "envs": 1, "updates_per_step": 1, "warmup_rounds": 1, "seed": 0,
                  "checkpoint_every": 1, "group_size": 0, "threads": 0}  # fmt: skip
        for name, low in lowest.items():
            value = getattr(self, name)
            if not low <= value < 2**31:
                raise InputError(f"{name} is {value}; it must be {low} or more, below 2^31")
        if len(set(self.tasks)) != len(self.tasks):
            raise InputError(f"tasks are {self.tasks}; name each only once")

    def indices(self, env: TaskEnv) -> tuple[int, ...]:
        """The tasks to collect, in ascending order."""
        num_tasks = len(env.tasks)
        for index in self.tasks:
            if not 0 <= index < num_tasks:
                raise InputError(
                    f"tasks: no task {index}; {self.env} has tasks 0 to {num_tasks - 1}"
                )
        return tuple(sorted(self.tasks)) or tuple(range(num_tasks))

    def make_agent(self, spec: EnvSpec) -> Td3 | Sac:
        kind = Td3 if isinstance(self.agent, Td3Config) else Sac
        agent = kind(self.agent, spec.obs_dim, spec.act_dim)  # pyright: ignore[reportArgumentType]
        if self.updates_per_step % agent.batches_per_update:
            raise InputError(
                f"updates_per_step is {self.updates_per_step}; with policy_delay "
                f"{agent.batches_per_update} it must be a multiple of that"
            )
        return agent

    def record(self) -> dict[str, Any]:
        """All that decides a task's data, as JSON: the behaviour's description, and what a resumed
        collection is compared with."""
        values = to_json(self)
        for name in ("tasks", "checkpoint_every", "group_size", "threads"):
            del values[name]
        algorithm = "td3" if isinstance(self.agent, Td3Config) else "sac"
        return values | {"agent": {"algorithm": algorithm} | values["agent"]}
