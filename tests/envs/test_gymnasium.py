"""The Gymnasium faces of the same MDPs."""

import copy
import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

from omrl.envs import gym_wrapper
from omrl.envs.engine import advance
from omrl.envs.gym_hook import gymnasium_id
from omrl.envs.registry import ids, make
from omrl.errors import InputError

VEL = "omrl/cheetah-vel.macaw-v1"
POINT = "omrl/point-robot.oyster-v1"


@pytest.mark.filterwarnings("ignore:.*A Box observation space m(in|ax)imum value is.*infinity")
@pytest.mark.parametrize("env_id", ids())
def test_check_env(env_id):
    env = gymnasium.make(gymnasium_id(env_id))
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize(
    "imports",
    ["import omrl, gymnasium", "import gymnasium, omrl", "import omrl.envs.gym_wrapper, gymnasium"],
)
def test_import_registers_in_either_order_and_stays_cheap(imports):
    code = (
        f"{imports}; import sys; assert not {{'jax', 'mujoco'}} & set(sys.modules);"
        "env = gymnasium.make('omrl/cheetah-dir.macaw-v1', task=1);"
        "assert type(gymnasium.__spec__.loader).__module__ != 'omrl.envs.gym_hook';"
        "print(env.reset(seed=0)[1]['task'])"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[-1.]\n"


def test_omrl_alone_loads_neither_gymnasium_nor_numpy():
    code = (
        "import omrl, sys; assert not {'numpy', 'gymnasium', 'jax'} & set(sys.modules);"
        "import importlib.util; importlib.util.find_spec('gymnasium');"  # finding is not importing
        "import gymnasium; gymnasium.spec('omrl/cheetah-vel.macaw-v1')"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_same_mdp_as_the_engine():
    task_env = make("cheetah-vel/macaw-v1")
    env = gymnasium.make(VEL, task=7)
    obs, info = env.reset(seed=5)
    assert info["task_index"] == 7
    np.testing.assert_allclose(info["task"], [0.6])
    states = task_env.reset(np.random.default_rng(5))[None]
    np.testing.assert_array_equal(obs, task_env.observe(states)[0])
    physics = task_env.physics(1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(action)
        after = advance(
            task_env, physics, states, action[None], task_env.tasks[[7]], np.ones(1, bool)
        )
        states = after.states
        np.testing.assert_array_equal(obs, after.obs[0])
        assert reward == float(after.reward[0])
        assert not terminated
        assert not truncated
        terms = info["terms"]
        assert list(terms) == ["x_velocity", "control_cost"]
        assert reward == pytest.approx(-abs(terms["x_velocity"] - 0.6) - terms["control_cost"])
    physics.close()
    env.close()


def test_horizon_truncates():
    env = gymnasium.make(POINT, task=0)
    env.reset(seed=0)
    flags = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(20)]
    assert flags == [(False, False)] * 19 + [(False, True)]
    assert gymnasium.spec(VEL).max_episode_steps == 200


def test_task_by_option_holds_for_one_episode():
    env = gymnasium.make(POINT, task=3)
    assert env.reset(options={"task": 9})[1]["task_index"] == 9
    assert env.reset()[1]["task_index"] == 3
    with pytest.raises(
        InputError, match="task of point-robot/oyster-v1 must be an index from 0 to 99"
    ):
        env.reset(options={"task": 100})


def test_tasks_are_drawn_without_a_choice():
    env = gymnasium.make(POINT)
    drawn = [env.reset(seed=0 if n == 0 else None)[1]["task_index"] for n in range(50)]
    assert len(set(drawn)) > 25
    assert [env.reset(seed=0 if n == 0 else None)[1]["task_index"] for n in range(50)] == drawn


def test_step_before_reset():
    env = gym_wrapper.GymEnv("point-robot/oyster-v1")
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(2, np.float32))
    vector = gym_wrapper.GymVectorEnv("point-robot/oyster-v1", 2)
    with pytest.raises(RuntimeError, match="call reset"):
        vector.step(np.zeros((2, 2), np.float32))


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        (POINT, {}),
        (POINT, {"task": 4}),
        (POINT, {"max_episode_steps": 7}),
        (VEL, {"task": 2}),
        (
            "omrl/walker-params.macaw-v1",
            {},
        ),  # falls often, and then has the dynamics of another task
        ("omrl/ant-dir.macaw-v1", {}),  # falls, and has a state beyond MuJoCo's
        ("omrl/humanoid-dir.smac-v1", {}),  # falls, and its reset needs the simulator
        ("omrl/gridnav.borel-v1", {}),
    ],
)
def test_make_vec_equals_gymnasiums_own_vectorization(env_id, options):
    fast = gymnasium.make_vec(env_id, num_envs=3, **options)
    slow = gymnasium.make_vec(env_id, num_envs=3, vectorization_mode="sync", **options)
    assert isinstance(fast, gym_wrapper.GymVectorEnv)
    assert fast.observation_space == slow.observation_space
    assert fast.action_space == slow.action_space
    assert data_equivalence(fast.reset(seed=11), slow.reset(seed=11), exact=True)
    slow.action_space.seed(0)
    for _ in range(45):  # two resets of the point robot's 20 steps
        action = slow.action_space.sample()
        ours, theirs = fast.step(action), slow.step(action)
        assert data_equivalence(ours, theirs, exact=True)
    fast.close()
    fast.close()
    slow.close()


