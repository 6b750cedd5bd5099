"""What an evaluation does, as a config: printed and stored with every number it gives.

* `given`: the context is a part of the test task's own logged data.
* `zero-shot`: no context; what the meta-trained policy does before it has seen any of the task.
* `finetune`: given, and then the agent goes on learning online (`omrl.tuning`).
* `explore`: the agent gathers its context itself, in a few trajectories of its own
  (`omrl.explore`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from omrl.data.slice import check_name
from omrl.errors import InputError, nearest
from omrl.ranges import Count, Natural, Size, check_ranges
from omrl.tuning import FinetuneConfig, Rounds

if TYPE_CHECKING:
    from omrl.envs.base import TaskEnv

Protocol = Literal["given", "zero-shot", "explore", "finetune"]
Measure = Literal["return", "success"]
"""What is reported of an episode: its return, or whether it did at some step what its task asks."""


@dataclass(frozen=True)
class ExploreConfig:
    """How an agent gathers its own context. Defaults are PEARL's (arXiv:1903.08254)."""

    episodes: Size = 2
    """Trajectories before the agent makes use of any of them. Afterwards it knows of every one that
    it has seen."""
    resample_every: Literal["trajectory", "step"] = "trajectory"
    """When a method that acts on a guess of the task draws it anew, from the prior before
    adaptation and from the posterior after it."""
    actions: Literal["by-method", "deterministic", "sampled"] = "by-method"
    """Of the trajectories before adaptation, those after it follow `deterministic`. by-method:
    sampled for methods that adapt to batches, whose policy has no other noise, else
    deterministic."""
    rounds: Rounds = 1
    """Adaptation rounds on all that was seen, for methods that adapt to batches."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def words(self) -> str:
        """What is explored, in words."""
        counted = f"{self.episodes} trajector{'y' if self.episodes == 1 else 'ies'}"
        actions = f"{self.actions} actions"
        if self.actions == "by-method":
            actions = "sampled actions if the method adapts to batches, else deterministic ones"
        return (
            f"{counted} of its own ({actions}), then all it has seen; guesses of the task are "
            f"drawn every {self.resample_every}"
        )


@dataclass(frozen=True)
class EvalConfig:
    """One evaluation. Two results are comparable if all of this, the env and the data agree."""

    protocol: Protocol = "given"
    split: str = "test"
    """Named tasks of the dataset: test, train, ..."""
    tasks: tuple[Natural, ...] = ()
    """Indices of tasks, instead of the split."""
    episodes: Size = 10
    """Episodes per seed, task and shot."""
    shots: tuple[Rounds, ...] = (0, 1)
    """Numbers of adaptation rounds to report; every round sees the same context. Of `finetune`:
    numbers of online trajectories. Of `explore`: of trajectories seen before the one reported."""
    context_size: Count = 256
    """Number of transitions or trajectories."""
    context_unit: Literal["transitions", "trajectories"] = "transitions"
    """Transitions are drawn i.i.d. without replacement over the slice, trajectories whole."""
    context_slice: str = "all"
    """Part of the task's lifetime that the context comes from: all, first-500, middle-500, ..."""
    context_seed: Natural = 0
    episode_seed: Natural = 0
    """Of initial states, random actions and the noise of stochastic policies."""
    deterministic: bool = True
    """The policy's mean action; False: sampled."""
    traces: tuple[str, ...] = ()
    """Reward terms of the environment to record over time: x_velocity, ..."""
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    """Of protocol `finetune`; no other reads it."""
    explore: ExploreConfig = field(default_factory=ExploreConfig)
    """Of protocol `explore`; no other reads it."""

    def __post_init__(self) -> None:
        check_ranges(self)
        check_name("context_slice", self.context_slice)
        if self.protocol == "zero-shot" and self.shots != (0,):
            raise InputError(
                f"shots: {self.shots} with protocol 'zero-shot'; it has only 0: --shots 0"
            )
        if not self.shots or sorted(set(self.shots)) != list(self.shots):
            noun = "trajectories" if self.protocol in ("finetune", "explore") else "rounds"
            raise InputError(f"shots: {self.shots} must be ascending numbers of {noun}")
        if self.protocol == "explore" and self.shots[-1] < self.explore.episodes:
            raise InputError(
                f"shots: {self.shots} end before what explore.episodes asks for, "
                f"{self.explore.episodes} trajectories, has been seen; end with that or more: "
                f"--shots 0 {self.explore.episodes}"
            )
        if len(set(self.tasks)) != len(self.tasks):
            raise InputError(f"tasks: {self.tasks} name a task twice")

    @property
    def points(self) -> tuple[int, ...]:
        """What stands on the shot axis of a result: `shots`, of `finetune` with the points of the
        curve between them, of `explore` with all trajectories before the last."""
        if self.protocol == "explore":
            return tuple(range(self.shots[-1] + 1))
        if self.protocol != "finetune" or not self.finetune.eval_every:
            return self.shots
        curve = range(0, self.shots[-1] + 1, self.finetune.eval_every)
        return tuple(sorted({*self.shots, *curve}))

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of adaptation rounds on the context after which something is measured."""
        if self.protocol == "explore":
            return (self.explore.rounds,)
        return (self.finetune.rounds,) if self.protocol == "finetune" else self.shots

    @property
    def needs_context(self) -> bool:
        """Whether it adapts to logged data."""
        return self.protocol in ("given", "finetune")

    @property
    def context(self) -> str:
        """What was adapted to, in words."""
        if self.protocol == "explore":
            return self.explore.words
        if self.protocol == "zero-shot":
            return "none"
        if self.context_unit == "trajectories":
            return f"{self.context_size} whole trajectories of {self.context_slice}"
        return (
            f"{self.context_size} transitions drawn i.i.d. without replacement "
            f"from {self.context_slice}"
        )

    def task_indices(self, env: TaskEnv) -> tuple[int, ...]:
        """The tasks to evaluate, in the order asked for; `env` has those of the dataset."""
        if not self.tasks:
            if self.split not in env.splits:
                raise InputError(
                    f"split {self.split!r} is not one of {env.spec.id}: {', '.join(env.splits)}"
                )
            return tuple(env.splits[self.split])
        num_tasks = len(env.tasks)
        for index in self.tasks:
            if not 0 <= index < num_tasks:
                raise InputError(f"task {index} is not one of {env.spec.id}: 0 to {num_tasks - 1}")
        return self.tasks


FINETUNE: dict[str, dict[str, Any]] = {
    # arXiv:2008.06043, C.2, D.4 and Table 5. Its 10k, 20k and 200k steps are those of 200 steps a
    # trajectory; which of them it reports is unclear (docs/evaluation.md).
    "finetune-paper": {"shots": (0, 50, 100, 1000), "episodes": 10, "finetune": FinetuneConfig()},
    # eric-mitchell/macaw@3dfd4f9, src/macaw.py: eval_macaw, as run.py calls it. Its burn-in of 25
    # is compared with the number, from 0, of the trajectory just stored: the first steps are taken
    # with 27.
    "finetune-code": {
        "shots": (0, 50, 100, 500),
        "episodes": 3,
        "finetune": FinetuneConfig(
            burn_in=27,
            policy_steps=200,
            interleaved=False,
            sampling="without_replacement",
            keep_context=False,
            buffer_size=50_000,
            eval_every=1,
            value_lr=1e-5,
            policy_lr=1e-5,
        ),
    },
}
"""What the two readings of online fine-tuning set, by name."""


def finetuning(name: str, own: EvalConfig) -> EvalConfig:
    """The evaluation `own` by protocol `finetune` as one of `FINETUNE` has it: of `own` are only
    split, tasks, seeds and traces. Others, `episodes` too, can be changed in what it returns."""
    if name not in FINETUNE:
        raise InputError(f"no settings {name!r}; {nearest(name, FINETUNE)}")
    common = {"context_size": 256, "context_unit": "transitions", "context_slice": "all"}
    return replace(own, protocol="finetune", deterministic=True, **common, **FINETUNE[name])


EXPLORE: dict[str, dict[str, Any]] = {
    # arXiv:2107.03974 and arXiv:1903.08254: z is of a trajectory. Neither paper tells the number of
    # trajectories or of repetitions; these are those of the code.
    "explore-paper": {"shots": (0, 1, 2), "episodes": 4, "explore": ExploreConfig()},
    # rail-berkeley/rlkit@ac45a9d, rlkit/core/meta_rl_algorithm.py: collect_paths, _do_eval, with
    # exploration_resample_latent_period 1 of both default configs.
    "explore-code": {
        "shots": (0, 1, 2),
        "episodes": 4,
        "explore": ExploreConfig(resample_every="step"),
    },
}
"""What the two readings of SMAC's evaluation set, by name."""


