"""SMAC offline: what it solves and what it must not, its losses by hand, where gradients stop."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bandits
from hand import CRITICS, Z, hand_batch, linear
from omrl.algos import latent_context, smac_learner
from omrl.algos.latent_context import Acted
from omrl.algos.smac import Smac, SmacState
from omrl.algos.smac_config import SmacConfig
from omrl.algos.smac_learner import ActorCritic, Representation
from omrl.data.buffers import Buffers
from omrl.data.sample import BatchSpec
from omrl.errors import InputError
from omrl.nets.latent_mlp import LatentMlp
from omrl.train import check_data
from omrl.types import Batch
from quick import quick_jit
from tiny_macaw import SPEC, assert_close, make_batch, make_smac
from toy import make_data

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)
SETTINGS: dict[str, Any] = {
    "hidden": (32,),
    "encoder_hidden": (32,),
    "decoder_hidden": (32,),
    "latent": 1,
    "task_batch": 2,
    "initial": "uniform",
    "reward_scale": 1.0,
    "temperature": 0.25,
    "kl_weight": 0.01,
    **dict.fromkeys(("encoder_lr", "decoder_lr", "critic_lr", "policy_lr"), 3e-3),
}


def z_of_tasks(state: SmacState, batch: Batch) -> jax.Array:
    """Posterior means."""
    encoder = state.learner.representation.encoder
    return latent_context.infer(encoder, batch, jnp.zeros((2, 1))).z


# --- Problems with known answers ---


def best_action() -> float:
    """Of the reward +a: logged actions are uniform in [-1, 1] and weights exp(4 a), and the mean of
    a tanh-Gaussian that imitates them is that of their values before tanh."""
    a = np.linspace(-1, 1, 200_001)[1:-1]
    weights = np.exp(a / SETTINGS["temperature"])
    return float(np.tanh(np.sum(weights * np.arctanh(a)) / np.sum(weights)))


@pytest.fixture(scope="module")
def solved() -> tuple[Smac, SmacState, np.ndarray, np.ndarray]:
    algorithm = make_smac(bandits.SPEC, **SETTINGS)
    _, last, before, actions = bandits.solve(algorithm, bandits.opposite, updates=1000)
    return algorithm, last, before, actions


def test_the_context_tells_two_opposite_tasks_apart(solved):
    _, last, before, actions = solved
    # One action cannot be right in both tasks.
    assert np.min(before[0] * bandits.SIGNS) <= 0
    np.testing.assert_allclose(actions.mean(0) * bandits.SIGNS, best_action(), atol=0.08)
    some = jnp.linspace(-0.6, 0.6, 5)
    q = latent_context.action_values(
        last.learner.actor_critic.critics,
        jnp.ones((2, 5, 1)),
        jnp.broadcast_to(some[None, :, None], (2, 5, 1)),
        z_of_tasks(last, bandits.opposite(KEY)),
    )
    for index, sign in enumerate(bandits.SIGNS):
        for critic in range(2):
            np.testing.assert_allclose(q[index, :, critic], sign * some, atol=0.1)


def test_the_decoder_knows_the_task_of_a_context(solved):
    """Its labels of new actions are their rewards there; of z = 0 they are right in no task."""
    algorithm, state, *_ = solved
    some = jnp.linspace(-0.9, 0.9, 7)
    start = algorithm.begin(state, KEY)

    def labels(z: jax.Array) -> jax.Array:
        return jax.vmap(lambda a: algorithm.label(state, z, bandits.OBS, a[None]))(some)

    for index, sign in enumerate(bandits.SIGNS):
        of_task = jax.tree.map(lambda leaf, index=index: leaf[index], bandits.opposite(KEY))
        mean, _ = algorithm.posterior(state, algorithm.adapt(state, start, of_task, KEY))
        np.testing.assert_allclose(labels(mean), sign * some, atol=0.1)
        assert np.max(np.abs(labels(jnp.zeros(1)) - sign * some)) > 0.3


def test_uniform_weights_imitate_where_advantages_would_win():
    """Logged actions lie around 0 in both tasks, and so do those of cloning."""
    algorithm = make_smac(bandits.SPEC, **SETTINGS, weights="uniform")
    *_, actions = bandits.solve(algorithm, bandits.opposite)
    assert np.all(np.abs(actions) < 0.3)


def test_the_actor_ablation_climbs_q():
    algorithm = make_smac(bandits.SPEC, **SETTINGS, awac_weight=0.0, reparam_weight=1.0)
    *_, actions = bandits.solve(algorithm, bandits.opposite)
    assert np.all(actions * bandits.SIGNS > 0.9)


# --- Losses by hand ---


def acted(action: float, log_prob: float) -> Acted:
    one = jnp.ones((1, 1, 1))
    return Acted(action * one, log_prob * one[..., 0], one, one)


@pytest.mark.parametrize(
    ("terminated", "alpha", "in_target", "y"),
    [(0, 0, True, 6.18), (0, 0.5, True, 5.28), (0, 0.5, False, 6.18), (1, 0.5, True, 6)],
)
def test_target_is_the_scaled_reward_and_the_next_value(terminated, alpha, in_target, y):
    # Q_1 = 0.2 + 2 * 0.25 - 0.5 = 0.2 < Q_2 = 0.85; y = 2 * 3 + 0.9 (0.2 - 2 alpha), 6 at an end.
    config = SmacConfig(
        discount=0.9,
        reward_scale=2.0,
        entropy_weight=float(alpha),
        entropy_in_target=in_target,
    )
    batch = hand_batch(bool(terminated))
    value = smac_learner.next_value(config, CRITICS, acted(0.25, 2.0), batch, Z)
    np.testing.assert_allclose(smac_learner.q_target(config, batch, value), [[y]], rtol=1e-6)


def test_q_loss_is_the_mean_squared_error_of_each():
    predicted = jnp.array([[[1.0, 2.0], [3.0, 5.0]]])
    loss = smac_learner.q_loss(predicted, jnp.array([[0.0, 1.0]]))
    np.testing.assert_allclose(loss, [[(1 + 4) / 2, (4 + 16) / 2]])


@pytest.mark.parametrize(("which", "logged"), [("min", 0.5), ("first", 0.9)])
def test_score_is_the_advantage_over_an_action_of_the_policy(which, logged):
    # mean = s + z = -0.5, log_std = -1; Q_1 = 2 a' and Q_2 = 2 - a' at s, z of the policy's a'.
    policy = linear([[1.0, 0.0], [1.0, 0.0]], [0.0, -1.0])
    noise = jnp.full((1, 1, 1), 0.7)
    action = np.tanh(-0.5 + 0.7 * np.exp(-1))
    value = min(2 * action, 2 - action)
    config = SmacConfig(advantage_q=which, weights="exp", temperature=2.0)
    judged = smac_learner.judge(
        config,
        ActorCritic(CRITICS, policy),
        hand_batch(),
        Z,
        jnp.array([[[0.9, 0.5]]]),
        noise,
    )
    np.testing.assert_allclose(judged.value, [[value]], rtol=1e-5)
    np.testing.assert_allclose(judged.score, [[logged - value]], rtol=1e-5)
    np.testing.assert_allclose(judged.weights, [[np.exp((logged - value) / 2)]], rtol=1e-5)
    # Of the logged action 0.25.
    u = np.arctanh(0.25)
    log_prob = -((u + 0.5) ** 2) / (2 * np.exp(-2)) + 1 - np.log(2 * np.pi) / 2 - np.log(1 - 1 / 16)
    np.testing.assert_allclose(judged.log_prob, [[log_prob]], rtol=1e-4)


def test_policy_loss_weighs_its_three_terms():
    judged = smac_learner.Judged(
        Acted(*[jnp.zeros((1, 2, 1))], jnp.array([[0.1, 0.3]]), *[jnp.zeros((1, 2, 1))] * 2),
        log_prob=jnp.array([[-1.0, -2.0]]),
        value=jnp.array([[3.0, 5.0]]),
        score=jnp.zeros((1, 2)),
        weights=jnp.array([[0.5, 1.5]]),
    )
    config = SmacConfig(awac_weight=2.0, reparam_weight=0.5, entropy_weight=0.25)
    expected = (2 * 0.5 * 1 - 0.5 * 3 + 0.25 * 0.1 + 2 * 1.5 * 2 - 0.5 * 5 + 0.25 * 0.3) / 2
    np.testing.assert_allclose(smac_learner.policy_loss(config, judged), [expected], rtol=1e-6)
    alone = smac_learner.policy_loss(SmacConfig(), judged)
    np.testing.assert_allclose(alone, [(0.5 * 1 + 1.5 * 2) / 2], rtol=1e-6)


@pytest.mark.parametrize(("online", "alpha"), [(None, 0.25), (0.0, 0.0), (1.0, 1.0)])
def test_the_online_phase_has_weights_of_its_own(online, alpha):
    config = SmacConfig(
        entropy_weight=0.25,
        self_supervised_entropy_weight=online,
        self_supervised_reparam_weight=0.5,
    )
    of_step = config.self_supervised
    assert (of_step.entropy_weight, of_step.reparam_weight) == (alpha, 0.5)
    assert (config.entropy_weight, config.reparam_weight) == (0.25, 0.0)


def test_rewards_and_kl_are_reduced_as_asked():
    """Errors of unscaled rewards, on the one batch or the other."""
    # r_d = s + a: 0.75 beside r = 3, and 0.9 beside 1.
    decoder, batch = linear([[1.0], [1.0], [0.0]], [0.0]), hand_batch()
    context = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf], axis=1), batch)
    context = context._replace(obs=0 * context.obs + 0.65, reward=0 * context.reward + 1)
    for changes, error in (
        ({}, 2.25**2),
        ({"decoder_batch": "context"}, 0.01),
        ({"decoder_batch": "context", "reward_reduction": "sum"}, 0.02),
    ):
        found = smac_learner.reward_error(SmacConfig(**changes), decoder, batch, context, Z)
        np.testing.assert_allclose(found, [error], rtol=1e-4)
    errors, kl = jnp.array([1.0, 3.0]), jnp.array([10.0, 30.0])
    for reduction, expected in (("mean", 2 + 0.1 * 20), ("sum", 2 + 0.1 * 40)):
        config = SmacConfig(kl_reduction=reduction)
        found = smac_learner.representation_loss(config, errors, kl)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_encoder_may_tell_deviations():
    """What is a variance without being asked is squared."""
    made = [make_smac(encoder_spread=spread).init(KEY) for spread in ("variance", "deviation")]
    batch = make_batch(KEY, 1)
    row = [leaf[0] for leaf in (batch.obs, batch.action, batch.reward, batch.next_obs)]
    variance, squared = (state.learner.representation.encoder(*row)[1] for state in made)
    np.testing.assert_allclose(squared, variance**2, rtol=1e-6)


# --- Where gradients stop ---


def size(tree: Any) -> float:
    return sum(float(jnp.sum(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree))


def gradients(**changes: Any) -> dict[str, dict[str, float]]:
    """Sizes of the gradients of every loss with respect to every network."""
    config = make_smac(initial="uniform", reparam_weight=1.0, **changes).config
    learner = make_smac(initial="uniform").init(KEY).learner
    batch, context = make_batch(KEY, 3, 8), make_batch(jax.random.PRNGKey(1), 3, 5)
    noise = jax.vmap(partial(smac_learner.noise_of_task, config, 8, 2))(jax.random.split(KEY, 3))

    def losses(nets: ActorCritic, representation: Representation, targets: LatentMlp) -> Any:
        seen = smac_learner.forward(config, nets, representation, targets, batch, context, noise)
        by_task = smac_learner.losses(config, seen)[1]
        return jnp.stack([jnp.mean(by_task[name]) for name in names])

    names = ("q_loss", "policy_loss", "reward_loss", "kl")
    nets = (learner.actor_critic, learner.representation, learner.target_critics)
    found = quick_jit(jax.jacrev(losses, (0, 1, 2)))(*nets)
    networks = {
        **found[0]._asdict(),
        **found[1]._asdict(),
        "targets": found[2],
    }
    return {
        name: {
            net: size(jax.tree.map(lambda leaf, number=number: leaf[number], tree))
            for net, tree in networks.items()
        }
        for number, name in enumerate(names)
    }


def reached(found: dict[str, dict[str, float]]) -> dict[str, set[str]]:
    return {loss: {net for net, n in nets.items() if n > 0} for loss, nets in found.items()}


def test_every_loss_reaches_the_networks_that_it_teaches_and_no_other():
    expected = {
        "q_loss": {"critics"},
        "policy_loss": {"policy"},
        "reward_loss": {"encoder", "decoder"},
        "kl": {"encoder"},
    }
    assert reached(gradients()) == expected
    with_encoder = expected | {"q_loss": {"critics", "encoder"}}
    assert reached(gradients(q_trains_encoder=True)) == with_encoder


def test_all_step_on_gradients_from_before_the_step_and_the_encoder_may_be_frozen():
    """Whatever encoder and decoder do, policy and Qs make the same step."""
    algorithm = make_smac(initial="uniform", critic_lr=0.5, target_rate=0.25)
    state = algorithm.init(KEY)
    batches = {"batch": make_batch(KEY, 3, 8), "context": make_batch(KEY, 3, 5)}
    config, before = algorithm.config.self_supervised, state.learner
    assert config.reparam_weight == 1.0
    noise = jax.vmap(partial(smac_learner.noise_of_task, config, 8, 2))(
        jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(3))
    )
    step = quick_jit(partial(smac_learner.step, config), static_argnames="frozen")
    free, frozen = (step(before, *batches.values(), noise, frozen=f)[0] for f in (False, True))
    assert_close(frozen.actor_critic, free.actor_critic, rtol=1e-5)
    for name in ("representation", "representation_opt"):
        assert_close(getattr(frozen, name), getattr(before, name), rtol=0)
        assert size(getattr(free, name)) != size(getattr(before, name))
    expected = jax.tree.map(
        lambda old, new: 0.75 * old + 0.25 * new, before.target_critics, free.actor_critic.critics
    )
    assert_close(free.target_critics, expected, rtol=1e-5)
    # The policy's step is that on the old Qs.
    after, metrics = quick_jit(algorithm.self_supervised_update)(state, batches, KEY, jnp.arange(3))
    assert_close(after.learner.actor_critic, frozen.actor_critic, rtol=1e-5)
    assert after.step == 1
    assert metrics.keys() == {"q_loss", "policy_loss", "kl"}


def test_the_policy_at_s_prime_is_told_a_second_draw_of_z():
    batch = make_batch(KEY, 3, 5)
    encoder = make_smac().init(KEY).learner.representation.encoder
    noise = jax.random.normal(KEY, (2, 3, 2))
    inferred = latent_context.infer(encoder, batch, noise[0])
    second = latent_context.infer(encoder, batch, noise[1]).z
    for option, expected in (("redrawn", second), ("same", inferred.z)):
        z = smac_learner.z_of_next(make_smac(next_z=option).config, inferred, noise[1])
        np.testing.assert_allclose(z, expected, rtol=1e-5)


# --- Start, labels, refusals ---


@pytest.mark.parametrize("targets", ["independent", "copied"])
def test_targets_start_as_the_qs_or_as_networks_of_their_own(targets):
    learner = make_smac(targets=targets).init(KEY).learner
    same = [
        bool(np.all(one == other))
        for one, other in zip(
            *map(jax.tree.leaves, (learner.target_critics, learner.actor_critic.critics)),
            strict=True,
        )
    ]
    assert all(same) if targets == "copied" else not any(same)


def test_small_outputs_at_first():
    """As the reference code: rlkit's bounds, of the policy a third of them, and no biases."""
    learner = make_smac(initial="small-outputs").init(KEY).learner
    for net, bound in (
        (learner.representation.encoder, 3e-3),
        (learner.representation.decoder, 3e-3),
        (learner.actor_critic.critics, 3e-3),
        (learner.target_critics, 3e-3),
        (learner.actor_critic.policy, 1e-3),
    ):
        assert 0.6 * bound < np.max(np.abs(net.layers[-1].affine)) <= bound
        np.testing.assert_array_equal(net.layers[0].bias, 0)


