"""The Bayes-optimal return of grid navigation: beside all paths, and as an agent gets it."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import cast

import numpy as np
import pytest

from omrl.envs import gridnav_optimal
from omrl.envs.engine import VectorEnv
from omrl.envs.gridnav import MOVES, GridNav
from omrl.envs.gridnav_optimal import bayes_optimal, best_path, rewards_along
from omrl.envs.registry import make

ENV = cast(GridNav, make("gridnav/borel-v1"))


def walked(moves, size):
    """Cells of a sequence of moves from (0, 0)."""
    cell, cells = np.zeros(2, np.int64), []
    for move in moves:
        cell = np.clip(cell + MOVES[move].astype(np.int64), 0, size - 1)
        cells.append(cell)
    return np.array(cells)


@pytest.mark.parametrize(
    ("goals", "size", "horizon", "episodes"),
    [
        ([[1, 0], [0, 1], [1, 1]], 2, 3, 2),
        ([[1, 1], [0, 1]], 2, 2, 3),
        ([[2, 0], [0, 2], [1, 1]], 3, 3, 2),
        ([[2, 1], [0, 1], [1, 2], [2, 0]], 3, 6, 1),
        ([[2, 2], [0, 1]], 3, 3, 2),  # One that no episode reaches.
    ],
)
@pytest.mark.parametrize("step_reward", [-0.1, 0.0])
def test_no_path_of_all_is_better(goals, size, horizon, episodes, step_reward):
    goals = np.array(goals)
    ways = [walked(moves, size) for moves in itertools.product(range(5), repeat=horizon)]
    ways = np.unique(ways, axis=0)
    paths = np.array(list(itertools.product(ways, repeat=episodes)))
    most = max(rewards_along(path, goals, step_reward).sum() for path in paths)
    path = best_path(goals, size, horizon, episodes)
    assert path.shape == (episodes, horizon, 2)
    np.testing.assert_allclose(rewards_along(path, goals, step_reward).sum(), most)


def test_paths_that_fall_behind_their_bound(monkeypatch):
    """Three goals two moves away, one found in an episode of two: of the other two the next one
    has room for one alone, so that the best path of all falls behind its bound by the other."""
    goals, slacks = np.array([[0, 2], [1, 1], [2, 0]]), []
    search = gridnav_optimal._search
    monkeypatch.setattr(
        gridnav_optimal, "_search", lambda *args: slacks.append(args[1]) or search(*args)
    )
    path = best_path(goals, 3, 2, 2)
    assert slacks == [0, 1]
    assert rewards_along(path, goals, 0.0).sum() == 3  # 2 with the first goal, 1 with the second.


def test_rewards_along_a_path():
    """Goal (1, 0) is found with the second move of the first episode, (1, 1) with the last of the
    second; (2, 2) is too far for an episode, and never found."""
    path = np.array([[[0, 1], [1, 0], [0, 0]], [[0, 0], [1, 0], [1, 1]], [[0, 0], [0, 0], [0, 0]]])
    goals = np.array([[1, 0], [1, 1], [2, 2]])
    expected = [
        [[0, 1, 1], [1, 1, 1], [1, 1, 1]],
        [[0, 0, 0], [0, 0, 1], [0, 1, 1]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
    ]
    np.testing.assert_array_equal(rewards_along(path, goals, 0.0), expected)


def test_an_agent_gets_it():
    """One that follows the path until it is on the goal, and the oracle from then on."""
    best = bayes_optimal(ENV, 3)
    returns = np.zeros((21, 3))
    for task, goal in enumerate(ENV.tasks):
        found = False
        for episode in range(3):
            with closing(VectorEnv(ENV, goal[None], seed=0)) as vector:
                vector.reset()
                for step in range(15):
                    here = vector.states[0, 1:]
                    action = np.eye(5)[
                        np.argmax((np.clip(here + MOVES, 0, 4) == best.path[episode, step]).all(1))
                    ]
                    if found:
                        action = ENV.oracle_action(vector.states[0], goal)
                    after = vector.step(action[None])
                    returns[task, episode] += after.reward[0]
                    found |= bool(after.reward[0] == 1)
    np.testing.assert_allclose(returns.mean(axis=0), best.returns, rtol=1e-6)


def test_the_numbers_of_the_environment():
    """14 of 21 goals in the first episode, and the rest on a shortest way in the second: so it has
    lost nothing there to an oracle, of which no agent gets more."""
    best = bayes_optimal(ENV, 2)
    distance = ENV.tasks.sum(axis=1)
    oracle = np.mean(1.1 * (16 - distance) - 1.5)
    np.testing.assert_allclose(best.returns, [4.0, oracle], rtol=1e-12)
    np.testing.assert_allclose(best.success, [14 / 21, 1.0])
