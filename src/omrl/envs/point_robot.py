"""Point robot: a dot in the plane walks to a hidden goal; every number has a closed form.

Source: the oyster repository of PEARL, arXiv:1903.08254. Positions are not clipped to the square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, TaskEnv

STEP_SIZE = 0.1
"""Distance per unit of action."""


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
        return np.where(active[:, None], states + STEP_SIZE * actions, states)

    def close(self) -> None:
        """Nothing to stop."""


@dataclass(frozen=True)
class PointRobot(TaskEnv):
    """Reward: minus the distance to the goal after the step. State and observation: (x, y)."""

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

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """The position."""
        return state.astype(np.float32)

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

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Never."""
        return np.zeros(state.shape[:-1], bool)

    def physics(self, num_threads: int) -> Physics:
        """One numpy expression."""
        return PointPhysics()


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

ENVIRONMENTS: tuple[TaskEnv, ...] = (
    PointRobot(
        _OYSTER,
        tuple((float(x), float(y)) for x, y in _OYSTER_GOALS),
        (("train", tuple(range(80))), ("test", tuple(range(80, 100)))),
    ),
)
