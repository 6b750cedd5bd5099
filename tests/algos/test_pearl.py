"""PEARL: what it solves and what it must not, its losses by hand, what is known of a task."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bandits
from hand import CRITICS, Z, hand_batch, linear
from omrl.algos import latent_context, pearl_learner
from omrl.algos.pearl import Pearl, PearlState
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.pearl_learner import Improvement
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.ops import latent
from omrl.ops.gaussian import sample_squashed, squash
from omrl.types import Batch, Step
from quick import quick_jit
from tiny_macaw import SPEC, assert_close, make_batch, make_pearl

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)
SETTINGS: dict[str, Any] = {
    "hidden": (32,),
    "encoder_hidden": (32,),
    "latent": 1,
    "task_batch": 2,
    "initial": "uniform",
    "target_rate": 0.1,
    "kl_weight": 0.01,
    **dict.fromkeys(("encoder_lr", "critic_lr", "value_lr", "policy_lr"), 3e-3),
}
# Of a reward +-a, scaled by 5, with entropy: the best policy is proportional to exp(+-5 a).
BEST_VALUE = np.log(2 * np.sinh(5) / 5)
BEST_MEAN = 1 / np.tanh(5) - 1 / 5


def two_steps(key: jax.Array) -> Batch:
    """Half of the transitions lead from observation 0 to 1 without reward, whatever is done."""
    batch, first = bandits.opposite(key), jnp.arange(32) < 16
    return batch._replace(
        obs=jnp.broadcast_to(jnp.where(first, 0.0, 1.0)[None, :, None], (2, 32, 1)),
        reward=jnp.where(first[None], 0.0, batch.reward),
        terminated=batch.terminated & ~first[None],
    )


def z_of_tasks(state: PearlState, batch: Batch) -> jax.Array:
    """Posterior means."""
    return latent_context.infer(state.learner.evaluation.encoder, batch, jnp.zeros((2, 1))).z


# --- Problems with known answers ---


def test_the_context_tells_two_opposite_tasks_apart():
    algorithm = make_pearl(bandits.SPEC, **SETTINGS)
    _, last, before, actions = bandits.solve(algorithm, bandits.opposite, updates=1000)
    # One action cannot be right in both tasks.
    assert np.min(before[0] * bandits.SIGNS) <= 0
    assert np.all(actions * bandits.SIGNS > 0.5)
    context = bandits.opposite(KEY)
    z = z_of_tasks(last, context)
    learner, some = last.learner, jnp.linspace(-0.6, 0.6, 5)
    action = jnp.broadcast_to(some[None, :, None], (2, 5, 1))
    q = latent_context.action_values(learner.evaluation.critics, jnp.ones((2, 5, 1)), action, z)
    for index, sign in enumerate(bandits.SIGNS):
        for critic in range(2):
            np.testing.assert_allclose(q[index, :, critic], 5 * sign * some, atol=0.4)
    value = pearl_learner.values(learner.improvement.value, jnp.ones((2, 1, 1)), z)
    np.testing.assert_allclose(value, BEST_VALUE, atol=0.35)
    keys = jax.random.split(KEY, 2000)
    for index, sign in enumerate(bandits.SIGNS):
        support = jax.tree.map(lambda leaf, index=index: leaf[index], context)
        task = algorithm.adapt(last, algorithm.begin(last, KEY), support, KEY)
        drawn = jax.vmap(lambda key, task=task: algorithm.act(last, task, bandits.OBS, key, False))
        assert sign * np.mean(drawn(keys)) == pytest.approx(BEST_MEAN, abs=0.1)


def test_a_latent_that_may_say_nothing_tells_nothing():
    """A KL that weighs everything down leaves the prior, with which no task is known."""
    algorithm = make_pearl(bandits.SPEC, **SETTINGS | {"kl_weight": 1e4})
    _, last, _, actions = bandits.solve(algorithm, bandits.opposite)
    z = z_of_tasks(last, bandits.opposite(KEY))
    np.testing.assert_allclose(z, 0.0, atol=0.1)
    assert np.min(actions.mean(0) * bandits.SIGNS) <= 0.1


def test_the_value_bootstraps_over_a_step_without_reward():
    """V(0) = gamma V(1) + ln 2: at observation 0 any action is as good, so the policy is uniform.

    Without the next value it would be ln 2.
    """
    algorithm = make_pearl(bandits.SPEC, **SETTINGS)
    _, last, _, _ = bandits.solve(algorithm, two_steps, updates=1500)
    z = z_of_tasks(last, two_steps(KEY))
    obs = jnp.broadcast_to(jnp.array([0.0, 1.0])[None, :, None], (2, 2, 1))
    value = pearl_learner.values(last.learner.improvement.value, obs, z)
    expected = [0.99 * BEST_VALUE + np.log(2), BEST_VALUE]
    np.testing.assert_allclose(value.mean(0), expected, atol=0.5)


# --- Losses by hand ---


TARGET = linear([[2.0], [1.0]], [0.25])
HAND = PearlConfig(discount=0.9, reward_scale=2.0, mean_penalty=0.1, log_std_penalty=0.01)


@pytest.mark.parametrize(("terminated", "expected"), [(False, 5.685), (True, 6.0)])
def test_target_is_the_scaled_reward_and_the_next_value(terminated, expected):
    # V_target = 2 * 0.2 - 1 + 0.25 = -0.35; y = 2 * 3 + 0.9 * -0.35, or 6 at an end.
    y = pearl_learner.q_target(HAND, TARGET, hand_batch(terminated), Z)
    np.testing.assert_allclose(y, [[expected]], rtol=1e-6)


def test_q_loss_is_the_sum_of_both_squared_errors():
    # Q_1 = 0.5 + 2 * 0.25 - 0.5 = 0.5; Q_2 = 3 * 0.5 - 0.25 + 0.5 = 1.75
    loss = pearl_learner.q_loss(HAND, CRITICS, TARGET, hand_batch(), Z)
    np.testing.assert_allclose(loss, [5.185**2 + 3.935**2], rtol=1e-6)


@pytest.mark.parametrize("log_prob", ["exact", "clipped"])
def test_value_and_policy_losses(log_prob):
    # mean = s + z = -0.5, log_std = -1; V = 2 s - z + 0.1 = 2.1
    nets = Improvement(
        linear([[2.0], [-1.0]], [0.1]), linear([[1.0, 0.0], [1.0, 0.0]], [0.0, -1.0])
    )
    noise = jnp.full((1, 1, 1), 0.7)
    u = -0.5 + 0.7 * np.exp(-1)
    action = np.tanh(u)
    slope = np.log(1 - action**2 + (1e-6 if log_prob == "clipped" else 0))
    log_pi = -(0.7**2) / 2 + 1 - np.log(2 * np.pi) / 2 - slope
    smaller = min(0.5 + 2 * action - 0.5, 1.5 - action + 0.5)
    config = PearlConfig(log_prob=log_prob, mean_penalty=0.1, log_std_penalty=0.01)
    losses = pearl_learner.improvement_losses(config, nets, CRITICS, hand_batch(), Z, noise)
    np.testing.assert_allclose(losses["value_loss"], [(2.1 - smaller + log_pi) ** 2], rtol=1e-5)
    expected = log_pi - smaller + 0.1 * 0.25 + 0.01
    np.testing.assert_allclose(losses["policy_loss"], [expected], rtol=1e-5)


def test_a_constant_z_leaves_the_encoder_alone_and_the_kl_counts_by_its_weight():
    """The encoder's two lessons one at a time."""
    algorithm = make_pearl(kl_weight=0.0)
    learner, batch = algorithm.init(KEY).learner, make_batch(KEY, 3, 8)
    noise = jax.random.normal(KEY, (3, 2)), jax.random.normal(KEY, (3, 8, 2))

    def encoder_after(config: PearlConfig, *, constant: bool) -> Any:
        def infer(encoder: Any) -> Any:
            inferred = latent_context.infer(encoder, batch, noise[0])
            z = jax.lax.stop_gradient(inferred.z) if constant else inferred.z
            return inferred._replace(z=z)

        step = quick_jit(partial(pearl_learner.step, config, infer=infer))
        return step(learner, batch, noise=noise[1])[0].evaluation.encoder

    encoder, moved = learner.evaluation.encoder, []
    for config, constant in (
        (algorithm.config, True),
        (algorithm.config, False),
        (make_pearl(kl_weight=0.1).config, True),
    ):
        after = encoder_after(config, constant=constant)
        pairs = zip(*map(jax.tree.leaves, (encoder, after)), strict=True)
        moved.append(all(np.any(one != other) for one, other in pairs))
    assert moved == [False, True, True]


