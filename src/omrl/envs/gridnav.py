"""Grid navigation: find a hidden goal in five by five cells, one move at a time.

Source: BOReL, arXiv:2008.02598, and its reference code, after VariBAD, arXiv:1910.08348. There the
belief of the agent is carried across four episodes of a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, SolvedEnv, TaskEnv, check_finite

NUM_CELLS = 5
"""Along each side."""
HORIZON = 15
MOVES = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])
"""(x, y) of stay, up, right, down, left."""
GOAL_REWARD = 1.0
STEP_REWARD = -0.1

# Columns of the state: steps taken, x, y.
_STEPS = 0
_CELL = slice(1, 3)


class GridPhysics(Physics):
    """The chosen move, unless it would leave the grid."""

    def step(
        self,
        states: Float64[np.ndarray, "env state"],
        actions: Float64[np.ndarray, "env act"],
        tasks: Float64[np.ndarray, "env parameter"],
        active: Bool[np.ndarray, " env"],
    ) -> Float64[np.ndarray, "env state"]:
        """See `Physics.step`."""
        check_finite(states, active)
        moved = states[:, _CELL] + MOVES[np.argmax(actions, axis=1)]
        cells = np.clip(moved, 0.0, NUM_CELLS - 1.0)
        next_states = np.concatenate([states[:, [_STEPS]] + 1.0, cells], axis=1)
        return np.where(active[:, None], next_states, states)

    def close(self) -> None:
        """Nothing to stop."""


@dataclass(frozen=True)
class GridNav(SolvedEnv):
    """Reward: 1 on the goal after the move, else `step_reward`. A goal does not end the episode."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    step_reward: float
    discrete_actions: ClassVar[bool] = True
    task_values: ClassVar[tuple[float, ...]] = tuple(map(float, range(NUM_CELLS)))

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """One of the goals, equally likely."""
        return rng.choice(self.tasks, num)

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """Cell (0, 0), no step taken."""
        return np.zeros(3)

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """The cell (2), then 1 after the last step of an episode, else 0."""
        over = state[..., _STEPS, None] >= self.spec.horizon
        return np.concatenate([state[..., _CELL], over], axis=-1).astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """The cell after the move."""
        return next_state[..., _CELL].copy()

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """1 on the goal, else `step_reward`."""
        # [()] makes an array without axes a number, as arithmetic does.
        return np.where(self.achieved(terms, task), GOAL_REWARD, self.step_reward)[()]

    def achieved(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """The cell after the move is the goal."""
        return np.asarray((terms == task).all(axis=-1))

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Never."""
        return np.zeros(state.shape[:-1], bool)

    def oracle_action(
        self,
        state: Float64[np.ndarray, "*#batch state"],
        task: Float64[np.ndarray, "*#batch parameter"],
    ) -> Float64[np.ndarray, "*#batch act"]:
        """Along x, then along y, then stay: one-hot, no move is wasted."""
        x, y = np.moveaxis(task - state[..., _CELL], -1, 0)
        along_y = np.select([y > 0, y < 0], [1, 3], 0)
        return np.eye(len(MOVES))[np.select([x > 0, x < 0], [2, 4], along_y)]

    def done(
        self,
        state: Float64[np.ndarray, "*#batch state"],
        task: Float64[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """On the goal."""
        return (state[..., _CELL] == task).all(axis=-1)

    def physics(self, num_threads: int) -> Physics:
        """A few numpy expressions."""
        return GridPhysics()


# --- Ids ---------------------------------------------------------------------------------------

_NEAR = ((0, 0), (0, 1), (1, 0), (1, 1))
"""The start and its neighbours, which are no goals."""
_GOALS = tuple(
    (float(x), float(y)) for y in range(NUM_CELLS) for x in range(NUM_CELLS) if (x, y) not in _NEAR
)


def _grid(version: str, step_reward: float) -> GridNav:
    spec = EnvSpec(
        id=f"gridnav/{version}",
        obs_dim=3,
        act_dim=len(MOVES),
        horizon=HORIZON,
        dt=1.0,
        term_names=("next_x", "next_y"),
        task_names=("goal_x", "goal_y"),
        obs_names=("x", "y", "episode_over"),
        reward="goal_reward where the cell after the move is the goal, else step_reward",
        reset="cell (0, 0)",
        action="discrete: the index of the largest entry, the first of equal ones, after clipping "
        "to [-1, 1]; 0 stay, 1 up (y + 1), 2 right (x + 1), 3 down, 4 left; "
        "a move out of the grid stays",
        termination="never",
        task_distribution="uniform over the cells but (0, 0), (0, 1), (1, 0), (1, 1)",
        constants=(
            ("num_cells", float(NUM_CELLS)),
            ("goal_reward", GOAL_REWARD),
            ("step_reward", step_reward),
        ),
        engine="numpy",
    )
    everyone = tuple(range(len(_GOALS)))
    return GridNav(spec, _GOALS, (("train", everyone), ("test", everyone)), step_reward)


ENVIRONMENTS: tuple[TaskEnv, ...] = (
    _grid("borel-v1", STEP_REWARD),
    _grid("borel-sparse-v1", 0.0),
)
