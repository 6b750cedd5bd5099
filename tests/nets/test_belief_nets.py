"""Recurrent encoder and transition decoder, against dense layers on concatenated inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.belief import BeliefEncoder, FeatureSizes, TransitionDecoder
from omrl.nets.mlp import forward

SIZES = FeatureSizes(obs=4, action=3, reward=2)


def transitions(getkey, num):
    """obs, action, reward, next_obs of 5 and 2 numbers."""
    return (
        jax.random.normal(getkey(), (num, 5)),
        jax.random.normal(getkey(), (num, 2)),
        jax.random.normal(getkey(), (num,)),
        jax.random.normal(getkey(), (num, 5)),
    )


@pytest.mark.parametrize("sizes", [SIZES, FeatureSizes(4, 0, 2), FeatureSizes(0, 3, 0)])
def test_a_trajectory_is_one_observation_after_the_other(getkey, sizes):
    encoder = BeliefEncoder.init(getkey(), 5, 2, sizes, 6, 3)
    _, action, reward, next_obs = transitions(getkey, 4)
    known = encoder.beliefs(action, reward, next_obs)
    assert [leaf.shape for leaf in known] == [(5, 6), (5, 3), (5, 3)]
    belief = encoder.prior()
    for step in range(5):
        for leaf, expected in zip(known, belief, strict=True):
            np.testing.assert_allclose(leaf[step], expected, rtol=1e-5, atol=1e-6)
        if step < 4:
            belief = encoder.observe(belief, action[step], reward[step], next_obs[step])


def test_the_prior_is_what_the_biases_say(getkey):
    encoder = BeliefEncoder.init(getkey(), 5, 2, SIZES, 6, 3)
    prior = encoder.prior()
    np.testing.assert_array_equal(prior.hidden, np.zeros(6))
    np.testing.assert_array_equal(jnp.concatenate(prior[1:]), encoder.posterior.bias)


@pytest.mark.parametrize("unseen", ["action", "reward", "next_obs"])
def test_parts_without_features_are_not_seen(getkey, unseen):
    sizes = {"action": FeatureSizes(4, 0, 2), "reward": FeatureSizes(4, 3, 0)}
    encoder = BeliefEncoder.init(getkey(), 5, 2, sizes.get(unseen, FeatureSizes(0, 3, 2)), 6, 3)
    _, action, reward, next_obs = transitions(getkey, 3)
    seen = {"action": action, "reward": reward, "next_obs": next_obs}
    known = encoder.beliefs(**seen)
    for part, column in seen.items():
        changed = encoder.beliefs(**(seen | {part: column + 1}))
        assert np.array_equal(changed.mean, known.mean) == (part == unseen)


@pytest.mark.parametrize(
    "sees", [("next_obs", "action", "obs"), ("next_obs",), ("action", "obs"), ()]
)
def test_a_decoder_is_the_perceptron_of_features_and_z(getkey, sees):
    decoder = TransitionDecoder.init(getkey(), 5, 2, SIZES, sees, 3, (6, 4), 2)
    (obs,), (action,), _, (next_obs,) = transitions(getkey, 1)
    z = jax.random.normal(getkey(), (3,))
    given = {"obs": obs, "next_obs": next_obs, "action": action}
    features = [
        jax.nn.relu((decoder.action if part == "action" else decoder.obs)(given[part]))
        for part in sees
    ]
    expected = forward(decoder.net.layers, jnp.concatenate([*features, z]))
    ours = decoder(decoder.shift(z), decoder.seen(obs, action, next_obs))
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
