"""MACAW's settings: what each changes, and that every one of them trains."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos import macaw_losses, maml
from omrl.algos.macaw import Macaw
from omrl.algos.macaw_config import MacawConfig
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.adaptive import Linear
from omrl.nets.heads import ValueNet
from omrl.ops import inner_loop
from omrl.types import Spec
from quick import quick_jit
from tiny_macaw import SPEC, assert_close, make, make_batch, make_batches

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)


# --- Parts ---


def test_rates_are_softplus_of_the_stored_logarithm():
    macaw = make(inner_lr=0.5)
    meta = macaw.init(KEY).meta
    # One per layer, shared by its two tensors: log(1 + e^log(.5)) = log 1.5
    rates = maml.rates(macaw.config, meta.value_rates, meta.value)
    np.testing.assert_allclose(rates, np.full((2, 2), math.log(1.5)), rtol=1e-6)
    fixed = make(inner_lr=0.5, learn_inner_lr=False)
    rates = maml.rates(fixed.config, meta.value_rates, meta.value)
    np.testing.assert_array_equal(rates, np.full((2, 2), 0.5, np.float32))
    per_tensor = make(inner_lr_per="tensor", offset=True).init(KEY).meta
    assert per_tensor.value_rates.shape == (2, 3)
    assert per_tensor.policy_rates.shape == (4, 3)


def test_the_value_network_may_have_an_initial_rate_of_its_own():
    own = make(inner_lr=0.5, value_inner_lr=1e-4)
    meta = own.init(KEY).meta
    np.testing.assert_allclose(meta.value_rates, math.log(1e-4), rtol=1e-6)
    np.testing.assert_allclose(meta.policy_rates, math.log(0.5), rtol=1e-6)

    def adapted(**changes):
        """The inner batch's value loss after one step, from the same networks."""
        macaw = make(learn_inner_lr=False, **changes)
        state = macaw.init(KEY)
        batch = make_batch(KEY, 8)
        task = macaw.adapt(state, macaw.begin(state, KEY), batch, KEY)
        return jax.tree.leaves(task)

    both, one = adapted(inner_lr=0.05), adapted(inner_lr=0.05, value_inner_lr=0.05)
    assert_close(both, one)
    other = adapted(inner_lr=0.05, value_inner_lr=1e-4)
    changed = [not np.allclose(a, b, rtol=1e-5) for a, b in zip(both, other, strict=True)]
    assert any(changed)
    assert not all(changed)


def test_coefficient_is_fixed_or_softplus():
    fixed, learned = make(adv_coef=0.5).config, make(adv_coef=0.5, learn_adv_coef=True).config
    raw = jnp.float32(math.log(0.5))
    assert macaw_losses.adv_coefficient(fixed, raw) == 0.5
    assert macaw_losses.adv_coefficient(learned, raw) == pytest.approx(math.log(1.5))


def test_inner_batches_are_split_or_repeated():
    batch = make_batch(KEY, 8)
    whole = make(inner_steps=2)
    split = make(inner_steps=2, split_inner_batch=True)
    halves = maml.inner_batches(split.config, batch)
    for half, rows in zip(halves, (slice(0, 4), slice(4, 8)), strict=True):
        np.testing.assert_array_equal(half.obs, batch.obs[rows])
        np.testing.assert_array_equal(half.mc_return, batch.mc_return[rows])
    assert maml.inner_batches(whole.config, batch) == [batch, batch]


def test_target_network_follows():
    # V = w s with w = 1, 2, 4 after 0, 1, 2 steps: .9 (.9 * 1 + .1 * 2) + .1 * 4 = 1.39
    nets = [ValueNet((Linear(jnp.full((1, 1), w), jnp.zeros(1)),)) for w in (1.0, 2.0, 4.0)]
    history = [inner_loop.start(net) for net in nets]
    config = make(layer="linear", target_decay=0.9).config
    follower = macaw_losses.target_net(config, nets[0], jnp.ones((1, 2)), history)
    assert follower(jnp.ones(1)) == pytest.approx(1.39)


def test_advantage_with_and_without_bootstrap():
    batch = make_batch(KEY, 2)._replace(
        obs=jnp.array([[1.0], [2.0]]),
        mc_return=jnp.array([5.0, 6.0]),
        terminal_obs=jnp.array([[4.0], [8.0]]),
        terminal_discount=jnp.array([0.5, 0.25]),
    )
    value = inner_loop.generate(ValueNet((Linear(jnp.array([[10.0]]), jnp.zeros(1)),)))
    # 5 - 10, 6 - 20; and with .5 * 40 = .25 * 80 = 20 more
    plain = macaw_losses.advantage(make().config, value, batch)
    np.testing.assert_allclose(plain, [-5.0, -14.0])
    continued = macaw_losses.advantage(make(bootstrap_advantage=True).config, value, batch)
    np.testing.assert_allclose(continued, [15.0, 6.0])


# --- Options ---


