"""Wrappers: the single and the vector form are the same thing, and each does what it says."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode

from omrl.data import statistics
from omrl.data.store import open_dataset
from omrl.envs.registry import make
from omrl.envs.wrappers import append_belief, append_task, normalize_obs, scale_reward
from omrl.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gymnasium.md"
POINT = "omrl/point-robot.oyster-v1"
VEL = "omrl/cheetah-vel.macaw-v1"


def running_sums(belief, obs, action, reward, next_obs):
    """Of rewards, and of what next_obs - obs is beyond .1 |action|."""
    moved = np.abs(next_obs - obs).sum(-1) - 0.1 * np.abs(action).sum(-1)
    return belief + np.stack([np.asarray(reward, np.float32), moved], axis=-1)


belief = partial(append_belief, prior=[0.0, 0.5], update=running_sums)
WRAPPERS = {
    "obs": partial(normalize_obs, mean=[0.5, -1.0], std=[2.0, 0.25]),
    "reward": partial(scale_reward, scale=4.0),
    "task": partial(append_task, tasks=range(80)),
    "belief": belief,
    "trial": partial(belief, episodes_per_trial=3),
}


# --- All of them -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*A Box observation space m(in|ax)imum value is.*infinity")
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_check_env(wrapper):
    env = wrapper(gymnasium.make(POINT, task=2))
    check_env(env)  # also makes it anew from its spec
    env.close()


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_the_vector_form_equals_the_single_one_in_gymnasiums_vector(wrapper):
    fast = wrapper(gymnasium.make_vec(POINT, num_envs=3, task=4, max_episode_steps=7))
    slow = gymnasium.make_vec(
        POINT,
        num_envs=3,
        task=4,
        max_episode_steps=7,
        vectorization_mode="sync",
        wrappers=[wrapper],
    )
    assert fast.observation_space == slow.observation_space
    assert fast.single_observation_space == slow.single_observation_space
    assert data_equivalence(fast.reset(seed=1), slow.reset(seed=1), exact=True)
    slow.action_space.seed(0)
    for _ in range(30):  # over the end of a trial of three episodes
        action = 1.5 * slow.action_space.sample()
        ours, theirs = fast.step(action), slow.step(action)
        assert ours[0].dtype == np.float32
        assert ours[0] in fast.observation_space
        assert data_equivalence(ours, theirs, exact=True)
    fast.close()
    slow.close()


@pytest.mark.parametrize("name", ["obs", "task", "belief"])
def test_vectors_that_hide_observations_in_info_are_refused(name):
    vector = gymnasium.make_vec(
        POINT,
        num_envs=2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    with pytest.raises(InputError, match=r"AutoresetMode\.NEXT_STEP, not AutoresetMode\.SAME_STEP"):
        WRAPPERS[name](vector)
    vector.close()


def test_they_compose():
    env = gymnasium.make(POINT, task=1)
    plain, _ = env.reset(seed=3)
    env = append_task(belief(WRAPPERS["obs"](env)), [5, 1])
    obs, info = env.reset(seed=3)
    np.testing.assert_array_equal(obs[:2], (plain - np.float32([0.5, -1])) / np.float32([2, 0.25]))
    np.testing.assert_array_equal(obs[2:], [0.0, 0.5, 0.0, 1.0])
    assert info["task_index"] == 1
    env.close()


# --- Scales ------------------------------------------------------------------------------------


def test_scales_of_a_dataset_make_its_observations_and_returns_standard(cheetah_data):
    dataset, tasks = open_dataset(cheetah_data), [3, 8]
    spec = statistics.measure(dataset, tasks, discount=0.5)
    assert (spec.obs_dim, spec.act_dim, spec.num_train_tasks, spec.horizon) == (20, 6, 2, 200)
    env = normalize_obs(gymnasium.make(VEL), spec.obs_mean, spec.obs_std)
    obs = np.concatenate([dataset.task(index).obs for index in tasks])
    scaled = env.func(obs)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-5)
    env.close()
    # Discount 0: the returns are the rewards.
    reward = dataset.task(3).reward.astype(np.float64)
    alone = statistics.measure(dataset, [3], discount=0.0)
    assert alone.return_mean == pytest.approx(reward.mean())
    assert alone.return_std == pytest.approx(reward.std())
    with pytest.raises(InputError, match="no task to measure scales on"):
        statistics.measure(dataset, [], discount=0.5)


def test_a_dead_entry_keeps_its_value(cheetah_data):
    dataset = open_dataset(cheetah_data)
    task = dataset.task(0)
    constant = {"obs": np.full_like(task.obs, 2.0)}

    class Constant(type(dataset)):
        def task(self, index):
            return replace(task, columns={**task.columns, **constant})

    spec = statistics.measure(Constant(dataset.path, dataset.manifest), [0], discount=0.9)
    assert spec.obs_std == (1.0,) * 20


def test_rewards_are_divided():
    plain, scaled = gymnasium.make(POINT, task=0), scale_reward(gymnasium.make(POINT, task=0), 4.0)
    for env in (plain, scaled):
        env.reset(seed=0)
    action = np.ones(2, np.float32)
    assert scaled.step(action)[1] == plain.step(action)[1] / 4


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1e-40), (0.0, 1e-8), (1e8, 1e-2), (-1e8, 1e-50)])
def test_what_is_constant_but_for_rounding_is_not_divided_by(cheetah_data, monkeypatch, mean, std):
    env = normalize_obs(gymnasium.make(POINT), [mean, 1.0], [std, 0.25])
    scaled = env.func(np.array([mean, 1.5], np.float32))
    np.testing.assert_allclose(scaled, [0.0, 2.0], atol=1e-6 * abs(mean))
    moved = env.func(np.float32([mean + 1e6, 1.5])) - scaled
    np.testing.assert_allclose(moved, [1e6, 0.0], rtol=1e-5)
    env.close()

    obs = np.tile([[mean - std, 0.5], [mean + std, 1.5]], (10, 1))
    part = SimpleNamespace(obs=obs, reward=np.ones(18), episode_start=np.array([0, 9, 18]))
    monkeypatch.setattr(statistics, "_sample", lambda task: part)
    assert statistics.measure(open_dataset(cheetah_data), [3], 0.5).obs_std == (1.0, 0.5)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (partial(normalize_obs, mean=[0.0], std=[1.0]), "each of the 2 entries.*not 1 and 1"),
        (partial(normalize_obs, mean=(), std=()), "was the spec measured"),
        (partial(normalize_obs, mean=[0.0, 0.0], std=[1.0, 0.0]), "std above 0"),
        (partial(normalize_obs, mean=[0.0, np.nan], std=[1.0, 1.0]), "must be finite"),
        (
            partial(normalize_obs, mean=np.array([0, 1j]), std=[1.0, 1.0]),
            "mean must be real numbers, not complex",
        ),
        (
            partial(normalize_obs, mean=[0.0, 0.0], std=np.array([1, 1j])),
            "std must be real numbers, not complex",
        ),
        (partial(belief, prior=np.array([1j])), "prior must be real numbers, not complex128"),
        (partial(scale_reward, scale=0.0), "above 0, not 0.0"),
        (partial(scale_reward, scale=np.inf), "finite and above 0, not inf"),
        (partial(append_task, tasks=[]), r"one or more different indices, not \[\]"),
        (partial(append_task, tasks=[1, 1]), r"different indices, not \[1, 1\]"),
        (partial(belief, episodes_per_trial=0), "episodes_per_trial must be 1 or more, not 0"),
        (partial(belief, prior=np.zeros((1, 1))), r"not of shape \(1, 1\)"),
        (partial(belief, prior=[np.nan]), "finite numbers"),
    ],
)
def test_bad_settings(wrap, message):
    env = gymnasium.make(POINT)
    with pytest.raises(InputError, match=message):
        wrap(env)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, str, object])
def test_actions_that_are_no_real_numbers_change_nothing(dtype):
    env = gymnasium.make_vec(POINT, num_envs=2).unwrapped
    env.reset(seed=0)
    before = env._states.copy()
    action = np.zeros(env.action_space.shape).astype(dtype)
    with pytest.raises(InputError, match=f"action must be real numbers, not {action.dtype}; conv"):
        env.step(action)
    np.testing.assert_array_equal(env._states, before)
    wrong = belief(gymnasium.make(POINT), update=lambda old, *_: old + 1j)
    wrong.reset(seed=0)
    with pytest.raises(InputError, match="what update returns must be real numbers, not complex"):
        wrong.step(np.zeros(2, np.float32))


# --- Task --------------------------------------------------------------------------------------


def test_the_task_is_shown_for_training_tasks_only():
    train = make("point-robot/oyster-v1").splits["train"]
    env = append_task(gymnasium.make(POINT), train)
    for task in (0, 79):
        obs, _ = env.reset(options={"task": task})
        assert np.flatnonzero(obs[2:]).tolist() == [task]
        assert np.flatnonzero(env.step(np.zeros(2, np.float32))[0][2:]).tolist() == [task]
    assert not env.reset(options={"task": 80})[0][2:].any()  # a test task
    env.close()


def test_a_vector_shows_every_environment_its_task():
    vector = append_task(gymnasium.make_vec(POINT, num_envs=3, task=[7, 3, 90]), [3, 7])
    obs, _ = vector.reset()
    np.testing.assert_array_equal(obs[:, 2:], [[0, 1], [1, 0], [0, 0]])
    vector.close()


# --- Belief ------------------------------------------------------------------------------------


def test_the_belief_follows_the_transitions_of_an_episode():
    env = belief(gymnasium.make(POINT, task=0))
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs[2:], [0.0, 0.5])
    total = 0.0
    for _ in range(3):
        obs, reward, *_ = env.step(np.array([9.0, 0.0], np.float32))
        total += reward
        # The clipped action moves by .1, so the second entry stays.
        np.testing.assert_allclose(obs[2:], [total, 0.5], atol=1e-6)
    np.testing.assert_array_equal(env.reset()[0][2:], [0.0, 0.5])
    env.close()


def test_a_trial_keeps_belief_and_task_over_its_episodes():
    env = belief(gymnasium.make(POINT), episodes_per_trial=2)
    action = np.ones(2, np.float32)
    tasks = []
    for _ in range(20):
        obs, info = env.reset()
        np.testing.assert_array_equal(obs[2:], [0.0, 0.5])
        carried = env.step(action)[0][2:]
        obs, again = env.reset()
        np.testing.assert_array_equal(obs[2:], carried)
        assert again["task_index"] == info["task_index"]
        env.step(action)
        tasks.append(info["task_index"])
    assert len(set(tasks)) > 10
    for begin in ({"seed": 1}, {"options": {"task": 3}}):
        env.reset()
        env.step(action)
        obs, _ = env.reset(**begin)
        np.testing.assert_array_equal(obs[2:], [0.0, 0.5])
    env.close()


def test_a_vector_that_draws_tasks_cannot_have_trials_of_many_episodes():
    one, two = (
        belief(gymnasium.make_vec(POINT, num_envs=2, max_episode_steps=1), episodes_per_trial=n)
        for n in (1, 2)
    )
    action = np.zeros((2, 2), np.float32)
    for vector in (one, two):
        vector.reset(seed=0)
        vector.step(action)
    np.testing.assert_array_equal(one.step(action)[0][:, 2:], [[0.0, 0.5]] * 2)
    with pytest.raises(InputError, match="environment 0 drew another task within a trial of 2"):
        two.step(action)


def test_an_update_may_be_compiled_and_must_keep_the_shape():
    @jax.jit
    def decay(belief, obs, action, reward, next_obs):
        return 0.5 * belief

    env = append_belief(gymnasium.make(POINT), np.array([4.0, 2.0]), decay)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(np.zeros(2, np.float32))[0][2:], [2.0, 1.0])
    env = append_belief(gymnasium.make(POINT), [0.0, 0.0], lambda belief, *_: belief[:1])
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"belief of shape \(2,\), not \(1,\)"):
        env.step(np.zeros(2, np.float32))


# --- The page ----------------------------------------------------------------------------------


def test_the_code_of_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile("\n".join(blocks), PAGE.name, "exec"), names)
    assert "x_velocity" in capsys.readouterr().out
    assert names["obs"].shape == (22,)
    # One reward r: mean 4 r / 5, variance 1 / 5.
    assert names["obs"][21] == pytest.approx(-np.log(5))


@pytest.mark.parametrize("tasks", [[], [0, 0], [-1], [100], np.array([0.5])])
def test_tasks_that_are_none(tasks):
    env = gymnasium.make("omrl/point-robot.oyster-v1")
    with pytest.raises(
        InputError, match=r"tasks must be one or more|must be an index from 0 to 99"
    ):
        append_task(env, tasks)


def test_indices_of_tasks_may_be_an_array():
    env = append_task(gymnasium.make("omrl/point-robot.oyster-v1", task=4), np.array([3, 4]))
    np.testing.assert_array_equal(env.reset(seed=0)[0][-2:], [0, 1])


def test_other_environments_have_no_tasks():
    with pytest.raises(InputError, match="only the environments of omrl have tasks"):
        append_task(gymnasium.make("CartPole-v1"), [0]).reset(seed=0)


def test_a_refused_reset_does_not_begin_a_trial():
    def tasks(refused):
        env = append_belief(
            gymnasium.make("omrl/point-robot.oyster-v1"),
            [0.0],
            lambda belief, *_: belief,
            episodes_per_trial=2,
        )
        found = []
        for episode in range(6):
            found.append(env.reset(seed=0 if episode == 0 else None)[1]["task_index"])
            if refused and episode == 1:
                with pytest.raises(InputError):
                    env.reset(options={"task": 10**9})
        return found

    assert tasks(True) == tasks(False)
