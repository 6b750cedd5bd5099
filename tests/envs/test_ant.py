"""Ant: dynamics equal to Gymnasium's, rewards by hand, and returns of known policies."""

from contextlib import closing

import mujoco
import numpy as np
import pytest

from omrl.envs import ant
from omrl.envs.baselines import baseline_returns
from omrl.envs.contact import add_contact_sensors, external_forces
from omrl.envs.engine import VectorEnv, initial_states
from omrl.envs.mujoco_physics import compile_model
from omrl.envs.registry import make

DIR = make("ant-dir/macaw-v1")
FWD = make("ant-dir/fwd-v1")
GOAL = make("ant-semicircle/borel-v1")
SPARSE = make("ant-semicircle/borel-sparse-v1")
FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
# time, qpos (15), qvel (14), contact cost: every entry another number.
STATE = np.concatenate([[100.0], np.arange(1.0, 16.0), np.arange(21.0, 35.0), [0.25]])


def rollout(env, steps: int, num_envs: int = 2):
    """Commands, and states with the first, of an episode that nothing ends."""
    rng = np.random.default_rng(0)
    commands = rng.uniform(-1, 1, (steps, num_envs, 8)).astype(np.float32).astype(np.float64)
    states = [initial_states(env, seed=3, num_envs=num_envs, episode=0)]
    with closing(env.physics(2)) as physics:
        for command in commands:
            tasks = env.tasks[:num_envs]
            states.append(physics.step(states[-1], command, tasks, np.ones(num_envs, bool)))
    return commands, np.stack(states)


# --- Physics -----------------------------------------------------------------------------------


def test_contact_cost_is_that_at_the_start_of_the_last_physics_step():
    model = compile_model(ant.MODEL_FILE, ant.MODEL_SHA256)
    data, before_last = mujoco.MjData(model), mujoco.MjData(model)
    state = np.zeros(30)
    commands, states = rollout(DIR, 60, num_envs=1)
    touching = 0
    for step, command in enumerate(commands[:, 0]):
        mujoco.mj_setState(model, data, states[step, 0, :-1], FULL)
        data.qacc_warmstart[:] = 0
        data.ctrl[:] = command
        for _ in range(4):
            mujoco.mj_step(model, data)
        mujoco.mj_getState(model, data, state, FULL)
        mujoco.mj_setState(model, before_last, state, FULL)
        before_last.qacc_warmstart[:] = data.qacc_warmstart
        before_last.ctrl[:] = command
        mujoco.mj_forward(model, before_last)
        mujoco.mj_rnePostConstraint(model, before_last)
        expected = 0.0005 * np.sum(np.clip(before_last.cfrc_ext, -1, 1) ** 2)
        assert states[step + 1, 0, -1] == pytest.approx(expected, abs=1e-12)
        touching += expected > 0
    assert 10 < touching < 60


def test_sensors_do_not_change_the_dynamics():
    _, with_sensors = rollout(DIR, 60)
    _, without = rollout(GOAL, 60)
    assert (with_sensors.shape[-1], without.shape[-1]) == (31, 30)
    np.testing.assert_array_equal(with_sensors[..., :30], without)
    model = compile_model(ant.MODEL_FILE, ant.MODEL_SHA256, edit=add_contact_sensors)
    assert model is compile_model(ant.MODEL_FILE, ant.MODEL_SHA256, edit=add_contact_sensors)
    assert compile_model(ant.MODEL_FILE, ant.MODEL_SHA256).nsensordata == 0
    assert model.nsensordata == 120


def test_names_are_those_of_the_model():
    model = compile_model(ant.MODEL_FILE, ant.MODEL_SHA256)
    joints = tuple(model.joint(index).name for index in range(1, model.njnt))
    assert joints == ant.JOINTS
    driven = [model.joint(model.actuator_trnid[index, 0]).name for index in range(8)]
    assert driven == [*ant.JOINTS[6:], *ant.JOINTS[:6]]
    np.testing.assert_array_equal(model.qpos0[:7], [0, 0, ant.INITIAL_HEIGHT, 1, 0, 0, 0])
    assert (model.opt.timestep, model.nq, model.nv) == (ant.TIMESTEP, ant.NQ, ant.NV)


def test_reset_distribution():
    states = np.stack([DIR.reset(np.random.default_rng(seed)) for seed in range(500)])
    assert states.shape == (500, 31)
    assert not states[:, [0, 30]].any()
    np.testing.assert_allclose(np.linalg.norm(states[:, 4:8], axis=1), 1.0, rtol=1e-12)
    noise = states[:, 1:16] - [0, 0, 0.75, *np.zeros(12)]
    others = np.delete(noise, slice(3, 7), axis=1)
    assert 0.0995 < np.abs(others).max() <= 0.1
    assert abs(others.std() - 0.2 / np.sqrt(12)) < 0.002
    # Before the quaternion was normalised, q_x / q_w was U(-.1, .1) / (1 + U(-.1, .1)).
    assert 0.1 < np.abs(states[:, 5] / states[:, 4]).max() < 0.1 / 0.9
    qvel = states[:, 16:30]
    assert abs(qvel.std() - 0.1) < 0.003
    assert GOAL.reset(np.random.default_rng(0)).shape == (30,)


