"""What the Bayes-optimal agent gets in grid navigation: the best search for a goal, exactly.

Before the goal is found an agent learns no more than that it is in none of the visited cells. So
until then its best plan is one path, the same for all goals, and from then on it knows all: it
stays there, and takes a shortest way in later episodes. With gain = goal_reward - step_reward,
horizon H and d_g moves from the start to goal g, finding g with move t of episode e of E is worth

    gain [(H + 1 - t) + (E - e) max(H + 1 - d_g, 0)],   e, t = 1, 2, ...

more than not finding it. The expected return is therefore that of never finding anything, plus the
mean over goals of what the path makes of each: a maximum over (visited goals, cell) per step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from omrl.envs.gridnav import GOAL_REWARD, HORIZON, MOVES, NUM_CELLS, GridNav

Path = Int64[np.ndarray, "episode step 2"]
Goals = Int64[np.ndarray, "goal 2"]


class Optimum(NamedTuple):
    returns: Float64[np.ndarray, " episode"]
    """Expected undiscounted return of each episode, over goals that are equally likely."""
    success: Float64[np.ndarray, " episode"]
    """How likely the goal is reached in each."""
    path: Path
    """The cell (x, y) after every move for as long as the goal has not been found. There are others
    that are as good, and of these some with another `success`."""


def bayes_optimal(env: GridNav, episodes: int) -> Optimum:
    """Of all agents the one with the highest expected sum of rewards over `episodes` of a task.

    It knows grid, rewards and the list of goals. Exact, but for the rounding of the sums.
    """
    goals = env.tasks.astype(np.int64)
    path = best_path(goals, NUM_CELLS, HORIZON, episodes)
    rewards = rewards_along(path, goals, env.step_reward)
    found = (rewards == GOAL_REWARD).any(axis=2)
    return Optimum(rewards.sum(axis=2).mean(axis=0), found.mean(axis=0), path)


def rewards_along(
    path: Path, goals: Goals, step_reward: float
) -> Float64[np.ndarray, "goal episode step"]:
    """What an agent gets that follows `path` until it is on the goal, stays, and takes a shortest
    way in every later episode."""
    _, horizon, _ = path.shape
    on_goal = (path == goals[:, None, None]).all(axis=-1)
    # --- From the first visit on, within its episode ---
    visited = np.logical_or.accumulate(on_goal, axis=2)
    known = np.logical_or.accumulate(on_goal.any(axis=2), axis=1)
    known = np.concatenate([np.zeros_like(known[:, :1]), known[:, :-1]], axis=1)
    # --- In later episodes ---
    straight = np.arange(1, horizon + 1) >= goals.sum(axis=1)[:, None]
    paid = np.where(known[..., None], straight[:, None], visited)
    return np.where(paid, GOAL_REWARD, step_reward)


def best_path(goals: Goals, size: int, horizon: int, episodes: int) -> Path:
    """The search of highest expected return in a grid of `size` by `size` from cell (0, 0).

    An unvisited goal is worth at most a shortest way to it in every later episode. After an episode
    paths that are further behind the best such bound than `slack` are dropped; the best of the
    others is the best of all unless it has fallen behind as much itself.
    """
    problem = _Problem.of(goals, size, horizon, episodes)
    slack = 0
    while True:
        best, bound, path = _search(problem, slack)
        if bound - best <= slack:
            return path
        slack = max(1, 2 * slack)


# --- Values in steps on the goal, which are whole numbers ---


class _Problem(NamedTuple):
    goals: int
    size: int
    horizon: int
    episodes: int
    ways: Int64[np.ndarray, " goal"]
    """Steps on a goal in an episode that goes straight to it."""
    neighbours: Int64[np.ndarray, "cell move"]
    goal_in: Int64[np.ndarray, " cell"]
    """Its number, -1 where there is none."""

    @classmethod
    def of(cls, goals: Goals, size: int, horizon: int, episodes: int) -> _Problem:
        cells = np.stack(np.divmod(np.arange(size**2), size), axis=1)
        moved = np.clip(cells[:, None] + MOVES.astype(np.int64), 0, size - 1)
        goal_in = np.full(size**2, -1)
        goal_in[goals[:, 0] * size + goals[:, 1]] = np.arange(len(goals))
        ways = np.maximum(horizon + 1 - goals.sum(axis=1), 0)
        neighbours = moved[..., 0] * size + moved[..., 1]
        return cls(len(goals), size, horizon, episodes, ways, neighbours, goal_in)


class _Paths(NamedTuple):
    """Of every (visited goals, cell) the best path to it."""

    visited: Int64[np.ndarray, " path"]
    """Bit g: goal g."""
    cell: Int64[np.ndarray, " path"]
    value: Int64[np.ndarray, " path"]
    parent: Int64[np.ndarray, " path"]
    """Its position one step before."""


def _search(problem: _Problem, slack: int) -> tuple[int, int, Path]:
    """The value of the best path that is never further than `slack` behind, the best bound that a
    path had after the first episode, and that path."""
    none = np.zeros(1, np.int64)
    paths = _Paths(none, none, none, none)
    steps: list[_Paths] = []
    bound = None
    for later in reversed(range(problem.episodes)):
        paths = paths._replace(cell=np.zeros_like(paths.cell))
        for time in range(1, problem.horizon + 1):
            paths = _step(problem, paths, time, later)
            steps.append(paths)
        hoped = paths.value + later * _unvisited(problem, paths.visited)
        bound = int(hoped.max()) if bound is None else bound
        keep = np.flatnonzero(hoped >= bound - slack)
        if len(keep) == 0:
            return bound - slack - 1, bound, np.zeros((0, 0, 2), np.int64)
        paths = _Paths(*(column[keep] for column in paths))
        steps[-1] = paths
    assert bound is not None
    best = int(np.argmax(paths.value))
    return int(paths.value[best]), bound, _trace(problem, steps, best)


def _step(problem: _Problem, paths: _Paths, time: int, later: int) -> _Paths:
    """All that one move makes of them; `later` episodes follow on this one."""
    num_moves = problem.neighbours.shape[1]
    cell = problem.neighbours[paths.cell].ravel()
    visited, value = (np.repeat(column, num_moves) for column in (paths.visited, paths.value))
    goal = problem.goal_in[cell]
    bit = np.where(goal < 0, 0, 1 << np.maximum(goal, 0))
    is_new = (bit & ~visited) != 0
    value += is_new * (problem.horizon + 1 - time + later * problem.ways[goal])
    # --- The best of those with the same future ---
    state = (visited | bit) * problem.size**2 + cell
    order = np.lexsort((-value, state))
    first = order[np.diff(state[order], prepend=-1) != 0]
    visited, cell = np.divmod(state[first], problem.size**2)
    return _Paths(visited, cell, value[first], first // num_moves)


def _unvisited(problem: _Problem, visited: Int64[np.ndarray, " path"]) -> np.ndarray:
    """Steps on the goal of a straight way, summed over the goals not visited."""
    missing = (visited[:, None] >> np.arange(problem.goals)) & 1 == 0
    return missing @ problem.ways


def _trace(problem: _Problem, steps: list[_Paths], last: int) -> Path:
    """The cells on the way to the path at position `last` of the last step."""
    cells = []
    for paths in reversed(steps):
        cells.append(divmod(int(paths.cell[last]), problem.size))
        last = int(paths.parent[last])
    return np.array(cells[::-1], np.int64).reshape(problem.episodes, problem.horizon, 2)