# --- What is known of a task ---


@pytest.fixture(scope="module")
def made() -> tuple[Pearl, PearlState]:
    algorithm = make_pearl(normalize_obs=True, next_obs_in_context=True, initial="uniform")
    return algorithm, algorithm.init(KEY)


def as_steps(batch: Batch) -> list[Step]:
    return [
        Step(
            *(
                leaf[i]
                for leaf in (
                    batch.obs,
                    batch.action,
                    batch.reward,
                    batch.next_obs,
                    batch.terminated,
                )
            )
        )
        for i in range(len(batch.reward))
    ]


def test_a_context_at_once_in_another_order_or_step_by_step(made):
    algorithm, state = made
    batch, start = make_batch(KEY, 6), algorithm.begin(state, KEY)
    whole = algorithm.adapt(state, start, batch, KEY)
    turned = algorithm.adapt(state, start, jax.tree.map(lambda leaf: leaf[::-1], batch), KEY)
    halves = start
    for part in (slice(2), slice(2, None)):
        half = jax.tree.map(lambda leaf, part=part: leaf[part], batch)
        halves = algorithm.adapt(state, halves, half, KEY)
    single = start
    for step in as_steps(batch):
        single = algorithm.observe(state, single, step, KEY)
    for other in (turned, halves, single):
        assert_close(other.evidence, whole.evidence, rtol=1e-5)
    # z stays while it observes, until it is drawn anew.
    np.testing.assert_array_equal(single.z, start.z)
    drawn = algorithm.resample(state, single, KEY)
    np.testing.assert_allclose(drawn.z, whole.z, rtol=1e-4)
    assert_close(drawn.evidence, single.evidence)


