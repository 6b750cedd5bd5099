"""Walker and hopper with random dynamics: a task acts on the model as documented, and no more."""

import sys
from contextlib import closing
from types import ModuleType

import gymnasium
import mujoco
import numpy as np
import pytest

from omrl.envs import mujoco_physics
from omrl.envs.engine import VectorEnv, initial_states
from omrl.envs.mujoco_physics import compile_model, scaled_models
from omrl.envs.registry import make

FAMILIES = ("walker-params", "hopper-params")
GYMNASIUM = {"walker-params": "Walker2d-v5", "hopper-params": "Hopper-v5"}
TASKS = ("walker-params/macaw-v1", "walker-params/corro-v1", "hopper-params/oyster-v1")
"""An id of every list of factors."""
FULL = mujoco.mjtState.mjSTATE_FULLPHYSICS
OBJECTS = {
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "dof": mujoco.mjtObj.mjOBJ_JOINT,  # one degree of freedom each
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
}


def nominal(env) -> mujoco.MjModel:
    return compile_model(
        env.robot.model_file, env.robot.model_sha256, None, timestep=env.spec.timestep
    )


def arrays(env) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.split(".")[0] for name in env.spec.task_names))


def model_bytes(model: mujoco.MjModel) -> bytes:
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def write_task(model: mujoco.MjModel, names, task) -> None:
    """Element by element, found by the names of the factors."""
    for name, factor in zip(names, task, strict=True):
        array, element, *column = name.split(".")
        index = mujoco.mj_name2id(model, OBJECTS[array.split("_")[0]], element)
        getattr(model, array)[(index, *map(int, column))] *= factor


def actions(env, steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    """Full torque one way or the other, or none."""
    shape = (steps, num_envs, env.spec.act_dim)
    return np.random.default_rng(seed).uniform(-1, 1, shape).round().astype(np.float64)


def trajectory(env, tasks, states, commands, num_threads=1) -> np.ndarray:
    """States after every step, [step, env, state]; nothing ends."""
    with closing(env.physics(num_threads)) as physics:
        path = []
        for command in commands:
            states = physics.step(states, command, tasks, np.ones(len(tasks), bool))
            path.append(states)
        return np.stack(path)


@pytest.fixture(
    params=["walker-params/smac-v1", "walker-params/macaw-v1", "hopper-params/oyster-v1"]
)
def pair(request, monkeypatch):
    """An id, and gymnasium's own environment of that robot and time step."""
    # Importing it needs imageio, which only its rendering uses.
    monkeypatch.setitem(sys.modules, "imageio", ModuleType("imageio"))
    ours = make(request.param)
    theirs = gymnasium.make(
        GYMNASIUM[ours.robot.family], xml_file=ours.robot.model_file, frame_skip=4
    ).unwrapped
    theirs.model.opt.timestep = ours.spec.timestep
    yield ours, theirs
    theirs.close()


def test_the_model_is_the_one_gymnasium_compiles(pair):
    ours, theirs = pair
    assert model_bytes(nominal(ours)) == model_bytes(theirs.model)


def test_equals_gymnasium_with_the_task_in_its_model_and_zeroed_warm_start(pair):
    ours, theirs = pair
    index, num_joints = 3, len(ours.robot.joints)
    task = ours.tasks[[index]]
    write_task(theirs.model, ours.spec.task_names, task[0])
    theirs.reset()
    ended = False
    with closing(VectorEnv(ours, task, seed=5)) as vector:
        vector.reset()
        start = vector.states[0]
        theirs.set_state(start[1 : 1 + num_joints], start[1 + num_joints :])
        for action in actions(ours, 200, 1):
            theirs.data.qacc_warmstart[:] = 0
            obs, reward, terminated, _, info = theirs.step(action[0])
            step = vector.step(action)
            np.testing.assert_array_equal(step.obs[0], obs.astype(np.float32))
            # Theirs has no bonus on the step that ends the episode.
            bonus = 1.0 - info["reward_survive"]
            assert step.reward[0] == pytest.approx(reward + bonus, rel=1e-6)
            assert step.terminated[0] == terminated
            if terminated:
                ended = True
                break
    assert ended


@pytest.mark.parametrize("env_id", [f"{family}/nodone-v1" for family in FAMILIES])
def test_a_batch_of_tasks_equals_each_alone_and_a_loop_of_mj_step(env_id):
    env = make(env_id)
    tasks, commands = env.tasks[:5], actions(env, 60, 5)
    states = initial_states(env, seed=1, num_envs=5, episode=0)
    batch = trajectory(env, tasks, states, commands)
    for num_threads in (2, 3):
        np.testing.assert_array_equal(batch, trajectory(env, tasks, states, commands, num_threads))
    for index in range(5):
        one = slice(index, index + 1)
        alone = trajectory(env, tasks[one], states[one], commands[:, one])
        np.testing.assert_array_equal(batch[:, one], alone)
    order = np.array([3, 0, 4, 2, 1])
    permuted = trajectory(env, tasks[order], states[order], commands[:, order], 2)
    np.testing.assert_array_equal(batch[:, order], permuted)
    for index in range(5):
        end = mj_step_loop(env, tasks[index], states[index], commands[:, index])
        np.testing.assert_array_equal(batch[-1, index], end)


def mj_step_loop(env, task, state, commands) -> np.ndarray:
    spec = mujoco.MjSpec.from_string(
        mujoco_physics._asset(env.robot.model_file, env.robot.model_sha256)
    )
    model = spec.compile()
    model.opt.timestep = env.spec.timestep
    write_task(model, env.spec.task_names, task)
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, state, FULL)
    for command in commands:
        data.qacc_warmstart[:] = 0
        data.ctrl[:] = command
        for _ in range(4):
            mujoco.mj_step(model, data)
    end = np.zeros_like(state)
    mujoco.mj_getState(model, data, end, FULL)
    return end