def test_labels_are_of_observations_as_the_networks_take_them():
    algorithm = make_smac(normalize_obs=True, initial="uniform")
    state, obs, action = algorithm.init(KEY), jnp.array([0.3, -0.8, 1.1]), jnp.array([0.5, -0.1])
    scaled = (obs - jnp.array(SPEC.obs_mean)) / jnp.array(SPEC.obs_std)
    z = jnp.array([0.7, -1.2])
    expected = smac_learner.decoded_rewards(
        state.learner.representation.decoder, scaled[None, None], action[None, None], z[None]
    )
    np.testing.assert_allclose(algorithm.label(state, z, obs, action), expected[0, 0], rtol=1e-5)
    task = algorithm.begin(state, KEY)._replace(z=z)
    predicted = algorithm.predict_reward(state, task, obs, action, -obs)
    np.testing.assert_allclose(predicted, expected[0, 0], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": BatchSpec("outer", 8)}, "batch: its name is 'batch', not 'outer'"),
        ({"context": BatchSpec("outer", 8)}, "context: its name is 'context', not 'outer'"),
        ({"awac_weight": 0.0}, "reparam_weight: 0 beside awac_weight 0"),
        ({"largest_score": 2.0}, "largest_score: 2 is of weights exp or whitened, not softmax"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        make_smac(**changes)


def test_a_context_larger_than_the_encoder_buffer_is_refused():
    context = BatchSpec("context", 11, "without_replacement", buffer="encoder")
    data = Buffers(make_data(SPEC, num_rows=20), make_data(SPEC, num_rows=10))
    with pytest.raises(InputError, match=r"batch 'context' needs 11 rows .* there are 10"):
        check_data(make_smac(context=context), data, np.arange(6))
