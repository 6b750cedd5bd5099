"""Grid navigation: moves, rewards and returns that can be counted."""

from contextlib import closing

import numpy as np
import pytest

from omrl.envs.baselines import baseline_returns
from omrl.envs.engine import VectorEnv
from omrl.envs.registry import make

ENV = make("gridnav/borel-v1")
SPARSE = make("gridnav/borel-sparse-v1")
STAY, UP, RIGHT, DOWN, LEFT = np.eye(5)


def walk(env, moves, goal=(4.0, 4.0)):
    """Observations and rewards of one environment."""
    with closing(VectorEnv(env, np.array([goal]), seed=0)) as vector:
        steps = [(vector.reset()[0], 0.0)]
        for move in moves:
            step = vector.step(move[None])
            assert not step.terminated.any()
            steps.append((step.obs[0], float(step.reward[0])))
    return [obs.tolist() for obs, _ in steps], [reward for _, reward in steps[1:]]


def test_goals():
    goals = {tuple(goal) for goal in ENV.tasks}
    assert len(goals) == len(ENV.tasks) == 21
    cells = {(float(x), float(y)) for x in range(5) for y in range(5)}
    assert cells - goals == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert ENV.splits == {"train": tuple(range(21)), "test": tuple(range(21))}
    np.testing.assert_array_equal(ENV.tasks, SPARSE.tasks)
    sampled = ENV.sample_tasks(np.random.default_rng(0), 2000)
    counts = np.unique(sampled, axis=0, return_counts=True)[1]
    assert len(counts) == 21
    assert counts.min() > 60  # 95 expected, standard deviation 9.5


@pytest.mark.parametrize(
    ("moves", "cell"),
    [
        ([STAY], [0, 0]),
        ([UP], [0, 1]),
        ([RIGHT], [1, 0]),
        ([UP, RIGHT, UP, DOWN], [1, 1]),
        ([RIGHT, UP, LEFT], [0, 1]),
        ([DOWN, LEFT], [0, 0]),
        ([UP] * 7 + [RIGHT] * 6, [4, 4]),
    ],
)
def test_moves(moves, cell):
    assert walk(ENV, moves, goal=(4.0, 2.0))[0][-1] == [*cell, 0]


def test_the_largest_entry_acts_and_of_equal_ones_the_first():
    for action, cell in (
        ([-0.9, -0.8, -0.7, -0.95, -1.0], [1, 0]),
        ([0.0, 0.0, 0.0, 0.0, 0.0], [0, 0]),
        ([0.0, 3.0, 7.0, 0.0, 0.0], [0, 1]),  # both 1 after clipping
    ):
        assert walk(ENV, [np.array(action)])[0][-1][:2] == cell


def test_the_goal_pays_while_the_agent_is_on_it():
    moves = [RIGHT, RIGHT, STAY, UP, DOWN]
    rewards = walk(ENV, moves, goal=(2.0, 0.0))[1]
    np.testing.assert_allclose(rewards, [-0.1, 1.0, 1.0, -0.1, 1.0], rtol=1e-6)
    assert walk(SPARSE, moves, goal=(2.0, 0.0))[1] == [0.0, 1.0, 1.0, 0.0, 1.0]
    terms, action = np.array([2.0, 0.0]), np.zeros(5)
    np.testing.assert_array_equal(
        ENV.reward(terms, action, np.array([[2.0, 0.0], [0.0, 2.0]])), [1.0, -0.1]
    )


def test_the_last_observation_of_an_episode_says_so():
    observations, _ = walk(ENV, [UP] * 15)
    assert [obs[2] for obs in observations] == [0.0] * 15 + [1.0]
    assert ENV.spec.horizon == 15
    assert not ENV.terminated(np.full((2, 3), 99.0)).any()


def test_a_finished_environment_stays():
    state = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    with closing(ENV.physics(1)) as physics:
        after = physics.step(state, np.stack([UP, UP]), ENV.tasks[:2], np.array([True, False]))
    np.testing.assert_array_equal(after, [[4, 1, 3], [3, 1, 2]])


def test_returns():
    # Never on a goal: 15 * -.1. Straight to (4, 4) takes 8 moves: 7 * -.1 + 8 * 1.
    np.testing.assert_allclose(
        baseline_returns(ENV, "zero", ENV.tasks, episodes=1), -1.5, rtol=1e-5
    )
    assert not baseline_returns(SPARSE, "zero", SPARSE.tasks, episodes=1).any()
    assert sum(walk(ENV, [UP, RIGHT] * 4 + [STAY] * 7)[1]) == pytest.approx(7.3, rel=1e-5)
    random = baseline_returns(ENV, "random", ENV.tasks, episodes=50)
    hits = baseline_returns(SPARSE, "random", SPARSE.tasks, episodes=50)
    assert random.mean() == pytest.approx(1.1 * hits.mean() - 1.5, abs=1e-4)  # the same walks
