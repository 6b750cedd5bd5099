"""BOReL: what it finds out and what for, on a problem with a known answer, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.algos.borel import Borel, BorelState
from omrl.algos.borel_config import BeliefSacConfig, BorelConfig, VaeConfig
from omrl.algos.dqn import DqnConfig
from omrl.data.buffers import with_columns
from omrl.data.device import DeviceData
from omrl.data.sample import BatchSpec, sample_batches
from omrl.errors import InputError
from omrl.nets.belief import Belief
from omrl.types import Batch, Spec, Step
from quick import quick_jit
from tiny_macaw import make_batch, make_borel, make_borel_grid

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)

# --- Levers: an episode is one pull of a lever, and a trajectory four of them ---

SAFE, EPISODES, ROWS = 0.7, 4, 400
LEVERS = Spec(obs_dim=1, act_dim=3, num_train_tasks=2, horizon=1)
"""Lever 0 gives `SAFE`. Of the others one gives 1 and one nothing: which, is the task. So the first
pull of one of these loses 0.2 on average, and then gains 0.3 in each of three further episodes: it
is worth it for an agent that carries what it finds out through them, and for no other. The
observation counts the episodes, or agents would put it off."""


def levers() -> DeviceData:
    """Random pulls. Every pull ends the MDP."""
    pulled = jax.random.randint(KEY, (2, ROWS), 0, 3)
    right = jnp.array([[1], [2]])
    reward = jnp.where(pulled == 0, SAFE, (pulled == right).astype(jnp.float32))
    row, unread = jnp.arange(ROWS, dtype=jnp.int32), jnp.zeros((2, ROWS))
    observations = jnp.stack([row % EPISODES / EPISODES, -jnp.ones(ROWS)], axis=1).ravel()
    return DeviceData(
        obs=jnp.broadcast_to(observations[:, None], (2, 2 * ROWS, 1)),
        action=jax.nn.one_hot(pulled, 3),
        reward=reward,
        terminated=jnp.ones((2, ROWS), bool),
        mc_return=unread,
        terminal_discount=unread,
        obs_index=jnp.broadcast_to(2 * row, (2, ROWS)),
        terminal_index=jnp.broadcast_to(2 * row + 1, (2, ROWS)),
        num_rows=jnp.full(2, ROWS, jnp.int32),
    )


def make_levers(episodes: int) -> Borel:
    vae = VaeConfig(
        latent=2,
        gru=8,
        reward_sees=("action",),
        reward_hidden=(16,),
        decoded_reduction="sum",
        learning_rate=1e-2,
    )
    policy = DqnConfig(hidden=(32,), discount=0.9, learning_rate=3e-3, target_rate=0.05)
    config = BorelConfig(
        vae=vae,
        policy=policy,
        episodes=episodes,
        vae_task_batch=2,
        rollouts=16,
        task_batch=2,
        batch=BatchSpec("batch", 64),
    )
    return Borel(config, LEVERS)


def trained(algorithm: Borel, updates: int) -> BorelState:
    """After so many updates of either stage."""
    logged, tasks = levers(), jnp.arange(2)
    state = quick_jit(algorithm.init)(KEY)
    for stage in algorithm.stages():

        @quick_jit
        def run(state: Any, stage: Any = stage) -> Any:
            data = with_columns(logged, stage.prepare and stage.prepare(state, logged))
            sample = jax.vmap(partial(sample_batches, data, stage.batches))

            def step(state: Any, key: jax.Array) -> Any:
                sample_key, update_key = jax.random.split(key)
                batches = sample(tasks, jax.random.split(sample_key, 2))
                return stage.update(state, batches, update_key, tasks)

            return jax.lax.scan(step, state, jax.random.split(KEY, updates))[0]

        state = run(state)
    return state


def played(algorithm: Borel, state: BorelState) -> list[list[int]]:
    """The levers that are pulled in either task, one episode after the other."""
    end = -jnp.ones(1)

    @quick_jit
    def episode(task: Belief, right: int, number: int) -> tuple[Belief, jax.Array]:
        obs = jnp.full(1, number / EPISODES)
        action = algorithm.act(state, task, obs, KEY, True)
        lever = jnp.argmax(action)
        reward = jnp.where(lever == 0, SAFE, (lever == right).astype(jnp.float32))
        step = Step(obs, action, reward, end, jnp.array(True))
        return algorithm.observe(state, task, step, KEY), lever

    pulls = []
    for right in (1, 2):
        task, of_task = algorithm.begin(state, KEY), []
        for number in range(EPISODES):
            task, lever = episode(task, right, number)
            of_task.append(int(lever))
        pulls.append(of_task)
    return pulls


@pytest.fixture(scope="module")
def solved() -> tuple[Borel, BorelState]:
    algorithm = make_levers(EPISODES)
    return algorithm, trained(algorithm, 1500)


def test_what_is_found_out_in_one_episode_pays_in_the_next(solved):
    """The best behaviour: a risky pull in the first episode, and the lever that it tells of in all
    others."""
    first, second = played(*solved)
    assert first[0] == second[0] != 0
    assert first[1:] == [1, 1, 1]
    assert second[1:] == [2, 2, 2]


def test_rewards_are_predicted_by_what_is_known(solved):
    algorithm, state = solved
    begun, obs, end = algorithm.begin(state, KEY), jnp.zeros(1), -jnp.ones(1)

    def predicted(task: Belief) -> np.ndarray:
        return np.array(
            [algorithm.predict_reward(state, task, obs, lever, end) for lever in jnp.eye(3)]
        )

    def volume(task: Belief) -> float:
        return float(jnp.prod(algorithm.posterior(state, task)[1]))

    np.testing.assert_allclose(predicted(begun), [SAFE, 0.5, 0.5], atol=0.15)
    for lever, expected in ((1, [SAFE, 1, 0]), (2, [SAFE, 0, 1])):
        step = Step(obs, jnp.eye(3)[lever], jnp.array(1.0), end, jnp.array(True))
        after = algorithm.observe(state, begun, step, KEY)
        np.testing.assert_allclose(predicted(after), expected, atol=0.15)
        assert volume(after) < 0.5 * volume(begun)


def test_nothing_is_found_out_for_nobody():
    """With trajectories of one episode, each is the last."""
    algorithm = make_levers(1)
    for pulls in played(algorithm, trained(algorithm, 600)):
        assert pulls[0] == 0


# --- By hand ---


def test_a_context_is_the_same_as_its_transitions_one_by_one():
    algorithm = make_borel(normalize_obs=True)
    state = quick_jit(algorithm.init)(KEY)
    support: Batch = make_batch(KEY, 5)._replace(reward=jnp.arange(5.0))
    begun = algorithm.begin(state, KEY)
    known = begun
    for row in range(5):
        one = jax.tree.map(lambda leaf, row=row: leaf[row], support)
        step = Step(one.obs, one.action, one.reward, one.next_obs, one.terminated)
        known = algorithm.observe(state, known, step, KEY)
    adapted = algorithm.adapt(state, begun, support, KEY)
    np.testing.assert_allclose(adapted.mean, known.mean, rtol=1e-5, atol=1e-6)
    turned = algorithm.adapt(state, begun, jax.tree.map(lambda leaf: leaf[::-1], support), KEY)
    assert np.abs(turned.mean - known.mean).max() > 1e-4


def test_the_encoder_stays_as_it_is_while_the_policy_learns():
    algorithm = make_borel()
    state = quick_jit(algorithm.init)(KEY)
    after, metrics = quick_jit(algorithm.update_policy)(state, relabelled(), KEY, jnp.arange(3))
    assert set(metrics) == {"q_loss", "policy_loss"}
    for one, other in zip(*map(jax.tree.leaves, (after.model, state.model)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.any(after.policy.actor.layers[0].affine != state.policy.actor.layers[0].affine)


def relabelled() -> dict[str, Batch]:
    """A made-up batch of the belief MDP."""
    batch = make_batch(KEY, 3, 8)
    known = jnp.ones((3, 8, 4))
    obs, next_obs = (jnp.concatenate([x, known], -1) for x in (batch.obs, batch.next_obs))
    return {"batch": batch._replace(obs=obs, next_obs=next_obs)}


@pytest.mark.parametrize("policy", ["sac", "dqn"])
def test_rates_fall_along_a_cosine_in_each_stage(policy):
    """From 1 at its start over 1/2 to 0; Adam's first moves are as long as the rate."""
    changes: dict[str, Any] = {"policy": DqnConfig(hidden=(4,))} if policy == "dqn" else {}
    algorithm = make_borel(vae_steps=10, steps=20, lr_decay=True, **changes)
    state = quick_jit(algorithm.init)(KEY)
    update = quick_jit(algorithm.update_policy)

    def moved(step: int) -> list[np.ndarray]:
        begun = state._replace(step=jnp.asarray(step, jnp.int32))
        after = update(begun, relabelled(), KEY, jnp.arange(3))[0]
        pairs = zip(*map(jax.tree.leaves, (networks(after), networks(state))), strict=True)
        return [np.asarray(one - other) for one, other in pairs]

    def networks(state: BorelState) -> Any:
        learner: Any = state.policy
        return learner.q if policy == "dqn" else (learner.actor, learner.critics)

    full = moved(10)
    assert max(np.abs(move).max() for move in full) == pytest.approx(3e-4, rel=1e-2)
    for move, half, none in zip(full, moved(20), moved(30), strict=True):
        np.testing.assert_allclose(half, 0.5 * move, atol=1e-7)
        np.testing.assert_array_equal(none, 0)
    assert algorithm.decay(jnp.asarray(5), 10) == pytest.approx(0.5)
    assert make_borel().decay(jnp.asarray(5), 10) == 1.0


