"""Walker and hopper with random dynamics: tasks, observation, reward, end, and known policies."""

import hashlib
import math

import mujoco
import numpy as np
import pytest

from omrl.envs.baselines import baseline_returns
from omrl.envs.engine import VectorEnv
from omrl.envs.locomotion_params import (
    HOPPER,
    TASK_FILE,
    WALKER,
    draw_canonical_tasks,
)
from omrl.envs.mujoco_physics import compile_model
from omrl.envs.registry import ids, make
from omrl.errors import InputError

FAMILIES = ("walker-params", "hopper-params")
IDS = tuple(env_id for env_id in ids() if env_id.startswith(FAMILIES))
ROBOTS = {robot.family: robot for robot in (WALKER, HOPPER)}
ARRAYS = ("body_mass", "body_inertia", "dof_damping", "geom_friction")
OBJECTS = {
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "dof": mujoco.mjtObj.mjOBJ_JOINT,  # one degree of freedom each
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
}


# --- Tasks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ROBOTS.values(), ids=ROBOTS)
def test_the_names_are_those_of_the_model(robot):
    model = compile_model(robot.model_file, robot.model_sha256, None)
    for kind, count, names in (
        ("body", model.nbody, robot.bodies),
        ("dof", model.nv, robot.joints),
        ("geom", model.ngeom, robot.geoms),
    ):
        found = tuple(mujoco.mj_id2name(model, OBJECTS[kind], index) for index in range(count))
        assert found == names
    assert model.nu == robot.act_dim
    np.testing.assert_array_equal(model.qpos0, [0, 1.25, *[0] * (model.nq - 2)])
    assert len(robot.parameters) == sum(getattr(model, array).size for array in ARRAYS)


def test_the_number_of_factors():
    # mass, inertia, damping, friction: 8 + 24 + 9 + 24 and 5 + 15 + 6 + 15
    assert make("walker-params/macaw-v1").tasks.shape == (50, 65)
    assert make("hopper-params/oyster-v1").tasks.shape == (50, 41)
    names = make("hopper-params/oyster-v1").spec.task_names
    assert [names[index] for index in (1, 4, 5, 13, 20, 23, 26, 40)] == [
        "body_mass.torso",
        "body_mass.foot",
        "body_inertia.world.0",
        "body_inertia.thigh.2",
        "dof_damping.rootx",
        "dof_damping.thigh_joint",
        "geom_friction.floor.0",
        "geom_friction.foot_geom.2",
    ]


@pytest.mark.parametrize(("robot", "seed"), [(WALKER, 1), (HOPPER, 2)], ids=ROBOTS)
def test_the_canonical_list_is_drawn_as_stated(robot, seed):
    with np.load(TASK_FILE, allow_pickle=False) as file:
        shipped = file[robot.family]
    assert shipped.shape == (55, len(robot.parameters))
    np.testing.assert_allclose(shipped, draw_canonical_tasks(robot), rtol=1e-14)
    rng = np.random.Generator(np.random.Philox(key=seed))
    bodies, joints, geoms = len(robot.bodies), len(robot.joints), len(robot.geoms)
    for task in shipped:
        in_order = [1.5 ** rng.uniform(-3, 3, bodies), 1.5 ** rng.uniform(-3, 3, 3 * bodies)]
        in_order += [1.3 ** rng.uniform(-3, 3, joints), 1.5 ** rng.uniform(-3, 3, 3 * geoms)]
        np.testing.assert_allclose(task, np.concatenate(in_order), rtol=1e-14)


@pytest.mark.parametrize("env_id", IDS)
def test_ids_of_a_robot_share_one_list(env_id):
    env = make(env_id)
    with np.load(TASK_FILE, allow_pickle=False) as file:
        shipped = file[env.robot.family]
    chosen = [env.robot.parameters.index(name) for name in env.spec.task_names]
    np.testing.assert_array_equal(env.tasks, shipped[: len(env.tasks), chosen])


def test_corro_leaves_the_inertia_and_damping_of_the_walker_alone():
    names = make("walker-params/corro-v1").spec.task_names
    assert len(names) == 32
    assert {name.split(".")[0] for name in names} == {"body_mass", "geom_friction"}
    assert len(make("hopper-params/corro-v1").spec.task_names) == 41


@pytest.mark.parametrize(
    ("env_id", "train", "test"),
    [
        ("walker-params/macaw-v1", set(range(50)) - {43, 15, 12, 39, 2}, {43, 15, 12, 39, 2}),
        ("walker-params/workshop-v1", range(30), range(30, 35)),
        ("walker-params/oyster-v1", range(40), range(40, 50)),
        ("walker-params/smac-v1", range(50), range(50, 55)),
        ("walker-params/corro-v1", range(40), range(40, 50)),
        ("walker-params/nodone-v1", range(40), range(40, 50)),
        ("hopper-params/oyster-v1", range(40), range(40, 50)),
        ("hopper-params/smac-v1", range(50), range(50, 55)),
        ("hopper-params/corro-v1", range(40), range(40, 50)),
        ("hopper-params/nodone-v1", range(40), range(40, 50)),
    ],
)
def test_splits(env_id, train, test):
    assert make(env_id).splits == {"train": tuple(sorted(train)), "test": tuple(sorted(test))}


