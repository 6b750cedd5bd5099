"""Relabelled rewards against the simulator; other environments, views and rounding."""

import re
from contextlib import closing

import numpy as np
import pytest

from omrl.data import validate
from omrl.data.borrow import Borrowing
from omrl.data.relabel import relabel, rewards, under_task
from omrl.data.slice import Slice
from omrl.data.store import create
from omrl.envs import registry
from omrl.envs.engine import VectorEnv
from omrl.errors import InputError

STEPS = 8


def play(env, task):
    """An episode of task parameters `task` from one initial state with one list of actions."""
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (STEPS, 1, env.spec.act_dim)).astype(np.float32)
    with closing(VectorEnv(env, task[None], seed=3, num_threads=1)) as vector:
        obs, steps, states = [vector.reset()], [], []
        for action in actions:
            steps.append(vector.step(action))
            states.append(vector.states[0])
            obs.append(steps[-1].obs)
    terms = np.stack([step.terms[0] for step in steps])
    return actions[:, 0], np.concatenate(obs), terms, np.stack(states)


def record(path, env, dtype="float32"):
    """A dataset of one simulated episode of the first task of `env`."""
    task = env.tasks[0]
    action, obs, terms, _ = play(env, task)
    last = np.arange(STEPS) == STEPS - 1
    writer = create(path, env, command="test", dtype=dtype)
    writer.write_task(
        0,
        obs=obs,
        action=action,
        reward=env.reward(terms, action.astype(np.float64), task),
        terms=terms,
        terminated=np.zeros(STEPS, bool),
        truncated=last,
        episode_start=np.array([0, STEPS]),
        behaviour={},
    )
    return writer.finish(), terms


def others(env, terms):
    """Other tasks: of the list, new, and with the goal where the episode went."""
    tasks = [env.tasks[-1], env.sample_tasks(np.random.default_rng(5), 1)[0]]
    if env.spec.task_names == ("goal_x", "goal_y"):
        tasks.append(terms[STEPS // 2, :2])
    return tasks


@pytest.mark.parametrize("env_id", registry.ids())
def test_relabelled_rewards_are_those_of_the_simulator(env_id, tmp_path):
    env = registry.make(env_id)
    dataset, terms = record(tmp_path / "data", env)
    if env.task_changes_physics:
        with pytest.raises(InputError, match="changes the physics"):
            rewards(dataset, env, 0, env.tasks[1])
        np.testing.assert_allclose(rewards(dataset, env, 0), dataset.task(0).reward, rtol=1e-6)
        return
    for task in others(env, terms):
        action, _, replayed, _ = play(env, task)
        np.testing.assert_array_equal(replayed, terms)  # The task changed nothing but the reward.
        simulated = env.reward(replayed, action.astype(np.float64), task)
        np.testing.assert_allclose(rewards(dataset, env, 0, task), simulated, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("sparse-point-robot/oyster-v1", "sparse-point-robot/oyster-dense-v1"),
        ("gridnav/borel-v1", "gridnav/borel-sparse-v1"),
    ],
)
def test_rewards_of_another_environment_of_the_same_transitions(source, target, tmp_path):
    dataset, terms = record(tmp_path / "data", registry.make(source))
    env = registry.make(target)
    new = relabel(dataset, tmp_path / "new", env, command="test")
    assert (new.env_id, new.manifest.validation["reward"]) == (target, "checked")
    expected = env.reward(
        terms, dataset.task(0).action.astype(np.float64), dataset.task(0).parameters
    )
    np.testing.assert_array_equal(new.task(0).reward, expected.astype(np.float32))
    assert not np.array_equal(new.task(0).reward, dataset.task(0).reward)
    assert new.manifest.record(0).behaviour["source"] == {}


@pytest.mark.parametrize(
    ("source", "target", "field"),
    [
        ("cheetah-vel/macaw-v1", "cheetah-dir/macaw-v1", "task_names"),
        ("cheetah-vel/macaw-v1", "cheetah-vel/nopos-v1", "obs_dim, obs_names, position_source"),
        ("ant-dir/macaw-v1", "ant-dir/fwd-v1", "termination"),
        ("walker-params/macaw-v1", "walker-params/smac-v1", "dt, timestep"),
        ("sparse-point-robot/oyster-v1", "sparse-point-robot/borel-v1", "horizon"),
    ],
)
def test_an_environment_of_other_transitions_is_refused(source, target, field, tmp_path):
    dataset, _ = record(tmp_path / "data", registry.make(source))
    for use in (
        lambda env: rewards(dataset, env, 0),
        lambda env: relabel(dataset, tmp_path / "new", env, command="test"),
    ):
        with pytest.raises(InputError, match=re.escape(f"has other transitions ({field})")):
            use(registry.make(target))


def test_a_slice_that_cuts_episodes_is_refused(dataset, env, tmp_path):
    for name in ("first-6-transitions", "last-6-transitions"):
        view = dataset.view(Slice.parse(name))
        with pytest.raises(InputError, match="its slice cuts an episode of task 0, and only whole"):
            relabel(view, tmp_path / "new", env, borrowing=Borrowing(per_task=1), command="test")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([np.nan], "must be finite"),
        ([0.1, 0.2], "must have shape"),
        (["near"], "must be numbers"),
    ],
)
def test_parameters_of_no_task(dataset, env, parameters, message):
    with pytest.raises(InputError, match=message):
        rewards(dataset, env, 0, parameters)
    with pytest.raises(InputError, match="no task 3; it holds 0, 1, 2"):
        rewards(dataset, env, 3, [0.5])


