"""Logged trajectories as those of the belief MDP."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos.borel_relabel import belief_states, believed
from omrl.algos.borel_vae import Trajectory, beliefs
from omrl.nets.belief import BeliefEncoder, FeatureSizes

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
