"""Networks that are told z, and the context encoder, against dense layers on [x, z]."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.encoder import Encoder
from omrl.nets.latent_mlp import LatentMlp, every_sample, over_samples
from omrl.nets.mlp import forward

SIZES = {"in_dim": 3, "latent": 2, "hidden": (5, 4), "out_dim": 2, "last_bound": None}


@pytest.fixture
def net(getkey) -> LatentMlp:
    return LatentMlp.init(getkey(), **SIZES)


def test_it_is_the_perceptron_of_x_and_z(net, getkey):
    x, z = jax.random.normal(getkey(), (3,)), jax.random.normal(getkey(), (2,))
    expected = forward(net.layers, jnp.concatenate([x, z]))
    np.testing.assert_allclose(net(x, net.shift(z)), expected, rtol=1e-5)
    np.testing.assert_allclose(forward(net.told(z), x), expected, rtol=1e-5)


def test_over_samples_every_task_has_its_own_z(net, getkey):
    x, z = jax.random.normal(getkey(), (4, 6, 3)), jax.random.normal(getkey(), (4, 2))
    y = over_samples(net, x, every_sample(jax.vmap(net.shift)(z), 6))
    assert y.shape == (4, 6, 2)
    for task in range(4):
        for sample in range(6):
            expected = net(x[task, sample], net.shift(z[task]))
            np.testing.assert_allclose(y[task, sample], expected, rtol=1e-5)


def test_the_first_layer_has_no_other_inputs(net):
    assert net.layers[0].weight.shape == (5, 5)


@pytest.mark.parametrize("next_obs", [False, True])
def test_encoder_gives_mean_and_variance_of_what_it_may_see(getkey, next_obs):
    encoder = Encoder.init(getkey(), 3, 2, (8,), 4, None, next_obs=next_obs)
    obs, after = jax.random.normal(getkey(), (2, 3))
    action, reward = jnp.array([0.3, -0.2]), jnp.float32(1.5)
    seen = jnp.concatenate([obs, action, reward[None], *([after] if next_obs else [])])
    y = forward(encoder.layers, seen)
    mean, variance = encoder(obs, action, reward, after)
    np.testing.assert_allclose(mean, y[:4], rtol=1e-5)
    np.testing.assert_allclose(variance, np.log1p(np.exp(y[4:])), rtol=1e-5)
    assert np.array_equal(encoder(obs, action, reward, after + 1)[0], mean) != next_obs
