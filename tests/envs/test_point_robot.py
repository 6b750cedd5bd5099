"""Point robot: every number in closed form."""

from contextlib import closing

import numpy as np

from omrl.envs import point_robot
from omrl.envs.baselines import baseline_returns
from omrl.envs.engine import VectorEnv
from omrl.envs.registry import make

ENV = make("point-robot/oyster-v1")


def test_tasks_are_drawn_x_then_y():
    generator = np.random.RandomState(1337)
    drawn = [[generator.uniform(-1, 1), generator.uniform(-1, 1)] for _ in range(100)]
    np.testing.assert_array_equal(ENV.tasks, drawn)
    # 2 u - 1 with u = .7861 / 3, .4761 / 3 of the same stream
    np.testing.assert_allclose(ENV.tasks[0], [-0.47595, -0.68263], atol=1e-4)
    assert ENV.splits == {"train": tuple(range(80)), "test": tuple(range(80, 100))}


def test_straight_walk_to_the_goal():
    # From s towards g with |a| = 1: after n steps the distance is |s - g| - n / 10.
    tasks = ENV.tasks[:5]
    with closing(VectorEnv(ENV, tasks, seed=0)) as vector:
        start = vector.reset()
        offset = tasks - start
        distance = np.linalg.norm(offset, axis=1)
        direction = offset / distance[:, None]
        for count in range(1, int(distance.min() * 10) + 1):
            step = vector.step(direction)
            np.testing.assert_allclose(step.reward, count / 10 - distance, atol=1e-6)
            np.testing.assert_allclose(step.obs, start + direction * count / 10, atol=1e-6)
            np.testing.assert_allclose(step.terms, step.obs, atol=1e-6)
        assert count >= 1


def test_positions_leave_the_square_and_actions_are_clipped():
    with closing(VectorEnv(ENV, ENV.tasks[:1], seed=0)) as vector:
        start = vector.reset()
        for _ in range(20):
            step = vector.step(np.array([[9.0, 0.0]]))
        np.testing.assert_allclose(step.obs - start, [[2.0, 0.0]], atol=1e-6)
        assert step.obs[0, 0] > 1.0


def test_reward_by_hand_and_reset_distribution():
    terms = np.array([0.3, 0.4])
    assert ENV.reward(terms, np.zeros(2), np.array([0.0, 0.0])) == -0.5
    states = np.stack([ENV.reset(np.random.default_rng(seed)) for seed in range(500)])
    assert -1.0 <= states.min() < -0.99
    assert 0.99 < states.max() <= 1.0
    assert abs(states.std() - 2 / np.sqrt(12)) < 0.02


# --- Sparse rewards on the semicircle ----------------------------------------------------------

SPARSE = make("sparse-point-robot/oyster-v1")
DENSE = make("sparse-point-robot/oyster-dense-v1")
BOREL = make("sparse-point-robot/borel-v1")


def test_oyster_goals_are_the_shuffled_semicircle():
    generator = np.random.RandomState(1337)
    angles = np.linspace(0, np.pi, num=100)
    goals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    generator.shuffle(goals)
    np.testing.assert_array_equal(SPARSE.tasks, goals)
    np.testing.assert_array_equal(DENSE.tasks, goals)
    assert SPARSE.splits == {"train": tuple(range(80)), "test": tuple(range(80, 100))}


def test_borel_goals_are_what_the_stated_seed_draws():
    np.testing.assert_allclose(BOREL.tasks, point_robot.draw_borel_goals(), rtol=1e-14)
    angles = np.random.RandomState(5).uniform(0, np.pi, 100)
    np.testing.assert_allclose(np.arctan2(*BOREL.tasks.T[::-1]), angles, rtol=1e-12)
    assert BOREL.splits == SPARSE.splits
    sampled = BOREL.sample_tasks(np.random.default_rng(0), 1000)
    np.testing.assert_allclose(np.linalg.norm(sampled, axis=1), 1.0, rtol=1e-12)
    assert sampled[:, 1].min() >= 0


def test_sparse_rewards_by_hand():
    terms, tasks = np.array([0.0, 1.1]), np.array([[0.0, 1.0], [0.0, 1.35], [1.0, 0.0]])
    for env, expected in (
        (SPARSE, [0.9, 0.0, 0.0]),
        (BOREL, [1.0, 0.0, 0.0]),
        (DENSE, [-0.1, -0.25, -np.sqrt(1.0 + 1.21)]),
    ):
        np.testing.assert_allclose(env.reward(terms, np.zeros(2), tasks), expected, rtol=1e-12)
    assert (
        BOREL.reward(np.array([0.5, 0.0]), np.zeros(2), np.array([0.5, 0.2])) == 1.0
    )  # the border
    assert SPARSE.reward(np.array([0.5, 0.0]), np.zeros(2), np.array([0.5, 0.2])) == 0.8


def test_stored_terms_give_the_same_sparse_reward():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 10000)
    radius = 0.2 + 1e-8 * rng.standard_normal(10000)
    states = BOREL.tasks[0] + radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    action = np.zeros((10000, 2))
    terms = BOREL.terms(states, action, states)
    rewards = BOREL.reward(terms, action, BOREL.tasks[0])
    assert 0.1 < rewards.mean() < 0.9
    stored = terms.astype(np.float32)
    np.testing.assert_array_equal(BOREL.reward(stored, action, BOREL.tasks[0]), rewards)


def test_a_walk_from_the_origin_to_a_sparse_goal():
    tasks = BOREL.tasks[:4]
    with closing(VectorEnv(BOREL, tasks, seed=0)) as vector:
        assert not vector.reset().any()
        rewards = np.stack([vector.step(tasks).reward for _ in range(12)])
        # One step of .1 along the unit vector to the goal: at .8 after the eighth, at 1.2 after
        # the twelfth, both on the border but for rounding.
        np.testing.assert_array_equal(rewards[:7], 0.0)
        np.testing.assert_array_equal(rewards[8:11], 1.0)
    assert (SPARSE.spec.horizon, DENSE.spec.horizon, BOREL.spec.horizon) == (20, 20, 60)
    assert not BOREL.terminated(np.full((3, 2), 1e6)).any()


def test_random_walks_rarely_find_the_goal():
    for env in (SPARSE, BOREL):
        assert 0.0 <= baseline_returns(env, "random", env.tasks, episodes=4).mean() < 1.5
        assert not baseline_returns(env, "zero", env.tasks, episodes=1).any()
    still = baseline_returns(DENSE, "zero", DENSE.tasks[:5], episodes=1)
    np.testing.assert_allclose(still, -20.0, rtol=1e-6)
