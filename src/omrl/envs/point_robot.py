"""Point robot: a dot in the plane walks to a hidden goal; every number has a closed form.

Sources: the oyster repository of PEARL, arXiv:1903.08254; BOReL, arXiv:2008.02598. Positions are
not clipped to the square.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, SolvedEnv, TaskEnv, check_finite
from omrl.envs.task_lists import digest_text, first_train, on_circle, semicircle_goals

STEP_SIZE = 0.1
"""Distance per unit of action."""
GOAL_RADIUS = 0.2
"""Within this distance of the goal, sparse rewards are above 0."""


class PointPhysics(Physics):
    """s' = s + .1 a."""

    def step(
        self,
        states: Float64[np.ndarray, "env state"],
        actions: Float64[np.ndarray, "env act"],
        tasks: Float64[np.ndarray, "env parameter"],
        active: Bool[np.ndarray, " env"],
    ) -> Float64[np.ndarray, "env state"]:
        """See `Physics.step`."""
        check_finite(states, active)
        return np.where(active[:, None], states + STEP_SIZE * actions, states)

    def close(self) -> None:
        """Nothing to stop."""


class Point(SolvedEnv):
    """What both families share. State and observation: (x, y)."""

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """The position."""
        return state.astype(np.float32)

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Never."""
        return np.zeros(state.shape[:-1], bool)

    def oracle_action(
        self,
        state: Float64[np.ndarray, "*#batch state"],
        task: Float64[np.ndarray, "*#batch parameter"],
    ) -> Float64[np.ndarray, "*#batch act"]:
        """As far towards the goal as the box allows, in each coordinate on its own.

        No other policy is nearer to the goal in either coordinate, at any time; and no reward of
        these families is lower at a smaller distance.
        """
        return np.clip((task - state) / STEP_SIZE, -1.0, 1.0)

    def done(
        self,
        state: Float64[np.ndarray, "*#batch state"],
        task: Float64[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """Less than a step from the goal in each coordinate."""
        return np.all(np.abs(task - state) < STEP_SIZE, axis=-1)

    def physics(self, num_threads: int) -> Physics:
        """One numpy expression."""
        return PointPhysics()


@dataclass(frozen=True)
class PointRobot(Point):
    """Reward: minus the distance to the goal after the step."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """Goals ~ U(-1, 1)^2."""
        return rng.uniform(-1.0, 1.0, (num, 2))

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """(x, y) ~ U(-1, 1)^2."""
        return rng.uniform(-1.0, 1.0, 2)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """The position after the step."""
        return next_state.copy()

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """-|s' - goal|."""
        return -np.linalg.norm(terms - task, axis=-1)


Form = Literal["one", "closeness", "dense"]


@dataclass(frozen=True)
class SparsePointRobot(Point):
    """Find the goal on a semicircle, from its centre: a reward only near the goal."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    form: Form
    """Of the reward within the radius of the goal: 1, or 1 - distance. `dense`: minus the distance,
    everywhere."""

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """Goals on the unit semicircle, the angle from the x axis ~ U(0, pi)."""
        return semicircle_goals(rng, num)

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """The origin."""
        return np.zeros(2)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """The position after the step as observed, in float32.

        So the stored terms are on the same side of the goal's border.
        """
        return self.observe(next_state).astype(np.float64)

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """1 or 1 - |s' - goal| where |s' - goal| <= .2, else 0; or -|s' - goal|."""
        distance = np.linalg.norm(terms - task, axis=-1)
        if self.form == "dense":
            return -distance
        inside = 1.0 - distance if self.form == "closeness" else np.ones_like(distance)
        return inside * (distance <= GOAL_RADIUS)

    def achieved(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """|s' - goal| <= .2."""
        return np.asarray(np.linalg.norm(terms - task, axis=-1) <= GOAL_RADIUS)


_OYSTER = EnvSpec(
    id="point-robot/oyster-v1",
    obs_dim=2,
    act_dim=2,
    horizon=20,
    dt=1.0,
    term_names=("next_x", "next_y"),
    task_names=("goal_x", "goal_y"),
    obs_names=("x", "y"),
    reward="-|next position - goal|",
    reset="(x, y) ~ U(-1, 1)^2",
    action="step_size * action, clipped to [-1, 1], is added to the position",
    termination="never",
    task_distribution="U(-1, 1)^2, x then y, drawn by numpy RandomState(1337)",
    constants=(("step_size", STEP_SIZE),),
    engine="numpy",
)

# The generator of the reference code, so that the goals are its goals.
_OYSTER_GOALS = np.random.RandomState(1337).uniform(-1.0, 1.0, (100, 2))


def _oyster_semicircle() -> Float64[np.ndarray, "100 2"]:
    """The goals of the reference code."""
    goals = on_circle(np.linspace(0.0, np.pi, 100))
    np.random.RandomState(1337).shuffle(goals)
    return goals


def draw_borel_goals() -> Float64[np.ndarray, "100 2"]:
    """The list in `assets/point_robot_tasks.npz`: BOReL draws other goals in every run."""
    return semicircle_goals(np.random.RandomState(5), 100)


TASK_FILE = Path(__file__).with_name("assets") / "point_robot_tasks.npz"
with np.load(TASK_FILE, allow_pickle=False) as _file:
    _BOREL_GOALS = _file["sparse_borel"]

_REWARD_TEXTS: dict[Form, str] = {
    "one": "1 where distance <= goal_radius, else 0",
    "closeness": "1 - distance where distance <= goal_radius, else 0",
    "dense": "-distance",
}


def _sparse(
    version: str, form: Form, goals: np.ndarray, task_distribution: str, horizon: int
) -> SparsePointRobot:
    spec = dataclasses.replace(
        _OYSTER,
        id=f"sparse-point-robot/{version}",
        horizon=horizon,
        reward=f"{_REWARD_TEXTS[form]}; distance = |next position in float32 - goal|",
        reset="(0, 0)",
        task_distribution=task_distribution,
        constants=(
            ("step_size", STEP_SIZE),
            *((("goal_radius", GOAL_RADIUS),) if form != "dense" else ()),
        ),
    )
    return SparsePointRobot(spec, _table(goals), _SPLITS, form)


def _table(goals: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple((float(x), float(y)) for x, y in goals)


_SPLITS = tuple(first_train(80, 20).items())
_OYSTER_TEXT = (
    "unit semicircle: angles linspace(0, pi, 100) from the x axis, shuffled by numpy "
    "RandomState(1337); new tasks U(0, pi)"
)

ENVIRONMENTS: tuple[TaskEnv, ...] = (
    PointRobot(_OYSTER, _table(_OYSTER_GOALS), _SPLITS),
    _sparse("oyster-v1", "closeness", _oyster_semicircle(), _OYSTER_TEXT, 20),
    _sparse("oyster-dense-v1", "dense", _oyster_semicircle(), _OYSTER_TEXT, 20),
    _sparse(
        "borel-v1",
        "one",
        _BOREL_GOALS,
        "unit semicircle: angle U(0, pi) from the x axis, drawn by numpy RandomState(5), "
        f"{digest_text(_BOREL_GOALS)}",
        60,
    ),
)
