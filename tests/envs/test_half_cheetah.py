"""Half-cheetah: tasks, observation, reward, and returns of known policies."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import omrl
from omrl.envs.baselines import baseline_returns
from omrl.envs.engine import VectorEnv
from omrl.envs.registry import make

VEL = make("cheetah-vel/macaw-v1")
DIR = make("cheetah-dir/macaw-v1")
# time, qpos (9), qvel (9): every entry another number.
STATE = np.concatenate([[100.0], np.arange(1.0, 10.0), np.arange(11.0, 20.0)])


def test_macaw_tasks_and_splits():
    np.testing.assert_allclose(VEL.tasks[:, 0], 0.075 * np.arange(1, 41), rtol=1e-12)
    np.testing.assert_allclose(VEL.tasks[[2, 7, 15, 23, 26], 0], [0.225, 0.6, 1.2, 1.8, 2.025])
    splits = VEL.splits
    assert splits["test"] == (2, 7, 15, 23, 26)
    assert splits["validation"] == (5, 12, 19, 29, 34)
    assert len(splits["train"]) == 35
    assert not set(splits["train"]) & set(splits["test"])
    assert set(splits["validation"]) < set(splits["train"])


def test_oyster_tasks_are_the_released_list():
    env = make("cheetah-vel/oyster-v1")
    first = [0.7861, 0.4761, 0.8344, 1.378, 0.963]
    np.testing.assert_allclose(env.tasks[:5, 0], first, atol=5e-5)
    assets = Path(omrl.__file__).parent / "envs" / "assets" / "author_tasks.npz"
    with np.load(assets, allow_pickle=False) as released:
        np.testing.assert_array_equal(env.tasks[:, 0], released["cheetah_vel_tasks"])
    assert env.splits == {"train": tuple(range(100)), "test": tuple(range(100, 130))}
    test = env.tasks[100:, 0]
    np.testing.assert_allclose([test.min(), test.max()], [0.083, 2.978], atol=5e-4)


def test_csro_tasks_and_new_ones_start_at_one():
    env = make("cheetah-vel/csro-v1")
    assert env.splits == {"train": tuple(range(30)), "test": tuple(range(30, 40))}
    drawn = np.concatenate([env.tasks, env.sample_tasks(np.random.default_rng(0), 1000)])
    assert 1.0 < drawn.min() < 1.01
    assert 2.99 < drawn.max() < 3.0


@pytest.mark.parametrize(
    ("version", "train", "test"),
    [
        ("ood-0-2-v1", range(26), range(27, 40)),
        ("ood-0-2-code-v1", range(26), range(26, 40)),
        ("ood-0-1-v1", range(13), range(13, 40)),
        ("sparse-20-v1", range(0, 40, 2), range(1, 40, 2)),
        ("sparse-10-v1", range(0, 40, 4), None),
        ("sparse-5-v1", range(0, 40, 8), None),
        ("sparse-3-v1", (0, 16, 32), None),
    ],
)
def test_other_splits_of_the_grid(version, train, test):
    env = make(f"cheetah-vel/{version}")
    np.testing.assert_array_equal(env.tasks, VEL.tasks)
    expected = tuple(test) if test else tuple(sorted(set(range(40)) - set(train)))
    assert env.splits == {"train": tuple(train), "test": expected}


def test_direction_orders():
    assert DIR.tasks.tolist() == [[1.0], [-1.0]]
    assert make("cheetah-dir/oyster-v1").tasks.tolist() == [[-1.0], [1.0]]
    assert DIR.splits == {"train": (0, 1), "test": (0, 1)}


def test_sampled_tasks_cover_the_distribution():
    rng = np.random.default_rng(0)
    velocities = VEL.sample_tasks(rng, 2000)
    assert 0.0 <= velocities.min() < 0.01
    assert 2.99 < velocities.max() <= 3.0
    assert abs(velocities.mean() - 1.5) < 0.06
    directions = DIR.sample_tasks(rng, 2000)
    assert set(directions.ravel()) == {-1.0, 1.0}
    assert abs(directions.mean()) < 0.06


def test_observation_layout():
    # qpos[1:9], qvel, then torso (x, y, z) = (qpos[0], 0, qpos[1] + .7)
    expected = [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 1, 0, 2.7]
    obs = VEL.observe(STATE)
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs, np.array(expected, np.float32))
    np.testing.assert_array_equal(make("cheetah-vel/nopos-v1").observe(STATE), obs[:17])
    np.testing.assert_array_equal(VEL.observe(np.stack([STATE, 2 * STATE]))[0], obs)


def test_reset_distribution():
    states = np.stack([VEL.reset(np.random.default_rng(seed)) for seed in range(500)])
    assert not states[:, 0].any()
    qpos, qvel = states[:, 1:10], states[:, 10:]
    assert 0.099 < np.abs(qpos).max() <= 0.1
    assert abs(qpos.std() - 0.2 / np.sqrt(12)) < 0.002
    assert abs(qvel.std() - 0.1) < 0.003
    assert abs(qvel.mean()) < 0.006


def test_terms_and_rewards_by_hand():
    after = STATE.copy()
    after[1] += 0.06  # .06 m in .05 s is 1.2 m/s
    action = np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0])  # .05 * 2.25 = .1125
    terms = VEL.terms(STATE, action, after)
    np.testing.assert_allclose(terms, [1.2, 0.1125], rtol=1e-12)
    # -|1.2 - 3| - .1125; -|1.2 - .075| - .1125; -|1.2 - 1.2| - .1125
    tasks = np.array([[3.0], [0.075], [1.2]])
    rewards = VEL.reward(terms, action, tasks)
    np.testing.assert_allclose(rewards, [-1.9125, -1.2375, -0.1125], rtol=1e-12)
    # +-1.2 - .1125
    np.testing.assert_allclose(DIR.reward(terms, action, DIR.tasks), [1.0875, -1.3125], rtol=1e-12)


def test_reward_relabels_a_batch_under_every_task():
    rng = np.random.default_rng(0)
    terms, action = rng.normal(size=(1, 6, 2)), rng.normal(size=(1, 6, 6))
    relabelled = VEL.reward(terms, action, VEL.tasks[:, None])
    assert relabelled.shape == (40, 6)
    for task, rewards in zip(VEL.tasks, relabelled, strict=True):
        np.testing.assert_array_equal(rewards, VEL.reward(terms[0], action[0], task))


def test_never_terminates():
    assert not VEL.terminated(np.full((3, 19), 1e6)).any()


def test_random_policy_returns_by_target():
    targets = np.array([0.075, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    expected = [-132, -166, -242, -337, -436, -536, -636]
    returns = baseline_returns(VEL, "random", targets[:, None], episodes=32)
    assert returns.shape == (7, 32)
    np.testing.assert_allclose(returns.mean(axis=1), expected, atol=25)  # 4 standard errors


def test_standing_still_costs_200_v_and_beats_random():
    still = baseline_returns(VEL, "zero", VEL.tasks, episodes=1)[:, 0]
    random = baseline_returns(VEL, "random", VEL.tasks, episodes=4)
    np.testing.assert_allclose(still, -200 * VEL.tasks[:, 0], atol=5)
    assert abs(random.mean() - -354.9) < 10
    assert abs(still.mean() - random.mean() - 47) < 10


def test_random_direction_returns_differ_by_the_sign_of_the_velocity():
    # Random torques drift backwards, and cost 200 * .05 * 6 * E[a^2] = 20 either way.
    returns = baseline_returns(DIR, "random", DIR.tasks, episodes=100).mean(axis=1)
    np.testing.assert_allclose(returns, [-35.8, -4.3], atol=14)  # 4 standard errors
    assert abs(returns.mean() - -20.0) < 10


def test_baselines_do_not_depend_on_threads():
    one, two = (
        baseline_returns(DIR, "random", DIR.tasks, episodes=2, num_threads=n) for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_the_observed_position_matches_the_reward():
    with closing(VectorEnv(VEL, VEL.tasks[:4], seed=1, num_threads=1)) as vector:
        start = vector.reset()[:, 17]
        rng = np.random.default_rng(0)
        travelled = np.zeros(4)
        for _ in range(50):
            step = vector.step(rng.uniform(-1, 1, (4, 6)))
            travelled += 0.05 * step.terms[:, 0]
        np.testing.assert_allclose(step.obs[:, 17] - start, travelled, atol=1e-5)
        assert np.abs(travelled).max() > 0.1
