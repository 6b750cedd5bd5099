"""What holds for every environment: determinism, dtypes, Gymnasium's faces, and bad input."""

import re
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from omrl.envs.base import SimulationError
from omrl.envs.engine import VectorEnv, advance, initial_states
from omrl.envs.gym_hook import gymnasium_id
from omrl.envs.registry import ids, make
from omrl.errors import InputError

KINDS = tuple(
    {
        (env_id.split("/")[0], make(env_id).spec.obs_dim): env_id for env_id in reversed(ids())
    }.values()
)
"""The first id of each family, and of each of its observations."""
MUJOCO = tuple(env_id for env_id in KINDS if make(env_id).spec.engine == "mujoco")


def commands(env, steps, num_envs, seed=0):
    """Beyond the box, so that clipping is part of every test."""
    shape = (steps, num_envs, env.spec.act_dim)
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape).astype(np.float32)


def tasks_of(env, num):
    return env.tasks[np.arange(num) % len(env.tasks)]


def starts(env, num):
    return initial_states(env, seed=0, num_envs=num, episode=0, tasks=tasks_of(env, num))


def assert_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


# --- Determinism and dtypes --------------------------------------------------------------------


def episode(env, num_envs, num_threads, seed=7, steps=12):
    """All that can be seen of the start of an episode, [time, env, ...]."""
    every_command = commands(env, steps, 5)
    with closing(
        VectorEnv(env, tasks_of(env, num_envs), seed=seed, num_threads=num_threads)
    ) as vector:
        obs = [vector.reset(episode=2)]
        after = [vector.step(command[:num_envs]) for command in every_command]
        columns = [np.stack(column) for column in zip(*after, strict=True)]
        return [np.stack([*obs, *columns[0]]), *columns[1:], vector.states[None]]


@pytest.mark.parametrize("env_id", KINDS)
def test_a_seed_gives_one_result_for_any_batch_size_and_number_of_threads(env_id):
    env = make(env_id)
    first = episode(env, 5, num_threads=1)
    for num_threads in (1, 2, 4):
        assert_equal(episode(env, 5, num_threads), first)
    for num_envs in (1, 3):
        assert_equal(episode(env, num_envs, 2), [column[:, :num_envs] for column in first])
    if "U(" in env.spec.reset:
        assert not np.array_equal(episode(env, 5, 1, seed=8)[0], first[0])


@pytest.mark.parametrize("env_id", KINDS)
def test_a_seed_gives_one_result_of_the_gymnasium_vector_too(env_id):
    def run(num_envs, num_threads):
        vector = gymnasium.make_vec(
            gymnasium_id(env_id), num_envs=num_envs, num_threads=num_threads, max_episode_steps=4
        )
        seen = [vector.reset(seed=3)[0]]
        seen += [vector.step(c[:num_envs])[0] for c in commands(make(env_id), 10, 4)]
        vector.close()
        return np.stack(seen)

    first = run(4, 1)
    np.testing.assert_array_equal(run(4, 3), first)
    np.testing.assert_array_equal(run(2, 2), first[:, :2])


@pytest.mark.parametrize("env_id", KINDS)
def test_physics_is_float64_and_what_agents_see_float32(env_id):
    env = make(env_id)
    with closing(VectorEnv(env, tasks_of(env, 2), seed=0)) as vector:
        assert vector.reset().dtype == np.float32
        step = vector.step(commands(env, 1, 2)[0])
        assert (step.obs.dtype, step.reward.dtype) == (np.float32, np.float32)
        assert (vector.states.dtype, step.terms.dtype) == (np.float64, np.float64)
        # Both are exact functions of the float64 state; nothing went through float32 before.
        np.testing.assert_array_equal(step.obs, env.observe(vector.states))


# --- Gymnasium ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ids())
def test_the_gymnasium_id_has_one_slash_and_ends_with_the_version(env_id):
    name = gymnasium_id(env_id)
    assert re.fullmatch(r"omrl/[a-z-]+\.[a-z0-9-]+-v\d+", name)
    spec = gymnasium.spec(name)
    assert (spec.namespace, spec.version) == ("omrl", int(env_id.rsplit("-v", 1)[1]))
    assert spec.max_episode_steps == make(env_id).spec.horizon


@pytest.mark.parametrize("mode", [None, "sync"])
@pytest.mark.parametrize("env_id", ids())
def test_make_vec_and_what_info_carries(env_id, mode):
    env = make(env_id)
    task = len(env.tasks) - 1
    vector = gymnasium.make_vec(
        gymnasium_id(env_id), num_envs=2, vectorization_mode=mode, task=task
    )
    vector.reset(seed=0)
    action = np.zeros((2, env.spec.act_dim), np.float32)
    obs, reward, _, _, infos = vector.step(action)
    assert obs in vector.observation_space
    np.testing.assert_array_equal(infos["task"], env.tasks[[task, task]])
    np.testing.assert_array_equal(infos["task_index"], [task, task])
    terms = np.stack([infos["terms"][name] for name in env.spec.term_names], axis=-1)
    again = env.reward(terms, action.astype(np.float64), infos["task"])
    np.testing.assert_array_equal(again.astype(np.float32), reward)
    vector.close()