# --- Observation, terms, reward ----------------------------------------------------------------


def test_observation_layout():
    obs = DIR.observe(STATE)
    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs, [*range(3, 16), *range(21, 35)])
    full = GOAL.observe(STATE[:30])
    np.testing.assert_array_equal(full, [1, 2, *obs])
    assert GOAL.spec.obs_names[2:] == DIR.spec.obs_names
    assert DIR.spec.obs_names[4:6] == ("torso_qz", "hip_1")
    np.testing.assert_array_equal(DIR.observe(np.stack([STATE, 2 * STATE]))[0], obs)


def test_direction_terms_and_rewards_by_hand():
    before, after = STATE.copy(), STATE.copy()
    after[1] += 0.03
    after[2] -= 0.04
    after[3] = 0.6
    after[30] = 0.002
    action = np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0])  # .5 * 2.25 = 1.125
    terms = DIR.terms(before, action, after)
    np.testing.assert_allclose(terms, [0.03, -0.04, 1.125, 0.002, 1.0], atol=1e-12)
    # Along 0: .03 / .05 = .6; along pi / 2: -.8; along pi: -.6. Each - 1.125 - .002 + 1.
    tasks = np.array([[0.0], [np.pi / 2], [np.pi]])
    rewards = DIR.reward(terms, action, tasks)
    np.testing.assert_allclose(rewards, [0.473, -0.927, -0.727], atol=1e-9)
    np.testing.assert_allclose(FWD.terms(before, action, after), terms, rtol=0)
    np.testing.assert_allclose(FWD.reward(terms, action, tasks), [0.6, -0.8, -0.6], atol=1e-9)
    after[3] = 1.1
    assert DIR.terms(before, action, after)[4] == 0.0


def test_semicircle_terms_and_rewards_by_hand():
    after = STATE[:30].copy()
    after[1:3] = 0.1, 0.9
    action = np.array([1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])  # .1 * 2 = .2
    terms = GOAL.terms(STATE[:30], action, after)
    np.testing.assert_array_equal(terms, [np.float32(0.1), np.float32(0.9), 0.2])
    tasks = np.array([[0.0, 1.0], [1.0, 0.0], [-0.09, 0.95]])
    # -(.1 + .1) - .2; -(.9 + .9) - .2; -(.19 + .05) - .2
    np.testing.assert_allclose(GOAL.reward(terms, action, tasks), [-0.4, -2.0, -0.44], atol=1e-6)
    # Distances .141, 1.27, .196.
    np.testing.assert_allclose(SPARSE.reward(terms, action, tasks), [0.8, -0.2, 0.8], atol=1e-12)
    # At .1, .9 the goal (.1, 1.1 + 1e-6) is just out of reach.
    outside = SPARSE.reward(terms, action, np.array([0.1, 1.1 + 1e-6]))
    assert outside == pytest.approx(-0.2)


def test_stored_terms_give_the_same_sparse_reward():
    rng = np.random.default_rng(0)
    states = np.zeros((10000, 30))
    goal = np.array([0.0, 1.0])
    angles = rng.uniform(0, 2 * np.pi, 10000)
    radius = 0.2 + 1e-8 * rng.standard_normal(10000)
    states[:, 1:3] = goal + radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    actions = np.zeros((10000, 8))
    terms = SPARSE.terms(states, actions, states)
    rewards = SPARSE.reward(terms, actions, goal)
    assert 0.1 < rewards.mean() < 0.9
    np.testing.assert_array_equal(SPARSE.reward(terms.astype(np.float32), actions, goal), rewards)


@pytest.mark.parametrize(
    ("height", "ended"),
    [(0.1999, True), (0.2, False), (0.75, False), (1.0, False), (1.0001, True), (np.nan, True)],
)
def test_termination(height, ended):
    state = STATE.copy()
    state[3] = height
    assert DIR.terminated(state) == ended
    assert not FWD.terminated(state)
    assert not GOAL.terminated(state[:30])
    assert DIR.terms(state, np.zeros(8), state)[4] == float(not ended)


def test_an_episode_ends_with_the_bonus_and_only_by_height():
    with closing(VectorEnv(DIR, DIR.tasks[:16], seed=0)) as vector:
        vector.reset()
        rng = np.random.default_rng(0)
        ended = np.zeros(16, bool)
        for _ in range(120):
            alive = vector.alive
            step = vector.step(rng.uniform(-1, 1, (16, 8)))
            out = (step.obs[:, 0] < 0.2) | (step.obs[:, 0] > 1.0)
            np.testing.assert_array_equal(step.terminated[alive], out[alive])
            np.testing.assert_array_equal(step.terms[alive, 4], ~out[alive])
            now = alive & step.terminated
            direction = DIR.tasks[:16, 0]
            along = step.terms[:, 0] * np.cos(direction) + step.terms[:, 1] * np.sin(direction)
            expected = 20 * along - step.terms[:, 2] - step.terms[:, 3] + 1.0
            np.testing.assert_allclose(step.reward[alive], expected[alive], atol=1e-5)
            ended |= now
    assert 4 < ended.sum() < 16