def test_sampled_tasks_cover_the_distribution():
    env = make("walker-params/macaw-v1")
    tasks = env.sample_tasks(np.random.default_rng(0), 2000)
    damping = [name.startswith("dof_damping") for name in env.spec.task_names]
    exponents = np.log(tasks) / np.log(np.where(damping, 1.3, 1.5))
    assert -3 <= exponents.min() < -2.99
    assert 2.99 < exponents.max() <= 3
    np.testing.assert_allclose(exponents.mean(axis=0), 0, atol=0.16)  # 4 standard errors
    np.testing.assert_allclose(exponents.std(axis=0), math.sqrt(3), atol=0.08)
    assert np.abs(np.corrcoef(exponents.T) - np.eye(65)).max() < 0.12  # independent


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tasks: tasks[:, :64], r"must have shape \(at least 1, 65\), not \(2, 64\)"),
        (lambda tasks: tasks * np.nan, "tasks of walker-params/macaw-v1 must be finite"),
        (lambda tasks: tasks * np.inf, "tasks of walker-params/macaw-v1 must be finite"),
        (lambda tasks: tasks * 0, r"above 0, not 0 as body_mass.world of task 0$"),
        (
            lambda tasks: tasks * np.where(np.arange(130).reshape(2, 65) == 65 + 33, -1, 1),
            r"must be above 0, not -\d\.\d+ as dof_damping.rootz of task 1$",
        ),
    ],
)
def test_tasks_that_are_refused(edit, message):
    env = make("walker-params/macaw-v1")
    with pytest.raises(InputError, match=message):
        VectorEnv(env, edit(env.tasks[:2]), seed=0)


# --- Observation, reward, termination ----------------------------------------------------------


def test_observation_layout():
    # time, qpos (9), qvel (9)
    state = np.concatenate([[100.0], np.arange(1.0, 10.0), [-30, -10, -9, 0, 5, 9.5, 10, 10.5, 99]])
    obs = make("walker-params/macaw-v1").observe(state)
    assert obs.dtype == np.float32
    clipped = [-10, -10, -9, 0, 5, 9.5, 10, 10, 10]
    np.testing.assert_array_equal(obs, np.array([2, 3, 4, 5, 6, 7, 8, 9, *clipped], np.float32))
    corro = make("walker-params/corro-v1")
    np.testing.assert_array_equal(corro.observe(state), state[1:].astype(np.float32))
    assert corro.spec.obs_names == ("rootx", *make("walker-params/macaw-v1").spec.obs_names)
    hopper = np.concatenate([[100.0], np.arange(1.0, 7.0), [-11, 12, 3, 4, 5, 6]])
    np.testing.assert_array_equal(
        make("hopper-params/oyster-v1").observe(np.stack([hopper, 2 * hopper])),
        [[2, 3, 4, 5, 6, -10, 10, 3, 4, 5, 6], [4, 6, 8, 10, 12, -10, 10, 6, 8, 10, 10]],
    )


@pytest.mark.parametrize("env_id", IDS)
def test_terms_and_reward_by_hand(env_id):
    env = make(env_id)
    state = np.zeros(1 + 2 * len(env.robot.joints))
    after = state.copy()
    after[1] = 0.012  # .75 m/s at .016 s a step, 1.5 m/s at .008 s
    action = np.zeros(env.spec.act_dim)
    action[:3] = [1.0, -1.0, 0.5]  # .001 * 2.25
    terms = env.terms(state, action, after)
    speed = 1.5 if "smac" in env_id else 0.75
    np.testing.assert_allclose(terms, [speed, 0.00225], rtol=1e-12)
    alive = 0.0 if env_id == "hopper-params/corro-v1" else 1.0
    rewards = env.reward(terms, action, env.tasks)
    np.testing.assert_allclose(rewards, [speed + alive - 0.00225] * len(env.tasks), rtol=1e-12)
    assert env.reward(terms, action, env.tasks[0]) == rewards[0]


NEVER = ("walker-params/nodone-v1", "hopper-params/nodone-v1", "hopper-params/corro-v1")
GYM_WALKER = {"height": (0.8, 2.0), "pitch": (-1.0, 1.0)}
GYM_HOPPER = {"height": (0.7, math.inf), "pitch": (-0.2, 0.2), "entry": (-100.0, 100.0)}
BOUNDS = {
    "walker-params/macaw-v1": GYM_WALKER,
    "walker-params/workshop-v1": GYM_WALKER,
    "walker-params/oyster-v1": GYM_WALKER,
    "walker-params/smac-v1": GYM_WALKER,
    "walker-params/corro-v1": {"height": (0.5, math.inf)},
    "hopper-params/oyster-v1": GYM_HOPPER,
    "hopper-params/smac-v1": GYM_HOPPER,
    **{env_id: {} for env_id in NEVER},
}


