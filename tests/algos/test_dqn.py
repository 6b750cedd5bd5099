"""DQN: targets by hand, and a chain whose values are known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos import dqn
from omrl.algos.dqn import DqnConfig
from omrl.nets.mlp import Dense, Mlp
from omrl.types import Step

pytestmark = pytest.mark.usefixtures("own_programs")

# One observation entry s: Q = (s, 2 s, 0.5), Q' = (1, 0.25 s, 3 s).
Q = Mlp((Dense.of(jnp.array([[1.0, 2.0, 0.0]]), jnp.array([0.0, 0.0, 0.5])),))
TARGET = Mlp((Dense.of(jnp.array([[0.0, 0.25, 3.0]]), jnp.array([1.0, 0.0, 0.0])),))
STEP = Step(
    obs=jnp.array([0.2]),
    action=jnp.array([0.0, 1.0, 0.0]),
    reward=jnp.float32(0.5),
    next_obs=jnp.array([2.0]),
    terminated=jnp.bool_(False),
)
CONFIG = DqnConfig(hidden=(16,), discount=0.9)


def test_targets_and_loss_by_hand():
    # At s' = 2: Q' = (1, 0.5, 6) and Q = (2, 4, 0.5), whose best is the second.
    assert dqn.target_value(CONFIG, Q, TARGET, STEP) == pytest.approx(0.5 + 0.9 * 6)
    double = replace(CONFIG, double=True)
    assert dqn.target_value(double, Q, TARGET, STEP) == pytest.approx(0.5 + 0.9 * 0.5)
    ended = STEP._replace(terminated=jnp.bool_(True))
    assert dqn.target_value(CONFIG, Q, TARGET, ended) == 0.5
    # Q(s, the second) = 0.4.
    assert dqn.loss(CONFIG, Q, TARGET, STEP) == pytest.approx((0.4 - 5.9) ** 2)
    grad = jax.grad(partial(dqn.loss, double))(Q, TARGET, STEP)
    np.testing.assert_allclose(grad.layers[0].bias, [0, 2 * (0.4 - 0.95), 0], rtol=1e-5)


@pytest.mark.parametrize(
    ("action", "number"), [([0, 0, 1], 2), ([0.1, 0.3, -1], 1), ([0, 3, 2], 1), ([-1, -1, -1], 0)]
)
def test_an_action_is_its_largest_entry_after_clipping(action, number):
    assert dqn.chosen(jnp.array(action, jnp.float32)) == number


def test_actions(getkey):
    obs = jnp.array([2.0])
    np.testing.assert_array_equal(dqn.act(CONFIG, Q, obs, getkey(), True), [0, 1, 0])
    config = replace(CONFIG, exploration=0.6)
    keys = jax.random.split(getkey(), 3000)
    taken = jax.vmap(lambda key: dqn.act(config, Q, obs, key, False))(keys).mean(axis=0)
    np.testing.assert_allclose(taken, [0.2, 0.6, 0.2], atol=0.04)


def test_a_chain_has_the_values_that_it_has(getkey):
    """Two actions. From the first state, one stays and the other goes on to the second, both for
    nothing; there one pays 1 and ends, the other pays 0.2 and ends. Best: gamma, then 1."""
    config = DqnConfig(hidden=(16,), discount=0.5, learning_rate=1e-2, target_rate=0.05)
    first, second = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    stay, go = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    # One task of four transitions.
    rows = [
        (first, stay, 0.0, first, False),
        (first, go, 0.0, second, False),
        (second, stay, 0.2, second, True),
        (second, go, 1.0, second, True),
    ]
    batch = Step(
        *(jnp.stack([jnp.asarray(x) for x in column])[None] for column in zip(*rows, strict=True))
    )
    state = dqn.init(config, 2, 2, getkey())

    def update(state, _):
        state, metrics = dqn.step(config, state, batch)
        return state, metrics["q_loss"]

    state, losses = jax.jit(lambda s: jax.lax.scan(update, s, length=1500))(state)
    assert losses.shape == (1500, 1)
    # Staying first loses a step: gamma^2.
    np.testing.assert_allclose(
        jax.vmap(state.q)(jnp.stack([first, second])), [[0.25, 0.5], [0.2, 1]], atol=0.02
    )
    np.testing.assert_array_equal(dqn.act(config, state.q, first, getkey(), True), go)
    assert np.any(state.target_q.layers[0].affine != state.q.layers[0].affine)