# --- Tasks -------------------------------------------------------------------------------------


def test_task_files_are_what_the_stated_seeds_draw():
    with np.load(ant.TASK_FILE, allow_pickle=False) as file:
        drawn = ant.draw_tasks()
        assert set(file) == set(drawn)
        for name, values in drawn.items():
            np.testing.assert_allclose(file[name], values, rtol=1e-14)
    np.testing.assert_array_equal(DIR.tasks[:, 0], ant.draw_tasks()["macaw"])


def test_direction_tasks_and_splits():
    assert DIR.tasks.shape == (50, 1)
    assert DIR.splits["test"] == (6, 17, 23, 30, 41)
    assert len(DIR.splits["train"]) == 45
    assert not set(DIR.splits["train"]) & set(DIR.splits["test"])
    oyster, fwdback = make("ant-dir/oyster-v1"), make("ant-dir/fwdback-v1")
    assert oyster.splits == fwdback.splits == {"train": (0, 1), "test": (0, 1)}
    assert fwdback.tasks.tolist() == [[0.0], [np.pi]]
    assert 0.5 < abs(oyster.tasks[0, 0] - oyster.tasks[1, 0]) < 2 * np.pi - 0.5
    assert FWD.splits == {"train": tuple(range(30)), "test": tuple(range(30, 40))}
    for env in (DIR, oyster, FWD):
        assert ((env.tasks >= 0) & (env.tasks < 2 * np.pi)).all()


def test_smac_directions_are_the_released_list_of_degrees():
    env = make("ant-dir/smac-v1")
    assert env.tasks.shape == (120, 1)
    degrees = [94.32888301, 57.12622998, 100.12554702]
    np.testing.assert_allclose(env.tasks[:3, 0], np.array(degrees) / 180 * np.pi, rtol=1e-9)
    assert env.splits == {"train": tuple(range(100)), "test": tuple(range(100, 120))}


def test_semicircle_tasks_and_splits():
    np.testing.assert_allclose(np.linalg.norm(GOAL.tasks, axis=1), 1.0, rtol=1e-12)
    assert (GOAL.tasks[:, 1] > 0).all()
    assert 0.4 < (GOAL.tasks[:, 0] > 0).mean() < 0.6
    np.testing.assert_array_equal(GOAL.tasks, SPARSE.tasks)
    assert GOAL.splits == {"train": tuple(range(80)), "test": tuple(range(80, 100))}


def test_sampled_tasks_cover_the_distribution():
    rng = np.random.default_rng(0)
    directions = DIR.sample_tasks(rng, 2000)
    assert abs(directions.mean() - np.pi) < 0.17  # 4 standard errors
    assert directions.max() > 6.27
    assert set(make("ant-dir/fwdback-v1").sample_tasks(rng, 50).ravel()) == {0.0, np.pi}
    goals = GOAL.sample_tasks(rng, 2000)
    angles = np.arctan2(goals[:, 1], goals[:, 0])
    np.testing.assert_allclose(np.linalg.norm(goals, axis=1), 1.0, rtol=1e-12)
    assert abs(angles.mean() - np.pi / 2) < 0.09


def test_specs_say_which_rewards_and_ends_they_have():
    assert DIR.spec.contact_source == FWD.spec.contact_source == "rne"
    assert GOAL.spec.contact_source == "none"
    assert (DIR.spec.termination, FWD.spec.termination) == ("not healthy", "never")
    assert ("survive_reward", 1.0) in DIR.spec.constants
    assert "survive_reward" not in dict(FWD.spec.constants)
    assert ("goal_radius", 0.2) in SPARSE.spec.constants
    assert "- contact_cost + survive_reward;" in DIR.spec.reward
    assert "- contact_cost" not in FWD.spec.reward
    assert DIR.spec.dt == pytest.approx(0.05)


# --- Returns of policies that know nothing -----------------------------------------------------


def test_random_returns():
    returns = baseline_returns(DIR, "random", DIR.tasks[:24], episodes=2)
    assert abs(returns.mean() - -31.6) < 25  # 4 standard errors; one episode varies by 39.5


def test_doing_nothing_earns_the_survival_bonus():
    # The fall from the initial pose moves the torso a few centimetres: standard deviation 4.3.
    still = baseline_returns(DIR, "zero", DIR.tasks[:16], episodes=1)
    assert abs(still.mean() - 199.0) < 5
    assert abs(baseline_returns(FWD, "zero", FWD.tasks[:16], episodes=1).mean()) < 5


def test_contact_costs_do_not_depend_on_the_rows_beside_them():
    sensors = np.random.default_rng(0).normal(size=(7, 9 * 13 + 3))
    together = ant.contact_cost(external_forces(sensors))
    alone = [ant.contact_cost(external_forces(row[None]))[0] for row in sensors]
    np.testing.assert_array_equal(together, alone)
