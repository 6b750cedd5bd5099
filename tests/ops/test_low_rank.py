"""Low-rank steps on a weight-transform layer against hand-made numbers and the plain form."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.adaptive import WeightTransform
from omrl.nets.mlp import Dense, forward
from omrl.ops import inner_loop, low_rank
from quick import quick_jit

pytestmark = pytest.mark.usefixtures("own_programs")

# theta = z W + b = 2 [1, 3] + [.5, -1] = [2.5, 5]: one input, one output, one latent number.
LAYER = WeightTransform(jnp.array([2.0]), jnp.array([[1.0, 3.0]]), jnp.array([0.5, -1.0]), 1)
RATES = jnp.array([0.1, 0.01, 0.2])
GRADS = [
    Dense.of(jnp.array([[1.0]]), jnp.array([-1.0])),
    Dense.of(jnp.array([[0.5]]), jnp.array([1.0])),
]


def trace_after(num_steps: int) -> low_rank.LowRank:
    trace = low_rank.start(LAYER)
    for grad in GRADS[:num_steps]:
        trace = low_rank.descend(LAYER, RATES, trace, grad)
    return trace


def test_start():
    trace = low_rank.start(LAYER)
    np.testing.assert_allclose(trace.theta, [2.5, 5.0])
    assert trace.zs.shape == (0, 1)
    assert trace.grads.shape == (0, 2)


def test_one_step():
    trace = trace_after(1)
    # W g = 1 - 3 = -2, so z' = 2 + .2 = 2.2
    # W' = [1, 3] - .01 * 2 [1, -1] = [.98, 3.02], b' = [.5, -1] - .2 [1, -1] = [.3, -.8]
    # theta' = 2.2 [.98, 3.02] + [.3, -.8] = [2.456, 5.844]
    np.testing.assert_allclose(trace.z, [2.2], rtol=1e-6)
    np.testing.assert_allclose(trace.theta, [2.456, 5.844], rtol=1e-6)
    written_out = low_rank.materialize(LAYER, RATES, trace)
    assert written_out.offset is not None
    np.testing.assert_allclose(written_out.kernel, [[0.98, 3.02]], rtol=1e-6)
    np.testing.assert_allclose(written_out.offset, [0.3, -0.8], rtol=1e-6)


def test_second_step_uses_the_moved_kernel():
    trace = trace_after(2)
    # W' g = .49 + 3.02 = 3.51, so z'' = 2.2 - .351 = 1.849
    # W'' = W' - .01 * 2.2 [.5, 1] = [.969, 2.998], b'' = [.3, -.8] - .2 [.5, 1] = [.2, -1]
    # theta'' = 1.849 [.969, 2.998] + [.2, -1] = [1.991681, 4.543302]
    np.testing.assert_allclose(trace.z, [1.849], rtol=1e-6)
    np.testing.assert_allclose(trace.theta, [1.991681, 4.543302], rtol=1e-6)
    written_out = low_rank.materialize(LAYER, RATES, trace)
    assert written_out.offset is not None
    np.testing.assert_allclose(written_out.kernel, [[0.969, 2.998]], rtol=1e-6)
    np.testing.assert_allclose(written_out.offset, [0.2, -1.0], rtol=1e-6)
    np.testing.assert_allclose(written_out.dense().weight, [[1.991681]], rtol=1e-6)


def test_without_an_offset():
    layer = WeightTransform(LAYER.z, LAYER.kernel, None, 1)
    trace = low_rank.descend(layer, RATES[:2], low_rank.start(layer), GRADS[0])
    # As with one, without b': theta' = 2.2 [.98, 3.02]
    np.testing.assert_allclose(trace.theta, [2.156, 6.644], rtol=1e-6)
    assert low_rank.materialize(layer, RATES[:2], trace).offset is None


def test_rates_of_zero_leave_kernel_and_offset():
    """What adapting z alone comes to."""
    trace = low_rank.descend(LAYER, jnp.array([0.1, 0.0, 0.0]), low_rank.start(LAYER), GRADS[0])
    # z' = 2.2 as in one step of all; theta' = 2.2 [1, 3] + [.5, -1]
    np.testing.assert_allclose(trace.z, [2.2], rtol=1e-6)
    np.testing.assert_allclose(trace.theta, [2.7, 5.6], rtol=1e-6)


def test_mean_of_the_parameters():
    history = [trace_after(steps) for steps in range(2)]
    dense = low_rank.mean(LAYER, RATES, history, (0.9, 0.1))
    # z = .9 * 2 + .1 * 2.2 = 2.02, W = [.998, 3.002], b = [.48, -.98]
    # theta = 2.02 [.998, 3.002] + [.48, -.98] = [2.49596, 5.08404]
    np.testing.assert_allclose(dense.weight, [[2.49596]], rtol=1e-6)
    np.testing.assert_allclose(dense.bias, [5.08404], rtol=1e-6)


def test_mean_that_begins_after_a_step():
    history = [trace_after(steps) for steps in (1, 2)]
    # z = .9 * 2.2 + .1 * 1.849 = 2.1649, W = .9 [.98, 3.02] + .1 [.969, 2.998] = [.9789, 3.0178],
    # b = .9 [.3, -.8] + .1 [.2, -1] = [.29, -.82]; theta = 2.1649 [.9789, 3.0178] + [.29, -.82]
    expected = [2.40922061, 5.71323522]
    dense = low_rank.mean(LAYER, RATES, history, (0.9, 0.1))
    np.testing.assert_allclose([dense.weight[0, 0], dense.bias[0]], expected, rtol=1e-6)
    # The same where the traces are padded, as in meta-test.
    padded = low_rank.pad(history[0], 4)
    after = low_rank.descend(LAYER, RATES, padded, GRADS[1])
    dense = low_rank.mean(LAYER, RATES, [padded, after], (0.9, 0.1))
    np.testing.assert_allclose([dense.weight[0, 0], dense.bias[0]], expected, rtol=1e-6)


# --- Padding ---


def test_padding_changes_nothing():
    padded = low_rank.pad(low_rank.start(LAYER), 2)
    for steps, grad in enumerate(GRADS, start=1):
        padded = low_rank.pad(low_rank.descend(LAYER, RATES, padded, grad), 2)
        expected = trace_after(steps)
        assert padded.zs.shape == (2, 1)
        np.testing.assert_array_equal(padded.z, expected.z)
        np.testing.assert_array_equal(padded.theta, expected.theta)
        np.testing.assert_array_equal(padded.grads[-steps:], expected.grads)
        written_out = low_rank.materialize(LAYER, RATES, padded)
        expected_layer = low_rank.materialize(LAYER, RATES, expected)
        np.testing.assert_array_equal(written_out.kernel, expected_layer.kernel)


def test_a_step_too_many_is_nan_not_wrong():
    trace = low_rank.pad(trace_after(1), 1)
    assert np.all(np.isfinite(trace.theta))
    trace = low_rank.pad(low_rank.descend(LAYER, RATES, trace, GRADS[1]), 1)
    assert np.all(np.isnan(trace.theta))
    dense = inner_loop.read((LAYER,), (trace,))[0]
    assert np.isnan(dense(jnp.ones(1)))[0]


# --- Against the plain form, which steps on full copies of all tensors ---


def make_net(key, offset: bool, latent: int = 4):
    keys = jax.random.split(key, 2)
    return tuple(
        WeightTransform.init(k, *sizes, latent=latent, offset=offset)
        for k, sizes in zip(keys, ((3, 2), (2, 1)), strict=True)
    )


def inner_loss(dense, x, y):
    return jnp.mean((jax.vmap(partial(forward, dense))(x)[:, 0] - y) ** 2)


def task_loss(net, rates, starts, first_order, num_steps, taps, x, y):
    """The loss on the task's second half after descent on its first."""
    traces = starts
    for _ in range(num_steps):
        grads = jax.grad(inner_loss)(inner_loop.read(net, traces), x[:6], y[:6])
        traces = inner_loop.descend(net, rates, traces, grads, first_order=first_order, taps=taps)
    return inner_loss(inner_loop.read(net, traces), x[6:], y[6:]), traces