def test_make_vec_with_a_task_per_environment():
    vector = gymnasium.make_vec(VEL, num_envs=3, task=[0, 19, 39], num_threads=2)
    _, infos = vector.reset(seed=0)
    np.testing.assert_allclose(infos["task"][:, 0], [0.075, 1.5, 3.0])
    np.testing.assert_array_equal(
        vector.reset(options={"task": [1, 2, 3]})[1]["task_index"], [1, 2, 3]
    )
    with pytest.raises(InputError, match="task must have 3 indices, not 2"):
        vector.reset(options={"task": [1, 2]})
    vector.close()


@pytest.mark.parametrize("tasks", [[0, 1], (0,), np.arange(3)])
def test_gymnasiums_own_vectorization_is_told_how_to_have_a_task_each(tasks):
    way = r"task=task\) for task in tasks"
    with pytest.raises(InputError, match=f"has one, not {len(tasks)}; for one each, .*{way}"):
        gymnasium.make_vec(VEL, num_envs=3, vectorization_mode="sync", task=tasks)
    makers = [partial(gymnasium.make, VEL, task=task) for task in tasks]
    vector = gymnasium.vector.SyncVectorEnv(makers)
    np.testing.assert_array_equal(vector.reset(seed=0)[1]["task_index"], tasks)
    with pytest.raises(InputError, match=f"has one, not {len(tasks)}; for one each, .*{way}"):
        vector.reset(options={"task": tasks})
    vector.close()


def test_terminated_environments_restart_alone(monkeypatch):
    task_env = make("point-robot/oyster-v1")
    monkeypatch.setattr(
        type(task_env), "terminated", lambda self, state: np.abs(state[..., 0]) > 1.0
    )
    fast = gymnasium.make_vec(POINT, num_envs=4)
    slow = gymnasium.make_vec(POINT, num_envs=4, vectorization_mode="sync")
    assert data_equivalence(fast.reset(seed=2), slow.reset(seed=2), exact=True)
    action = np.tile(np.array([1.0, 0.0], np.float32), (4, 1))
    ends = 0
    for _ in range(60):
        ours, theirs = fast.step(action), slow.step(action)
        assert data_equivalence(ours, theirs, exact=True)
        ends += ours[2].sum()
    assert ends > 10
    fast.close()
    slow.close()


# --- What is refused changes nothing; copies go on alike ---

WALKER = "omrl/walker-params.macaw-v1"


@pytest.mark.parametrize("env_id", [POINT, WALKER])
def test_a_refused_action_draws_nothing(env_id):
    def rollout(with_refusal):
        vector = gymnasium.make_vec(env_id, num_envs=2, max_episode_steps=2)
        vector.reset(seed=0)
        good = np.zeros(vector.action_space.shape, np.float32)
        # Both episodes end with the second step, so the third one resets; the fourth is a step.
        for _ in range(2):
            vector.step(good)
        if with_refusal:
            vector.step(np.full_like(good, np.nan))  # Ignored by environments that are reset.
        else:
            vector.step(good)
        if with_refusal:
            with pytest.raises(ValueError, match="not finite"):
                vector.step(np.full_like(good, np.nan))
        obs, *_, infos = vector.step(good)
        vector.close()
        return obs, infos["task_index"]

    assert data_equivalence(rollout(True), rollout(False), exact=True)


def test_a_refused_action_of_one_does_not_reset_another():
    vector = gymnasium.make_vec(WALKER, num_envs=2)
    vector.reset(seed=0)
    vector.unwrapped._ended[0] = True
    before = vector.unwrapped._task_index.copy()
    action = np.zeros((2, 6), np.float32)
    action[1] = np.nan
    with pytest.raises(ValueError, match="environment 1 is not finite"):
        vector.step(action)
    np.testing.assert_array_equal(vector.unwrapped._task_index, before)
    vector.close()


@pytest.mark.parametrize("make_env", [gymnasium.make, partial(gymnasium.make_vec, num_envs=2)])
def test_a_refused_reset_seeds_nothing(make_env):
    def after(*refused):
        env = make_env(POINT)
        env.reset(seed=5)
        for seed, options in refused:
            with pytest.raises(InputError):
                env.reset(seed=seed, options=options)
        obs, _ = env.reset()
        env.close()
        return obs

    expected = after()
    np.testing.assert_array_equal(after((7, {"task": 10**9}), (7, {"tsak": 1})), expected)


@pytest.mark.parametrize("env_id", [VEL, WALKER, POINT])
@pytest.mark.parametrize("make_env", [gymnasium.make, partial(gymnasium.make_vec, num_envs=2)])
def test_a_copy_goes_on_alike(env_id, make_env):
    env = make_env(env_id)
    env.reset(seed=3)
    env.action_space.seed(0)
    env.step(env.action_space.sample())
    # By the same methods as for another process.
    other = copy.deepcopy(env)
    action = env.action_space.sample()
    assert data_equivalence(env.step(action), other.step(action), exact=True)
    env.close()
    other.close()


@pytest.mark.parametrize("env_id", [VEL, POINT])
@pytest.mark.parametrize("make_env", [gymnasium.make, partial(gymnasium.make_vec, num_envs=2)])
def test_a_closed_environment_does_not_step(env_id, make_env):
    env = make_env(env_id)
    env.reset(seed=0)
    action = env.action_space.sample()
    env.close()
    with pytest.raises(RuntimeError, match="call reset before the first step"):
        env.step(action)
