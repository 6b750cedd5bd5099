"""MACAW's networks: what the advantage head sees, and the parameter counts of the papers."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.nets.adaptive import BiasTransform, WeightTransform
from omrl.nets.heads import PolicyNet, ValueNet
from omrl.nets.mlp import Dense, num_parameters
from omrl.ops import inner_loop

# obs s (1) -> hidden (1): relu(2 s + 1) -> action (1): tanh(h - 1); head on [h, a]: 3 h + 5 a + 7
TRUNK = (
    Dense.of(jnp.array([[2.0]]), jnp.array([1.0])),
    Dense.of(jnp.array([[1.0]]), jnp.array([-1.0])),
)
HEAD = (Dense.of(jnp.array([[3.0], [5.0]]), jnp.array([7.0])),)


def test_value():
    # relu(2 * 2 + 1) = 5; 5 - 1 = 4, no tanh; and at s = -2: relu(-3) = 0, 0 - 1
    value = ValueNet(TRUNK)
    assert value(jnp.array([2.0])) == pytest.approx(4.0)
    assert value(jnp.array([-2.0])) == pytest.approx(-1.0)


@pytest.mark.parametrize("relu_action", [False, True])
def test_policy_and_advantage(relu_action):
    policy = PolicyNet(TRUNK, HEAD, relu_action)
    obs = jnp.array([0.5])
    # h = 2; mean tanh(1)
    np.testing.assert_allclose(policy(obs), np.tanh([1.0]), rtol=1e-6)
    mean, advantage = policy.with_advantage(obs, jnp.array([0.2]))
    np.testing.assert_array_equal(mean, policy(obs))
    assert advantage == pytest.approx(3 * 2 + 5 * 0.2 + 7)
    # A negative action component is 0 to the reference's head.
    _, advantage = policy.with_advantage(obs, jnp.array([-0.2]))
    assert advantage == pytest.approx(3 * 2 + 7 - (0 if relu_action else 5 * 0.2))
    # The head sees the hidden layer after its ReLU.
    _, advantage = policy.with_advantage(jnp.array([-3.0]), jnp.array([0.0]))
    assert advantage == pytest.approx(7.0)


def test_without_a_head(getkey):
    make = partial(WeightTransform.init, latent=2, offset=False)
    policy = PolicyNet.init(getkey(), 3, 2, (4,), None, make, relu_action=False)
    assert policy.head == ()
    assert inner_loop.generate(policy)(jnp.zeros(3)).shape == (2,)


# --- Parameter counts: half-cheetah, 20 observations, 6 actions; three layers of 100, head 32 ---


@pytest.mark.parametrize(
    ("make", "value_count", "policy_count"),
    [
        (partial(WeightTransform.init, latent=100, offset=True), 2_262_901, 2_663_263),
        (BiasTransform.init, 52_703, 57_763),
    ],
)
def test_parameter_counts_of_the_reference_code(make, value_count, policy_count):
    def nets(key):
        value = ValueNet.init(key, 20, (100, 100, 100), make)
        policy = PolicyNet.init(key, 20, 6, (100, 100, 100), (32,), make, relu_action=True)
        return value, policy

    value, policy = jax.eval_shape(nets, jax.random.PRNGKey(0))
    assert num_parameters(value) == value_count
    assert num_parameters(policy) == policy_count
