"""Descent on networks of adaptive layers: closed forms, finite differences, orders, rates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.adaptive import BiasTransform, Linear, WeightTransform
from omrl.nets.mlp import Dense, forward
from omrl.ops import inner_loop
from quick import quick_jit

pytestmark = pytest.mark.usefixtures("own_programs")

MAKERS = {
    "linear": Linear.init,
    "bias_transform": BiasTransform.init,
    "weight_transform": partial(WeightTransform.init, latent=3, offset=True),
}


def make_net(key, kind: str):
    keys = jax.random.split(key, 2)
    return (MAKERS[kind](keys[0], 2, 3), MAKERS[kind](keys[1], 3, 1))


def inner_loss(dense, x, y):
    return 0.5 * jnp.mean((jax.vmap(partial(forward, dense))(x)[:, 0] - y) ** 2)


def outer_loss(net, rates, x, y, *, num_steps=1, first_order=False):
    traces = inner_loop.start(net)
    for _ in range(num_steps):
        grads = jax.grad(inner_loss)(inner_loop.read(net, traces), x[0], y[0])
        traces = inner_loop.descend(net, rates, traces, grads, first_order=first_order)
    return inner_loss(inner_loop.read(net, traces), x[1], y[1])


# --- Reading networks ---


@pytest.mark.parametrize("kind", MAKERS)
def test_start_reads_as_the_generated_network(getkey, kind):
    net = make_net(getkey(), kind)
    generated = inner_loop.generate(net)
    for plain in (False, True):
        read = inner_loop.read(net, inner_loop.start(net, plain=plain))
        for one, other in zip(jax.tree.leaves(read), jax.tree.leaves(generated), strict=True):
            np.testing.assert_array_equal(one, other)
    assert all(isinstance(layer, Dense) for layer in generated)


def test_layers_are_in_tree_order():
    first, second, third = (Linear(jnp.ones((i, 1)), jnp.zeros(1)) for i in (1, 2, 3))
    assert inner_loop.layers({"a": (first, second), "b": third}) == [first, second, third]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", MAKERS)
def test_own_gradient_is_the_chain_rule(getkey, kind):
    layer = MAKERS[kind](getkey(), 2, 3)
    x, cotangent = jax.random.normal(getkey(), (2,)), jax.random.normal(getkey(), (3,))
    expected = jax.grad(lambda layer: layer.dense()(x) @ cotangent)(layer)
    dense_grad = jax.grad(lambda dense: dense(x) @ cotangent)(layer.dense())
    computed = inner_loop.own_gradient(layer, dense_grad)
    for one, other in zip(jax.tree.leaves(computed), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# --- A case by hand ---

# f(x) = w x + b at x = 1, with w = 1, b = .5; inner target 3, outer target 2; rate a = .1 for w and
# 0 for b. Inner gradient r = w + b - 3 = -1.5, so w' = 1 + .15 = 1.15 and the outer error is
# e = w' + b - 2 = -.35 and the outer loss e^2 / 2 = .06125.
HAND_NET = (Linear(jnp.array([[1.0]]), jnp.array([0.5])),)
HAND_RATES = jnp.array([[0.1, 0.0]])
HAND_DATA = jnp.ones((2, 1, 1)), jnp.array([[3.0], [2.0]])


def test_quadratic_meta_gradient_by_hand():
    loss, (net, rates) = jax.value_and_grad(outer_loss, argnums=(0, 1))(
        HAND_NET, HAND_RATES, *HAND_DATA
    )
    assert loss == pytest.approx(0.06125, rel=1e-5)
    # d/dw = e dw'/dw = e (1 - a) = -.315; d/db = e (1 - a); d/da = -e r = -.525; the rate of b: the
    # same, as b' would move as w' does.
    np.testing.assert_allclose(net[0].weight, [[-0.315]], rtol=1e-5)
    np.testing.assert_allclose(net[0].bias, [-0.315], rtol=1e-5)
    np.testing.assert_allclose(rates, [[-0.525, -0.525]], rtol=1e-5)


def test_first_order_by_hand():
    loss, (net, rates) = jax.value_and_grad(partial(outer_loss, first_order=True), argnums=(0, 1))(
        HAND_NET, HAND_RATES, *HAND_DATA
    )
    assert loss == pytest.approx(0.06125, rel=1e-5)
    # The inner gradient is a constant: d/dw = d/db = e = -.35; rates learn as before.
    np.testing.assert_allclose(net[0].weight, [[-0.35]], rtol=1e-5)
    np.testing.assert_allclose(net[0].bias, [-0.35], rtol=1e-5)
    np.testing.assert_allclose(rates, [[-0.525, -0.525]], rtol=1e-5)


def test_mean_over_the_history():
    # Weights 1, 2, 4 after 0, 1, 2 steps: .81 + .09 * 2 + .1 * 4 = 1.39
    history = [(Linear(jnp.full((1, 1), w), jnp.zeros(1)),) for w in (1.0, 2.0, 4.0)]
    mean = inner_loop.mean(history[0], jnp.ones((1, 2)), history, (0.81, 0.09, 0.1))
    np.testing.assert_allclose(mean[0].weight, [[1.39]], rtol=1e-6)


# --- Mathematics ---


def random_problem(getkey, kind):
    net = make_net(getkey(), kind)
    num_tensors = len(jax.tree.leaves(net[0]))
    rates = jax.random.uniform(getkey(), (2, num_tensors), minval=0.05, maxval=0.3)
    return net, rates, jax.random.normal(getkey(), (2, 6, 2)), jax.random.normal(getkey(), (2, 6))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", MAKERS)
def test_meta_gradient_equals_finite_differences(getkey, kind):
    net, rates, x, y = random_problem(getkey, kind)
    two_steps = partial(outer_loss, num_steps=2)
    loss = quick_jit(two_steps)
    grads = quick_jit(jax.grad(two_steps, argnums=(0, 1)))(net, rates, x, y)
    leaves, tree = jax.tree.flatten((net, rates))
    step = 1e-6
    for number, grad in enumerate(jax.tree.leaves(grads)):
        direction = jax.random.normal(getkey(), grad.shape)

        def moved(by, number=number, direction=direction):
            changed = [*leaves]
            changed[number] = changed[number] + by * direction
            return loss(*tree.unflatten(changed), x, y)

        numeric = (moved(step) - moved(-step)) / (2 * step)
        np.testing.assert_allclose(numeric, jnp.sum(grad * direction), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", MAKERS)
def test_first_order_differs_in_the_parameters_only(getkey, kind):
    net, rates, x, y = random_problem(getkey, kind)
    first, second = (
        quick_jit(jax.value_and_grad(partial(outer_loss, first_order=order), argnums=(0, 1)))(
            net, rates, x, y
        )
        for order in (True, False)
    )
    assert first[0] == second[0]
    np.testing.assert_allclose(first[1][1], second[1][1], rtol=1e-12)
    for one, other in zip(jax.tree.leaves(first[1][0]), jax.tree.leaves(second[1][0]), strict=True):
        assert np.max(np.abs(one - other)) > 1e-6


@pytest.mark.parametrize("kind", MAKERS)
def test_zero_rates_change_nothing(getkey, kind):
    net, rates, x, y = random_problem(getkey, kind)
    grads = jax.grad(inner_loss)(inner_loop.generate(net), x[0], y[0])
    after = inner_loop.descend(net, jnp.zeros_like(rates), inner_loop.start(net), grads)
    unchanged = inner_loop.read(net, inner_loop.start(net))
    for one, other in zip(
        jax.tree.leaves(inner_loop.read(net, after)), jax.tree.leaves(unchanged), strict=True
    ):
        np.testing.assert_array_equal(one, other)
