"""SAC: the equations with literal numbers, gradient separation, and a bandit it must solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos.sac import (
    Sac,
    SacConfig,
    SacState,
    action_distribution,
    policy_loss,
    target_value,
)
from omrl.nets.mlp import Dense, Mlp
from omrl.ops.gaussian import sample_squashed, squash
from omrl.types import Step

pytestmark = pytest.mark.usefixtures("own_programs")


def linear(weight, bias):
    """A network of one layer."""
    return Mlp((Dense.of(jnp.array(weight, jnp.float32), jnp.array(bias, jnp.float32)),))


# One observation entry, one action: mean = s, log_std = -1; Q_1 = s + 2 a, Q_2 = 3 s - a + 0.5.
ACTOR = linear([[1.0, 0.0]], [0.0, -1.0])
CRITICS = linear([[[1.0], [2.0]], [[3.0], [-1.0]]], [[0.0], [0.5]])
STATE = SacState(ACTOR, jnp.log(jnp.float32(0.2)), CRITICS, CRITICS, (), ())
NOISE = jnp.array([0.7])


def transition(terminated=False):
    return Step(
        jnp.array([0.5]),
        jnp.array([0.25]),
        jnp.float32(1.0),
        jnp.array([0.2]),
        jnp.bool_(terminated),
    )


def test_target_is_the_entropy_regularised_value():
    action, log_prob = squash(NOISE, jnp.array([0.2]), jnp.array([-1.0]))
    smaller = min(0.2 + 2 * float(action[0]), 3 * 0.2 - float(action[0]) + 0.5)
    expected = 1.0 + 0.9 * (smaller - 0.2 * float(log_prob))
    assert target_value(STATE, transition(), NOISE, 0.9) == pytest.approx(expected, rel=1e-5)


def test_target_of_a_terminal_transition_is_its_reward():
    assert target_value(STATE, transition(terminated=True), NOISE, 0.9) == 1.0


def test_log_std_is_clipped():
    wide = linear([[0.0, 0.0]], [0.0, 50.0])
    assert action_distribution(wide, jnp.array([0.0]))[1][0] == 2.0
    narrow = linear([[0.0, 0.0]], [0.0, -50.0])
    assert action_distribution(narrow, jnp.array([0.0]))[1][0] == -20.0


def test_policy_loss_is_the_sum_of_both_equations():
    action, log_prob = squash(NOISE, jnp.array([0.5]), jnp.array([-1.0]))
    smaller = min(0.5 + 2 * float(action[0]), 3 * 0.5 - float(action[0]) + 0.5)
    actor = 0.2 * float(log_prob) - smaller
    temperature = -0.2 * (float(log_prob) - 1.0)
    loss = policy_loss(ACTOR, STATE.log_temperature, CRITICS, jnp.array([0.5]), NOISE, -1.0)
    assert loss == pytest.approx(actor + temperature, rel=1e-5)


def test_temperature_gradient_is_that_of_its_own_loss():
    _, log_prob = squash(NOISE, jnp.array([0.5]), jnp.array([-1.0]))
    grad = jax.grad(policy_loss, argnums=1)(
        ACTOR, STATE.log_temperature, CRITICS, jnp.array([0.5]), NOISE, -1.0
    )
    assert grad == pytest.approx(-0.2 * (float(log_prob) - 1.0), rel=1e-5)


def test_update_moves_every_part(getkey):
    agent = Sac(SacConfig(hidden=(8,)), 3, 2)
    state = jax.jit(agent.init)(getkey())
    keys = jax.random.split(getkey(), 3)
    batch = Step(
        jax.random.normal(keys[0], (1, 16, 3)),
        jax.random.uniform(keys[1], (1, 16, 2), minval=-1, maxval=1),
        jnp.ones((1, 16)),
        jax.random.normal(keys[2], (1, 16, 3)),
        jnp.zeros((1, 16), bool),
    )
    new = jax.jit(agent.update)(state, batch, getkey())
    assert jax.tree.structure(new) == jax.tree.structure(state)
    for old_leaf, new_leaf in zip(*map(jax.tree.leaves, (state, new)), strict=True):
        assert old_leaf.shape == new_leaf.shape
        assert old_leaf.dtype == new_leaf.dtype
        assert np.any(old_leaf != new_leaf)


def test_actions(getkey):
    agent = Sac(SacConfig(hidden=(8,)), 3, 2)
    state, obs = agent.init(getkey()), jnp.array([0.1, 0.2, -0.3])
    best = agent.act(state, obs, getkey(), True)
    np.testing.assert_array_equal(best, jnp.tanh(state.actor(obs)[:2]))
    sampled = agent.act(state, obs, getkey(), False)
    assert np.abs(sampled).max() <= 1
    assert np.any(sampled != best)


@pytest.mark.parametrize("target_entropy", [None, 0.0])
def test_learns_a_bandit_and_reaches_the_target_entropy(getkey, target_entropy):
    """One step, r = -(a - 0.5)^2: the mode is near 0.5 and E[-log pi] equals H."""
    agent = Sac(
        SacConfig(
            hidden=(32,), learning_rate=5e-3, target_rate=0.05, target_entropy=target_entropy
        ),
        1,
        1,
    )
    obs = jnp.zeros((1, 64, 1))

    def step(state, key):
        data_key, update_key = jax.random.split(key)
        action = jax.random.uniform(data_key, (1, 64, 1), minval=-1, maxval=1)
        reward = -((action[..., 0] - 0.5) ** 2)
        batch = Step(obs, action, reward, obs, jnp.ones((1, 64), bool))
        return agent.update(state, batch, update_key), None

    keys = jax.random.split(getkey(), 4000)
    state = jax.jit(lambda s: jax.lax.scan(step, s, keys)[0])(agent.init(getkey()))
    assert agent.act(state, jnp.zeros(1), keys[0], True) == pytest.approx(0.5, abs=0.07)
    mean, log_std = action_distribution(state.actor, jnp.zeros(1))
    samples = jax.random.split(getkey(), 4000)
    log_prob = jax.vmap(lambda k: sample_squashed(k, mean, log_std)[1])(samples)
    expected = -1.0 if target_entropy is None else target_entropy
    assert -float(log_prob.mean()) == pytest.approx(expected, abs=0.15)