@pytest.mark.parametrize("env_id", IDS)
def test_termination_edges(env_id):
    env = make(env_id)
    num_joints = len(env.robot.joints)
    upright = np.zeros(1 + 2 * num_joints)
    upright[2] = 1.25

    def ends(column: int, value: float) -> bool:
        state = upright.copy()
        state[column] = value
        return bool(env.terminated(state))

    assert not env.terminated(upright)
    assert not ends(0, 1e6)  # time
    assert not ends(1, -1e6)  # x
    entries = [4, num_joints, num_joints + 1, 2 * num_joints]
    for quantity, columns in {"height": [2], "pitch": [3], "entry": entries}.items():
        low, high = BOUNDS[env_id].get(quantity, (-math.inf, math.inf))
        for column in columns:
            for bound, outside in ((low, -math.inf), (high, math.inf)):
                if math.isfinite(bound):
                    assert ends(column, bound)
                    assert not ends(column, np.nextafter(bound, -outside))
                else:
                    assert not ends(column, math.copysign(1e6, bound))
    assert env.terminated(np.stack([upright, upright])).tolist() == [False, False]


def test_the_spec_says_what_ends_an_episode():
    spec = make("hopper-params/oyster-v1").spec
    assert spec.termination == (
        "height <= min_height or |pitch| >= max_pitch or any |coordinate or velocity| but x and "
        "height >= max_entry"
    )
    assert spec.constants[-3:] == (("min_height", 0.7), ("max_pitch", 0.2), ("max_entry", 100.0))
    assert all(make(env_id).spec.termination == "never" for env_id in NEVER)
    corro = make("walker-params/corro-v1").spec
    assert corro.termination == "height <= min_height"
    assert corro.constants[-1] == ("min_height", 0.5)
    assert "observed_velocity_limit" not in dict(corro.constants)
    assert dict(spec.constants)["observed_velocity_limit"] == 10.0


def test_the_spec_pins_the_canonical_list():
    text = make("walker-params/corro-v1").spec.task_distribution
    values = np.ascontiguousarray(make("walker-params/corro-v1").tasks)
    assert text.endswith(
        "first 50 of locomotion_params_tasks.npz, drawn by numpy's Philox(key=1), sha256 of its "
        f"float64 values {hashlib.sha256(values).hexdigest()[:12]}"
    )
    assert "body_mass, geom_friction; nothing else is recomputed" in text


@pytest.mark.parametrize("env_id", IDS)
def test_time_steps(env_id):
    spec = make(env_id).spec
    assert (spec.timestep, spec.dt) == ((0.002, 0.008) if "smac" in env_id else (0.004, 0.016))
    assert (spec.frame_skip, spec.horizon) == (4, 200)


@pytest.mark.parametrize("family", FAMILIES)
def test_reset_distribution(family):
    env = make(f"{family}/oyster-v1")
    states = np.stack([env.reset(np.random.default_rng(seed)) for seed in range(500)])
    assert not states[:, 0].any()
    states[:, 2] -= 1.25
    assert 0.00499 < np.abs(states).max() <= 0.005
    np.testing.assert_allclose(states[:, 1:].std(axis=0), 0.01 / math.sqrt(12), rtol=0.1)
    assert np.abs(states[:, 1:].mean(axis=0)).max() < 0.0006


# --- Known policies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "expected", "tolerance"),
    [  # measured by other code on tasks of its own; tasks differ more than episodes do
        ("walker-params/macaw-v1", 0.7, 1.5),
        ("walker-params/smac-v1", 2.9, 3.5),
        ("hopper-params/oyster-v1", 8.1, 2.5),
        ("hopper-params/smac-v1", 18.4, 6.0),
    ],
)
def test_random_policy_returns(env_id, expected, tolerance):
    env = make(env_id)
    returns = baseline_returns(env, "random", env.tasks, episodes=4)
    assert returns.mean() == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_zero_action_falls_later_than_random_actions_and_lies_still_without_an_end(family):
    env = make(f"{family}/oyster-v1")
    zero, random = (
        baseline_returns(env, policy, env.tasks[:25], episodes=2).mean()
        for policy in ("zero", "random")
    )
    assert zero > random + 5
    still = make(f"{family}/nodone-v1")
    returns = baseline_returns(still, "zero", still.tasks[:5], episodes=1)
    np.testing.assert_allclose(returns, 200, atol=100)  # 200 times the bonus, and the fall
