"""Point robot: every number in closed form."""

from contextlib import closing

import numpy as np

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
