"""MACAW beyond its golden numbers: a probe it must solve, symmetries, meta-test.

What each loss, inner step and meta-gradient is worth is checked against the reference code's
numbers in tests/golden.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bandits
from omrl.algos import macaw_losses
from omrl.ops import inner_loop
from quick import quick_jit
from tiny_macaw import assert_close, make, make_batch, make_batches

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)


def as_float64(tree):
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, tree
    )


def test_solves_the_bandits_that_only_the_context_tells_apart():
    macaw = make(
        bandits.SPEC,
        hidden=(16,),
        task_batch=2,
        policy_lr=1e-2,
        value_lr=1e-2,
        lr_lr=1e-2,
        inner_lr=1e-2,
        temperature=bandits.TEMPERATURE,
    )
    _, _, _, actions = bandits.solve(macaw, bandits.opposite)
    right_way = np.asarray(actions) * bandits.SIGNS
    assert np.all(right_way > 0.25)
    assert np.mean(right_way) == pytest.approx(bandits.BEST, abs=0.1)


# --- Symmetries and forms, in float64 ---


@pytest.fixture(scope="module")
def problem():
    """An algorithm, its state and batches in float64, with all of the reference's options."""
    macaw = make(
        offset=True,
        relu_action=True,
        inner_lr_per="tensor",
        learn_adv_coef=True,
        bootstrap_advantage=True,
        bootstrap_outer_value=True,
    )
    with jax.enable_x64(True):
        state = macaw.start(as_float64(macaw.init(KEY).meta))
        batches = as_float64(make_batches(jax.random.PRNGKey(1)))
        return macaw, state, batches, quick_jit(macaw.update)


@pytest.mark.usefixtures("x64")
def test_the_order_of_tasks_and_of_samples_changes_nothing(problem):
    _, state, batches, update = problem
    expected, metrics = update(state, batches, KEY)
    tasks = np.array([2, 0, 1])
    turned, turned_metrics = update(state, jax.tree.map(lambda x: x[tasks], batches), KEY)
    assert_close(turned.meta, expected.meta)
    assert_close(turned_metrics, {name: metric[tasks] for name, metric in metrics.items()})
    samples = np.random.default_rng(0).permutation(8)
    shuffled, shuffled_metrics = update(state, jax.tree.map(lambda x: x[:, samples], batches), KEY)
    assert_close(shuffled.meta, expected.meta)
    assert_close(shuffled_metrics, metrics)
    # And the comparison can fail: other samples give other parameters.
    other, _ = update(state, batches | {"inner": batches["outer"]}, KEY)
    with pytest.raises(AssertionError):
        assert_close(other.meta, expected.meta)


@pytest.mark.usefixtures("x64")
def test_a_task_twice_weighs_twice(problem):
    """The gradient is the mean over the sampled tasks."""
    macaw, state, batches, _ = problem
    gradient = quick_jit(
        lambda meta, b: macaw_losses.meta_gradient(macaw.config, 6, meta, b["inner"], b["outer"])[0]
    )
    first, second, mixed = (
        gradient(state.meta, jax.tree.map(lambda x, t=tasks: x[np.array(t)], batches))
        for tasks in ([0], [1], [0, 1, 1])
    )
    assert_close(mixed, jax.tree.map(lambda a, b: (a + 2 * b) / 3, first, second))


@pytest.mark.usefixtures("x64")
def test_low_rank_and_plain_updates_are_equal_without_an_offset():
    """Two steps, one rate a layer, lambda learned: what no golden file has."""
    shared: dict[str, Any] = {"inner_steps": 2, "max_adapt_steps": 2, "learn_adv_coef": True}
    metas = []
    for form in ("low_rank", "plain"):
        macaw = make(inner_form=form, **shared)
        state = macaw.start(as_float64(macaw.init(KEY).meta))
        batches = as_float64(make_batches(jax.random.PRNGKey(1)))
        metas.append(quick_jit(macaw.update)(state, batches, KEY)[0].meta)
    assert_close(*metas)


# --- Meta-test ---


def test_adapt_takes_the_steps_of_training(problem):
    macaw, state, batches, update = problem
    with jax.enable_x64(True):
        _, metrics = update(state, batches, KEY)
        support = jax.tree.map(lambda x: x[0], batches["inner"])
        task = quick_jit(macaw.adapt)(state, macaw.begin(state, KEY), support, KEY)
        value = inner_loop.read(state.meta.value, task.value)
        outer = jax.tree.map(lambda x: x[0], batches["outer"])
        advantage = macaw_losses.advantage(macaw.config, value, outer)
        policy = macaw.policy(state, task)
        loss = macaw_losses.policy_outer_loss(policy, macaw.config, outer, advantage)
        np.testing.assert_allclose(loss, metrics["policy_loss"][0], rtol=1e-9)


def test_steps_beyond_max_adapt_steps_are_nan():
    macaw = make(max_adapt_steps=2)
    state, support = macaw.init(KEY), make_batch(KEY, 8)
    adapt = quick_jit(macaw.adapt)
    task = macaw.begin(state, KEY)
    actions = []
    for _ in range(4):
        actions.append(macaw.act(state, task, jnp.ones(3), KEY, True))
        task = adapt(state, task, support, KEY)
    assert np.all(np.isfinite(actions[:3]))
    assert len({float(action[0]) for action in actions[:3]}) == 3
    assert np.all(np.isnan(actions[3]))


def test_a_context_without_information_teaches_nothing():
    """Returns as predicted and actions as the policy's own: all inner gradients are zero."""
    macaw = make(advantage_head=False)
    state, support = macaw.init(KEY), make_batch(KEY, 8)
    begun = macaw.begin(state, KEY)
    value = inner_loop.read(state.meta.value, begun.value)
    known = support._replace(
        action=jax.vmap(macaw.policy(state, begun))(support.obs),
        mc_return=jax.vmap(value)(support.obs),
    )
    adapted = macaw.adapt(state, begun, known, KEY)
    np.testing.assert_array_equal(
        macaw.act(state, adapted, jnp.ones(3), KEY, True),
        macaw.act(state, begun, jnp.ones(3), KEY, True),
    )
    np.testing.assert_array_equal(
        inner_loop.read(state.meta.value, adapted.value)(jnp.ones(3)), value(jnp.ones(3))
    )


def test_stochastic_actions_are_around_the_mean():
    macaw = make()
    state = macaw.init(KEY)
    task = macaw.begin(state, KEY)
    act = jax.vmap(lambda key: macaw.act(state, task, jnp.ones(3), key, False))
    actions = act(jax.random.split(KEY, 2000))
    mean = macaw.act(state, task, jnp.ones(3), KEY, True)
    assert np.max(np.abs(mean)) < 0.5  # far from the bounds, where clipping would narrow them
    np.testing.assert_allclose(np.mean(actions, axis=0), mean, atol=0.02)
    np.testing.assert_allclose(np.std(actions, axis=0), macaw.config.sigma, rtol=0.05)
