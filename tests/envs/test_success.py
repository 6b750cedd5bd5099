"""Which environments have success, what it is, and that an episode has it from any of its steps."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.envs.own_reward import with_reward
from omrl.protocol import EvalConfig
from omrl.simulate import Actor, Labels, measure

GRID = registry.make("gridnav/borel-v1")
LABELS = Labels(seeds=(0,), tasks=(2, 20), shots=(0,), num_episodes=3)
FAMILIES = {"gridnav", "sparse-point-robot", "ant-semicircle", "sawyer-manip"}


def is_meta_world(env_id: str) -> bool:
    return env_id.startswith(("ml1-", "ml10/", "ml45/"))


def test_who_succeeds():
    found = {env_id for env_id in registry.all_ids() if registry.make(env_id).succeeds}
    expected = {
        env_id
        for env_id in registry.all_ids()
        if env_id.split("/")[0] in FAMILIES or is_meta_world(env_id)
    }
    assert found == expected


def near_and_far(env: TaskEnv) -> tuple[np.ndarray, np.ndarray]:
    """Terms of transitions, [row, term], and their tasks."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(env.tasks[:7], 300, axis=0)
    terms = rng.uniform(-0.02, 1.5, (len(tasks), len(env.spec.term_names)))
    if env.spec.id.startswith("gridnav"):
        terms = np.round(4 * rng.random(terms.shape))
    return terms, tasks


@pytest.mark.parametrize(
    ("env_id", "reward"),
    [
        ("gridnav/borel-v1", lambda terms: 1.0),
        ("gridnav/borel-sparse-v1", lambda terms: 1.0),
        ("sparse-point-robot/borel-v1", lambda terms: 1.0),
        ("ant-semicircle/borel-sparse-v1", lambda terms: 1.0 - terms[:, 2]),
        ("sawyer-manip/smac3-v1", lambda terms: 0.0),
        ("sawyer-manip/8-v1", lambda terms: 0.0),
    ],
)
def test_a_sparse_reward_is_that_of_success(env_id, reward):
    env = registry.make(env_id)
    terms, tasks = near_and_far(env)
    achieved = env.achieved(terms, tasks)
    assert achieved is not None
    assert 0 < achieved.sum() < len(terms)
    rewards = env.reward(terms, np.zeros((len(terms), env.spec.act_dim)), tasks)
    np.testing.assert_array_equal(achieved, rewards == reward(terms))
    one = env.achieved(terms[3], tasks[3])
    assert one is not None
    assert bool(one) == achieved[3]


def test_closeness_is_paid_where_the_goal_is_reached():
    env = registry.make("sparse-point-robot/oyster-v1")
    terms, tasks = near_and_far(env)
    rewards = env.reward(terms, np.zeros((len(terms), 2)), tasks)
    np.testing.assert_array_equal(env.achieved(terms, tasks), np.asarray(rewards) > 0)


def test_another_reward_has_no_success():
    own = with_reward(GRID, lambda terms, action, task: terms[:, 0], "my/grid-v1", "next_x")
    assert not own.succeeds


class Wanderers(Actor):
    """The first goes to its goal and stays, the second goes on to the start, the third stays."""

    labels = LABELS

    def __call__(self, obs, time):
        cells = obs[:, :2].reshape(len(LABELS.tasks), 3, 2)
        state = np.concatenate([np.full((*cells.shape[:2], 1), float(time)), cells], axis=-1)
        goals = np.repeat(GRID.tasks[list(LABELS.tasks)][:, None], 3, axis=1)
        back = time >= 9
        goals[:, 1] = 0.0 if back else goals[:, 1]
        actions = GRID.oracle_action(state, goals)
        actions[:, 2] = np.eye(GRID.spec.act_dim)[0]
        return actions.reshape(-1, GRID.spec.act_dim)


def test_any_step_of_an_episode_counts():
    config = EvalConfig(tasks=LABELS.tasks, episodes=3, shots=(0,))
    physics = GRID.physics(1)
    outcome = measure(Wanderers(), GRID, config, physics, baselines=True)
    assert outcome.success is not None
    np.testing.assert_array_equal(outcome.success, [[[[1.0, 1.0, 0.0]]] * 2])
