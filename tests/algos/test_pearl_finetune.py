"""PEARL going on learning on one task: what moves, by how much, and that it helps."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bandits
from omrl.algos import latent_context, pearl_learner
from omrl.algos.pearl_finetune import PearlTuning
from omrl.tuning import FinetuneConfig
from quick import quick_jit
from tiny_macaw import SPEC, assert_close, make_batch, make_pearl

KEY = jax.random.PRNGKey(0)
pytestmark = pytest.mark.usefixtures("own_programs")


def moved(one: Any, other: Any) -> list[bool]:
    return [
        bool(np.any(left != right))
        for left, right in zip(*map(jax.tree.leaves, (one, other)), strict=True)
    ]


def tuned_once(**changes: Any) -> tuple[Any, PearlTuning, PearlTuning]:
    """The adapted task, its tuning before and after one step."""
    algorithm = make_pearl(initial="uniform", **changes)
    state = algorithm.init(KEY)
    task = algorithm.adapt(state, algorithm.begin(state, KEY), make_batch(KEY, 6), KEY)
    before = algorithm.begin_tuning(state, task, KEY)
    after = quick_jit(algorithm.tune)(state, before, make_batch(jax.random.PRNGKey(1), 8), KEY)
    return task, before, after


def test_policy_and_value_functions_move_and_nothing_else():
    task, before, after = tuned_once()
    for name in ("improvement", "target_value"):
        assert all(moved(getattr(before.learner, name), getattr(after.learner, name)))
    evaluation = before.learner.evaluation, after.learner.evaluation
    assert all(moved(*(nets.critics for nets in evaluation)))
    assert not any(moved(*(nets.encoder for nets in evaluation)))
    assert not any(moved((task.evidence, task.z), (after.evidence, after.z)))


def test_the_first_step_of_fresh_optimisers_has_the_length_of_the_rates():
    """Adam divides the first gradient by its own size."""
    _, before, after = tuned_once(critic_lr=0.01, value_lr=0.02, policy_lr=0.03)
    for name, nets, rate in (
        ("critics", "evaluation", 0.01),
        ("value", "improvement", 0.02),
        ("policy", "improvement", 0.03),
    ):
        old, new = (getattr(getattr(t.learner, nets), name) for t in (before, after))
        steps = np.abs(np.asarray(new.layers[-1].affine - old.layers[-1].affine))
        assert np.median(steps) == pytest.approx(rate, rel=1e-3)
        assert np.max(steps) == pytest.approx(rate, rel=1e-3)


def test_rates_of_the_protocol_take_the_place_of_those_of_meta_training():
    config = make_pearl().for_tuning(FinetuneConfig(value_lr=0.01, policy_lr=0.03)).config
    assert (config.critic_lr, config.value_lr, config.policy_lr) == (0.01, 0.01, 0.03)
    assert make_pearl().for_tuning(FinetuneConfig()) == make_pearl()


def test_a_step_is_that_of_training_on_one_task_at_the_known_z():
    algorithm = make_pearl(initial="uniform", normalize_obs=True)
    state = algorithm.init(KEY)
    task = algorithm.adapt(state, algorithm.begin(state, KEY), make_batch(KEY, 6), KEY)
    before, batch = algorithm.begin_tuning(state, task, KEY), make_batch(KEY, 8)
    after = quick_jit(algorithm.tune)(state, before, batch, KEY)
    mean, std = (jnp.array(each)[None, None] for each in (SPEC.obs_mean, SPEC.obs_std))
    one = jax.tree.map(lambda leaf: leaf[None], batch)
    one = one._replace(obs=(one.obs - mean) / std, next_obs=(one.next_obs - mean) / std)
    noise = jax.random.normal(jax.random.split(KEY)[1], (8, SPEC.act_dim))[None]

    def infer(_: Any) -> Any:
        evidence = jax.tree.map(lambda leaf: leaf[None], task.evidence)
        return latent_context.Inferred(evidence, task.z[None], jnp.zeros(1))

    step = quick_jit(partial(pearl_learner.step, algorithm.config, infer=infer))
    expected, _, _ = step(state.learner, one, noise=noise)
    assert_close(after.learner.improvement, expected.improvement, rtol=1e-5)
    assert_close(after.learner.evaluation, expected.evaluation, rtol=1e-5)


@pytest.mark.parametrize(("tune_encoder", "learns"), [("infer", False), ("learn", True)])
def test_z_of_every_batch_anew_and_an_encoder_that_learns_or_does_not(tune_encoder, learns):
    task, before, after = tuned_once(tune_encoder=tune_encoder, adapted_z="mean")
    assert all(moved(task.z, after.z))
    batch = jax.tree.map(lambda leaf: leaf[None], make_batch(jax.random.PRNGKey(1), 8))
    encoder = before.learner.evaluation.encoder
    expected = latent_context.infer(encoder, batch, jnp.zeros((1, 2)))
    np.testing.assert_allclose(after.z, expected.z[0], rtol=1e-5)
    assert set(moved(encoder, after.learner.evaluation.encoder)) == {learns}


def test_tuning_learns_a_task_and_hands_out_its_policy():
    """From a policy that knows nothing: the reward is the action, z tells nothing of it."""
    rates = dict.fromkeys(("critic_lr", "value_lr", "policy_lr"), 3e-3)
    algorithm = make_pearl(
        bandits.SPEC, hidden=(32,), latent=1, initial="uniform", target_rate=0.1, **rates
    )
    state = algorithm.init(KEY)
    task = algorithm.begin(state, KEY)

    @quick_jit
    def run(key: jax.Array) -> Any:
        def step(tuning: PearlTuning, key: jax.Array) -> Any:
            batch = jax.tree.map(lambda leaf: leaf[0], bandits.opposite(key))
            return algorithm.tune(state, tuning, batch, key), None

        start = algorithm.begin_tuning(state, task, key)
        return jax.lax.scan(step, start, jax.random.split(key, 600))[0]

    done = algorithm.tuned(state, run(KEY))
    before, after = (algorithm.act(state, t, bandits.OBS, KEY, True)[0] for t in (task, done))
    assert before < 0.5
    assert after > 0.7
    np.testing.assert_array_equal(done.z, task.z)
