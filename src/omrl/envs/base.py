"""What an environment is: a spec that pins the MDP, and pure functions of physics and task.

The same name means different MDPs in different papers, so an id carries a version
(`cheetah-vel/macaw-v1`), `EnvSpec` writes down all that defines the MDP, and its hash is stored
with every dataset and printed with every number.

`TaskEnv` holds no state and no simulator. Stepping, relabelling and dataset validation all call the
same `observe`, `terms` and `reward`.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64
from numpy.typing import ArrayLike

from omrl.config import from_json, parse_json
from omrl.errors import InputError


class SimulationError(RuntimeError):
    """The simulator diverged: what it would report next is not the MDP any more."""


@dataclass(frozen=True)
class EnvSpec:
    """Everything that defines the MDP. Texts are part of the hash as the numbers are."""

    id: str
    obs_dim: int
    act_dim: int
    horizon: int
    """Environment steps until an episode is truncated."""
    dt: float
    """Seconds per environment step; 1 where the MDP has no clock."""
    term_names: tuple[str, ...]
    """Physical quantities that the reward of ANY task needs; stored with the data."""
    task_names: tuple[str, ...]
    """Parameters of a task, the columns of `TaskEnv.tasks`."""
    obs_names: tuple[str, ...] = ()
    reward: str = ""
    reset: str = ""
    action: str = ""
    termination: str = ""
    task_distribution: str = ""
    constants: tuple[tuple[str, float], ...] = ()
    """Numbers of reward, reset and physics, by name."""
    engine: str = ""
    model_file: str = ""
    """MJCF file among the assets of `gymnasium`; empty without MuJoCo."""
    model_sha256: str = ""
    timestep: float = 0.0
    """Seconds per physics step."""
    frame_skip: int = 1
    """Physics steps per environment step."""
    position_source: str = ""
    """Where observed body positions come from: `qpos` (fresh kinematics), `none` (not observed)."""
    contact_source: str = "none"

    @property
    def hash(self) -> str:
        """sha256 of `to_json()`, hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def is_longer(self, other: EnvSpec) -> bool:
        """Whether this is the MDP of `other` with longer episodes, under an id of its own.

        What is logged in it is as well of `other`: a time limit is no end of the MDP.
        """
        same = dataclasses.replace(self, id=other.id, horizon=other.horizon)
        return self.horizon > other.horizon and same == other

    def to_json(self) -> str:
        """Canonical JSON of all fields: sorted keys, no spaces, shortest exact floats."""
        fields = dataclasses.asdict(self)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> EnvSpec:
        """The inverse of `to_json`. InputError names the first field that is wrong."""
        fix = "write it as `EnvSpec.to_json` does"
        return from_json(EnvSpec, parse_json(text, "spec", fix), "spec", fix)


def check_finite(
    states: Float64[np.ndarray, "env state"], active: Bool[np.ndarray, " env"]
) -> None:
    """ValueError with the first active environment whose state is not finite."""
    finite = np.isfinite(states)
    if finite.all():  # as nearly always, and by rows it takes much longer
        return
    bad = np.flatnonzero(active & ~finite.all(axis=1))
    if bad.size:
        raise ValueError(f"states must be finite; that of environment {bad[0]} is not")


class Physics(abc.ABC):
    """The transition of a batch of environments. Owns threads and scratch memory, never state."""

    @abc.abstractmethod
    def step(
        self,
        states: Float64[np.ndarray, "env state"],
        actions: Float64[np.ndarray, "env act"],
        tasks: Float64[np.ndarray, "env parameter"],
        active: Bool[np.ndarray, " env"],
    ) -> Float64[np.ndarray, "env state"]:
        """States one environment step later; environments that are not `active` keep theirs.

        A pure function of its arguments, whatever the number of threads and the rest of the batch.
        Raises ValueError where an active state is not finite, SimulationError where a simulation
        diverged.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stop the threads; may be called twice."""