def plain_gradient(net, rates, x, y, *, first_order, num_steps):
    def total(net, rates):
        starts = inner_loop.start(net, plain=True)
        one = partial(task_loss, net, rates, starts, first_order, num_steps, None)
        return jnp.sum(jax.vmap(one)(x, y)[0])

    return jax.value_and_grad(total, argnums=(0, 1))(net, rates)


def low_rank_gradient(net, rates, x, y, *, first_order, num_steps):
    """As training does it: the kernels are constants, their gradients come from the taps."""

    def total(net, rates, taps):
        starts = inner_loop.start(net, taps)
        one = partial(task_loss, net, rates, starts, first_order, num_steps)
        per_task = jax.tree.map(lambda leaf: None if leaf.ndim == 1 else 0, taps)
        losses, traces = jax.vmap(one, in_axes=(per_task, 0, 0))(taps, x, y)
        return jnp.sum(losses), traces

    taps = inner_loop.taps(net, x.shape[0], num_steps)
    (loss, traces), (net_grad, rates_grad, cotangents) = jax.value_and_grad(
        total, argnums=(0, 1, 2), has_aux=True
    )(net, rates, taps)
    net_grad = inner_loop.with_kernel_gradients(net, net_grad, traces, cotangents)
    return loss, (net_grad, rates_grad)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("first_order", [False, True], ids=["second_order", "first_order"])
@pytest.mark.parametrize("offset", [False, True], ids=["bare", "offset"])
@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_equals_the_plain_form(getkey, num_steps, offset, first_order):
    rates = jax.random.uniform(getkey(), (2, 2 + offset), minval=0.02, maxval=0.2)
    assert_equals_the_plain_form(getkey, rates, offset, first_order, num_steps)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_equals_the_plain_form_for_ten_steps(getkey):
    rates = jax.random.uniform(getkey(), (2, 3), minval=0.01, maxval=0.05)
    assert_equals_the_plain_form(getkey, rates, True, False, 10)


def assert_equals_the_plain_form(getkey, rates, offset, first_order, num_steps):
    net = make_net(getkey(), offset)
    x = jax.random.normal(getkey(), (2, 10, 3))
    y = jax.random.normal(getkey(), (2, 10))
    options = {"first_order": first_order, "num_steps": num_steps}
    plain, ours = (
        quick_jit(partial(gradient, **options))(net, rates, x, y)
        for gradient in (plain_gradient, low_rank_gradient)
    )
    assert jax.tree.structure(plain) == jax.tree.structure(ours)
    for expected, computed in zip(jax.tree.leaves(plain), jax.tree.leaves(ours), strict=True):
        assert expected.dtype == jnp.float64
        assert np.any(expected != 0)
        scale = np.max(np.abs(expected))
        np.testing.assert_allclose(computed, expected, rtol=0, atol=1e-12 * scale)


def test_a_trace_keeps_no_kernel():
    """10,100 generated weights of latent 100: what a task keeps does not have a million numbers."""
    make = partial(WeightTransform.init, latent=100, offset=True)
    layer = jax.eval_shape(lambda key: make(key, 100, 100), jax.random.PRNGKey(0))
    trace = jax.eval_shape(lambda layer: low_rank.pad(low_rank.start(layer), 1), layer)
    assert sum(leaf.size for leaf in jax.tree.leaves(trace)) == 2 * (10_100 + 100)
