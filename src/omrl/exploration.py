"""When a stage of meta-training goes into the environments itself, for how long, and who acts.

At the start of the stage and then after every `every` updates, some training tasks are explored:
first with what the prior says, then with what the task's encoder buffer says (the posterior). So
there is an exact number of gradient steps per environment step. PEARL (arXiv:1903.08254) collects
all its data like this, SMAC (arXiv:2107.03974) goes on like this after learning offline.

    initial     every training task, acting on the prior: once, before everything else
    prior       the chosen tasks, acting on the prior: to both buffers
    posterior   the chosen tasks, acting on the posterior: to the main buffer

Each phase plays whole trajectories until it has its environment steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64

from omrl.errors import InputError
from omrl.ranges import Count, Natural, Size, check_ranges

_TASKS_STREAM = 0x7461736B
"""Keeps the draw of tasks apart from other uses of the same key."""

_PHYSICS_STREAM = 0x70687973
"""The same for the draw of test tasks whose physics are played."""


@dataclass(frozen=True)
class Exploration:
    """What a stage collects. Defaults are those of PEARL's reference code."""

    every: Count = 2000
    """Updates between two explorations; the first one is before the first update."""
    explored_tasks: Size = 5
    """Tasks explored each time, drawn with replacement."""
    initial_steps: Natural = 2000
    """Environment steps on every training task before everything else."""
    prior_steps: Natural = 400
    """Environment steps on each chosen task acting on the prior."""
    posterior_steps: Natural = 600
    """The same acting on the posterior of transitions drawn from the task's encoder buffer."""
    prior_first: bool = True
    """The first trajectory of the posterior phase acts on the prior too."""
    context_size: Count = 256
    """Transitions that a posterior is inferred from, drawn anew for every trajectory."""
    resample_every: Literal["trajectory", "step"] = "trajectory"
    """When the guess that is acted on is drawn anew (`Algorithm.resample`)."""
    clear_encoder: bool = True
    """The encoder buffer of a task is emptied before the task is explored again."""
    into_encoder: Literal["prior", "all", "none"] = "prior"
    """Phases that the encoder buffer gets, prior with the initial one; none: it stays as it is."""
    draw: Literal["collected", "union", "union-main"] = "collected"
    """Where batches and contexts are drawn from: what was collected; or that and the logged data,
    uniformly over all transitions of a task; or union-main: the union for the main buffer, and for
    the encoder buffer what was collected alone."""
    label_context: Natural = 0
    """Logged transitions of the task from which the algorithm predicts the rewards of a trajectory
    (`Algorithm.predict_reward`), in place of the environment's; 0: rewards are those."""
    test_tasks: bool = False
    """Tasks of the environment's test split may be among the training tasks, so explored."""
    physics: Literal["own", "test"] = "own"
    """Where a task is explored: in its own environment, or in that of a test task, drawn uniformly
    for every trajectory (SMAC, Figure 8). Rewards are then labels of the task explored."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.prior_steps + self.posterior_steps:
            raise InputError("prior_steps, posterior_steps: both are 0; explore with one of them")
        if self.physics == "test" and not self.label_context:
            raise InputError(
                "physics: test is without the rewards of test tasks, so rewards have to be labels; "
                "set label_context, or let physics be own"
            )
        if self.label_context and not self.needs_data:
            raise InputError("label_context: is drawn from logged data, so draw union")
        if self.into_encoder == "prior" and not self.prior_steps + self.initial_steps:
            raise InputError(
                "into_encoder: prior, and nothing acts on the prior (prior_steps, initial_steps: "
                "0); take all or none, or explore with the prior"
            )
        if self.draw == "union":
            return
        if not self.initial_steps:
            raise InputError(
                "initial_steps: 0 leaves tasks without data to draw; collect some, or draw from "
                "the union with logged data"
            )
        if self.into_encoder == "none":
            raise InputError("into_encoder: none needs logged data to draw from, so draw union")
        if self.clear_encoder and not self.prior_steps:
            raise InputError(
                "prior_steps: 0 with clear_encoder leaves no context for the posterior; explore "
                "with the prior, or do not clear"
            )

    @property
    def needs_data(self) -> bool:
        """Whether logged data is read."""
        return self.draw != "collected"

    def count(self, steps: int) -> int:
        """Explorations of a stage of so many updates."""
        return -(-steps // self.every)

    def least_chosen(self, steps: int, num_tasks: int) -> int:
        """How often the task that is chosen most is at least, in a stage of so many updates."""
        return -(-self.count(steps) * self.explored_tasks // num_tasks)

    def env_steps(self, steps: int, num_tasks: int) -> int:
        """Environment steps of a stage of so many updates, if no trajectory goes over."""
        each = self.explored_tasks * (self.prior_steps + self.posterior_steps)
        return num_tasks * self.initial_steps + self.count(steps) * each

    @property
    def of_test_tasks(self) -> Literal["", "with their rewards", "without their rewards"]:
        """How test tasks are explored; empty: they are not."""
        if self.physics == "test":
            return "without their rewards"
        if not self.test_tasks:
            return ""
        return "without their rewards" if self.label_context else "with their rewards"

    def is_due(self, step: int) -> bool:
        """Whether there is one before update number `step` of the stage, from 0."""
        return step % self.every == 0

    def until_next(self, step: int) -> int:
        """Updates from number `step` of the stage to the next exploration, one at least."""
        return self.every - step % self.every

    def chosen(self, seed: int, step: int, num_tasks: int) -> Int64[np.ndarray, " slot"]:
        """Positions of the tasks explored after `step` updates of the run."""
        random = _generator(seed, step, 0, _TASKS_STREAM)
        return random.integers(num_tasks, size=self.explored_tasks)

    def least_rows(self) -> int:
        """Collected transitions that every buffer of every task has at least, once all were
        explored."""
        least = self.initial_steps
        return min(least, self.prior_steps) if self.clear_encoder else least


def played_task(seed: int, step: int, task_id: int, number: int, num_tasks: int) -> int:
    """Position of the test task whose physics trajectory `number` of a task is played in."""
    return int(_generator(seed, step, task_id, number, _PHYSICS_STREAM).integers(num_tasks))


def _generator(seed: int, step: int, *counter: int) -> np.random.Generator:
    key, numbers = np.array([seed, step], np.uint64), np.zeros(4, np.uint64)
    # The lowest is what the generator itself counts.
    numbers[1 : 1 + len(counter)] = counter
    return np.random.Generator(np.random.Philox(key=key, counter=numbers))


@dataclass(frozen=True)
class Room:
    """Transitions and trajectories of one task that a buffer has room for."""

    rows: int
    trajectories: int

    def __add__(self, other: Room) -> Room:
        return Room(self.rows + other.rows, self.trajectories + other.trajectories)

    def times(self, number: int) -> Room:
        """For so many of them."""
        return Room(self.rows * number, self.trajectories * number)

    @classmethod
    def of_phase(cls, steps: int, horizon: int, ends_early: bool) -> Room:
        """Of whole trajectories until there are so many steps."""
        if not steps:
            return cls(0, 0)
        if ends_early:
            # The last one begins with a step missing at most, and each has one step at least.
            return cls(steps - 1 + horizon, steps)
        number = -(-steps // horizon)
        return cls(number * horizon, number)


def rooms(
    exploration: Exploration,
    horizon: int,
    ends_early: bool,
    times: int,
) -> tuple[Room, Room]:
    """Of the main and of the encoder buffer of a task that is chosen `times` times."""
    initial, prior, posterior = (
        Room.of_phase(steps, horizon, ends_early)
        for steps in (
            exploration.initial_steps,
            exploration.prior_steps,
            exploration.posterior_steps,
        )
    )
    main = initial + (prior + posterior).times(times)
    if exploration.into_encoder == "none":
        return main, Room(1, 1)
    each = prior + posterior if exploration.into_encoder == "all" else prior
    if not exploration.clear_encoder:
        return main, initial + each.times(times)
    return main, Room(
        max(initial.rows, each.rows, 1), max(initial.trajectories, each.trajectories, 1)
    )


def most_chosen(
    exploration: Exploration, seeds: Int64[np.ndarray, " seed"], start: int, steps: int, tasks: int
) -> int:
    """How often the task that is chosen most is, by any seed, in a stage that starts after `start`
    updates."""
    at = range(start, start + steps, exploration.every)
    counts = (
        np.bincount(
            np.concatenate([exploration.chosen(seed, step, tasks) for step in at]), minlength=tasks
        )
        for seed in seeds.tolist()
    )
    return int(np.max(list(counts)))


def turns(chosen: Int64[np.ndarray, "seed slot"]) -> Iterator[np.ndarray]:
    """Which slots go together: in turn n those whose task was chosen n times before them.

    What is collected of a task earlier is there when it is explored again, as if one slot came
    after the other.
    """
    earlier = np.array(
        [[np.sum(row[:slot] == row[slot]) for slot in range(len(row))] for row in chosen]
    )
    for number in range(int(earlier.max()) + 1):
        yield earlier == number
