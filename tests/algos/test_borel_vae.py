"""BOReL's VAE: the loss against a loop over pairs, what must change nothing, and a task that only
the belief can tell."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from omrl.algos import borel_vae
from omrl.algos.borel_config import VaeConfig
from omrl.algos.borel_vae import Draws, Elbo, Trajectory
from omrl.errors import InputError
from omrl.nets.mlp import forward

pytestmark = pytest.mark.usefixtures("own_programs")

OBS, ACT, STEPS = 3, 2, 5
SMALL = VaeConfig(
    latent=2,
    gru=6,
    obs_features=4,
    action_features=3,
    reward_features=2,
    reward_hidden=(5, 4),
    state_hidden=(5,),
    decoder_block=2,
)
CELLS = replace(
    SMALL,
    reward_head="bernoulli",
    reward_cells=(2, 3),
    reward_sees=(),
    action_features=0,
    decoded_reduction="sum",
)
VARIANTS = {
    "squared": SMALL,
    "sum": replace(SMALL, decoded_reduction="sum", reward_sees=("next_obs",)),
    "bernoulli": replace(SMALL, reward_head="bernoulli", reward_success=0.2),
    "cells": CELLS,
    "states": replace(SMALL, state_head="squared", state_weight=0.7),
    "gaussian-states": replace(SMALL, state_head="gaussian", kl_weight=1.0),
}


def trajectory(key, config=SMALL, lead=()) -> Trajectory:
    keys = jax.random.split(key, 4)
    shape = (*lead, STEPS)
    obs, next_obs = jax.random.normal(keys[0], (2, *shape, OBS))
    reward = jax.random.normal(keys[1], shape)
    if config.reward_cells:
        cells = jax.random.randint(keys[3], (*shape, 2), 0, jnp.array([2, 3]).reshape(*lead, 1, 2))
        next_obs = next_obs.at[..., :2].set(cells)
        reward = jnp.where(reward > 0, 1.0, -0.1)
    ends = jnp.zeros(shape, bool)
    action = jax.random.normal(keys[2], (*shape, ACT))
    return Trajectory(obs, action, reward, next_obs, ends, jnp.ones(shape, bool))


def vae_of(config, key) -> borel_vae.Vae:
    return borel_vae.init(config, OBS, ACT, key).vae


def all_terms(key) -> Draws:
    return borel_vae.draw(SMALL, STEPS, key)


# --- The loss ---


def one_by_one(config, vae, seen: Trajectory, noise) -> float:
    """The loss of a trajectory, pair by pair, on concatenated inputs."""
    known = borel_vae.beliefs(vae.encoder, seen)
    standard = stats.norm(np.zeros(config.latent), np.ones(config.latent))
    before, total = standard, 0.0
    for t in range(STEPS + 1):
        mean, log_variance = (np.asarray(x[t], np.float64) for x in known[1:])
        now = stats.norm(mean, np.exp(0.5 * log_variance))
        # KL of two Gaussians: cross-entropy minus entropy.
        cross = 0.5 * (now.var() + (now.mean() - before.mean()) ** 2) / before.var()
        cross += np.log(before.std()) + 0.5 * np.log(2 * np.pi)
        total += config.kl_weight * np.sum(cross - now.entropy())
        before = now
        z = jnp.asarray(now.mean() + now.std() * np.asarray(noise[t]), jnp.float32)
        for k in range(STEPS):
            error = reward_error(config, vae.rewards, seen, k, z)
            if config.state_head != "none":
                error += config.state_weight * state_error(config, vae.states, seen, k, z)
            total += error / (STEPS if config.decoded_reduction == "mean" else 1)
    return total


def outputs(decoder, seen, k, z):
    parts = {"next_obs": seen.next_obs[k], "action": seen.action[k], "obs": seen.obs[k]}
    features = [
        jax.nn.relu((decoder.action if part == "action" else decoder.obs)(parts[part]))
        for part in decoder.sees
    ]
    out = forward(decoder.net.layers, jnp.concatenate([*features, z]))
    return np.asarray(out, np.float64)


def reward_error(config, decoder, seen, k, z):
    out, reward = outputs(decoder, seen, k, z), float(seen.reward[k])
    if config.reward_head == "squared":
        return (out[0] - reward) ** 2
    x, y = (int(entry) for entry in seen.next_obs[k][:2])
    logit = out[3 * x + y] if config.reward_cells else out[0]
    return -stats.bernoulli(1 / (1 + np.exp(-logit))).logpmf(reward >= config.reward_success)


def state_error(config, decoder, seen, k, z):
    out, next_obs = outputs(decoder, seen, k, z), np.asarray(seen.next_obs[k])
    if config.state_head == "squared":
        return np.mean((out - next_obs) ** 2)
    return -np.mean(stats.norm(out[:OBS], np.exp(out[OBS:])).logpdf(next_obs))


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_loss_is_that_of_all_pairs(getkey, config):
    vae, seen = vae_of(config, getkey()), trajectory(getkey(), config)
    draws = all_terms(getkey())
    ours = borel_vae.loss(config, borel_vae.elbo(config, vae, seen, draws))
    assert ours == pytest.approx(one_by_one(config, vae, seen, draws.noise), rel=1e-4)


def total(config, seen, draws, vae):
    return borel_vae.loss(config, borel_vae.elbo(config, vae, seen, draws))


@pytest.mark.parametrize("config", [VARIANTS["gaussian-states"], CELLS], ids=["pairs", "cells"])
def test_blocks_change_nothing(getkey, config):
    """3 of 6 posteriors at once; 4, which leaves 2; more than there are."""
    vae, seen, draws = vae_of(config, getkey()), trajectory(getkey(), config), all_terms(getkey())
    results = []
    for block in (3, 4, 9):
        sized = replace(config, decoder_block=block)
        results.append(jax.jit(jax.value_and_grad(partial(total, sized, seen, draws)))(vae))
    for result in results[1:]:
        for ours, expected in zip(*map(jax.tree.leaves, (result, results[0])), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-6)


def test_steps_behind_the_end_change_nothing(getkey):
    vae, long = vae_of(SMALL, getkey()), trajectory(getkey())
    draws = all_terms(getkey())
    cut = jax.tree.map(lambda leaf: leaf[:3], long)
    expected = total(SMALL, cut, Draws(draws.terms[:4], draws.noise[:4]), vae)
    padded = long._replace(valid=jnp.arange(STEPS) < 3)
    assert total(SMALL, padded, draws, vae) == pytest.approx(float(expected), rel=1e-5)
    nonsense = padded._replace(reward=jnp.where(padded.valid, padded.reward, 1e3))
    assert total(SMALL, nonsense, draws, vae) == pytest.approx(float(expected), rel=1e-5)


def test_a_part_of_the_terms_is_on_average_the_whole(getkey):
    vae, seen, draws = vae_of(SMALL, getkey()), trajectory(getkey()), all_terms(getkey())
    whole = borel_vae.elbo(SMALL, vae, seen, draws)
    # --- Each posterior alone: errors and KL are of the same one ---
    single = [
        borel_vae.elbo(SMALL, vae, seen, Draws(draws.terms[t : t + 1], draws.noise[t : t + 1]))
        for t in range(STEPS + 1)
    ]
    for name in ("reward_error", "kl"):
        each = [float(getattr(terms, name)) for terms in single]
        assert np.mean(each) == pytest.approx(float(getattr(whole, name)), rel=1e-5)
        assert np.std(each) > 0
    mean, log_variance = borel_vae.beliefs(vae.encoder, seen)[1:]
    chain = borel_vae.gaussian_beliefs.kl_chain(mean, log_variance)
    np.testing.assert_allclose([terms.kl for terms in single], 6 * chain, rtol=1e-5)


def test_cells_are_those_of_observations_as_they_are(getkey):
    """An encoder that sees none and a decoder of z alone take no notice of their scale."""
    config = replace(CELLS, obs_features=0)
    vae, seen, draws = vae_of(config, getkey()), trajectory(getkey(), config), all_terms(getkey())
    plain = borel_vae.elbo(config, vae, seen, draws)
    moved = borel_vae.elbo(config, vae, seen, draws, scaled=lambda obs: 1 - obs)
    assert float(moved.reward_error) == pytest.approx(float(plain.reward_error), rel=1e-6)


def test_terms_are_drawn_without_replacement(getkey):
    config = replace(SMALL, elbo_terms=4)
    draws = jax.vmap(partial(borel_vae.draw, config, STEPS))(jax.random.split(getkey(), 300))
    assert draws.terms.shape == (300, 4)
    assert draws.noise.shape == (300, 4, 2)
    assert all(len(set(terms)) == 4 for terms in draws.terms.tolist())
    counts = np.bincount(np.ravel(draws.terms), minlength=STEPS + 1)
    assert np.all(np.abs(counts - 200) < 60)
    np.testing.assert_array_equal(all_terms(getkey()).terms, np.arange(STEPS + 1))


# --- A step ---


@pytest.fixture(scope="module")
def small_step():
    return jax.jit(partial(borel_vae.step, SMALL))


def test_tasks_and_trajectories_have_no_order(getkey, small_step):
    learner = borel_vae.init(SMALL, OBS, ACT, getkey())
    seen = trajectory(getkey(), lead=(2, 3))
    keys = jax.random.split(getkey(), (2, 3))
    draws = jax.vmap(jax.vmap(partial(borel_vae.draw, SMALL, STEPS)))(keys)
    moved, metrics = small_step(learner, seen, draws)
    turned = jax.tree.map(lambda leaf: leaf[::-1, ::-1], (seen, draws))
    other, other_metrics = small_step(learner, *turned)
    assert set(metrics) == {"reward_error", "kl", "vae_loss"}
    for name, values in metrics.items():
        assert values.shape == (2,)
        np.testing.assert_allclose(values, other_metrics[name][::-1], rtol=1e-4)
    for ours, expected in zip(*map(jax.tree.leaves, (moved, other)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-5)


def test_a_step_moves_every_number_that_matters(getkey):
    config = replace(SMALL, state_head="squared")
    learner = borel_vae.init(config, OBS, ACT, getkey())
    draws = jax.tree.map(lambda leaf: leaf[None, None], all_terms(getkey()))
    step, seen = jax.jit(partial(borel_vae.step, config)), trajectory(getkey(), lead=(1, 1))
    moved, metrics = step(learner, seen, draws, 1.0)
    assert metrics["state_error"].shape == (1,)
    total = borel_vae.loss(config, Elbo(*(metrics[name] for name in Elbo._fields)))
    np.testing.assert_allclose(metrics["vae_loss"], total, rtol=1e-5)
    assert jax.tree.structure(moved) == jax.tree.structure(learner)
    for old, new in zip(*map(jax.tree.leaves, (learner, moved)), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        assert np.any(old != new)
    for old, none in zip(
        *map(jax.tree.leaves, (learner.vae, step(learner, seen, draws, 0.0)[0].vae)), strict=True
    ):
        np.testing.assert_array_equal(old, none)


def test_what_only_the_rewards_tell_is_believed_and_predicted(getkey, small_step):
    """Rewards are 1 in one task and -1 in the other; observations and actions say nothing. The
    prior decodes their mean, and one transition is enough to know all rewards."""
    sign = jnp.array([1.0, -1.0])

    def rollouts(key):
        seen = trajectory(key, lead=(2, 8))
        return seen._replace(reward=jnp.broadcast_to(sign[:, None, None], (2, 8, STEPS)))

    def update(learner, key):
        keys = jax.random.split(key, (2, 8))
        draws = jax.vmap(jax.vmap(partial(borel_vae.draw, config, STEPS)))(keys)
        return borel_vae.step(config, learner, rollouts(jax.random.fold_in(key, 1)), draws)

    config = replace(SMALL, learning_rate=1e-2, reward_hidden=(16,), gru=8)
    keys = jax.random.split(getkey(), 1500)
    learner = borel_vae.init(config, OBS, ACT, getkey())
    vae = jax.jit(lambda x: jax.lax.scan(update, x, keys)[0])(learner).vae
    of_each = jax.tree.map(lambda leaf: leaf[:, 0], rollouts(getkey()))
    mean = jax.vmap(partial(borel_vae.beliefs, vae.encoder))(of_each).mean
    found = jax.vmap(partial(borel_vae.decoded, vae.rewards))(of_each, mean)[..., 0]
    np.testing.assert_allclose(found[:, 0], 0, atol=0.3)
    for task in range(2):
        np.testing.assert_allclose(found[task, 1:], sign[task], atol=0.2)


# --- Sizes ---


def test_an_update_of_long_trajectories_fits_into_memory():
    """T = 400, 4 tasks x 8 trajectories, all posteriors: the inputs of the reward decoder alone
    would be 1.7 GB, and every hidden layer 0.7 GB."""
    config = VaeConfig()
    shape = (4, 8, 400)
    assert 4 * 8 * 401 * 400 * (5 + 32 + 16 + 32) * 4 > 1.7e9

    def column(dtype, *feature):
        return jax.ShapeDtypeStruct((*shape, *feature), dtype)

    obs, flag = column(jnp.float32, 21), column(bool)
    seen = Trajectory(obs, column(jnp.float32, 6), column(jnp.float32), obs, flag, flag)
    draws = jax.eval_shape(
        jax.vmap(jax.vmap(partial(borel_vae.draw, config, 400))),
        jax.ShapeDtypeStruct((4, 8, 2), jnp.uint32),
    )
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    learner = jax.eval_shape(partial(borel_vae.init, config, 21, 6), key)
    compiled = jax.jit(partial(borel_vae.step, config)).lower(learner, seen, draws).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert 0 < analysis.temp_size_in_bytes < 0.5 * 2**30


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"action_features": 0}, "action_features: 0, and the reward decoder has to see action"),
        (
            {"obs_features": 0, "reward_sees": ("obs",)},
            "obs_features: 0, and the reward decoder has to see obs",
        ),
        ({"reward_sees": ("obs", "obs")}, "reward_sees: obs, obs has one part twice"),
        ({"reward_cells": (5, 5)}, "reward_cells: is of head bernoulli, not squared"),
        (
            {"obs_features": 0, "action_features": 0, "reward_features": 0, "reward_sees": ()},
            "reward_features: 0 beside",
        ),
        ({"elbo_terms": 0}, "elbo_terms: 0 is not a whole number"),
        ({"kl_weight": -1.0}, "kl_weight: -1.0 is not a number"),
    ],
)
def test_settings_that_cannot_be(wrong, message):
    with pytest.raises(InputError, match=message):
        VaeConfig(**wrong)