def test_z_is_drawn_from_prior_and_posterior_or_is_their_mean(made):
    algorithm, state = made
    batch, keys = make_batch(KEY, 6), jax.random.split(KEY, 4000)
    begin = jax.vmap(lambda key: algorithm.begin(state, key).z)(keys)
    start = algorithm.begin(state, KEY)
    adapted = jax.vmap(lambda key: algorithm.adapt(state, start, batch, key).z)(keys)
    evidence = algorithm.adapt(state, start, batch, KEY).evidence
    for z, (mean, variance) in (
        (begin, (jnp.zeros(2), jnp.ones(2))),
        (adapted, latent.posterior(evidence)),
    ):
        np.testing.assert_allclose((z.mean(0) - mean) / jnp.sqrt(variance), 0.0, atol=0.06)
        np.testing.assert_allclose(z.var(0) / variance, 1.0, atol=0.1)
    by_mean = make_pearl(
        normalize_obs=True, next_obs_in_context=True, initial="uniform", adapted_z="mean"
    )
    start = by_mean.begin(state, KEY)
    np.testing.assert_array_equal(start.z, [0, 0])
    adapted_to = by_mean.adapt(state, start, batch, KEY)
    np.testing.assert_allclose(adapted_to.z, latent.posterior(evidence)[0], rtol=1e-5)
    drawn_anew = by_mean.resample(state, adapted_to, KEY).z
    np.testing.assert_allclose(drawn_anew, algorithm.adapt(state, start, batch, KEY).z, rtol=1e-5)


def test_actions_are_of_the_policy_that_is_told_z(made):
    algorithm, state = made
    task = algorithm.begin(state, KEY)
    obs = jnp.array([0.3, -0.8, 1.1])
    scaled = (obs - jnp.array(SPEC.obs_mean)) / jnp.array(SPEC.obs_std)
    mean, log_std = latent_context.distribution(task.policy, scaled, task.policy.shift(task.z))
    np.testing.assert_allclose(algorithm.act(state, task, obs, KEY, True), jnp.tanh(mean))
    drawn = algorithm.act(state, task, obs, KEY, False)
    np.testing.assert_allclose(drawn, sample_squashed(KEY, mean, log_std)[0])
    noise = jax.random.normal(KEY, (1, 1, 2))
    acted = latent_context.act(task.policy, scaled[None, None], task.z[None], noise)
    np.testing.assert_allclose(acted.action[0, 0], squash(noise[0, 0], mean, log_std)[0], rtol=1e-6)