@pytest.mark.parametrize("env_id", KINDS)
def test_an_ended_environment_is_reset_in_the_next_step(env_id):
    env, name = make(env_id), gymnasium_id(env_id)
    vector = gymnasium.make_vec(name, num_envs=1, task=1, max_episode_steps=3)
    single = gymnasium.make(name, task=1, max_episode_steps=3)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    obs, first = vector.reset(seed=5)[0], single.reset(seed=5)[0]
    np.testing.assert_array_equal(obs[0], first)
    for command in commands(env, 3, 1):
        obs, _, _, truncated, infos = vector.step(command)
        np.testing.assert_array_equal(obs[0], single.step(command[0])[0])  # the last one, too
        assert "final_obs" not in infos
    assert truncated.all()
    # The action of the step that resets is not read.
    ignored = np.full((1, env.spec.act_dim), np.nan, np.float32)
    obs, reward, terminated, truncated, infos = vector.step(ignored)
    np.testing.assert_array_equal(obs[0], single.reset()[0])
    assert (reward[0], terminated[0], truncated[0]) == (0.0, False, False)
    assert "terms" not in infos
    vector.close()
    single.close()


def test_gymnasiums_same_step_mode_has_the_last_observation_in_info():
    name = "omrl/point-robot.oyster-v1"
    options = {"num_envs": 2, "task": 0, "max_episode_steps": 2}
    same = {"autoreset_mode": AutoresetMode.SAME_STEP}
    vector = gymnasium.make_vec(name, vectorization_mode="sync", vector_kwargs=same, **options)
    ours = gymnasium.make_vec(name, **options)
    assert data_equivalence(vector.reset(seed=0)[0], ours.reset(seed=0)[0], exact=True)
    east = np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)
    for _ in range(2):
        obs, *_, infos = vector.step(east)
        last = ours.step(east)[0]
    np.testing.assert_array_equal(np.stack(infos["final_obs"]), last)
    np.testing.assert_array_equal(obs, ours.step(east)[0])
    vector.close()
    ours.close()


# --- Bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", KINDS)
def test_actions_outside_the_box_are_clipped(env_id):
    env = make(env_id)
    states, active = starts(env, 3), np.ones(3, bool)
    wild = 4.0 * commands(env, 1, 3)[0]
    with closing(env.physics(1)) as physics:
        outside = advance(env, physics, states, wild, tasks_of(env, 3), active)
        inside = advance(env, physics, states, np.clip(wild, -1, 1), tasks_of(env, 3), active)
    assert_equal(outside, inside)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("env_id", KINDS)
def test_what_is_not_finite_is_refused_with_the_index_of_the_environment(env_id, bad):
    env = make(env_id)
    states, active = starts(env, 4), np.array([0, 1, 1, 1]) > 0
    action = np.zeros((4, env.spec.act_dim))
    states[0], action[0] = np.nan, bad  # not active: neither is read
    with closing(env.physics(2)) as physics:

        def step(states, action):
            return advance(env, physics, states, action, tasks_of(env, 4), active)

        step(states, action)
        for column in range(env.spec.act_dim):
            wrong = action.copy()
            wrong[2, column] = bad
            with pytest.raises(ValueError, match="action of environment 2 is not finite"):
                step(states, wrong)
        for column in range(states.shape[1]):
            wrong = states.copy()
            wrong[3, column] = bad
            with pytest.raises(ValueError, match="must be finite; that of environment 3 is not"):
                step(wrong, action)


@pytest.mark.parametrize("speed", [1e9, 1e12])
@pytest.mark.parametrize("time", [0.0, 1.0])
@pytest.mark.parametrize("env_id", MUJOCO)
def test_a_simulation_that_diverges_raises_where_mujoco_would_reset_it(env_id, time, speed):
    env = make(env_id)
    states, active = starts(env, 3), np.ones(3, bool)
    states[:, 0] = time
    with closing(env.physics(2)) as physics:
        nq, nv = physics.model.nq, physics.model.nv
        states[1, 1 + nq : 1 + nq + nv] = speed
        action = np.zeros((3, env.spec.act_dim))
        with pytest.raises(
            SimulationError, match=f"1 of 3 environments, first in number 1 at {time}"
        ):
            advance(env, physics, states, action, tasks_of(env, 3), active)


