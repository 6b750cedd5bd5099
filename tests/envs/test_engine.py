"""VectorEnv: equal to a plain simulation bit for bit, and independent of how it is run."""

import hashlib
import os
from contextlib import closing

import gymnasium
import mujoco
import numpy as np
import pytest
from jaxtyping import Bool, Float64

from omrl.envs import mujoco_physics
from omrl.envs.base import Physics, SimulationError
from omrl.envs.engine import VectorEnv, advance, available_cpus, initial_states
from omrl.envs.half_cheetah import MODEL_FILE, MODEL_SHA256, TOTAL_MASS
from omrl.envs.mujoco_physics import compile_model
from omrl.envs.point_robot import PointPhysics, PointRobot
from omrl.envs.registry import make
from omrl.errors import InputError

VEL = make("cheetah-vel/macaw-v1")
POINT = make("point-robot/oyster-v1")
TASKS = VEL.tasks[:6]


def actions(steps: int, num_envs: int = 6, seed: int = 0) -> np.ndarray:
    """More than full torque, so that clipping is always part of the test."""
    return np.random.default_rng(seed).uniform(-1.3, 1.3, (steps, num_envs, 6)).astype(np.float32)


def run(tasks, commands, *, seed=3, num_threads=None, episode=0):
    """Observations (with the first), rewards and states of one episode."""
    with closing(VectorEnv(VEL, tasks, seed=seed, num_threads=num_threads)) as vector:
        obs, rewards = [vector.reset(episode)], []
        for action in commands:
            step = vector.step(action)
            obs.append(step.obs)
            rewards.append(step.reward)
        return np.stack(obs), np.stack(rewards), vector.states


def test_equals_a_loop_of_mj_step():
    commands = actions(120)
    _, _, states = run(TASKS, commands)
    model = compile_model(MODEL_FILE, MODEL_SHA256, TOTAL_MASS)
    full = mujoco.mjtState.mjSTATE_FULLPHYSICS
    for index, start in enumerate(initial_states(VEL, seed=3, num_envs=6, episode=0)):
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, start, full)
        for action in np.clip(commands[:, index], -1, 1):
            data.qacc_warmstart[:] = 0
            data.ctrl[:] = action
            for _ in range(5):
                mujoco.mj_step(model, data)
        end = np.zeros(19)
        mujoco.mj_getState(model, data, end, full)
        np.testing.assert_array_equal(states[index], end)


