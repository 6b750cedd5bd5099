"""Theorems 1 and 2 of MACAW's appendix A, on the losses that training is made of.

Definition 1 there: a loss is universal if its gradient with respect to the prediction is an
invertible function of the label. As in the proofs, the loss is that of one sample, advantages are
not standardised and weights not clipped. The prediction is the mean m of the policy and, with the
head, the predicted advantage; the label is the action a and its advantage A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omrl.algos import macaw_losses, maml
from omrl.ops import awr, inner_loop
from omrl.ops.gaussian import fixed_width_log_prob
from quick import quick_jit
from tiny_macaw import make, make_batch

pytestmark = [pytest.mark.usefixtures("own_programs")]

COEF = 0.01
KEY = jax.random.PRNGKey(0)


@dataclass(frozen=True)
class Problem:
    """One sample: prediction, label, and the constants of the loss."""

    mean: tuple[float, ...]
    predicted: float
    action: tuple[float, ...]
    advantage: float
    temperature: float
    sigma: float


@st.composite
def problems(draw) -> Problem:
    dims = draw(st.integers(1, 4))
    actions = st.lists(st.floats(-1, 1), min_size=dims, max_size=dims).map(tuple)
    return Problem(
        mean=draw(actions),
        predicted=draw(st.floats(-10, 10)),
        action=draw(actions),
        advantage=draw(st.floats(-10, 10)),
        temperature=draw(st.floats(0.5, 5)),
        sigma=draw(st.floats(0.05, 1)),
    )


def awr_loss(mean, problem: Problem, action, advantage):
    """Eq. 8: L_AWR."""
    log_prob = fixed_width_log_prob(action[None], mean[None], problem.sigma)
    weights = awr.advantage_weights(
        advantage[None], temperature=problem.temperature, max_weight=math.inf, normalize=False
    )
    return awr.weighted_regression_loss(log_prob, weights)


def enriched_loss(prediction, problem: Problem, action, advantage):
    """L_pi = L_AWR + lambda L_ADV."""
    mean, predicted = prediction
    head_loss = awr.advantage_head_loss(predicted[None], advantage[None])
    return awr_loss(mean, problem, action, advantage) + COEF * head_loss


def same_awr_gradient(mean, action, advantage, temperature, factor):
    """Another label: the error `factor` times smaller, the weight as much larger."""
    return mean + (action - mean) / factor, advantage + temperature * math.log(factor)


# --- Theorem 1: the AWR loss is not universal ---


def test_the_counterexample_of_the_proof():
    """m = 0, (a, A) = (1, T) and (.1, T + T log 10): -e / sigma^2 both. In the paper's text the
    second advantage is T log 10, which does not make them equal."""
    with jax.enable_x64(True):
        problem = Problem((0.0, 0.0), 0.0, (1.0, 1.0), 2.0, temperature=2.0, sigma=0.5)
        mean, ones = jnp.zeros(2), jnp.ones(2)
        gradient = jax.grad(awr_loss)
        for action, advantage in ((ones, 2.0), (ones / 10, 2.0 + 2.0 * math.log(10))):
            computed = gradient(mean, problem, action, jnp.float64(advantage))
            np.testing.assert_allclose(computed, [-4 * math.e] * 2, rtol=1e-12)
        as_printed = gradient(mean, problem, ones / 10, jnp.float64(2.0 * math.log(10)))
        np.testing.assert_allclose(as_printed, [-4.0] * 2, rtol=1e-12)


@settings(deadline=None, max_examples=25)
@given(problems(), st.floats(1.1, 10), st.booleans())
def test_awr_gives_different_labels_the_same_gradient(problem, factor, larger):
    with jax.enable_x64(True):
        mean, action, advantage, predicted = arrays(problem)
        assume(float(jnp.max(jnp.abs(action - mean))) > 1e-3)
        factor = factor if larger else 1 / factor
        other = same_awr_gradient(mean, action, advantage, problem.temperature, factor)
        gradient = jax.grad(awr_loss)
        one = gradient(mean, problem, action, advantage)
        # Of an element near the smallest number a factor may leave nothing.
        tiny = 1e-12 * float(jnp.max(jnp.abs(one)))
        np.testing.assert_allclose(gradient(mean, problem, *other), one, rtol=1e-9, atol=tiny)
        # The enriched loss tells these labels apart, by the second half of its gradient alone.
        enriched = jax.grad(enriched_loss)
        first, second = (
            enriched((mean, predicted), problem, *label) for label in ((action, advantage), other)
        )
        np.testing.assert_allclose(first[0], second[0], rtol=1e-9, atol=tiny)
        # 2 lambda (A_hat - A) - 2 lambda (A_hat - A - T log c) = 2 lambda T log c
        gap = 2 * COEF * problem.temperature * math.log(factor)
        np.testing.assert_allclose(first[1] - second[1], gap, rtol=1e-9)


# --- Theorem 2: the enriched loss is universal ---


@settings(deadline=None, max_examples=25)
@given(problems())
def test_labels_are_recovered_from_the_enriched_gradient(problem):
    """Eqs. 9 to 11, solved for the labels with nothing but the gradient and the prediction."""
    with jax.enable_x64(True):
        mean, action, advantage, predicted = arrays(problem)
        to_mean, to_predicted = jax.grad(enriched_loss)(
            (mean, predicted), problem, action, advantage
        )
        recovered = predicted - to_predicted / (2 * COEF)
        weight = jnp.exp(recovered / problem.temperature)
        np.testing.assert_allclose(recovered, advantage, rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            mean - problem.sigma**2 / weight * to_mean, action, rtol=0, atol=1e-9
        )


def arrays(problem: Problem):
    label = jnp.array(problem.action, jnp.float64), jnp.float64(problem.advantage)
    return jnp.array(problem.mean, jnp.float64), *label, jnp.float64(problem.predicted)


# --- What it means for an inner step ---


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("layer", ["linear", "weight_transform"])
@pytest.mark.parametrize("advantage_head", [False, True])
def test_only_the_head_lets_an_inner_step_tell_the_labels_apart(layer, advantage_head):
    """Either label makes the same adapted policy, or another one in all layers that lead to it."""
    macaw = make(
        layer=layer,
        advantage_head=advantage_head,
        normalize_advantage=False,
        max_weight=1e9,
        inner_lr=0.1,
        temperature=2.0,
    )
    meta = jax.tree.map(lambda x: x.astype(jnp.float64), macaw.init(KEY).meta)
    sample = make_batch(jax.random.PRNGKey(1), 1)
    mean = inner_loop.generate(meta.policy)(sample.obs[0])
    advantage = jnp.float64(0.7)
    other = same_awr_gradient(mean, sample.action[0], advantage, 2.0, 3.0)
    rates = maml.rates(macaw.config, meta.policy_rates, meta.policy)

    def adapted(action, advantage):
        inner = macaw_losses.adapt_policy(
            macaw.config,
            meta.policy,
            rates,
            inner_loop.start(meta.policy),
            [sample._replace(action=action[None])],
            [advantage[None]],
            jnp.float64(1.0),
        )
        return inner_loop.read(meta.policy, inner.history[-1])

    adapt = quick_jit(adapted)
    one, two = adapt(sample.action[0], advantage), adapt(*other)
    before = inner_loop.generate(meta.policy)
    moved, apart = (distances(one, net) for net in (before, two))
    assert min(jax.tree.leaves(moved)) > 1e-4
    # The output layer of the mean is behind the branch to the head: no signal of it there.
    assert apart.trunk[-1] < 1e-12
    elsewhere = jax.tree.leaves((apart.trunk[:-1], apart.head))
    assert min(elsewhere) > 1e-5 if advantage_head else max(elsewhere) < 1e-12


def distances(one, other):
    """The largest difference of each layer, in place of the layers."""
    differences = jax.tree.map(lambda left, right: jnp.max(jnp.abs(left - right)), one, other)
    return jax.tree.map(
        lambda layer: layer.affine, differences, is_leaf=lambda n: hasattr(n, "affine")
    )
