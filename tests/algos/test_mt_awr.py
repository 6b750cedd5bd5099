"""Multi-task AWR: what it solves and what it must not, its losses and fine-tuning by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bandits
from omrl.algos import mt_awr
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.ops import inner_loop
from quick import quick_jit
from tiny_macaw import SPEC, assert_close, make_batch, make_mt_awr

KEY = jax.random.PRNGKey(0)
SETTINGS: dict[str, Any] = {
    "hidden": (16,),
    "task_batch": 2,
    "policy_lr": 1e-2,
    "value_lr": 1e-2,
    "adapt_policy_lr": 1e-2,
    "adapt_value_lr": 1e-2,
    "temperature": bandits.TEMPERATURE,
    "adapt_steps": 200,
}


def test_told_tasks_are_solved_hidden_ones_only_by_fine_tuning():
    algorithm = make_mt_awr(bandits.SPEC, **SETTINGS)
    _, last, before, actions = bandits.solve(algorithm, bandits.opposite)
    policy = inner_loop.generate(last.nets.policy)
    told = [policy(jnp.concatenate([bandits.OBS, one_hot]))[0] for one_hot in jnp.eye(2)]
    np.testing.assert_allclose(told * bandits.SIGNS, bandits.BEST, atol=0.1)
    # One action cannot be right in both tasks.
    assert np.min(before[0] * bandits.SIGNS) <= 0
    right_way = np.asarray(actions) * bandits.SIGNS
    assert np.all(right_way > 0.25)
    assert np.mean(right_way) == pytest.approx(bandits.BEST, abs=0.1)


def test_the_one_hot_is_behind_the_observations_that_losses_read():
    batch = make_batch(KEY, 2)
    told = mt_awr.with_one_hot(batch, jnp.int32(1), 3)
    for obs, before in ((told.obs, batch.obs), (told.terminal_obs, batch.terminal_obs)):
        np.testing.assert_array_equal(obs[:, :3], before)
        np.testing.assert_array_equal(obs[:, 3:], [[0, 1, 0], [0, 1, 0]])


@pytest.mark.parametrize("bootstrap", [False, True])
def test_losses_are_their_equations(bootstrap):
    algorithm = make_mt_awr(bootstrap_value=bootstrap, bootstrap_advantage=bootstrap, sigma=0.5)
    nets, batch = algorithm.begin(algorithm.init(KEY), KEY).nets, make_batch(KEY, 8)
    value, policy = (jax.vmap(inner_loop.generate(net)) for net in nets)
    end = batch.terminal_discount * value(batch.terminal_obs) if bootstrap else 0.0
    advantage = batch.mc_return + end - value(batch.obs)
    loss = mt_awr.value_loss(algorithm.config, batch, nets.value)
    np.testing.assert_allclose(loss, np.mean(advantage**2), rtol=1e-5)
    # No advantage here is over ln 20 standard deviations.
    weights = np.exp((advantage - advantage.mean()) / np.std(advantage, ddof=1))
    log_prob = -np.sum((batch.action - policy(batch.obs)) ** 2, 1) / (2 * 0.25)
    log_prob -= 2 * np.log(0.5 * np.sqrt(2 * np.pi))
    loss = mt_awr.policy_loss(algorithm.config, batch, *nets)
    np.testing.assert_allclose(loss, -np.mean(weights * log_prob), rtol=1e-5)


@pytest.mark.parametrize("layer", ["linear", "bias_transform"])
def test_a_round_is_adam_on_whole_networks_told_zeros(layer):
    """Value first; the one-hot's weights, which the task has not, would not move."""
    algorithm = make_mt_awr(layer=layer, adapt_steps=3)
    config, state, support = algorithm.config, algorithm.init(KEY), make_batch(KEY, 8)
    task = quick_jit(algorithm.adapt)(state, algorithm.begin(state, KEY), support, KEY)
    # Task -1 has a one-hot of zeros.
    zeros = mt_awr.with_one_hot(support, jnp.int32(-1), SPEC.num_train_tasks)
    nets, value_adam = state.nets, optax.adam(config.adapt_value_lr)
    policy_adam = optax.adam(config.adapt_policy_lr)
    value_opt, policy_opt = value_adam.init(nets.value), policy_adam.init(nets.policy)
    for _ in range(3):
        grads = jax.grad(partial(mt_awr.value_loss, config, zeros))(nets.value)
        updates, value_opt = value_adam.update(grads, value_opt)
        nets = nets._replace(value=optax.apply_updates(nets.value, updates))
        grads = jax.grad(partial(mt_awr.policy_loss, config, zeros, nets.value))(nets.policy)
        updates, policy_opt = policy_adam.update(grads, policy_opt)
        nets = nets._replace(policy=optax.apply_updates(nets.policy, updates))
    np.testing.assert_array_equal(
        nets.policy.trunk[0].weight[3:], state.nets.policy.trunk[0].weight[3:]
    )
    assert_close(task.nets, mt_awr.without_one_hot(nets, SPEC.obs_dim), rtol=1e-5)


def test_rounds_go_on_with_the_same_adam():
    """Shots 1, 5 and 20 of an evaluation are the steps that the paper reports."""
    once, thrice = make_mt_awr(adapt_steps=1), make_mt_awr(adapt_steps=3)
    state, support = once.init(KEY), make_batch(KEY, 8)
    task, adapt = once.begin(state, KEY), quick_jit(once.adapt)
    for _ in range(3):
        task = adapt(state, task, support, KEY)
    expected = quick_jit(thrice.adapt)(state, thrice.begin(state, KEY), support, KEY)
    assert_close(task, expected, rtol=1e-5)


def test_an_update_takes_the_tasks_for_what_they_are_told():
    """Other numbers for the same batches make other networks."""
    algorithm = make_mt_awr()
    state, update = algorithm.init(KEY), quick_jit(algorithm.update)
    batches = {"batch": make_batch(KEY, 3, 8)}
    before = state.nets.policy.trunk[0].weight
    for tasks in ([0, 1, 2], [5, 3, 1]):
        after = update(state, batches, KEY, jnp.array(tasks))[0].nets.policy.trunk[0].weight
        moved = np.any(np.asarray(after != before), axis=1)[SPEC.obs_dim :]
        assert np.flatnonzero(moved).tolist() == sorted(tasks)


@pytest.mark.parametrize(
    "changes",
    [{"lr_decay": True, "normalize_obs": True, "scale_returns": True}, {"bootstrap_value": True}],
    ids=",".join,
)
def test_options_train(changes):
    """By shapes alone: nothing is compiled."""
    algorithm = make_mt_awr(divide_by_train_tasks=True, **changes)
    state = jax.eval_shape(algorithm.init, KEY)
    batches = {"batch": make_batch(KEY, 3, 8)}
    after, metrics = jax.eval_shape(algorithm.update, state, batches, KEY, jnp.arange(3))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert {name: metric.shape for name, metric in metrics.items()} == {
        "value_loss": (3,),
        "policy_loss": (3,),
    }


def test_impossible_settings_are_refused():
    with pytest.raises(InputError, match="batch: its name is 'batch', not 'outer'"):
        make_mt_awr(batch=BatchSpec("outer", 8))