def test_scaling_is_the_same_as_scaled_data():
    """With `normalize_obs` and `scale_returns`, in training, adapting and acting."""
    bootstrap: dict[str, Any] = {"bootstrap_advantage": True, "bootstrap_outer_value": True}
    plain, scaling = make(**bootstrap), make(normalize_obs=True, scale_returns=True, **bootstrap)
    state, batches = plain.init(KEY), make_batches(KEY)
    mean, std = np.array(SPEC.obs_mean, np.float32), np.array(SPEC.obs_std, np.float32)

    def raw(batch):
        return batch._replace(
            obs=batch.obs * std.reshape(1, 1, 3) + mean.reshape(1, 1, 3),
            terminal_obs=batch.terminal_obs * std.reshape(1, 1, 3) + mean.reshape(1, 1, 3),
            mc_return=batch.mc_return * 4,
        )

    expected, metrics = quick_jit(plain.update)(state, batches, KEY)
    ours, our_metrics = quick_jit(scaling.update)(
        state, {name: raw(batch) for name, batch in batches.items()}, KEY
    )
    assert_close(our_metrics, metrics, rtol=1e-4)
    assert_close(ours.meta, expected.meta, rtol=1e-4)
    obs = jnp.array([0.3, -0.1, 0.2])
    np.testing.assert_allclose(
        scaling.act(state, scaling.begin(state, KEY), obs * std + mean, KEY, True),
        plain.act(state, plain.begin(state, KEY), obs, KEY, True),
        rtol=1e-5,
    )


def test_decayed_rates_end_at_zero():
    macaw = make(steps=2, lr_decay=True, layer="linear")
    update, batches = quick_jit(macaw.update), make_batches(KEY)
    states = [macaw.init(KEY)]
    for _ in range(3):
        states.append(update(states[-1], batches, KEY)[0])
    moves = [
        np.max(np.abs(after.meta.policy.trunk[0].weight - before.meta.policy.trunk[0].weight))
        for before, after in pairwise(states)
    ]
    # Adam's first step is its rate, 1e-4; after `steps` updates the cosine is at zero.
    assert moves[0] == pytest.approx(1e-4, rel=1e-3)
    assert moves[0] > moves[1] > moves[2] == 0


OPTIONS = [
    {"advantage_head": False},
    {"advantage_head": False, "layer": "linear"},
    {"layer": "linear"},
    {"layer": "bias_transform", "inner_lr_per": "tensor"},
    {"offset": True, "relu_action": True, "inner_lr_per": "tensor", "learn_adv_coef": True},
    {"inner_form": "plain"},
    {"first_order": True},
    {"lr_decay": True},
    {"normalize_obs": True, "scale_returns": True},
    {"normalize_advantage": False, "learn_inner_lr": False},
    {"bootstrap_advantage": True, "bootstrap_outer_value": True, "bootstrap_inner_value": True},
    {"inner_steps": 2, "max_adapt_steps": 3, "split_inner_batch": True},
    {"divide_by_train_tasks": True, "head_hidden": ()},
    {"adapt": "z", "value_hidden": (2, 5), "value_inner_lr": 1e-4},
    {"adapt": "z", "layer": "bias_transform", "inner_lr_per": "tensor"},
]


@pytest.mark.parametrize("changes", OPTIONS, ids=",".join)
def test_every_option_trains_and_adapts(changes):
    """By shapes alone: nothing is compiled."""
    macaw = make(**changes)
    state = jax.eval_shape(macaw.init, KEY)
    after, metrics = jax.eval_shape(macaw.update, state, make_batches(KEY), KEY)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )
    assert {name: metric.shape for name, metric in metrics.items()} == dict.fromkeys(
        ["value_loss", "policy_loss", "value_inner_loss", "policy_inner_loss", "adv_head_loss"],
        (3,),
    )
    task = jax.eval_shape(macaw.begin, state, KEY)
    adapted = jax.eval_shape(macaw.adapt, state, task, make_batch(KEY, 8), KEY)
    assert jax.tree.map(jnp.shape, adapted) == jax.tree.map(jnp.shape, task)


def test_the_paper_is_the_default():
    """Table 5 of the appendix, cheetah; sizes by shapes alone."""
    macaw = Macaw(MacawConfig(), Spec(20, 6, 35, 200))
    state = jax.eval_shape(macaw.init, KEY)
    # Without an offset: 100 + 100 P per layer, P = in out + out.
    value_sizes = [20 * 100 + 100, 10_100, 10_100, 101]
    count = sum(leaf.size for leaf in jax.tree.leaves(state.meta.value))
    assert count == sum(100 + 100 * params for params in value_sizes)
    assert state.meta.value_rates.shape == (4, 1)
    stage = macaw.stages()[0]
    assert (stage.name, stage.task_batch) == ("meta-train", 5)
    assert [(spec.name, spec.size, spec.mode) for spec in stage.batches] == [
        ("inner", 256, "contiguous"),
        ("outer", 256, "iid"),
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"inner_steps": 3, "split_inner_batch": True}, "split_inner_batch"),
        ({"hidden": ()}, "hidden: no layer"),
        ({"inner_batch": BatchSpec("support", 8)}, "'inner' and 'outer'"),
    ],
)
def test_impossible_settings_are_refused(changes, field):
    with pytest.raises(InputError, match=field):
        make(**changes)
