"""Training on data that stays on the disk: the bits of training on data on the device."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import tiny_cheetah
from omrl import metatrain
from omrl.chunk import BLOCK, Layout, init_states, place, train_chunk
from omrl.data.device import load
from omrl.data.host import open_host
from omrl.errors import InputError
from omrl.results import EvalResult

SEEDS = np.array([3, 8])
LAYOUT = Layout.of(jax.devices("cpu")[:1], len(SEEDS))


@pytest.fixture(scope="module")
def problem(cheetah_data):
    return metatrain.open_problem(tiny_cheetah.config(), cheetah_data)


@pytest.fixture(scope="module")
def algorithm(problem):
    return metatrain.build(problem.config, metatrain.measure_spec(problem))


def after(algorithm, data, tasks, lengths):
    """States and metrics after chunks of these lengths."""
    (stage,) = algorithm.stages()
    states, rows = init_states(algorithm, LAYOUT, SEEDS), []
    for length in lengths:
        states, metrics, finite = train_chunk(
            stage, LAYOUT, states, data, SEEDS, np.array(tasks), length
        )
        assert np.all(finite)
        rows.append({name: np.asarray(values)[:, :length] for name, values in metrics.items()})
    return states, jax.tree.map(lambda *parts: np.concatenate(parts, 1), *rows)


def test_bits_are_those_of_data_on_the_device(problem, algorithm):
    tasks = problem.train_tasks
    resident = place(load(problem.view, tasks, discount=0.99), LAYOUT.replicated)
    streamed = open_host(problem.view, tasks, discount=0.99, cache=False)
    expected = after(algorithm, resident, tasks, [BLOCK + 5])
    assert expected[0].step.tolist() == [BLOCK + 5] * 2
    for lengths in ([0, BLOCK + 5], [1, BLOCK, 4]):
        found = after(algorithm, streamed, tasks, lengths)
        for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_update_is_told_which_tasks_its_batches_are_of(problem, algorithm):
    def update(state, batches, key, tasks):
        return state._replace(step=state.step + 1), {"told_loss": tasks}

    stage = replace(algorithm.stages()[0], update=update, with_tasks=True)
    resident = place(load(problem.view, problem.train_tasks, discount=0.99), LAYOUT.replicated)
    streamed = open_host(problem.view, problem.train_tasks, discount=0.99, cache=False)
    task_ids = np.array(problem.train_tasks)
    for data in (resident, streamed):
        states = init_states(algorithm, LAYOUT, SEEDS)
        _, metrics, _ = train_chunk(stage, LAYOUT, states, data, SEEDS, task_ids, 3)
        told, task = (np.asarray(metrics[name])[:, :3] for name in ("told_loss", "task"))
        np.testing.assert_array_equal(task_ids[told], task)
        assert len(np.unique(told)) > 5


@pytest.mark.parametrize("placement", ["host", "auto"])
def test_a_whole_run(cheetah_data, cheetah_run, tmp_path, monkeypatch, placement):
    if placement == "auto":
        monkeypatch.setattr(metatrain, "free_memory", lambda device: 1000)
    said = []
    config, path = tiny_cheetah.config(), tmp_path / "run"
    metatrain.start(config, cheetah_data, path, placement=placement, report=said.append, quiet=True)
    assert said[0].startswith("data on the disk; on the device it would take 1 MB")
    found, expected = (
        EvalResult.load(run / "eval" / "step-00000003.npz") for run in (path, cheetah_run)
    )
    np.testing.assert_array_equal(found.returns, expected.returns)


def test_data_that_does_not_fit_is_not_put_on_the_device(cheetah_data, tmp_path, monkeypatch):
    monkeypatch.setattr(metatrain, "free_memory", lambda device: 1000)
    with pytest.raises(InputError, match=r"placement: device, but the data takes .* 0 MB free"):
        metatrain.start(tiny_cheetah.config(), cheetah_data, tmp_path / "run", placement="device")
    assert not (tmp_path / "run").exists()
