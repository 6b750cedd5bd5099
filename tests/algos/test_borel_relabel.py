"""Logged trajectories as those of the belief MDP."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos.borel_relabel import belief_columns, belief_states, believed
from omrl.algos.borel_vae import beliefs
from omrl.data.device import DeviceData
from omrl.data.sample import gather
from omrl.data.trajectories import TrajectorySpec, gather_trajectories
from omrl.nets.belief import BeliefEncoder, FeatureSizes
from omrl.types import Trajectory

STEPS, END = 6, 3


@pytest.fixture
def encoder(getkey) -> BeliefEncoder:
    return BeliefEncoder.init(getkey(), 3, 2, FeatureSizes(4, 3, 2), 6, 2)


@pytest.fixture
def seen(getkey) -> Trajectory:
    """Two episodes, the first of which ends the MDP; obs after it is a start, not its last one."""
    obs, next_obs = jax.random.normal(getkey(), (2, STEPS, 3))
    next_obs = next_obs.at[:END].set(obs[1 : END + 1]).at[END + 1 : -1].set(obs[END + 2 :])
    action, reward = jax.random.normal(getkey(), (STEPS, 2)), jax.random.normal(getkey(), (STEPS,))
    return Trajectory(
        obs, action, reward, next_obs, jnp.arange(STEPS) == END, jnp.ones(STEPS, bool)
    )


def test_states_have_the_belief_of_before_and_after(encoder, seen):
    before, after = belief_states(encoder, seen)
    known = beliefs(encoder, seen)
    np.testing.assert_array_equal(before[:, :3], seen.obs)
    np.testing.assert_array_equal(after[:, :3], seen.next_obs)
    for leaf, place in ((known.mean, slice(3, 5)), (known.log_variance, slice(5, 7))):
        np.testing.assert_allclose(before[:, place], leaf[:-1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after[:, place], leaf[1:], rtol=1e-5, atol=1e-6)


def test_a_belief_that_begins_anew(encoder, seen):
    """With the transition that ends the MDP; what was known before is the same, and that of after
    is the belief of a trajectory that begins there."""
    whole, anew = (believed(encoder, seen, reset=reset).mean for reset in (False, True))
    np.testing.assert_array_equal(anew[: END + 1], whole[: END + 1])
    shorter = jax.tree.map(lambda leaf: leaf[END:], seen)
    expected = beliefs(encoder, shorter).mean
    np.testing.assert_allclose(anew[END + 1 :], expected[1:], rtol=1e-5, atol=1e-6)
    assert np.abs(anew[END + 1 :] - whole[END + 1 :]).max() > 1e-4


# --- All of the data at once ---

LENGTHS = ((3, 2, 4, 1, 2), (2, 2))
"""Steps of the episodes of two tasks."""


def logged(key: jax.Array) -> DeviceData:
    """Random episodes, of which some end the MDP."""
    rows = max(map(sum, LENGTHS))
    keys = iter(jax.random.split(key, 4))
    starts = [np.cumsum((0, *lengths)) for lengths in LENGTHS]
    index, ends = np.zeros((2, 2, rows), np.int32)
    for task, of_task in enumerate(starts):
        for number, (first, stop) in enumerate(pairwise(of_task.tolist())):
            index[task, first:stop] = np.arange(first, stop) + number
            ends[task, first:stop] = stop + number
    ended = np.zeros((2, rows), bool)
    ended[0, [2, 8, 11]] = ended[1, 0] = True
    unread = jnp.zeros((2, rows))
    return DeviceData(
        obs=jax.random.normal(next(keys), (2, rows + 5, 3)),
        action=jax.random.normal(next(keys), (2, rows, 2)),
        reward=jax.random.normal(next(keys), (2, rows)),
        terminated=jnp.asarray(ended),
        mc_return=unread,
        terminal_discount=unread,
        obs_index=jnp.asarray(index),
        terminal_index=jnp.asarray(ends),
        num_rows=jnp.array([sum(lengths) for lengths in LENGTHS], jnp.int32),
    )


@pytest.mark.parametrize(("reset", "to_start"), [(False, False), (True, False), (False, True)])
def test_all_of_the_data_is_as_its_trajectories(encoder, getkey, reset, to_start):
    """Of every transition, but for the last of an inner episode, which leads to the next one, and
    with `to_start` that of the trajectory, which leads to the start of the first."""
    data = logged(getkey())
    spec = TrajectorySpec("t", 1, episodes=2, horizon=4)
    changes = {"reset": reset, "to_start": to_start}
    prepare = jax.jit(partial(belief_columns, episodes=2, **changes))
    read, rows_of = jax.jit(gather_trajectories, static_argnums=1), jax.jit(gather)
    states = jax.jit(partial(belief_states, reset=reset))
    prepared = data._replace(**prepare(encoder, data))
    for task, lengths in enumerate(LENGTHS):
        seen = 0
        for number in range(-(-len(lengths) // 2)):
            one = read(data, spec, task, np.array([number], np.int32))
            one = jax.tree.map(lambda leaf: np.asarray(leaf)[0], one)
            count = int(one.valid.sum())
            batch = rows_of(prepared, task, np.arange(seen, seen + count, dtype=np.int32))
            before, after = (np.array(x)[:count] for x in states(encoder, one))
            inner, own = lengths[2 * number], lengths[2 * number : 2 * number + 2]
            terminated = one.terminated[:count].copy()
            if len(own) == 2:
                after[inner - 1, :3] = one.obs[inner]
                terminated[inner - 1] = False
            if to_start:
                after[-1, :3] = np.asarray(data.obs)[task, 0]
                terminated[-1] = False
            np.testing.assert_allclose(batch.obs, before, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(batch.next_obs, after, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(batch.terminated, terminated)
            seen += count
        assert seen == sum(lengths)