def exploring(name: str, own: EvalConfig) -> EvalConfig:
    """The evaluation `own` by protocol `explore` as one of `EXPLORE` has it. It replaces `shots`,
    `episodes`, `explore` and `deterministic` of `own`; change them in what it returns:
    `replace(exploring("explore-code", own), episodes=1)`."""
    if name not in EXPLORE:
        raise InputError(f"no settings {name!r}; {nearest(name, EXPLORE)}")
    return replace(own, protocol="explore", deterministic=True, **EXPLORE[name])


@dataclass(frozen=True)
class AdaptConfig:
    """What one policy is adapted to. The task need not be one of the environment's list."""

    task: Natural | None = None
    """Task of the context data; without it its first."""
    seed: Natural | None = None
    """Seed of the run to adapt; without it its first."""
    rounds: Rounds = 1
    """Adaptation rounds; of MACAW each is `inner_steps` gradient steps."""
    context_size: Count = 256
    """Number of transitions or trajectories."""
    context_unit: Literal["transitions", "trajectories"] = "transitions"
    """Transitions are drawn i.i.d. without replacement over the slice, trajectories whole."""
    context_slice: str = "all"
    """Part of the task's lifetime that the context comes from: all, end, last-500, ..."""
    context_seed: Natural = 0

    def __post_init__(self) -> None:
        check_ranges(self)
        check_name("context_slice", self.context_slice)

    @classmethod
    def like(cls, evaluation: EvalConfig) -> AdaptConfig:
        """To the contexts of `evaluation`, as often as for its last shot, at least once; of
        `finetune` as often as before it goes online."""
        return cls(
            rounds=max(1, evaluation.rounds[-1]),
            context_size=evaluation.context_size,
            context_unit=evaluation.context_unit,
            context_slice=evaluation.context_slice,
            context_seed=evaluation.context_seed,
        )

    def evaluated(self, task: int) -> EvalConfig:
        """The evaluation whose last shot is the policy adapted to task `task`."""
        return EvalConfig(
            tasks=(task,),
            shots=(self.rounds,),
            context_size=self.context_size,
            context_unit=self.context_unit,
            context_slice=self.context_slice,
            context_seed=self.context_seed,
        )
