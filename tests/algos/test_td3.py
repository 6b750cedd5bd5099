"""TD3: the equations with literal numbers, the update's order, and a bandit it must solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos.td3 import (
    Networks,
    Td3,
    Td3Config,
    actor_loss,
    critic_loss,
    policy,
    target_value,
)
from omrl.nets.mlp import Dense, Mlp
from omrl.types import Step

pytestmark = pytest.mark.usefixtures("own_programs")


def linear(weight, bias):
    """A network of one layer."""
    return Mlp((Dense.of(jnp.array(weight, jnp.float32), jnp.array(bias, jnp.float32)),))


# Observations and actions have one entry. pi(s) = tanh(s); Q_1 = s + 2 a, Q_2 = 3 s - a + 0.5.
ACTOR = linear([[1.0]], [0.0])
CRITICS = linear([[[1.0], [2.0]], [[3.0], [-1.0]]], [[0.0], [0.5]])
NETWORKS = Networks(ACTOR, CRITICS)


def transition(obs=0.5, action=0.25, reward=1.0, next_obs=0.2, terminated=False):
    return Step(
        jnp.array([obs]),
        jnp.array([action]),
        jnp.float32(reward),
        jnp.array([next_obs]),
        jnp.bool_(terminated),
    )


@pytest.mark.parametrize(
    ("noise", "smoothing"),
    [(1.0, 0.2), (-1.0, -0.2), (9.0, 0.5), (-9.0, -0.5)],  # 0.2 * 9 is clipped to 0.5
)
def test_target_is_the_smaller_value_of_the_smoothed_action(noise, smoothing):
    action = np.clip(np.tanh(0.2) + smoothing, -1, 1)
    expected = 1.0 + 0.99 * min(0.2 + 2 * action, 3 * 0.2 - action + 0.5)
    target = target_value(NETWORKS, transition(), jnp.array([noise]), Td3Config())
    assert target == pytest.approx(expected, rel=1e-6)


def test_smoothed_action_stays_in_bounds():
    # tanh(3) + 0.5 is clipped to 1: min(3 + 2, 9 - 1 + 0.5) = 5.
    target = target_value(NETWORKS, transition(next_obs=3.0), jnp.array([9.0]), Td3Config())
    assert target == pytest.approx(1.0 + 0.99 * 5.0, rel=1e-6)


def test_target_of_a_terminal_transition_is_its_reward():
    target = target_value(NETWORKS, transition(terminated=True), jnp.array([0.0]), Td3Config())
    assert target == 1.0


def test_no_gradient_flows_through_the_target():
    grads = jax.grad(lambda n: target_value(n, transition(), jnp.array([0.3]), Td3Config()))(
        NETWORKS
    )
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grads))


def test_critic_loss_sums_both_critics():
    # Q_1 = 0.5 + 0.5 = 1, Q_2 = 1.5 - 0.25 + 0.5 = 1.75; (1 - 2)^2 + (1.75 - 2)^2 = 1.0625
    assert critic_loss(CRITICS, transition(), jnp.float32(2.0)) == pytest.approx(1.0625)


def test_actor_loss_uses_the_first_critic():
    expected = -(0.5 + 2 * np.tanh(0.5))
    assert actor_loss(ACTOR, CRITICS, jnp.array([0.5])) == pytest.approx(expected, rel=1e-6)


def random_batches(key, delay, size=32):
    keys = jax.random.split(key, 4)
    return Step(
        jax.random.normal(keys[0], (delay, size, 3)),
        jax.random.uniform(keys[1], (delay, size, 2), minval=-1, maxval=1),
        jax.random.normal(keys[2], (delay, size)),
        jax.random.normal(keys[3], (delay, size, 3)),
        jnp.zeros((delay, size), bool),
    )


def test_critics_are_updated_d_times_and_the_actor_once(getkey):
    agent = Td3(Td3Config(hidden=(8,), policy_delay=3), 3, 2)
    state = jax.jit(agent.init)(getkey())
    new = jax.jit(agent.update)(state, random_batches(getkey(), 3), getkey())
    assert (int(new.critic_opt[0].count), int(new.actor_opt[0].count)) == (3, 1)
    for target, before, online in zip(
        *map(jax.tree.leaves, (new.target, state.target, new.online)), strict=True
    ):
        np.testing.assert_allclose(target, 0.995 * before + 0.005 * online, atol=1e-6)


def test_actions_are_bounded_and_noise_has_the_stated_width(getkey):
    agent = Td3(Td3Config(hidden=(8,)), 3, 2)
    state, obs = agent.init(getkey()), jnp.array([0.1, 0.2, -0.3])
    best = agent.act(state, obs, getkey(), True)
    np.testing.assert_array_equal(best, policy(state.online.actor, obs))
    keys = jax.random.split(getkey(), 4000)
    noisy = jax.vmap(lambda k: agent.act(state, obs, k, False))(keys)
    assert np.abs(noisy).max() <= 1
    np.testing.assert_allclose(np.std(np.asarray(noisy) - np.asarray(best), axis=0), 0.1, rtol=0.05)


def test_learns_the_best_action_of_a_bandit(getkey):
    """One step, r = -(a - a*)^2 with a* = (0.5, -0.3): V(s) = 0 and pi(s) = a*."""
    best = jnp.array([0.5, -0.3])
    agent = Td3(Td3Config(hidden=(128, 128), learning_rate=2e-3), 1, 2)

    def step(state, key):
        data_key, update_key = jax.random.split(key)
        action = jax.random.uniform(data_key, (2, 64, 2), minval=-1, maxval=1)
        obs = jnp.zeros((2, 64, 1))
        reward = -jnp.sum((action - best.reshape(1, 1, 2)) ** 2, -1)
        batches = Step(obs, action, reward, obs, jnp.ones((2, 64), bool))
        return agent.update(state, batches, update_key), None

    keys = jax.random.split(getkey(), 2000)
    state = jax.jit(lambda s: jax.lax.scan(step, s, keys)[0])(agent.init(getkey()))
    action = agent.act(state, jnp.zeros(1), keys[0], True)
    np.testing.assert_allclose(action, best, atol=0.05)


def test_a_time_limit_bootstraps_and_a_termination_does_not(getkey):
    """Reward 1 for ever: Q = 1 / (1 - 0.8) = 5 when never terminated, 1 when always."""
    config = Td3Config(hidden=(16,), learning_rate=3e-3, target_rate=0.05, discount=0.8)
    agent = Td3(config, 1, 1)

    def learned_value(terminated):
        def step(state, key):
            data_key, update_key = jax.random.split(key)
            action = jax.random.uniform(data_key, (2, 32, 1), minval=-1, maxval=1)
            obs, one = jnp.zeros((2, 32, 1)), jnp.ones((2, 32))
            batches = Step(obs, action, one, obs, one * terminated > 0)
            return agent.update(state, batches, update_key), None

        keys = jax.random.split(getkey(), 800)
        state = jax.lax.scan(step, agent.init(getkey()), keys)[0]
        return -actor_loss(state.online.actor, state.online.critics, jnp.zeros(1))

    values = jax.jit(jax.vmap(learned_value))(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(values, [5.0, 1.0], rtol=0.05)
