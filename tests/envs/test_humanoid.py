"""Humanoid: observation equal to MuJoCo's arrays, rewards by hand, returns of known policies."""

from contextlib import closing

import mujoco
import numpy as np
import pytest

from omrl.envs import humanoid
from omrl.envs.base import SimulationError
from omrl.envs.baselines import baseline_returns
from omrl.envs.body_sensors import add_body_sensors
from omrl.envs.engine import VectorEnv, initial_states
from omrl.envs.mujoco_physics import MujocoPhysics, compile_model
from omrl.envs.registry import make

ENV = make("humanoid-dir/smac-v1")
OYSTER = make("humanoid-dir/oyster-v1")
FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
# time, qpos (24), qvel (23), bodies (331), centre of mass (2): every entry another number.
STATE = np.arange(1000.0, 1381.0)


def nominal() -> mujoco.MjModel:
    return compile_model(humanoid.MODEL_FILE, humanoid.MODEL_SHA256)


# --- Physics -----------------------------------------------------------------------------------


def assert_equals_mujoco(states, controls) -> int:
    """States are what MuJoCo computes with these controls; how many rows have contact forces."""
    model = nominal()
    data = mujoco.MjData(model)
    touching = 0
    for state, control in zip(states, controls, strict=True):
        mujoco.mj_setState(model, data, state[:48], FULL)
        data.ctrl[:] = control
        data.qacc_warmstart[:] = 0
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        arrays = (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
        columns = np.split(state[48:379], np.cumsum([140, 84, 23]))
        for ours, theirs in zip(columns, arrays, strict=True):
            tolerance = 1e-12 * max(1.0, np.abs(theirs).max())
            np.testing.assert_allclose(ours, theirs.ravel(), rtol=0, atol=tolerance)
        com = model.body_mass @ data.xipos / model.body_mass.sum()
        np.testing.assert_allclose(state[379:], com[:2], rtol=0, atol=1e-12)
        obs = np.concatenate([data.qpos[2:], data.qvel, *(array.ravel() for array in arrays)])
        np.testing.assert_allclose(ENV.observe(state), obs, rtol=1e-6, atol=1e-6)
        touching += data.cfrc_ext.any()
    return touching


def test_observation_is_mujocos_own():
    rng = np.random.default_rng(0)
    states = initial_states(ENV, seed=3, num_envs=2, episode=0)
    assert assert_equals_mujoco(states, np.zeros((2, 17))) == 0
    touching = 0
    with closing(ENV.physics(2)) as physics:
        for _ in range(80):  # beyond the fall
            actions = rng.uniform(-1, 1, (2, 17))
            states = physics.step(states, actions, ENV.tasks[:2], np.ones(2, bool))
            touching += assert_equals_mujoco(states, 0.4 * actions)
    assert 80 < touching < 160


def test_a_batch_equals_each_alone():
    rng = np.random.default_rng(0)
    states, tasks = initial_states(ENV, seed=3, num_envs=9, episode=0), ENV.tasks[:9]
    with closing(ENV.physics(2)) as physics:
        for _ in range(30):
            actions = rng.uniform(-1, 1, (9, 17))
            after = physics.step(states, actions, tasks, np.ones(9, bool))
            for row in range(9):
                # Alone, and as the only active one.
                active = np.arange(9) == row
                np.testing.assert_array_equal(
                    physics.step(states, actions, tasks, active),
                    np.where(active[:, None], after, states),
                )
                one = slice(row, row + 1)
                alone = physics.step(states[one], actions[one], tasks[one], np.ones(1, bool))
                np.testing.assert_array_equal(alone, after[one])
            states = after


def test_divergence_while_reading_sensors_raises():
    def explode(spec: mujoco.MjSpec) -> None:
        add_body_sensors(spec)
        spec.option.gravity = [0.0, 0.0, -1e12]

    sensing = compile_model(humanoid.MODEL_FILE, humanoid.MODEL_SHA256, edit=explode)
    states = initial_states(ENV, seed=0, num_envs=2, episode=0)
    physics = MujocoPhysics(nominal(), 5, 1, derive=humanoid._derive, sensing=sensing)
    with closing(physics), pytest.raises(SimulationError, match=r"in 2 of 2 .* at 0\.000 s"):
        physics.step(states, np.zeros((2, 17)), ENV.tasks[:2], np.ones(2, bool))


def test_names_are_those_of_the_model():
    model = nominal()
    assert tuple(model.body(index).name for index in range(model.nbody)) == humanoid.BODIES
    joints = tuple(model.joint(index).name for index in range(1, model.njnt))
    assert joints == humanoid.JOINTS
    np.testing.assert_array_equal(model.qpos0[:7], [0, 0, humanoid.INITIAL_HEIGHT, 1, 0, 0, 0])
    np.testing.assert_array_equal(model.actuator_ctrlrange, [[-0.4, 0.4]] * 17)
    assert (model.opt.timestep, model.nq, model.nv) == (humanoid.TIMESTEP, 24, 23)
    names = ENV.spec.obs_names
    assert names[22:24] == ("torso_x_velocity", "torso_y_velocity")
    assert (names[55], names[275]) == ("torso_cinert_xx", "abdomen_z_qfrc_actuator")


def test_reset_distribution():
    states = np.stack([ENV.reset(np.random.default_rng(seed)) for seed in range(500)])
    assert not states[:, 0].any()
    np.testing.assert_allclose(np.linalg.norm(states[:, 4:8], axis=1), 1.0, rtol=1e-12)
    noise = np.delete(states[:, 1:48], slice(3, 7), axis=1) - [0, 0, 1.4, *np.zeros(40)]
    assert 0.0099 < np.abs(noise).max() <= 0.01
    assert abs(noise.std() - 0.02 / np.sqrt(12)) < 1e-4
    assert abs(noise.mean()) < 2e-4
    np.testing.assert_array_equal(states[7], ENV.reset(np.random.default_rng(7)))


# --- Observation, terms, reward ----------------------------------------------------------------


def test_observation_layout():
    obs = ENV.observe(STATE)
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs, STATE[3:379])
    np.testing.assert_array_equal(ENV.observe(np.stack([STATE, 2 * STATE]))[0], obs)


