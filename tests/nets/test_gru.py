"""The recurrent unit, with numbers worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from omrl.nets.gru import Gru
from omrl.nets.mlp import Dense


def test_gates_by_hand():
    # One input, one state: parts of (r, u, n) are x (1, 2, 3) + (0, 0, 0.1) and h (-1, 1, 2) with
    # bias (0, 0, 0.5), of which that of n is behind the gate r.
    unit = Gru(
        Dense.of(jnp.array([[1.0, 2.0, 3.0]]), jnp.array([0.0, 0.0, 0.1])),
        Dense.of(jnp.array([[-1.0, 1.0, 2.0]]), jnp.array([0.0, 0.0, 0.5])),
    )
    x, h = 0.3, -0.4
    reset = 1 / (1 + np.exp(-(x - h)))
    update = 1 / (1 + np.exp(-(2 * x + h)))
    new = np.tanh(3 * x + 0.1 + reset * (2 * h + 0.5))
    expected = (1 - update) * new + update * h
    np.testing.assert_allclose(unit(jnp.array([x]), jnp.array([h])), [expected], rtol=1e-6)


def test_a_sequence_is_one_step_after_the_other(getkey):
    unit = Gru.init(getkey(), 3, 5)
    inputs, hidden = jax.random.normal(getkey(), (4, 3)), jax.random.normal(getkey(), (5,))
    states = unit.scan(inputs, hidden)
    assert states.shape == (4, 5)
    for x, state in zip(inputs, states, strict=True):
        hidden = unit(x, hidden)
        np.testing.assert_allclose(state, hidden, rtol=1e-5, atol=1e-6)


def test_weights_are_orthogonal_at_first(getkey):
    unit = Gru.init(getkey(), 3, 5)
    assert unit.num_hidden == 5
    for layer, rows in ((unit.of_input, 3), (unit.of_hidden, 5)):
        assert layer.weight.shape == (rows, 15)
        np.testing.assert_allclose(layer.weight @ layer.weight.T, np.eye(rows), atol=1e-5)
        np.testing.assert_array_equal(layer.bias, 0)


def test_a_keep_bias_above_zero_forgets_less_at_first(getkey):
    key = getkey()
    plain, keeping = Gru.init(key, 3, 5), Gru.init(key, 3, 5, keep_bias=3.0)
    np.testing.assert_array_equal(keeping.of_input.bias, np.repeat([0, 3, 0], 5))
    hidden = jnp.ones(5)
    moved = [float(jnp.abs(unit(jnp.zeros(3), hidden) - hidden).sum()) for unit in (plain, keeping)]
    assert moved[1] < 0.3 * moved[0]