# --- A view ---


@pytest.mark.parametrize("name", ["all", "every-3", "last-2"])
def test_a_view_has_the_rewards_of_the_other_task(dataset, env, name):
    view = dataset.view(Slice.parse(name))
    own, other = view.task(1), under_task(view, env, 1, [0.25])
    np.testing.assert_array_equal(other.reward, -np.abs(own.terms[:, 0] - np.float32(0.25)))
    np.testing.assert_array_equal(other.reward, rewards(view, env, 1, [0.25]).astype(np.float32))
    np.testing.assert_array_equal(other.obs, own.obs)
    assert other.columns["obs"] is not None
    assert isinstance(other.columns["obs"], np.memmap)
    np.testing.assert_allclose(
        other.returns, validate.episode_returns(other.reward, own.episode_start)
    )
    assert other.record.parameters == (0.25,)
    assert other.record.return_mean == pytest.approx(
        under_task(dataset, env, 1, [0.25]).returns.mean()
    )


def test_data_without_terms(env, columns, tmp_path):
    writer = create(tmp_path / "bare", env, command="test")
    for index, task in columns.items():
        task.pop("terms")
        writer.write_task(index, behaviour={}, **task)
    bare = writer.finish()
    for use in (
        lambda: rewards(bare, env, 1),
        lambda: relabel(
            bare, tmp_path / "new", env, borrowing=Borrowing(per_task=1), command="test"
        ),
    ):
        with pytest.raises(
            InputError, match=r"bare: task [01] has no terms, from which test-point"
        ):
            use()


# --- Rounding ---


def test_sparse_rewards_that_half_precision_leaves_in_doubt_are_counted(tmp_path):
    env = registry.make("sparse-point-robot/oyster-v1").with_tasks(
        [[1.0, 0.0], [0.0, 1.0]], {"train": (0, 1)}
    )
    # One position within half a unit in the last place (0.00024) of the border of task 0's goal, at
    # x = 0.8; the others not.
    x = np.array([0.79985, 0.75, 0.85, 0.2], np.float32)
    terms = np.stack([x, np.zeros(4, np.float32)], axis=1)
    counts = {}
    for dtype in ("float32", "float16"):
        writer = create(tmp_path / dtype, env, command="test", dtype=dtype)
        for index, task in enumerate(env.tasks):
            stored = terms.astype(dtype).astype(np.float64)
            action = np.zeros((4, 2))
            writer.write_task(
                index,
                obs=np.zeros((5, 2)),
                action=action,
                reward=env.reward(stored, action, task),
                terms=stored,
                terminated=np.zeros(4, bool),
                truncated=np.arange(4) == 3,
                episode_start=np.array([0, 4]),
                behaviour={},
            )
        new = relabel(
            writer.finish(),
            tmp_path / f"new-{dtype}",
            env,
            borrowing=Borrowing(per_task=1),
            command="test",
        )
        counts[dtype] = [
            task.behaviour["relabelled"]["rounded_at_a_border"] for task in new.manifest.tasks
        ]
    assert counts == {"float32": [0, 0], "float16": [1, 0]}
