"""Training on data that stays on the disk: the bits of training on data on the device."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tiny_cheetah
from omrl import metatrain
from omrl.chunk import BLOCK, Layout, init_states, place, train_chunk
from omrl.data.device import load
from omrl.data.host import open_host

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