def test_a_predicted_reward_of_head_bernoulli():
    """With zero logits either reward is as likely: the mean of 1 and -0.1. The third of four cells
    is (1, 0), whatever scale the networks have."""
    head = {"reward_head": "bernoulli", "reward_cells": (2, 2), "reward_failure": -0.1}
    vae: Any = VaeConfig(reward_sees=(), gru=4, latent=2, **head)
    spec = replace(LEVERS, obs_dim=2, obs_mean=(0.5, 0.5), obs_std=(0.1, 0.1))
    algorithm = Borel(BorelConfig(vae=vae, normalize_obs=True), spec)
    state = jax.tree.map(jnp.zeros_like, quick_jit(algorithm.init)(KEY))
    *_, last = jax.tree.leaves(state.model.vae.rewards)
    assert last.shape[-1] == 4
    biased = last.at[-1, 2].set(100.0)
    state = jax.tree.map(lambda leaf: biased if leaf is last else leaf, state)

    def predicted(x: float, y: float) -> jax.Array:
        cell, action = jnp.array([x, y]), jnp.zeros(3)
        return algorithm.predict_reward(state, algorithm.begin(state, KEY), cell, action, cell)

    np.testing.assert_allclose(predicted(0.0, 1.0), 0.45, rtol=1e-6)
    np.testing.assert_allclose(predicted(1.0, 0.0), 1.0, rtol=1e-6)


