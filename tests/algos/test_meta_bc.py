"""Meta behaviour cloning beyond its golden numbers: what it solves, and what it must not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bandits
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from tiny_macaw import make_batch, make_batches, make_meta_bc

KEY = jax.random.PRNGKey(0)
SETTINGS: dict[str, Any] = {
    "hidden": (16,),
    "task_batch": 2,
    "policy_lr": 1e-2,
    "lr_lr": 1e-2,
    "inner_lr": 1e-2,
}


def test_one_step_tells_two_demonstrators_apart():
    algorithm = make_meta_bc(bandits.SPEC, **SETTINGS)
    _, _, before, actions = bandits.solve(algorithm, bandits.demonstrated)
    # One action cannot be right in both tasks.
    assert np.min(before[0] * bandits.SIGNS) <= 0
    np.testing.assert_allclose(actions * bandits.SIGNS, 0.6, atol=0.15)


def test_without_inner_steps_it_clones_the_mean_of_all_tasks():
    algorithm = make_meta_bc(bandits.SPEC, inner_steps=0, **SETTINGS)
    _, _, before, actions = bandits.solve(algorithm, bandits.demonstrated)
    np.testing.assert_allclose(before, 0.0, atol=0.1)
    np.testing.assert_array_equal(actions, np.full((20, 2), before[0]))


def test_it_does_not_see_rewards():
    """Where actions are the same in both tasks and advantage weights alone tell them apart."""
    algorithm = make_meta_bc(bandits.SPEC, **SETTINGS)
    first, last, _, actions = bandits.solve(algorithm, bandits.opposite)
    assert np.all(np.abs(actions) < 0.25)
    assert np.any(last.meta.policy.trunk[0].z != first.meta.policy.trunk[0].z)


OPTIONS = [
    {"inner_steps": 0},
    {"inner_steps": 0, "layer": "linear", "split_inner_batch": True},
    {"layer": "bias_transform", "inner_lr_per": "tensor"},
    {"inner_form": "plain", "offset": True},
    {"first_order": True, "lr_decay": True, "normalize_obs": True, "learn_inner_lr": False},
    {"inner_steps": 2, "max_adapt_steps": 3, "split_inner_batch": True},
]


@pytest.mark.parametrize("changes", OPTIONS, ids=",".join)
def test_every_option_trains_and_adapts(changes):
    """By shapes alone: nothing is compiled."""
    algorithm = make_meta_bc(**changes)
    state = jax.eval_shape(algorithm.init, KEY)
    after, metrics = jax.eval_shape(algorithm.update, state, make_batches(KEY), KEY)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert metrics["policy_loss"].shape == (3,)
    assert ("policy_inner_loss" in metrics) == (algorithm.config.inner_steps > 0)
    task = jax.eval_shape(algorithm.begin, state, KEY)
    adapted = jax.eval_shape(algorithm.adapt, state, task, make_batch(KEY, 8), KEY)
    assert jax.tree.map(jnp.shape, adapted) == jax.tree.map(jnp.shape, task)


def test_impossible_settings_are_refused():
    with pytest.raises(InputError, match="'inner' and 'outer'"):
        make_meta_bc(outer_batch=BatchSpec("batch", 8))