def test_terms_and_rewards_by_hand():
    before, after = np.zeros(381), np.zeros(381)
    after[379:] = 0.012, -0.006
    after[295] = 5.0  # the columns of cfrc_ext begin here and end at 378
    after[378] = -1000.0
    action = np.array([1.0, -1.0, 0.5, *np.zeros(14)])  # .1 * .16 * 2.25 = .036
    terms = ENV.terms(before, action, after)
    # .5e-6 * (1000^2 + 5^2) = .5000125
    np.testing.assert_allclose(terms, [0.012, -0.006, 0.036, 0.5000125], atol=1e-12)
    # Along 0: .25 * .012 / .003 = 1; along pi / 2: -.5. Each - .036 - .5000125 + 5.
    rewards = ENV.reward(terms, action, np.array([[0.0], [np.pi / 2], [np.pi]]))
    np.testing.assert_allclose(rewards, [5.4639875, 3.9639875, 3.4639875], atol=1e-12)
    after[294], after[378] = 1e6, 0.0  # of qfrc_actuator
    assert ENV.terms(before, action, after)[3] == pytest.approx(1.25e-5)
    after[295] = 5000.0  # 12.5 without the limit
    assert ENV.terms(before, action, after)[3] == 10.0


@pytest.mark.parametrize(
    ("height", "ended"),
    [(0.9999, True), (1.0, False), (1.4, False), (2.0, False), (2.0001, True), (np.nan, True)],
)
def test_termination(height, ended):
    state = STATE.copy()
    state[3] = height
    assert ENV.terminated(state) == ended


def test_an_episode_ends_with_the_bonus_and_only_by_height():
    with closing(VectorEnv(ENV, ENV.tasks[:8], seed=0)) as vector:
        vector.reset()
        rng = np.random.default_rng(0)
        ended = 0
        for _ in range(40):
            alive = vector.alive
            step = vector.step(rng.uniform(-1, 1, (8, 17)))
            np.testing.assert_array_equal(step.terminated[alive], step.obs[alive, 0] < 1.0)
            dx, dy, control_cost, impact_cost = step.terms.T
            direction = ENV.tasks[:8, 0]
            along = dx * np.cos(direction) + dy * np.sin(direction)
            expected = 0.25 * along / 0.003 - control_cost - impact_cost + 5.0
            np.testing.assert_allclose(step.reward[alive], expected[alive], atol=1e-5)
            ended += (alive & step.terminated).sum()
    assert ended > 4


# --- Tasks and returns -------------------------------------------------------------------------


def test_tasks_and_splits():
    with np.load(humanoid.TASK_FILE, allow_pickle=False) as file:
        np.testing.assert_allclose(file["directions"], humanoid.draw_tasks(), rtol=1e-14)
        np.testing.assert_array_equal(OYSTER.tasks[:, 0], file["directions"])
    np.testing.assert_array_equal(ENV.tasks, OYSTER.tasks[:55])
    assert ENV.splits == {"train": tuple(range(50)), "test": tuple(range(50, 55))}
    assert OYSTER.splits == {"train": tuple(range(100)), "test": tuple(range(100, 130))}
    drawn = np.concatenate([OYSTER.tasks, ENV.sample_tasks(np.random.default_rng(0), 2000)])
    assert 0.0 <= drawn.min() < 0.02
    assert 6.27 < drawn.max() < 2 * np.pi
    assert abs(drawn.mean() - np.pi) < 0.17  # 4 standard errors


def test_returns_of_policies_that_know_nothing():
    random = baseline_returns(ENV, "random", ENV.tasks[:24], episodes=2)
    assert abs(random.mean() - 117.5) < 20  # 4 standard errors; one episode varies by 33
    still = baseline_returns(ENV, "zero", ENV.tasks[:16], episodes=1)
    assert abs(still.mean() - 197.6) < 6
