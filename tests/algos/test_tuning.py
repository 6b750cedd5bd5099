"""Learning on online: what MACAW and multi-task AWR begin with, and their steps by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from omrl.algorithm import Algorithm
from omrl.errors import InputError
from omrl.nets.mlp import Dense
from omrl.ops import inner_loop
from omrl.tuning import FinetuneConfig
from quick import quick_jit
from tiny_macaw import assert_close, make, make_batch, make_meta_bc, make_mt_awr, make_pearl

KEY = jax.random.PRNGKey(0)
ONE = {"value_steps": 1, "policy_steps": 1}
LR = 1e-3


def adapted(algorithm: Algorithm, rounds: int = 1) -> tuple[Any, Any]:
    """A state in 64 bits, and its task after some rounds, each on a batch of its own."""
    state = algorithm.init(KEY)
    state = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, state)
    task = algorithm.begin(state, KEY)
    for number in range(rounds):
        support = make_batch(jax.random.fold_in(KEY, number), 16)
        task = quick_jit(algorithm.adapt)(state, task, support, KEY)
    return state, task


def settings(**changes: Any) -> FinetuneConfig:
    return FinetuneConfig(**{"value_lr": LR, "policy_lr": LR} | changes)


# --- MACAW: what it begins with ---


@pytest.mark.parametrize("offset", [True, False])
def test_materialized_parameters_are_those_of_the_plain_form(x64, offset):
    """z', W' and b' after three inner steps, where the plain form has written them out."""
    tunings = []
    for form in ("low_rank", "plain"):
        algorithm = make(offset=offset, inner_form=form, max_adapt_steps=3, inner_lr=0.05)
        state, task = adapted(algorithm, 3)
        tunings.append(algorithm.begin_tuning(state, task, KEY))
        if form == "plain":
            copies = (*task.value, *task.policy)
            layers = inner_loop.layers(tunings[1].value) + inner_loop.layers(tunings[1].policy)
            assert_close(layers, list(copies), rtol=0)
    assert_close(tunings[0], tunings[1])
    moved = tunings[0].policy.trunk[0].kernel - state.meta.policy.trunk[0].kernel
    assert np.abs(moved).max() > 1e-6


@pytest.mark.parametrize("parameters", ["all", "generated"])
@pytest.mark.parametrize("layer", ["weight_transform", "bias_transform", "linear"])
def test_it_begins_as_the_adapted_policy(x64, layer, parameters):
    algorithm = make(layer=layer, normalize_obs=True).for_tuning(settings(parameters=parameters))
    state, task = adapted(algorithm)
    tuning = algorithm.begin_tuning(state, task, KEY)
    begun = algorithm.tuned(state, tuning)
    assert_close(algorithm.policy_layers(state, begun), algorithm.policy_layers(state, task))
    obs = jnp.array([0.3, -1.0, 2.0])
    actions = [algorithm.act(state, each, obs, KEY, True) for each in (begun, task)]
    np.testing.assert_allclose(actions[0], actions[1], rtol=1e-9)
    value = inner_loop.read(state.meta.value, task.value)(obs)
    np.testing.assert_allclose(inner_loop.read(state.meta.value, begun.value)(obs), value)


# --- MACAW: its steps ---


def sizes(before: Any, after: Any) -> np.ndarray:
    """How far every number moved, in units of the rate."""
    moved = jax.tree.map(lambda x, y: np.abs(y - x).ravel() / LR, before, after)
    return np.concatenate(jax.tree.leaves(moved))


@pytest.mark.parametrize("head", [False, True])
def test_the_first_step_of_adam_moves_every_parameter_by_its_rate(x64, head):
    """z, W and b alike; those of the head only where its term is in the loss."""
    algorithm = make(offset=True).for_tuning(settings(advantage_head=head))
    state, task = adapted(algorithm)
    before = algorithm.begin_tuning(state, task, KEY)
    batch = make_batch(KEY, 64)
    after = quick_jit(algorithm.tune)(state, before, batch, KEY)
    # Adam's first step is rate * sign(gradient); dead units have none, and 1e-8 is added.
    for name in ("value", "policy"):
        old, new = getattr(before, name), getattr(after, name)
        layers = (old.layers, new.layers) if name == "value" else (old.trunk, new.trunk)
        moved = sizes(*layers)
        assert np.mean(np.isclose(moved, 1, atol=1e-2)) > 0.6
        assert moved.max() <= 1
    head_moved = sizes(before.policy.head, after.policy.head)
    assert (head_moved.max() > 0.9) == head


def by_hand(algorithm: Any, state: Any, tuning: Any, batches: list[Any]) -> Any:
    """Adam on the losses of the outer loop, written out."""
    config = algorithm.config
    value, policy = tuning.value, tuning.policy
    adam = optax.adam(LR)
    value_opt, policy_opt = adam.init(value), adam.init(policy)

    def value_loss(net, batch):
        return jnp.mean((jax.vmap(inner_loop.generate(net))(batch.obs) - batch.mc_return) ** 2)

    def policy_loss(net, weights, batch):
        mean = jax.vmap(inner_loop.generate(net))(batch.obs)
        squares = jnp.sum((batch.action - mean) ** 2, 1) / (2 * config.sigma**2)
        return jnp.mean(weights * squares)

    for batch in batches:
        updates, value_opt = adam.update(jax.grad(value_loss)(value, batch), value_opt)
        value = optax.apply_updates(value, updates)
        advantage = batch.mc_return - jax.vmap(inner_loop.generate(value))(batch.obs)
        normal = (advantage - advantage.mean()) / jnp.std(advantage, ddof=1)
        weights = jnp.exp(jnp.minimum(normal, np.log(20.0)))
        updates, policy_opt = adam.update(jax.grad(policy_loss)(policy, weights, batch), policy_opt)
        policy = optax.apply_updates(policy, updates)
    return value, policy