@pytest.mark.parametrize("env_id", TASKS)
def test_the_same_task_twice_is_the_same_model_and_trajectory(env_id):
    env = make(env_id)
    models = scaled_models(nominal(env), arrays(env))
    assert models(env.tasks[0]) is models(env.tasks[0].copy())
    assert models(env.tasks[0]) is not models(env.tasks[1])
    states = initial_states(env, seed=0, num_envs=2, episode=0)
    states[1] = states[0]
    same = env.tasks[[4, 4]]
    commands = np.repeat(actions(env, 30, 1), 2, axis=1)
    both = trajectory(env, same, states, commands)
    np.testing.assert_array_equal(both[:, 0], both[:, 1])
    # One simulator that went through other tasks in between.
    with closing(env.physics(1)) as physics:
        active = np.ones(2, bool)
        first = physics.step(states, commands[0], same, active)
        physics.step(states, commands[0], env.tasks[:2], active)
        np.testing.assert_array_equal(physics.step(states, commands[0], same, active), first)
    np.testing.assert_array_equal(first, both[0])


@pytest.mark.parametrize("env_id", TASKS)
def test_a_task_changes_its_arrays_only_and_never_the_nominal_model(env_id):
    env = make(env_id)
    model = nominal(env)
    before = model_bytes(model)
    scaled = scaled_models(model, arrays(env))(env.tasks[0])
    expected = compile_model.__wrapped__(
        env.robot.model_file, env.robot.model_sha256, None, timestep=env.spec.timestep
    )
    write_task(expected, env.spec.task_names, env.tasks[0])
    assert model_bytes(scaled) == model_bytes(expected)
    for array in arrays(env):
        assert not np.array_equal(getattr(scaled, array), getattr(model, array))
        getattr(scaled, array)[:] = getattr(model, array)
    # No mj_setConst: what the compiler derived from masses and inertias is still nominal.
    assert model_bytes(scaled) == before
    states = initial_states(env, seed=0, num_envs=3, episode=0)
    trajectory(env, env.tasks[:3], states, actions(env, 5, 3), 2)
    assert nominal(env) is model
    assert model_bytes(model) == before


def test_more_tasks_than_models_are_kept(monkeypatch):
    env = make("hopper-params/oyster-v1")
    states, commands = initial_states(env, seed=0, num_envs=5, episode=0), actions(env, 3, 5)
    expected = trajectory(env, env.tasks[:5], states, commands)
    monkeypatch.setattr(mujoco_physics, "MAX_MODELS", 2)
    np.testing.assert_array_equal(trajectory(env, env.tasks[:5], states, commands), expected)


def acting(env) -> set[str]:
    """Factors of which 1.7 changes a trajectory in which all parts of the body touch the floor;
    the others are 1."""
    names = env.spec.task_names
    tasks = np.concatenate([np.ones((1, len(names))), np.ones((len(names),) * 2)])
    tasks[1:] += 0.7 * np.eye(len(names))
    states = np.repeat(initial_states(env, seed=0, num_envs=1, episode=0), len(tasks), axis=0)
    commands = np.repeat(actions(env, 200, 1, seed=2), len(tasks), axis=1)
    path = trajectory(env, tasks, states, commands, 2)
    return {
        name for row, name in enumerate(names) if not np.array_equal(path[:, 0], path[:, 1 + row])
    }


@pytest.mark.parametrize(
    ("env_id", "dead"),
    [
        ("walker-params/nodone-v1", 37),
        ("hopper-params/nodone-v1", 25),
        ("walker-params/corro-v1", 17),
    ],
)
def test_which_factors_act(env_id, dead):
    env = make(env_id)
    expected = {f"body_mass.{body}" for body in env.robot.bodies[1:]}
    # The model moves in the plane: of three principal moments, that about y counts.
    expected |= {f"body_inertia.{body}.1" for body in env.robot.bodies[1:]}
    expected |= {f"dof_damping.{joint}" for joint in env.robot.joints[3:]}
    # Contacts have no torsional and no rolling friction.
    expected |= {f"geom_friction.{geom}.0" for geom in env.robot.geoms}
    expected &= set(env.spec.task_names)
    assert acting(env) == expected
    assert len(env.spec.task_names) - len(expected) == dead


def test_the_friction_of_a_contact_is_the_larger_one():
    env = make("walker-params/nodone-v1")
    names = env.spec.task_names
    feet = [names.index(f"geom_friction.{foot}_geom.0") for foot in ("foot", "foot_left")]
    floor = names.index("geom_friction.floor.0")
    task = np.ones((1, len(names)))
    task[0, feet] = [0.7 / 0.9 / 2, 0.7 / 1.9 / 2]  # half of the floor's .7
    lower = task.copy()
    lower[0, feet] /= 1.5
    slippery = task.copy()
    slippery[0, floor] /= 1.5
    states, commands = initial_states(env, seed=0, num_envs=1, episode=0), actions(env, 10, 1)
    path, same, other = (trajectory(env, one, states, commands) for one in (task, lower, slippery))
    np.testing.assert_array_equal(path, same)
    assert not np.array_equal(path, other)
