"""The buffer of online transitions, and what is derived from a trajectory, by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from omrl.data import online
from omrl.data.online import Trajectories
from omrl.data.sample import BatchSpec
from omrl.types import Batch

KEY = jax.random.PRNGKey(0)


def rows(*numbers: int) -> Batch:
    """Transitions that all fields tell apart."""
    column = jnp.array(numbers, jnp.float32)
    pair = jnp.stack([column, -column], 1)
    odd = jnp.array(numbers) % 2 == 1
    return Batch(pair, pair[:, :1], column, pair, odd, column, pair, column)


def kept(buffer: online.Buffer) -> list[int]:
    """What is there, in the order of its rows; all fields say the same."""
    stored = int(buffer.stored)
    numbers = np.asarray(buffer.rows.reward)[:stored].astype(int)
    for field, column in zip(Batch._fields, buffer.rows, strict=True):
        expected = np.asarray(getattr(rows(*numbers), field))
        np.testing.assert_array_equal(np.asarray(column)[:stored], expected)
    return numbers.tolist()


def test_newer_transitions_take_the_place_of_the_oldest():
    buffer = online.empty(5, obs_dim=2, act_dim=1)
    assert kept(buffer) == []
    buffer = online.append(buffer, rows(1, 2, 3), 3)
    assert kept(buffer) == [1, 2, 3]
    buffer = online.append(buffer, rows(4, 5, 6), 3)
    assert kept(buffer) == [6, 2, 3, 4, 5]
    buffer = online.append(buffer, rows(7, 8, 9, 10, 11), 5)
    assert kept(buffer) == [11, 7, 8, 9, 10]


def test_what_is_behind_the_end_of_a_trajectory_is_not_stored():
    buffer = online.append(online.empty(5, 2, 1), rows(1, 2, 99, 99), 2)
    assert kept(buffer) == [1, 2]
    buffer = online.append(buffer, rows(99, 99), 0)
    buffer = online.append(buffer, rows(3, 4, 5, 6, 99), jnp.int32(4))
    assert kept(buffer) == [6, 2, 3, 4, 5]


def test_batches_are_drawn_from_what_is_there():
    buffer = online.append(online.empty(50, 2, 1), rows(*range(1, 9)), 8)
    drawn = online.draw(buffer, BatchSpec("online", 8, "without_replacement"), KEY)
    assert sorted(drawn.reward.tolist()) == list(range(1, 9))
    drawn = online.draw(buffer, BatchSpec("online", 500, "iid"), KEY)
    assert set(drawn.reward.tolist()) == set(range(1, 9))
    np.testing.assert_array_equal(drawn.obs[:, 1], -drawn.reward)


def test_transitions_know_the_end_of_their_trajectory():
    """One that the MDP ended after two steps, and one that went to the horizon of three."""
    obs = np.arange(8, dtype=np.float32).reshape(1, 2, 4, 1)
    obs[0, 0, 3] = np.nan
    reward = np.array([[[1, 2, 50], [4, 8, 16]]], np.float32)
    batch = online.transitions(
        Trajectories(
            obs=obs,
            action=np.zeros((1, 2, 3, 1), np.float32),
            reward=reward,
            length=np.array([[2, 3]]),
            terminated=np.array([[True, False]]),
        ),
        discount=0.5,
    )
    # 1 + .5 * 2, 2; 4 + .5 * 8 + .25 * 16, 8 + .5 * 16, 16
    assert batch.mc_return[0, 0, :2].tolist() == [2, 2]
    assert batch.mc_return[0, 1].tolist() == [12, 16, 16]
    assert batch.terminal_discount[0, 0, :2].tolist() == [0.25, 0.5]
    assert batch.terminal_discount[0, 1].tolist() == [0.125, 0.25, 0.5]
    assert batch.terminal_obs[0, 0, :2, 0].tolist() == [2, 2]
    assert batch.terminal_obs[0, 1, :, 0].tolist() == [7, 7, 7]
    assert batch.next_obs[0, 0, :2, 0].tolist() == [1, 2]
    assert batch.obs[0, 1, :, 0].tolist() == [4, 5, 6]
    assert batch.terminated[0].tolist() == [[False, True, False], [False, False, False]]