# --- One-hot cells ---


def test_networks_see_a_cell_one_hot():
    """Of two by three cells (1, 2) is the last and (0, 1) the second; what else an observation says
    is standardised: (0.5 - 0.2) / 0.1 = 3."""
    scales = {"obs_mean": (9.0, 9.0, 0.2), "obs_std": (7.0, 7.0, 0.1)}
    made = make_borel_grid()
    algorithm = replace(made, spec=replace(made.spec, obs_dim=3, **scales))
    obs = jnp.array([[1.0, 2.0, 0.5], [0.0, 1.0, 0.2]])
    expected = np.array([[0, 0, 0, 0, 0, 1, 3], [0, 1, 0, 0, 0, 0, 0]])
    np.testing.assert_allclose(algorithm.scaled(obs), expected, atol=1e-6)
    np.testing.assert_allclose(algorithm.scaled(obs[0]), expected[0], atol=1e-6)
    plain = replace(algorithm, config=replace(algorithm.config, normalize_obs=False))
    np.testing.assert_allclose(plain.scaled(obs)[:, 6], [0.5, 0.2])


def test_all_networks_see_the_same_of_a_cell():
    """The encoder as it observes and goes through data, the policy, the decoder of states."""
    algorithm = make_borel_grid()
    vae = replace(algorithm.config.vae, state_head="squared", action_features=2)
    algorithm = replace(algorithm, config=replace(algorithm.config, vae=vae))
    state = quick_jit(algorithm.init)(KEY)
    seen = algorithm.spec.obs_dim - 2 + 6
    assert algorithm.seen_dim == seen
    assert state.model.vae.encoder.obs.weight.shape[0] == seen
    assert state.model.vae.states.net.layers[-1].affine.shape[-1] == seen
    assert state.policy.q.layers[0].weight.shape[0] == seen + 2 * vae.latent
    # --- Numbers that mean the same cell make no difference, those of another cell do ---
    begun = algorithm.begin(state, KEY)

    def after(x: float, y: float) -> Belief:
        obs = jnp.zeros(algorithm.spec.obs_dim).at[:2].set(jnp.array([x, y]))
        step = Step(obs, jnp.zeros(algorithm.spec.act_dim), jnp.array(1.0), obs, jnp.array(False))
        return algorithm.observe(state, begun, step, KEY)

    np.testing.assert_array_equal(after(1.0, 2.0).mean, after(1.1, 1.9).mean)
    assert np.abs(after(1.0, 2.0).mean - after(0.0, 2.0).mean).max() > 1e-4


# --- What is refused ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BorelConfig(batch=BatchSpec("rows", 8)), "batch: its name is 'batch'"),
        (lambda: VaeConfig(action_features=0), "action_features: 0, and the reward decoder"),
        (lambda: BorelConfig(one_hot_cells=True), "one_hot_cells: on, and vae.reward_cells names"),
        (
            lambda: replace(make_borel_grid(), spec=LEVERS),
            "vae.reward_cells: has sizes of 2 entries of an observation, which has 1 in all",
        ),
    ],
)
def test_settings_that_contradict_each_other(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_discrete_actions_are_no_layers_to_export():
    algorithm = make_levers(EPISODES)
    state = quick_jit(algorithm.init)(KEY)
    with pytest.raises(InputError, match="cannot be exported"):
        algorithm.policy_layers(state, algorithm.begin(state, KEY))


def test_cells_are_no_numbers_to_export():
    sac = BeliefSacConfig(hidden=(4,))
    algorithm = make_borel_grid()
    algorithm = replace(algorithm, config=replace(algorithm.config, policy=sac))
    state = quick_jit(algorithm.init)(KEY)
    with pytest.raises(InputError, match="one_hot_cells: dense layers on numbers cannot tell"):
        algorithm.policy_layers(state, algorithm.begin(state, KEY))