def test_steps_are_adam_on_the_losses_of_the_outer_loop(x64):
    algorithm = make(offset=True).for_tuning(settings())
    state, task = adapted(algorithm)
    first = tuning = algorithm.begin_tuning(state, task, KEY)
    batches = [make_batch(jax.random.fold_in(KEY, n), 16) for n in range(3)]
    step = quick_jit(algorithm.tune)
    for batch in batches:
        tuning = step(state, tuning, batch, KEY)
    value, policy = by_hand(algorithm, state, first, batches)
    assert_close(tuning.value, value, rtol=1e-7)
    assert_close(tuning.policy, policy, rtol=1e-7)


def test_halves_are_the_whole_step(x64):
    algorithm = make().for_tuning(settings(parameters="generated"))
    state, task = adapted(algorithm)
    tuning, batch = algorithm.begin_tuning(state, task, KEY), make_batch(KEY, 16)
    half = quick_jit(algorithm.tune_value)(state, tuning, batch, KEY)
    assert_close(half.policy, tuning.policy, rtol=0)
    halves = quick_jit(algorithm.tune_policy)(state, half, batch, KEY)
    assert_close(halves.value, half.value, rtol=0)
    whole = quick_jit(algorithm.tune)(state, tuning, batch, KEY)
    assert_close(halves, whole)
    assert sizes(tuning.policy.trunk, whole.policy.trunk).max() <= 1
    assert all(isinstance(layer, Dense) for layer in whole.policy.trunk)


def test_rates_default_to_those_of_the_outer_loop(x64):
    algorithm = make(value_lr=2e-3, policy_lr=5e-4)
    state, task = adapted(algorithm)
    batch = make_batch(KEY, 16)
    tunings = []
    for tunable in (
        algorithm,
        algorithm.for_tuning(FinetuneConfig(value_lr=2e-3, policy_lr=5e-4)),
        algorithm.for_tuning(FinetuneConfig(value_lr=1e-3, policy_lr=5e-4)),
    ):
        begun = tunable.begin_tuning(state, task, KEY)
        tunings.append(quick_jit(tunable.tune)(state, begun, batch, KEY))
    assert_close(tunings[0], tunings[1], rtol=0)
    start = algorithm.begin_tuning(state, task, KEY).value
    assert sizes(start, tunings[0].value).max() == pytest.approx(2, abs=1e-3)
    assert sizes(start, tunings[2].value).max() == pytest.approx(1, abs=1e-3)


# --- Multi-task AWR ---


def test_mt_awr_goes_on_as_it_adapts(x64):
    """A round of five Adam steps is a round of two and three steps of tuning."""
    whole, part = make_mt_awr(adapt_steps=5), make_mt_awr(adapt_steps=2)
    state, _ = adapted(whole, 0)
    support = make_batch(KEY, 16)
    begin = whole.begin(state, KEY)
    task = part.begin_tuning(state, quick_jit(part.adapt)(state, begin, support, KEY), KEY)
    step = quick_jit(part.for_tuning(FinetuneConfig()).tune)
    for _ in range(3):
        task = step(state, task, support, KEY)
    expected = quick_jit(whole.adapt)(state, begin, support, KEY)
    assert_close(part.tuned(state, task), expected)


def test_mt_awr_has_its_own_rates(x64):
    algorithm = make_mt_awr().for_tuning(settings())
    state, task = adapted(algorithm, 0)
    after = quick_jit(algorithm.tune)(state, task, make_batch(KEY, 16), KEY)
    for before, moved in zip(task.nets, after.nets, strict=True):
        assert sizes(before, moved).max() == pytest.approx(1, abs=1e-3)


# --- Refusals ---


@pytest.mark.parametrize(
    ("algorithm", "changes", "message"),
    [
        (make(advantage_head=False), {"advantage_head": True}, "without an advantage head"),
        (make_mt_awr(), {"parameters": "generated"}, "finetune.parameters: MtAwr has no such"),
        (make_mt_awr(), {"advantage_head": True}, "finetune.advantage_head: MtAwr has no such"),
        (make_pearl(), {"parameters": "generated"}, "finetune.parameters: Pearl has no such"),
        (make_meta_bc(), {"value_lr": 0.1}, "finetune.value_lr: MetaBc has no such"),
    ],
)
def test_settings_that_an_algorithm_has_not_are_refused(algorithm, changes, message):
    with pytest.raises(InputError, match=message):
        algorithm.for_tuning(FinetuneConfig(**changes))


def test_imitation_does_not_learn_from_itself():
    algorithm = make_meta_bc()
    state = algorithm.init(KEY)
    with pytest.raises(InputError, match="learning online; use protocol given, zero-shot or"):
        algorithm.begin_tuning(state, algorithm.begin(state, KEY), KEY)


@pytest.mark.parametrize("parameters", ["all", "generated"])
def test_a_step_keeps_shapes_and_dtypes(parameters):
    """Weak types would compile the loop of steps a second time."""
    for algorithm in (
        make().for_tuning(FinetuneConfig(parameters=parameters)),
        make(layer="bias_transform", bootstrap_inner_value=True, bootstrap_advantage=True),
        make_mt_awr(),
        make_pearl(),
        make_pearl(tune_encoder="learn"),
    ):

        def begin(algorithm: Any = algorithm) -> tuple[Any, Any]:
            state = algorithm.init(KEY)
            return state, algorithm.begin_tuning(state, algorithm.begin(state, KEY), KEY)

        state, tuning = jax.eval_shape(begin)
        batch = jax.eval_shape(lambda: make_batch(KEY, 16))
        assert jax.eval_shape(algorithm.tune, state, tuning, batch, KEY) == tuning