def test_threads_do_not_change_results():
    commands = actions(40)
    alone = run(TASKS, commands, num_threads=1)
    for num_threads in (2, 5):
        for ours, theirs in zip(run(TASKS, commands, num_threads=num_threads), alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_number_of_environments_does_not_change_results():
    commands = actions(40)
    many = run(TASKS, commands)
    few = run(TASKS[:2], commands[:, :2])
    np.testing.assert_array_equal(many[0][:, :2], few[0])
    np.testing.assert_array_equal(many[1][:, :2], few[1])


def test_order_does_not_change_results():
    states = initial_states(VEL, seed=0, num_envs=6, episode=0)
    order = np.array([4, 2, 0, 5, 1, 3])
    command = actions(1)[0]
    active = np.ones(6, bool)
    with closing(VEL.physics(2)) as physics:
        straight = advance(VEL, physics, states, command, TASKS, active)
        permuted = advance(VEL, physics, states[order], command[order], TASKS[order], active)
    for name, field in straight._asdict().items():
        np.testing.assert_array_equal(field[order], getattr(permuted, name))


def test_step_is_a_function_of_the_state_without_memory():
    commands = actions(30)
    _, _, states = run(TASKS, commands[:20])
    _, _, direct = run(TASKS, commands)
    with closing(VEL.physics(1)) as physics:
        for action in commands[20:]:
            clipped = np.clip(action, -1, 1).astype(np.float64)
            states = physics.step(states, clipped, TASKS, np.ones(6, bool))
    np.testing.assert_array_equal(states, direct)


def test_initial_states_depend_on_seed_index_and_episode_only():
    base = initial_states(VEL, seed=1, num_envs=3, episode=0)
    np.testing.assert_array_equal(base, initial_states(VEL, seed=1, num_envs=5, episode=0)[:3])
    states = [base, initial_states(VEL, seed=1, num_envs=3, episode=1)]
    states.append(initial_states(VEL, seed=2, num_envs=3, episode=0))
    rows = np.concatenate(states)[:, 1:]
    assert len(np.unique(rows, axis=0)) == 9
    assert len(np.unique(rows)) == rows.size
    with pytest.raises(InputError, match="seed and episode must be 0 or more, not -1 and 0"):
        initial_states(VEL, seed=-1, num_envs=1, episode=0)


def test_episodes_can_be_replayed_in_any_order():
    with closing(VectorEnv(VEL, TASKS, seed=0)) as vector:
        first = vector.reset(episode=0)
        second = vector.reset(episode=1)
        np.testing.assert_array_equal(vector.reset(episode=0), first)
        assert not np.array_equal(first, second)


def test_actions_are_clipped_and_rounded_to_float32():
    command = np.full((6, 6), 0.1) + 1e-12
    exact = run(TASKS, command[None])
    rounded = run(TASKS, command[None].astype(np.float32))
    np.testing.assert_array_equal(exact[0], rounded[0])
    full, beyond = run(TASKS, np.full((1, 6, 6), 1.0)), run(TASKS, np.full((1, 6, 6), 50.0))
    np.testing.assert_array_equal(full[1], beyond[1])
    with closing(VectorEnv(VEL, TASKS, seed=0)) as vector:
        vector.reset()
        cost = vector.step(np.full((6, 6), 50.0)).terms[:, 1]
    np.testing.assert_allclose(cost, 0.3, rtol=1e-12)  # .05 * 6 * 1^2


def test_dtypes_and_horizon():
    with closing(VectorEnv(POINT, POINT.tasks[:3], seed=0)) as vector:
        vector.reset()
        for count in range(1, 21):
            step = vector.step(np.zeros((3, 2)))
            assert step.truncated.tolist() == [count == 20] * 3
            assert vector.alive.tolist() == [count < 20] * 3
        assert (step.obs.dtype, step.reward.dtype) == (np.float32, np.float32)
        assert (step.terms.dtype, vector.states.dtype) == (np.float64, np.float64)
        with pytest.raises(RuntimeError, match="call reset"):
            vector.step(np.zeros((3, 2)))
        vector.reset(1)
        assert vector.alive.all()
        vector.step(np.zeros((3, 2)))


class Wall(PointRobot):
    """A point robot whose MDP ends where x > .5."""

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        return state[..., 0] > 0.5


def test_finished_environments_keep_their_state_and_earn_nothing():
    env = Wall(POINT.spec, POINT.task_table, POINT.split_table)
    east = np.array([[1.0, 0.0], [0.0, 0.0]])
    with closing(VectorEnv(env, POINT.tasks[:2], seed=4)) as vector:
        start = vector.reset()
        assert (start[:, 0] < 0.5).all()
        steps = [vector.step(east) for _ in range(20)]
        ended = next(n for n, step in enumerate(steps) if step.terminated[0])
        assert ended == int(np.ceil((0.5 - start[0, 0]) / 0.1)) - 1
        assert steps[ended].reward[0] < 0
        for step in steps[ended + 1 :]:
            assert step.terminated.tolist() == [True, False]
            assert step.reward[0] == 0.0
            assert not step.terms[0].any()
            np.testing.assert_array_equal(step.obs[0], steps[ended].obs[0])
            assert step.reward[1] < 0
        assert steps[-1].truncated.tolist() == [False, True]
        assert not vector.alive.any()


def test_a_finished_environment_is_not_simulated():
    states = initial_states(VEL, seed=0, num_envs=2, episode=0)
    states[0, 10:] = 1e12  # would diverge
    command = np.zeros((2, 6))
    with closing(VEL.physics(1)) as physics:
        after = physics.step(states, command, TASKS[:2], np.array([False, True]))
        np.testing.assert_array_equal(after[0], states[0])
        assert after[1, 0] == pytest.approx(0.05)
        nothing = physics.step(states, command, TASKS[:2], np.zeros(2, bool))
        np.testing.assert_array_equal(nothing, states)


# --- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_action_that_is_not_finite(bad):
    command = np.zeros((6, 6))
    command[4, 2] = bad
    with closing(VectorEnv(VEL, TASKS, seed=0)) as vector:
        vector.reset()
        before = vector.states
        with pytest.raises(ValueError, match=f"action of environment 4 is not finite.*{bad}"):
            vector.step(command)
        np.testing.assert_array_equal(vector.states, before)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_divergence_raises_and_leaves_no_trace(num_threads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    states = initial_states(VEL, seed=0, num_envs=3, episode=0)
    wild = states.copy()
    wild[1, 10:] = 1e12
    command, active = np.zeros((3, 6)), np.ones(3, bool)
    with closing(VEL.physics(num_threads)) as physics:
        expected = physics.step(states, command, TASKS[:3], active)
        message = r"diverged in 1 of 3 environments, first in number 1 at 0.000 s.*1e\+12"
        with pytest.raises(SimulationError, match=message):
            physics.step(wild, command, TASKS[:3], active)
        # The scratch memory that met the divergence serves the next step as if nothing happened.
        np.testing.assert_array_equal(physics.step(states, command, TASKS[:3], active), expected)
        wild[1, 10:] = np.nan
        with pytest.raises(ValueError, match="must be finite; that of environment 1 is not"):
            physics.step(wild, command, TASKS[:3], active)
        with pytest.raises(ValueError, match=r"need actions of shape \(3, 6\), not \(3, 5\)"):
            physics.step(states, command[:, :5], TASKS[:3], active)
    assert os.listdir(tmp_path) == []  # no MUJOCO_LOG.TXT


def test_wrong_shapes_and_calls():
    with pytest.raises(InputError, match=r"must have shape \(at least 1, 1\), not \(6, 2\)"):
        VectorEnv(VEL, np.zeros((6, 2)), seed=0)
    with pytest.raises(InputError, match="tasks of cheetah-vel/macaw-v1 must be finite"):
        VectorEnv(VEL, np.full((1, 1), np.nan), seed=0)
    with pytest.raises(InputError, match="num_threads must be 1 or more, not 0"):
        VectorEnv(VEL, TASKS, seed=0, num_threads=0)
    with closing(VectorEnv(VEL, TASKS, seed=0)) as vector:
        with pytest.raises(RuntimeError, match="call reset before the first step"):
            vector.step(np.zeros((6, 6)))
        vector.reset()
        with pytest.raises(ValueError, match=r"must have shape \(6, 6\), not \(1, 6\)"):
            vector.step(np.zeros((1, 6)))


# --- Threads and the model ---------------------------------------------------------------------


def test_threads_default_to_the_cores_and_never_exceed_the_batch(monkeypatch):
    asked = []

    def physics(self, num_threads: int) -> Physics:
        asked.append(num_threads)
        return PointPhysics()

    monkeypatch.setattr(PointRobot, "physics", physics)
    monkeypatch.setattr("omrl.envs.engine.available_cpus", lambda: 16)
    VectorEnv(POINT, POINT.tasks, seed=0)
    VectorEnv(POINT, POINT.tasks[:3], seed=0)
    VectorEnv(POINT, POINT.tasks, seed=0, num_threads=7)
    assert asked == [16, 3, 7]


def test_available_cpus_is_what_this_process_may_use():
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)


def model_digest(model: mujoco.MjModel) -> str:
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return hashlib.sha256(buffer).hexdigest()


def test_the_shared_model_is_never_written_to():
    model = compile_model(MODEL_FILE, MODEL_SHA256, TOTAL_MASS)
    before = model_digest(model)
    run(TASKS, actions(20))
    assert model_digest(model) == before
    assert compile_model(MODEL_FILE, MODEL_SHA256, TOTAL_MASS) is model


def test_the_model_equals_the_one_gymnasium_compiles():
    half_cheetah = gymnasium.make("HalfCheetah-v5").unwrapped
    model = compile_model(MODEL_FILE, MODEL_SHA256, TOTAL_MASS)
    assert model.body_mass.sum() == pytest.approx(14.0)
    compared = 0
    for ours, theirs in ((model, half_cheetah.model), (model.opt, half_cheetah.model.opt)):
        for name in dir(ours):
            value = None if name.startswith("_") else getattr(ours, name)
            if isinstance(value, np.ndarray | int | float):
                np.testing.assert_array_equal(value, getattr(theirs, name), err_msg=name)
                compared += 1
    assert compared > 300


def test_another_model_file_is_refused():
    mujoco_physics.compile_model.cache_clear()
    with pytest.raises(InputError, match=r"half_cheetah.xml has sha256 11797a5d69e8.*000000000000"):
        compile_model(MODEL_FILE, "0" * 64, TOTAL_MASS)
