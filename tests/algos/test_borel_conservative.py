"""BOReL's conservative policies (CQL): the term by hand, and data that lack actions.

`plain` is the paper's variant. Both problems have known values, and it overestimates them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos import borel_policy, dqn, sac
from omrl.algos.borel_config import BeliefSacConfig
from omrl.algos.borel_policy import Proposals
from omrl.algos.dqn import DqnConfig, DqnState
from omrl.errors import InputError
from omrl.nets.critics import action_values
from omrl.nets.mlp import Dense, Mlp
from omrl.types import Step

pytestmark = pytest.mark.usefixtures("own_programs")

CONFIG = BeliefSacConfig(hidden=(8,), initial="uniform", conservative=2.0, conservative_actions=3)


def linear(weight, bias):
    """A network of one layer."""
    return Mlp((Dense.of(jnp.array(weight, jnp.float32), jnp.array(bias, jnp.float32)),))


def test_the_gap_by_hand(getkey):
    """One entry of s+, two of the action. Independent of the code: numpy, a loop per transition."""
    actor = linear([[1.0, -0.5, 0.0, 0.0]], [0.0, 0.2, -1.0, -0.5])
    critics = linear([[[1.0], [2.0], [-1.0]], [[3.0], [-1.0], [0.5]]], [[0.0], [0.5]])
    keys = jax.random.split(getkey(), 4)
    obs, logged = (
        jax.random.normal(keys[0], (2, 4, 1)),
        jnp.tanh(jax.random.normal(keys[1], (2, 4, 2))),
    )
    proposals = Proposals(
        jax.random.uniform(keys[2], (2, 4, 3, 2), minval=-1),
        jax.random.normal(keys[3], (2, 4, 3, 2)),
    )
    batch = Step(obs, logged, obs[..., 0], obs, obs[..., 0] < 0)
    gaps = borel_policy.q_gaps(CONFIG, actor, critics, batch, proposals)

    weights, biases = np.array([[1, 2, -1], [3, -1, 0.5]]), np.array([0, 0.5])
    std = np.exp([-1, -0.5])
    expected = np.zeros((2, 2))
    for task, sample in np.ndindex(2, 4):
        s = float(obs[task, sample, 0])
        eps = np.asarray(proposals.noise[task, sample], np.float64)
        acted = np.tanh(np.array([s, -0.5 * s + 0.2]) + std * eps)
        normal = np.exp(-(eps**2) / 2) / np.sqrt(2 * np.pi) / std
        density = np.concatenate([np.full(3, 1 / 4), np.prod(normal / (1 - acted**2), axis=1)])
        actions = np.concatenate([proposals.uniform[task, sample], acted])
        for critic in range(2):
            of_s, *of_a = weights[critic]
            values = of_s * s + actions @ of_a + biases[critic]
            done = of_s * s + np.asarray(logged[task, sample]) @ of_a + biases[critic]
            expected[task, critic] += np.log(np.mean(np.exp(values) / density)) - done
    np.testing.assert_allclose(gaps, expected / 4, rtol=1e-4)

    def of_actor(actor: Mlp) -> jax.Array:
        return jnp.sum(borel_policy.q_gaps(CONFIG, actor, critics, batch, proposals))

    for leaf in jax.tree.leaves(jax.grad(of_actor)(actor)):
        np.testing.assert_array_equal(leaf, 0)


def test_only_a_conservative_one_draws_more(getkey):
    key = getkey()
    plain = borel_policy.draw(replace(CONFIG, conservative=0.0), 5, 2, key)
    noise = borel_policy.draw(CONFIG, 5, 2, key)
    assert plain.proposals is None
    assert noise.proposals is not None
    np.testing.assert_array_equal(noise.action, plain.action)
    np.testing.assert_array_equal(noise.next_action, plain.next_action)
    assert noise.proposals.uniform.shape == noise.proposals.noise.shape == (5, 3, 2)
    assert jnp.abs(noise.proposals.uniform).max() <= 1


# --- A bandit of which the data has the middle alone ---

LARGEST = 0.3


@pytest.fixture(scope="module")
def bandits() -> dict[str, tuple[float, float]]:
    """The best action that either learns, and what its Qs say of it."""
    learned = {}
    for name, weight in (("plain", 0.0), ("conservative", 1.0)):
        config = replace(
            CONFIG,
            hidden=(32,),
            temperature=0.01,
            critic_lr=3e-3,
            policy_lr=3e-3,
            conservative=weight,
            conservative_actions=10,
        )
        learned[name] = _learned(config)
    return learned


def _learned(config: BeliefSacConfig) -> tuple[float, float]:
    obs = jnp.zeros((1, 64, 1))

    def update(state: sac.SacState, key: jax.Array) -> tuple[sac.SacState, None]:
        data_key, noise_key = jax.random.split(key)
        action = jax.random.uniform(data_key, (1, 64, 1), minval=-LARGEST, maxval=LARGEST)
        batch = Step(obs, action, action[..., 0], obs, jnp.ones((1, 64), bool))
        noise = jax.vmap(partial(borel_policy.draw, config, 64, 1))(noise_key[None])
        return borel_policy.step(config, state, batch, noise)[0], None

    key = jax.random.PRNGKey(0)
    state = borel_policy.init(config, 1, 1, key)
    state = jax.jit(lambda s: jax.lax.scan(update, s, jax.random.split(key, 1000))[0])(state)
    best = jnp.tanh(sac.action_distribution(state.actor, obs[0, 0])[0])
    return float(best[0]), float(jnp.min(action_values(state.critics, obs[0, 0], best)))


def paid(action: float) -> float:
    """The reward of an action is the action, where there is data, and -1 elsewhere."""
    return action if abs(action) <= LARGEST else -1.0


def test_the_plain_one_promises_what_no_data_has(bandits):
    action, promised = bandits["plain"]
    assert action > 0.8
    assert promised > paid(action) + 1.5


def test_the_conservative_one_keeps_what_it_promises(bandits):
    """Its value is a lower bound, and not far below."""
    action, promised = bandits["conservative"]
    assert 0 < action < LARGEST
    assert paid(action) - 0.3 < promised < paid(action)


# --- DQN ---


def test_the_loss_of_dqn_by_hand():
    """Q = (1, 2, 0) and target 0.5 of the logged second action: 1.5^2 and the gap."""
    q = linear([[0.0, 0.0, 0.0]], [1.0, 2.0, 0.0])
    action = jnp.array([0.0, 1.0, 0.0])
    step = Step(jnp.ones(1), action, jnp.float32(0.5), jnp.ones(1), jnp.bool_(True))
    gap = np.log(np.exp(1) + np.exp(2) + 1) - 2
    loss = dqn.loss(DqnConfig(conservative=3.0), q, q, step)
    assert loss == pytest.approx(1.5**2 + 3 * gap, rel=1e-5)
    assert dqn.loss(DqnConfig(), q, q, step) == 1.5**2


@pytest.mark.parametrize(("weight", "value", "tolerance"), [(0.0, 9.0, 0.5), (1.0, 0.0, 0.5)])
def test_a_chain_of_which_one_action_is_never_tried(weight, value, tolerance, getkey):
    """Nothing is ever paid, so that all values are 0. The data has the first action only, which
    leads back; of the second the new network says 10, and the plain target believes it."""
    config = DqnConfig(discount=0.9, learning_rate=3e-2, target_rate=0.1, conservative=weight)
    q = linear([[0.0, 0.0]], [0.0, 10.0])
    opt: Any = dqn.init(replace(config, hidden=()), 1, 2, getkey()).opt
    batch = Step(
        jnp.ones((1, 4, 1)),
        jnp.tile(jnp.array([1.0, 0.0]), (1, 4, 1)),
        jnp.zeros((1, 4)),
        jnp.ones((1, 4, 1)),
        jnp.zeros((1, 4), bool),
    )
    state = DqnState(q, q, opt)
    state = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: (dqn.step(config, s, batch)[0], None), s, length=2000)
    )(state)[0]
    assert state.q(jnp.ones(1))[0] == pytest.approx(value, abs=tolerance)


def test_a_weight_is_not_negative():
    for kind in (BeliefSacConfig, DqnConfig):
        with pytest.raises(InputError, match="conservative"):
            kind(conservative=-1.0)
    with pytest.raises(InputError, match="conservative_actions"):
        BeliefSacConfig(conservative_actions=0)
