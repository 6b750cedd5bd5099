"""Batches of whole trajectories: what the dataset has, on the device and on the disk."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from points import HORIZON

from omrl.data.device import load
from omrl.data.host import open_host
from omrl.data.sample import BatchSpec, sample_all_rows, sample_batches
from omrl.data.slice import Slice
from omrl.data.trajectories import (
    TrajectorySpec,
    gather_trajectories,
    num_trajectories,
    read_trajectories,
)

read_device = jax.jit(gather_trajectories, static_argnums=1)
TASKS = (2, 0)
PAIRS = TrajectorySpec("trajectories", 3, episodes=2, horizon=HORIZON)


@pytest.mark.parametrize("episodes", [1, 2, 3])
def test_every_trajectory_of_a_lifetime(dataset, episodes):
    """Episodes in their order, the last trajectory with what is left of them."""
    spec = TrajectorySpec("t", 1, episodes, HORIZON)
    device = load(dataset, TASKS, discount=0.9)
    for position, index in enumerate(TASKS):
        task = dataset.task(index)
        starts, count = task.episode_start, task.num_episodes
        numbers = jnp.arange(-(-count // episodes), dtype=jnp.int32)
        assert num_trajectories(device, episodes)[position] == len(numbers)
        found = jax.tree.map(np.asarray, read_device(device, spec, position, numbers))
        for number in range(len(numbers)):
            own = range(number * episodes, min((number + 1) * episodes, count))
            rows = np.arange(starts[own[0]], starts[own[-1] + 1])
            # An episode has one observation more than transitions.
            obs_rows = np.concatenate([np.arange(starts[e], starts[e + 1]) + e for e in own])
            valid = np.asarray(found.valid[number])
            np.testing.assert_array_equal(valid, np.arange(spec.steps) < len(rows))
            one = jax.tree.map(lambda x, n=number, v=valid: np.asarray(x)[n, v], found)
            np.testing.assert_array_equal(one.obs, task.obs[obs_rows])
            np.testing.assert_array_equal(one.next_obs, task.obs[obs_rows + 1])
            np.testing.assert_array_equal(one.action, task.action[rows])
            np.testing.assert_array_equal(one.reward, task.reward[rows])
            np.testing.assert_array_equal(one.terminated, task.terminated[rows])


@pytest.mark.parametrize("name", ["all", "every-3", "middle-17-transitions"])
def test_on_the_disk_they_are_the_same(dataset, name):
    view = dataset.view(Slice.parse(name))
    device, host = load(view, TASKS, discount=0.9), open_host(view, TASKS, discount=0.9)
    counts = np.asarray(num_trajectories(device, 2))
    np.testing.assert_array_equal(num_trajectories(host, 2), counts)
    tasks = np.array([[1, 0], [0, 0]])
    numbers = np.random.default_rng(0).integers(0, counts[tasks][..., None], (2, 2, 3))
    read_all = jax.jit(jax.vmap(jax.vmap(partial(gather_trajectories, device, PAIRS))))
    expected = read_all(jnp.asarray(tasks), jnp.asarray(numbers, jnp.int32))
    found = read_trajectories(host, PAIRS, tasks, numbers)
    for field, one, other in zip(expected._fields, found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=field)
        assert one.dtype == other.dtype, field


def test_all_are_drawn_equally_often():
    keys = jax.random.split(jax.random.PRNGKey(0), 2000)
    counts = {"trajectories": jnp.int32(5)}
    draw = jax.jit(jax.vmap(partial(sample_all_rows, (PAIRS,), counts)))
    drawn = draw(keys)["trajectories"]
    assert drawn.shape == (2000, 3)
    frequencies = np.bincount(np.asarray(drawn).ravel()) / 6000
    np.testing.assert_allclose(frequencies, np.full(5, 0.2), atol=0.02)


def test_beside_a_batch_of_transitions(dataset):
    """Either is what it is alone."""
    device, key = load(dataset, TASKS, discount=0.9), jax.random.PRNGKey(0)
    sample = jax.jit(sample_batches, static_argnums=1)
    both = sample(device, (BatchSpec("rows", 4), PAIRS), jnp.int32(1), key)
    alone = sample(device, (BatchSpec("rows", 4),), jnp.int32(1), key)
    np.testing.assert_array_equal(both["rows"].reward, alone["rows"].reward)
    assert both["trajectories"].reward.shape == (3, PAIRS.steps)