@pytest.mark.parametrize("env_id", KINDS)
def test_actions_of_another_shape(env_id):
    env, name = make(env_id), gymnasium_id(env_id)
    dim = env.spec.act_dim
    single, vector = gymnasium.make(name), gymnasium.make_vec(name, num_envs=3)
    ours = VectorEnv(env, tasks_of(env, 3), seed=0)
    single.reset(), vector.reset(), ours.reset()
    for shape in ((dim + 1,), (dim - 1,), (1, dim)):
        with pytest.raises(ValueError, match=rf"must have shape \({dim},\), not"):
            single.unwrapped.step(np.zeros(shape, np.float32))
    for shape in ((3, dim + 1), (1, dim), (4, dim)):
        for many in (vector, ours):
            with pytest.raises(ValueError, match=rf"must have shape \(3, {dim}\), not"):
                many.step(np.zeros(shape, np.float32))
    for env in (single, vector, ours):
        env.close()


@pytest.mark.parametrize("env_id", KINDS)
def test_tasks_of_another_shape_or_family(env_id):
    env = make(env_id)
    size = len(env.spec.task_names)
    others = [make(other).tasks for other in KINDS if len(make(other).spec.task_names) != size]
    for tasks in (*others, np.zeros((0, size)), np.zeros((2, size, 1)), np.zeros(size)):
        with pytest.raises(InputError, match=rf"tasks of {env_id} must have shape"):
            env.check_tasks(tasks)
    for tasks in others:
        with pytest.raises(InputError, match=rf"tasks of {env_id} must have shape"):
            VectorEnv(env, tasks, seed=0)
    wrong = tasks_of(env, 3)
    wrong[1, 0] = np.nan
    with pytest.raises(InputError, match=rf"tasks of {env_id} must be finite"):
        VectorEnv(env, wrong, seed=0)


@pytest.mark.parametrize(
    ("env_id", "tasks", "message"),
    [
        (
            "cheetah-dir/macaw-v1",
            make("cheetah-vel/macaw-v1").tasks,
            "must be of -1, 1, not 0.075 as direction of task 0",
        ),
        (
            "gridnav/borel-v1",
            make("sparse-point-robot/borel-v1").tasks,
            "must be of 0, 1, 2, 3, 4, not .* as goal_x of task 0",
        ),
        ("hopper-params/oyster-v1", np.full((1, 41), -1.0), "must be above 0, not -1"),
    ],
)
def test_tasks_of_the_right_shape_with_values_that_none_has(env_id, tasks, message):
    with pytest.raises(InputError, match=message):
        VectorEnv(make(env_id), tasks, seed=0)


@pytest.mark.parametrize("task", [-1, 10**6, 0.5, True, "0", [0, 1, 2]])
@pytest.mark.parametrize("env_id", KINDS)
def test_a_task_that_is_no_index(env_id, task):
    name = gymnasium_id(env_id)
    num_tasks = len(make(env_id).tasks)
    index = rf"task of {env_id} must be an index from 0 to {num_tasks - 1}, not "
    several = f"task of {env_id}: one environment has one, not 3; for one each, call make_vec"
    single, vector = gymnasium.make(name), gymnasium.make_vec(name, num_envs=2)
    of_single = several if isinstance(task, list) else index
    for env, chosen, message in ((single, task, of_single), (vector, [0, task], index)):
        with pytest.raises(InputError, match=message):
            env.reset(options={"task": chosen})
    single.close()
    vector.close()


def test_tasks_may_be_numpy_integers():
    vector = gymnasium.make_vec("omrl/point-robot.oyster-v1", num_envs=2, task=np.array([4, 2]))
    infos = vector.reset()[1]
    np.testing.assert_array_equal(infos["task_index"], [4, 2])
    again = vector.reset(options={"task": infos["task_index"][::-1]})[1]
    np.testing.assert_array_equal(again["task_index"], [2, 4])
    vector.close()


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_a_task_that_is_no_index_is_refused_at_construction(make):
    with pytest.raises(InputError, match="an index from 0 to 99, not 100"):
        make("omrl/point-robot.oyster-v1", task=100)


@pytest.mark.parametrize("setting", ["num_envs", "max_episode_steps", "num_threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_of_a_vector(setting, value):
    with pytest.raises(InputError, match="must be 1 or more"):
        gymnasium.make_vec("omrl/point-robot.oyster-v1", **{setting: value})


def test_one_seed_for_every_environment():
    vector = gymnasium.make_vec("omrl/point-robot.oyster-v1", num_envs=2)
    with pytest.raises(InputError, match="seed must have 2 numbers, not 3"):
        vector.reset(seed=[1, 2, 3])
    vector.close()


@pytest.mark.parametrize("env_id", ids())
def test_a_mistyped_id_gets_the_nearest(env_id):
    for wrong in (env_id[1:], env_id.replace("/", "."), env_id.replace("-v1", "-v7"), env_id + "x"):
        with pytest.raises(InputError, match=rf"unknown environment {wrong!r}; .*{env_id}"):
            make(wrong)
    name = gymnasium_id(env_id)
    with pytest.raises(gymnasium.error.NameNotFound, match=rf"Did you mean: `{name[5:-3]}"):
        gymnasium.make(name.replace(".", "-"))
    with pytest.raises(gymnasium.error.VersionNotFound, match="`v1`"):
        gymnasium.make(name.replace("-v1", "-v7"))