# --- Training ---


def test_an_update_reads_both_batches_scaled():
    """The same as without scaling on batches that are scaled already, next observations too."""
    one, other = (make_pearl(normalize_obs=n, next_obs_in_context=True) for n in (True, False))
    state = one.init(KEY)
    batches = {"batch": make_batch(KEY, 3, 8), "context": make_batch(jax.random.PRNGKey(1), 3, 5)}
    mean, std = (jnp.array(each)[None, None] for each in (SPEC.obs_mean, SPEC.obs_std))
    scaled = {
        name: batch._replace(obs=(batch.obs - mean) / std, next_obs=(batch.next_obs - mean) / std)
        for name, batch in batches.items()
    }
    tasks = jnp.array([4, 0, 2])
    after, metrics = quick_jit(one.update)(state, batches, KEY, tasks)
    expected, expected_metrics = quick_jit(other.update)(state, scaled, KEY, tasks)
    assert_close(after.learner.improvement, expected.learner.improvement, rtol=1e-5)
    assert_close(metrics, expected_metrics, rtol=1e-5)


def test_the_context_is_of_the_encoder_buffer():
    (stage,) = make_pearl().stages()
    assert [(spec.name, spec.buffer) for spec in stage.batches] == [
        ("batch", "main"),
        ("context", "encoder"),
    ]


def test_the_target_starts_as_the_value_and_follows_it():
    algorithm = make_pearl(target_rate=0.25)
    state = algorithm.init(KEY)
    before = state.learner
    assert_close(before.target_value, before.improvement.value)
    batches = {"batch": make_batch(KEY, 3, 8), "context": make_batch(KEY, 3, 5)}
    after = quick_jit(algorithm.update)(state, batches, KEY, jnp.arange(3))[0].learner
    expected = jax.tree.map(
        lambda old, new: 0.75 * old + 0.25 * new, before.target_value, after.improvement.value
    )
    assert_close(after.target_value, expected, rtol=1e-6)


def test_value_and_policy_learn_from_the_new_qs():
    """At the old z. A large step of the Qs tells which they were."""
    config = make_pearl(initial="uniform", critic_lr=0.5).config
    before, batch = make_pearl(initial="uniform").init(KEY).learner, make_batch(KEY, 3, 8)
    noise = jax.random.normal(KEY, (3, 8, 2))
    infer = partial(latent_context.infer, context=batch, noise=jax.random.normal(KEY, (3, 2)))

    @quick_jit
    def both() -> Any:
        after, inferred, _ = pearl_learner.step(config, before, batch, infer, noise)

        def loss(nets: Improvement) -> Any:
            critics = after.evaluation.critics
            losses = pearl_learner.improvement_losses(
                config, nets, critics, batch, inferred.z, noise
            )
            return jnp.mean(losses["value_loss"]) + jnp.mean(losses["policy_loss"])

        grads = jax.grad(loss)(before.improvement)
        return after.improvement_opt, latent_context.ADAM.update(grads, before.improvement_opt)[1]

    opt, expected = both()
    assert_close(opt, expected, rtol=1e-5)


def test_small_outputs_at_first():
    """As the reference code: rlkit's bounds, of the policy a third of them."""
    learner = make_pearl(initial="small-outputs").init(KEY).learner
    for net, bound in (
        (learner.evaluation.encoder, 3e-3),
        (learner.evaluation.critics, 3e-3),
        (learner.improvement.value, 3e-3),
        (learner.improvement.policy, 1e-3),
    ):
        assert 0.6 * bound < np.max(np.abs(net.layers[-1].affine)) <= bound
        np.testing.assert_array_equal(net.layers[0].bias, np.float32(0.1))
    both = learner.evaluation.critics.layers[0].weight
    assert np.all(both[0] != both[1])


@pytest.mark.parametrize("name", ["batch", "context"])
def test_impossible_settings_are_refused(name):
    with pytest.raises(InputError, match=f"{name}: its name is '{name}', not 'outer'"):
        make_pearl(**{name: BatchSpec("outer", 8)})