class TaskEnv(abc.ABC):
    """A family member with its tasks. Concrete classes are frozen dataclasses of these fields."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    """The canonical tasks, one row of parameters each."""
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    """Named lists of indices into `task_table`."""
    task_minimum: ClassVar[float] = -inf
    """What every parameter of a task must exceed."""
    task_changes_physics: ClassVar[bool] = False
    """Else a task changes the reward alone, and one trajectory has a return under every task."""
    discrete_actions: ClassVar[bool] = False
    """Whether of an action only counts which entry is the largest."""
    task_values: ClassVar[tuple[float, ...]] = ()
    """The only values of a parameter; empty: any."""
    extra: ClassVar[str] = ""
    """The optional extra of omrl that stepping needs; specs, tasks and data do without."""

    @property
    def tasks(self) -> Float64[np.ndarray, "task parameter"]:
        """The canonical task list (a fresh array)."""
        return np.array(self.task_table, np.float64)

    @property
    def succeeds(self) -> bool:
        """Whether episodes succeed or fail; see `achieved`."""
        terms = np.zeros((1, len(self.spec.term_names)))
        return self.achieved(terms, self.tasks[:1]) is not None

    @property
    def splits(self) -> Mapping[str, tuple[int, ...]]:
        """Task indices by split name (a fresh dict): at least `train` and `test`."""
        return dict(self.split_table)

    def with_tasks(
        self,
        tasks: ArrayLike,
        splits: Mapping[str, Sequence[int]],
    ) -> TaskEnv:
        """The same MDP with other tasks, [task, parameter], and named lists of their indices.

        Raises `InputError` for bad ones.
        """
        tasks = np.asarray(tasks)
        self.check_tasks(tasks)
        for name, indices in splits.items():
            wrong = [index for index in indices if index not in range(len(tasks))]
            if wrong or len(set(indices)) < len(indices):
                what = f"task {wrong[0]!r}" if wrong else "a task twice"
                raise InputError(f"split {name!r} has {what}; tasks are 0 to {len(tasks) - 1}")
        table = tuple(tuple(map(float, task)) for task in tasks)
        named = tuple((name, tuple(map(int, indices))) for name, indices in splits.items())
        env = dataclasses.replace(self, task_table=table, split_table=named)  # pyright: ignore
        env.check_training(splits.get("train", ()))
        return env

    def check_training(self, indices: Sequence[int]) -> None:  # noqa: B027 - no duty
        """Raises `InputError` where these tasks may not be trained on; by default any may."""

    def check_tasks(self, tasks: np.ndarray) -> None:
        """Raises `InputError` unless these are tasks of this family, at least one."""
        spec = self.spec
        if tasks.dtype.kind not in "fiu":
            raise InputError(f"tasks of {spec.id} must be numbers, not {tasks.dtype}")
        if tasks.ndim != 2 or not len(tasks) or tasks.shape[1] != len(spec.task_names):
            raise InputError(
                f"tasks of {spec.id} must have shape (at least 1, {len(spec.task_names)}), "
                f"not {tasks.shape}"
            )
        if not np.isfinite(tasks).all():
            raise InputError(f"tasks of {spec.id} must be finite")
        if (tasks <= self.task_minimum).any():
            row, column = np.argwhere(tasks <= self.task_minimum)[0]
            raise InputError(
                f"tasks of {spec.id} must be above {self.task_minimum:g}, not "
                f"{tasks[row, column]:g} as {spec.task_names[column]} of task {row}"
            )
        if self.task_values and not np.isin(tasks, self.task_values).all():
            row, column = np.argwhere(~np.isin(tasks, self.task_values))[0]
            allowed = ", ".join(f"{value:g}" for value in self.task_values)
            raise InputError(
                f"tasks of {spec.id} must be of {allowed}, not {tasks[row, column]:g} as "
                f"{spec.task_names[column]} of task {row}"
            )

    @abc.abstractmethod
    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """`num` new tasks from the distribution that the canonical list stands for."""

    @abc.abstractmethod
    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """An initial state. Every random choice comes from `rng`."""

    def place(
        self,
        state: Float64[np.ndarray, "*batch state"],
        task: Float64[np.ndarray, "*batch parameter"],
    ) -> Float64[np.ndarray, "*batch state"]:
        """The initial state of an episode of `task`, made of what `reset` drew: that itself, unless
        where things stand at first is part of the task. Pure."""
        return state

    @abc.abstractmethod
    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """What the agent sees of a state."""

    @abc.abstractmethod
    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """The physical quantities `spec.term_names` of a transition; the same for every task."""

    @abc.abstractmethod
    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """The reward of a transition under `task`. Pure; leading axes broadcast."""

    def achieved(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"] | None:
        """Whether a transition does what `task` asks for, so that an episode with one succeeds;
        None: tasks of this family are not done or left undone. Pure."""
        return None

    @abc.abstractmethod
    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """True ends of the MDP, judged on the state after a step; a time limit is not one."""

    @abc.abstractmethod
    def physics(self, num_threads: int) -> Physics:
        """A simulator of this family; the caller closes it.

        An MDP that is known by its logs alone raises NotImplementedError: it can be trained and
        relabelled on, not explored.
        """


class SolvedEnv(TaskEnv):
    """An MDP whose best policy has a closed form."""

    @abc.abstractmethod
    def oracle_action(
        self,
        state: Float64[np.ndarray, "*#batch state"],
        task: Float64[np.ndarray, "*#batch parameter"],
    ) -> Float64[np.ndarray, "*#batch act"]:
        """The action of highest return for who knows the task. Pure; leading axes broadcast."""

    @abc.abstractmethod
    def done(
        self,
        state: Float64[np.ndarray, "*#batch state"],
        task: Float64[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """Whether all that is left for who knows the task is to stay. Pure; leading axes
        broadcast."""


@runtime_checkable
class Script(Protocol):
    """Plays one episode of a batch of environments; may remember what it did."""

    def act(self, states: Float64[np.ndarray, "env state"]) -> Float64[np.ndarray, "env act"]:
        """The next actions; called once per step."""
        ...


class ScriptedEnv(TaskEnv):
    """An MDP with a behaviour written by hand, for data (`omrl collect --agent scripted`)."""

    @abc.abstractmethod
    def script(
        self,
        tasks: Float64[np.ndarray, "env parameter"],
        rngs: Sequence[np.random.Generator],
        noise: float = 0.1,
    ) -> Script:
        """For one episode. Each environment has a generator; `noise`: standard deviation of the
        Gaussian noise on the actions."""
