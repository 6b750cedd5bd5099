"""BOReL's actor-critic: the step by hand, and bandits that only the belief can tell apart."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos import borel_policy, sac
from omrl.algos.borel_config import BeliefSacConfig
from omrl.algos.borel_policy import Noise
from omrl.errors import InputError
from omrl.nets.mlp import Dense, Mlp
from omrl.types import Step

pytestmark = pytest.mark.usefixtures("own_programs")

SMALL = BeliefSacConfig(hidden=(8,), initial="uniform")


def linear(weight, bias):
    """A network of one layer."""
    return Mlp((Dense.of(jnp.array(weight, jnp.float32), jnp.array(bias, jnp.float32)),))


# One entry of s+, one action: mean = s, log_std = -1; Q_1 = s + 2 a, Q_2 = 3 s - a + 0.5.
ACTOR = linear([[1.0, 0.0]], [0.0, -1.0])
CRITICS = linear([[[1.0], [2.0]], [[3.0], [-1.0]]], [[0.0], [0.5]])


def batch_of(key, config=SMALL, tasks=2, samples=6, obs_dim=3, act_dim=2) -> tuple[Step, Noise]:
    keys = jax.random.split(key, 6)
    lead = (tasks, samples)
    batch = Step(
        jax.random.normal(keys[0], (*lead, obs_dim)),
        jax.random.uniform(keys[1], (*lead, act_dim), minval=-1, maxval=1),
        jax.random.normal(keys[2], lead),
        jax.random.normal(keys[3], (*lead, obs_dim)),
        jax.random.bernoulli(keys[4], 0.3, lead),
    )
    noise = jax.vmap(partial(borel_policy.draw, config, samples, act_dim))(
        jax.random.split(keys[5], tasks)
    )
    return batch, noise


def test_the_state_is_observation_mean_and_log_variance():
    parts = jnp.array([1.0]), jnp.array([2.0, 3.0]), jnp.array([4.0, 5.0])
    np.testing.assert_array_equal(borel_policy.belief_obs(*parts), [1, 2, 3, 4, 5])


def test_losses_by_hand():
    state = borel_policy.start(replace(SMALL, temperature=0.2), ACTOR, CRITICS)
    assert state.log_temperature == pytest.approx(np.log(0.2))
    column = jnp.ones((1, 1))
    batch = Step(
        obs=0.5 * column[..., None],
        action=0.25 * column[..., None],
        reward=column,
        next_obs=0.2 * column[..., None],
        terminated=column < 0,
    )
    noise = jnp.full((1, 1, 1), 0.7)

    def acted(obs):
        """Action and log density of mean = s, deviation 1/e."""
        u = obs + np.exp(-1) * 0.7
        normal = -0.5 * 0.7**2 + 1 - 0.5 * np.log(2 * np.pi)
        return np.tanh(u), normal - np.log(1 - np.tanh(u) ** 2)

    action, log_prob = acted(0.2)
    y = 1 + 0.99 * (min(0.2 + 2 * action, 0.6 - action + 0.5) - 0.2 * log_prob)
    target = borel_policy.q_target(SMALL, state, batch, noise)
    np.testing.assert_allclose(target, [[y]], rtol=1e-5)
    # Q_1 = 0.5 + 0.5, Q_2 = 1.5 - 0.25 + 0.5.
    losses = borel_policy.q_losses(CRITICS, batch, target)
    np.testing.assert_allclose(losses, [[(1 - y) ** 2, (1.75 - y) ** 2]], rtol=1e-4)
    action, log_prob = acted(0.5)
    actor = 0.2 * log_prob - min(0.5 + 2 * action, 1.5 - action + 0.5)
    given = (ACTOR, state.log_temperature, CRITICS, batch.obs, noise)
    np.testing.assert_allclose(borel_policy.policy_losses(SMALL, *given), [actor], rtol=1e-5)
    learned = replace(SMALL, temperature=None, target_entropy=-3.0)
    both = actor - 0.2 * (log_prob - 3)
    np.testing.assert_allclose(borel_policy.policy_losses(learned, *given), [both], rtol=1e-5)


def test_clipped_density_is_the_one_with_a_millionth():
    # At mean 20 tanh is 1: its slope is 1e-6 there and not 4 e^-40.
    far = linear([[0.0, 0.0]], [20.0, -20.0])
    given = (far, jnp.zeros(()), CRITICS, jnp.zeros((1, 1, 1)), jnp.zeros((1, 1, 1)))
    config = replace(SMALL, temperature=1.0)
    exact, clipped = (
        borel_policy.policy_losses(replace(config, log_prob=name), *given)[0]
        for name in ("exact", "clipped")
    )
    assert exact - clipped == pytest.approx(40 - np.log(4) - np.log(1e6), rel=1e-4)


@pytest.mark.parametrize("initial", ["small-outputs", "uniform"])
def test_new_networks(getkey, initial):
    state = borel_policy.init(BeliefSacConfig(hidden=(8, 8), initial=initial), 5, 2, getkey())
    assert [layer.affine.shape for layer in state.actor.layers] == [(6, 8), (9, 8), (9, 4)]
    assert [layer.affine.shape for layer in state.critics.layers] == [
        (2, 8, 8),
        (2, 9, 8),
        (2, 9, 1),
    ]
    for critic, target in zip(
        *map(jax.tree.leaves, (state.critics, state.target_critics)), strict=True
    ):
        np.testing.assert_array_equal(critic, target)
        assert np.any(critic[0] != critic[1])
    largest = jnp.abs(state.critics.layers[-1].affine).max()
    assert (largest <= 3e-3) == (initial == "small-outputs")


@pytest.fixture(scope="module")
def step_of():
    """Compiled once each."""
    steps = {}

    def get(config):
        if config not in steps:
            steps[config] = jax.jit(partial(borel_policy.step, config))
        return steps[config]

    return get


@pytest.mark.parametrize("temperature", [0.2, None])
def test_everything_moves_but_a_fixed_temperature(getkey, step_of, temperature):
    config = replace(SMALL, temperature=temperature)
    state = borel_policy.init(config, 3, 2, getkey())
    moved, metrics = step_of(config)(state, *batch_of(getkey()))
    assert jax.tree.structure(moved) == jax.tree.structure(state)
    assert {name: value.shape for name, value in metrics.items()} == {
        "q_loss": (2,),
        "policy_loss": (2,),
    }
    for name in ("actor", "critics", "target_critics"):
        pairs = zip(*(jax.tree.leaves(getattr(s, name)) for s in (state, moved)), strict=True)
        assert all(np.any(old != new) for old, new in pairs)
    same = moved.log_temperature == state.log_temperature
    assert same == (temperature is not None)
    for old, new in zip(*map(jax.tree.leaves, (state, moved)), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)


def test_the_policy_learns_from_the_qs_before_their_step(getkey, step_of):
    batch = batch_of(getkey())
    state = borel_policy.init(SMALL, 3, 2, getkey())
    slow, fast = (step_of(replace(SMALL, critic_lr=rate))(state, *batch)[0] for rate in (3e-4, 0.3))
    for one, other in zip(*map(jax.tree.leaves, (slow.actor, fast.actor)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.any(slow.critics.layers[0].affine != fast.critics.layers[0].affine)


def test_tasks_have_no_order(getkey, step_of):
    batch = batch_of(getkey())
    state = borel_policy.init(SMALL, 3, 2, getkey())
    moved, metrics = step_of(SMALL)(state, *batch)
    other, other_metrics = step_of(SMALL)(state, *jax.tree.map(lambda leaf: leaf[::-1], batch))
    np.testing.assert_allclose(metrics["q_loss"], other_metrics["q_loss"][::-1], rtol=1e-5)
    for ours, expected in zip(*map(jax.tree.leaves, (moved, other)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-5)


def test_bandits_told_apart_by_the_belief(getkey):
    """Reward -(a - 0.5 m)^2, m = +-1 the mean of the belief: so is the best action."""
    config = BeliefSacConfig(
        hidden=(32,), initial="uniform", temperature=0.01, critic_lr=1e-2, policy_lr=3e-3
    )
    mean = jnp.array([1.0, -1.0])
    obs = jax.vmap(
        lambda m: jnp.tile(borel_policy.belief_obs(jnp.zeros(1), m[None], jnp.zeros(1)), (32, 1))
    )(mean)

    def update(state, key):
        data_key, noise_key = jax.random.split(key)
        action = jax.random.uniform(data_key, (2, 32, 1), minval=-1, maxval=1)
        reward = -((action[..., 0] - 0.5 * mean[:, None]) ** 2)
        batch = Step(obs, action, reward, obs, jnp.ones((2, 32), bool))
        keys = jax.random.split(noise_key, 2)
        noise = jax.vmap(partial(borel_policy.draw, config, 32, 1))(keys)
        return borel_policy.step(config, state, batch, noise)[0], None

    keys = jax.random.split(getkey(), 1500)
    state = borel_policy.init(config, 3, 1, getkey())
    state = jax.jit(lambda s: jax.lax.scan(update, s, keys)[0])(state)
    for task in range(2):
        best = jnp.tanh(sac.action_distribution(state.actor, obs[task, 0])[0])
        assert best[0] == pytest.approx(0.5 * float(mean[task]), abs=0.1)


def test_an_entropy_target_needs_a_learned_temperature():
    with pytest.raises(InputError, match="target_entropy: -2 is of a learned temperature"):
        BeliefSacConfig(target_entropy=-2.0)
    assert BeliefSacConfig(target_entropy=-2.0, temperature=None).target_entropy == -2.0
