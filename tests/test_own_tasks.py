"""Logs of tasks that no list names: the dataset says what its tasks and splits are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tiny_cheetah
from omrl import metatrain
from omrl.envs import registry
from omrl.errors import InputError
from omrl.protocol import EvalConfig

SPEEDS = np.array([[0.1], [0.55], [1.23], [2.7], [4.0]])
OWN = tiny_cheetah.ENV.with_tasks(SPEEDS, {"train": (0, 2, 3, 4), "test": (1,), "late": (3, 4)})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_cheetah.write_data(tmp_path_factory.mktemp("own") / "logs", OWN).path


def config(task_batch: int = 4, **changes):
    tiny = tiny_cheetah.config(steps=2)
    return replace(tiny, algo=replace(tiny.algo, task_batch=task_batch), **changes)


def test_a_run_trains_and_is_evaluated_on_them(data, tmp_path):
    path = tmp_path / "run"
    metatrain.start(config(), data, path, quiet=True, report=lambda text: None)
    trained = metatrain.load_trained(path)
    result = metatrain.evaluate_trained(trained)
    assert result.task_indices.tolist() == [1]
    assert result.task_parameters.tolist() == [[0.55]]
    # Standing still for 200 steps costs the target speed each time.
    np.testing.assert_allclose(result.zero.mean(), -0.55 * 200, rtol=0.1)
    late = metatrain.evaluate_trained(
        trained, config=EvalConfig(split="late", episodes=1, context_size=16)
    )
    assert late.task_parameters.tolist() == [[2.7], [4.0]]


def test_tasks_of_the_list_that_were_not_recorded_are_not_missed(tmp_path):
    listed = tiny_cheetah.ENV
    some = listed.with_tasks(listed.tasks[:8], {"train": (0, 1, 3, 4), "test": (2, 7)})
    data = tiny_cheetah.write_data(tmp_path / "some", some).path
    problem = metatrain.open_problem(config(), data)
    assert problem.train_tasks == (0, 1, 3, 4)
    np.testing.assert_array_equal(problem.env.tasks, listed.tasks)
    assert problem.env.splits["test"] == (2, 7)


def test_tasks_to_train_on_by_their_numbers(data):
    problem = metatrain.open_problem(config(train_tasks=(4, 0, 3), task_batch=3), data)
    assert problem.train_tasks == (4, 0, 3)
    assert metatrain.measure_spec(problem).num_train_tasks == 3
    held_out = config(train_tasks=(4, 0, 1), holdout="test", task_batch=2)
    assert metatrain.open_problem(held_out, data).train_tasks == (4, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_tasks": (0, 9)}, "train_tasks: .* has no task 9; it has 5, from 0 to 4"),
        ({"train_tasks": (0, 1)}, "algo.task_batch is 4; .* has 2 tasks in train_tasks; take"),
        ({"task_batch": 5}, "algo.task_batch is 5; .* has 4 tasks in split 'train'"),
        ({"train_split": "tran"}, "no split 'tran'; the dataset has train, test, late"),
        ({"holdout": "validation"}, "no split 'validation'; the dataset has train, test, late"),
        ({"eval": EvalConfig(tasks=(5,))}, "task 5 is not one of"),
    ],
)
def test_what_the_data_does_not_have(data, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        metatrain.start(config(**changes), data, tmp_path / "run", report=lambda text: None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("tasks", "splits", "message"),
    [
        ([[0.1, 0.2]], {}, r"must have shape \(at least 1, 1\), not \(1, 2\)"),
        (np.zeros((0, 1)), {}, "must have shape"),
        ([[np.nan]], {}, "must be finite"),
        ([[0.1]], {"train": (0, 1)}, "split 'train' has task 1; tasks are 0 to 0"),
        ([[0.1]], {"train": (-1,)}, "split 'train' has task -1"),
        ([["fast"]], {}, "must be numbers"),
        ([[0.1], [0.2]], {"train": (0, 1, 0)}, "split 'train' has a task twice"),
    ],
)
def test_lists_that_are_none(tasks, splits, message):
    with pytest.raises(InputError, match=message):
        tiny_cheetah.ENV.with_tasks(np.array(tasks), splits)


@pytest.mark.parametrize("env_id", registry.ids())
def test_every_environment_takes_a_list(env_id):
    env = registry.make(env_id)
    own = env.with_tasks(env.tasks[:1], {"test": (0,)})
    np.testing.assert_array_equal(own.tasks, env.tasks[:1])
    assert own.splits == {"test": (0,)}
    assert own.spec == env.spec
