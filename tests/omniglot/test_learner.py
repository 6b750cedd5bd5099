"""MAML on images: sizes, losses, episodes, and its gradient against plain autodiff."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.mlp import Dense
from omrl.omniglot import learner as maml
from omrl.omniglot.learner import Data
from omrl.omniglot.settings import SCALES, Learner
from omrl.ops import inner_loop
from tiny_omniglot import LEARNER


def start(learner: Learner, key) -> maml.State:
    return maml.init(learner, 2, key, jnp.float32(0.3), jnp.float32(0.01))


@pytest.fixture
def data() -> Data:
    """12 classes of 4 drawings: the class in the first pixel, the drawing in the second."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 4, 784)).astype(np.uint8)
    pixels[:, :, 0], pixels[:, :, 1] = np.arange(12)[:, None], np.arange(4)
    on_side = np.arange(3)[:, None] == np.repeat(range(3), 4)[None]
    return Data(jnp.asarray(pixels), jnp.asarray(on_side))


def test_the_networks_are_as_large_as_the_paper_says():
    wide = {each.label: each.learner for each in SCALES["gpu"].networks}
    counted = {label: learner.num_weights for label, learner in wide.items()}
    assert counted == {
        "weight transform": 4_866_048,
        "plain, equal width": 152_596,
        "plain, equal parameters": 4_896_720,
    }
    assert maml.num_parameters(wide["plain, equal width"]) == 152_596
    assert maml.num_parameters(wide["plain, equal parameters"]) == 4_896_720
    # 32 times all 152,596 numbers of the generated network, and five latents.
    assert maml.num_parameters(wide["weight transform"]) == 32 * 152_596 + 5 * 32


def test_equal_parameters_are_equal_at_every_scale():
    for scale in SCALES.values():
        transform, plain, wide = (maml.num_parameters(n.learner) for n in scale.networks)
        assert plain < 0.2 * transform
        assert abs(wide / transform - 1) < 0.005
        alike = {replace(n.learner, layer="linear", hidden=(1,)) for n in scale.networks}
        assert len(alike) == 1  # All else is the same.


def test_the_loss_is_the_mean_cross_entropy_of_the_right_classes():
    # Scores of image x: (x, 0). Class 0 has the image 2, class 1 the images 1.
    net = (Dense.of(jnp.array([[1.0, 0.0]]), jnp.zeros(2)),)
    images = jnp.array([[[2.0], [2.0]], [[1.0], [1.0]]])
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.e)) / 2
    np.testing.assert_allclose(maml.class_loss(net, images), expected, rtol=1e-6)
    assert maml.accuracy(net, images) == 0.5  # The second class is taken for the first.
    blind = (Dense.of(jnp.zeros((1, 2)), jnp.zeros(2)),)
    np.testing.assert_allclose(maml.class_loss(blind, images), math.log(2), rtol=1e-6)


def test_an_episode_has_distinct_allowed_classes_and_distinct_drawings(data, getkey):
    learner = replace(LEARNER, queries=3)
    draw = jax.jit(partial(maml.draw_episode, learner, data, data.on_side[1]))
    seen = set()
    for _ in range(20):
        support, query = draw(getkey())
        assert support.shape == (3, 1, 784)
        assert query.shape == (3, 3, 784)
        classes = np.rint(255 * support[:, 0, 0]).astype(int)
        assert len(set(classes)) == 3
        assert set(classes) <= {4, 5, 6, 7}
        np.testing.assert_array_equal(np.rint(255 * query[:, :, 0]), classes[:, None].repeat(3, 1))
        drawings = np.concatenate([support, query], axis=1)[:, :, 1]
        np.testing.assert_array_equal(np.sort(np.rint(255 * drawings)), [range(4)] * 3)
        seen.add(tuple(classes))
    assert len(seen) > 10
    np.testing.assert_array_equal(draw(jax.random.PRNGKey(7))[0], draw(jax.random.PRNGKey(7))[0])


@pytest.mark.parametrize(("layer", "steps"), [("weight_transform", 2), ("linear", 1)])
def test_the_meta_gradient_is_that_of_maml_written_out(layer, steps, data, getkey):
    learner = replace(LEARNER, layer=layer, inner_steps=steps)
    meta = start(learner, getkey()).meta
    draw = partial(maml.draw_episode, learner, data, data.on_side[0])
    episodes = jax.vmap(draw)(jax.random.split(getkey(), 2))

    def adapted_loss(meta, episode):
        net = meta.net
        for _ in range(steps):
            grads = jax.grad(lambda n: maml.class_loss(inner_loop.generate(n), episode.support))(
                net
            )
            net = tuple(
                jax.tree.map(lambda x, g, rate=rate: x - jnp.exp(rate[0]) * g, layer, grad)
                for layer, grad, rate in zip(net, grads, meta.log_rates, strict=True)
            )
        return maml.class_loss(inner_loop.generate(net), episode.query)

    def plain(meta):
        both = [adapted_loss(meta, jax.tree.map(lambda x, i=i: x[i], episodes)) for i in range(2)]
        return sum(both) / 2, jnp.stack(both)

    expected, losses = jax.jit(jax.grad(plain, has_aux=True))(meta)
    found, found_losses = jax.jit(partial(maml.meta_gradient, learner))(meta, episodes)
    np.testing.assert_allclose(found_losses, losses, rtol=1e-4)
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(expected))
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


def test_adapting_lowers_the_loss_of_what_was_adapted_to(data, getkey):
    meta = start(LEARNER, getkey()).meta._replace(log_rates=jnp.full((2, 1), math.log(0.01)))

    @jax.jit
    def losses(key):
        episode = maml.draw_episode(LEARNER, data, data.on_side[2], key)
        adapted = inner_loop.read(meta.net, maml.adapt(LEARNER, meta, episode.support))
        both = inner_loop.generate(meta.net), adapted
        return [maml.class_loss(net, episode.support) for net in both]

    before, after = losses(getkey())
    assert after < before - 0.05


def test_inner_rates_move_only_where_they_are_learned(data, getkey):
    for learned in (True, False):
        learner = replace(LEARNER, layer="linear", learn_inner_lr=learned)
        state = start(learner, getkey())
        after, loss = jax.jit(partial(maml.update, learner))(state, data, getkey())
        moved = jnp.abs(after.meta.log_rates - state.meta.log_rates)
        # Adam's first step is the rate, whatever the gradient.
        np.testing.assert_allclose(moved, 0.1 if learned else 0.0, rtol=1e-3)
        assert after.step == 1
        assert jnp.isfinite(loss)
        weights = after.meta.net[0].weight - state.meta.net[0].weight
        np.testing.assert_allclose(jnp.abs(weights).max(), 0.01, rtol=1e-3)


def test_an_evaluation_fills_its_row_alone(data, getkey):
    state = start(LEARNER, getkey())
    after = jax.jit(partial(maml.evaluate, LEARNER))(state, data, jnp.int32(1))
    assert jnp.isnan(after.accuracy[0]).all()
    assert after.accuracy.shape == (2, 3, 4)
    # Of three classes with one query each.
    np.testing.assert_allclose(3 * after.accuracy[1], np.rint(3 * after.accuracy[1]), atol=1e-5)
