"""What decides the data that `omrl collect` makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from omrl.algos.sac import Sac, SacConfig
from omrl.algos.td3 import Td3, Td3Config
from omrl.config import to_json
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError
from omrl.ranges import Count, Fraction, Natural, NonNegative, Positive, Range, Size, check_ranges

IRRELEVANT = ("checkpoint_every", "group_size", "threads")
"""Fields that do not change the data."""
OF_LEARNERS = ("updates_per_step", "warmup_rounds", "keep_agents")
"""Fields that mean nothing where nobody learns."""


@dataclass(frozen=True)
class RandomConfig:
    """Independent actions, uniform over the box; nobody learns."""


@dataclass(frozen=True)
class OracleConfig:
    """The best policies of tasks, in environments where they have a closed form; nobody learns.

    In every episode an agent turns to one task after the other, so that it does in each what the
    others' agents do: exploration, where tasks are goals.
    """

    own: Fraction = 1.0
    """Probability that the task it turns to is its own; else it is one of the training tasks, all
    equally likely."""
    turn: Fraction = 0.0
    """Probability, at every step, of turning to another task than so far."""
    leave: Fraction = 0.0
    """The same at every step where that task is done, if it is above `turn`: who stays there sees
    nothing new."""
    random: Fraction = 0.1
    """Probability, at every step, of an action that is uniform over the box."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class ScriptedConfig:
    """The behaviour that the environment comes with, see `omrl.envs.base.ScriptedEnv`; nobody
    learns."""

    noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise on its actions; the sum is clipped to the box. The
    default is that of the script of SMAC's authors."""
    random: tuple[Fraction, Fraction] = (0.0, 0.0)
    """Probability, at every step, of an action that is uniform over the box instead: at the start
    of a lifetime and at its end, linear in between. From 1 to 0 data are as of an agent that
    learns."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class KeptConfig:
    """Policies that an earlier collection kept (`keep_agents`), one after another; nobody learns.

    Each gets its share of the transitions, in whole rounds, in the order of `policies`.
    """

    source: str = ""
    """sha256 of the policies, see `KeptPolicies`."""
    policies: tuple[Count, ...] = ()
    """Their numbers, from 1 for the earliest to that of the final agent; none: all."""
    shares: tuple[Positive, ...] = ()
    """Parts of the data that each collects, of any sum; none: equal ones."""
    noise: NonNegative = 0.1
    """Standard deviation of the Gaussian noise on their best actions; the sum is clipped to the
    box. The default is that of TD3 while it explores."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.shares and len(self.shares) != len(self.policies):
            raise InputError(
                f"shares: {len(self.shares)} for {len(self.policies)} policies; give one for each "
                "of agent.policies"
            )


Agent: TypeAlias = Td3Config | SacConfig | RandomConfig | OracleConfig | ScriptedConfig | KeptConfig

ALGORITHMS: dict[str, type[Agent]] = {
    "td3": Td3Config,
    "sac": SacConfig,
    "random": RandomConfig,
    "oracle": OracleConfig,
    "scripted": ScriptedConfig,
    "kept": KeptConfig,
}


@dataclass(frozen=True)
class CollectConfig:
    """One agent per task, trained from scratch; its whole lifetime is the data of the task.

    Or a behaviour that does not learn: random actions, or policies kept from other lifetimes. A
    round is one episode of every environment. Lifetimes consist of whole rounds.
    """

    env: str = "cheetah-vel/macaw-v1"
    """Environment id."""
    agent: Agent = field(default_factory=Td3Config)
    """Learner of every task (MACAW, appendix D.2: TD3 for Cheetah-Velocity, SAC for the others), or
    the behaviour that does not learn."""
    tasks: tuple[Natural, ...] = ()
    """Indices of the tasks to collect; none: all. What else is collected does not change a task."""
    steps: Count = 500_000
    """Transitions per task at least: lifetimes end with the round in which they reach it."""
    envs: Size = 32
    """Environments per task, stepped together."""
    updates_per_step: Size = 8
    """Batches that every agent learns from per step of all its environments."""
    warmup_rounds: Count = 2
    """Rounds of uniformly random actions, without learning, at the start of every lifetime."""
    keep_agents: Size = 1
    """Policies to keep of every lifetime, evenly spaced over it; the last is the final agent."""
    seed: Natural = 0
    checkpoint_every: Count = 10
    """Rounds after which everything so far survives a kill."""
    group_size: Natural = 0
    """Tasks collected side by side; 0: as many as fit into the device's memory."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Physics threads; 0: one per core. They do not change the data."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if len(set(self.tasks)) != len(self.tasks):
            raise InputError(f"tasks: {self.tasks} name a task twice")

    def most_steps(self, spec: EnvSpec) -> int:
        """Transitions per task at most, exactly so many where no episode ends early."""
        a_round = self.envs * spec.horizon
        if spec.termination == "never":
            return -(-self.steps // a_round) * a_round
        return self.steps - 1 + a_round

    def indices(self, env: TaskEnv) -> tuple[int, ...]:
        """The tasks to collect, in ascending order."""
        num_tasks = len(env.tasks)
        for index in self.tasks:
            if not 0 <= index < num_tasks:
                raise InputError(
                    f"tasks: no task {index}; {self.env} has tasks 0 to {num_tasks - 1}"
                )
        return tuple(sorted(self.tasks)) or tuple(range(num_tasks))

    @property
    def algorithm(self) -> str:
        """The agent's name, of `ALGORITHMS`."""
        return next(name for name, kind in ALGORITHMS.items() if type(self.agent) is kind)

    @property
    def learns(self) -> bool:
        return isinstance(self.agent, Td3Config | SacConfig)

    def make_agent(self, spec: EnvSpec) -> Td3 | Sac:
        """The learner of a task of which there is one."""
        kind = Td3 if isinstance(self.agent, Td3Config) else Sac
        agent = kind(self.agent, spec.obs_dim, spec.act_dim)  # pyright: ignore[reportArgumentType]
        if self.updates_per_step % agent.batches_per_update:
            raise InputError(
                f"updates_per_step: {self.updates_per_step} is not a multiple of "
                f"agent.policy_delay ({agent.batches_per_update})"
            )
        return agent

    def record(self) -> dict[str, Any]:
        """All that decides a task's data, as JSON: the behaviour's description, and what a resumed
        collection is compared with."""
        values = self.relevant()
        del values["tasks"]
        return values | {"agent": {"algorithm": self.algorithm} | values["agent"]}

    def relevant(self) -> dict[str, Any]:
        """The fields that change the data, as JSON."""
        values = to_json(self)
        for name in (*IRRELEVANT, *(() if self.learns else OF_LEARNERS)):
            del values[name]
        if values.get("keep_agents") == 1:  # As before there was a choice.
            del values["keep_agents"]
        return values
