"""MACAW with self-supervision: both parts learn as they do alone, and the second stage adapts to
what it explored, labelled by a decoder that it leaves as it is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bandits
from omrl import chunk, metatrain, runs
from omrl.algos import smac_learner
from omrl.algos.macaw_self_supervised import (
    MacawSelfSupervisedConfig,
    RewardModelConfig,
    step_rewards,
)
from omrl.algos.smac_config import SmacConfig
from omrl.algos.smac_learner import noise_of_task
from omrl.cli import main
from omrl.collector import Collector
from omrl.data.buffers import Buffers
from omrl.data.explored import ExploredFiles, concatenated
from omrl.data.sample import BatchSpec, gather, sample_rows
from omrl.errors import InputError
from omrl.exploration_setting import Setting
from omrl.explorers import guessed, trajectory_key
from omrl.layout import Layout
from omrl.presets import PRESETS
from omrl.train import TrainConfig, check_data, load_states, train
from quick import quick_jit
from scout import SPEC, TASKS, point_robot
from tiny_cheetah import write_data
from tiny_macaw import SELF_SUPERVISED_SIZES, make_batches, make_self_supervised
from toy import make_data

pytestmark = pytest.mark.usefixtures("own_programs")

KEY = jax.random.PRNGKey(0)
SCALED = replace(SPEC, obs_mean=(0.5, -0.5), obs_std=(10.0, 5.0), return_std=3.0)
FAR = 10.0
"""About where logged observations are: the robot never gets there."""
CONFIG = TrainConfig(seeds=2, first_seed=3, log_every=4, checkpoint_every=4, keep=10)
OFFLINE, STEPS = 4, 12
"""Updates of the first stage, and of both; the second explores after 4 and 8 of them all."""


def make() -> Any:
    return make_self_supervised(
        SCALED,
        normalize_obs=True,
        steps=OFFLINE,
        online_steps=STEPS - OFFLINE,
        rewards=replace(SELF_SUPERVISED_SIZES["rewards"], initial="uniform"),
    )


def logged() -> Buffers:
    """Main and encoder buffer."""
    data = make_data(SPEC, num_tasks=5)
    near = 0.1 * data.obs
    return Buffers(data._replace(obs=near + FAR), data._replace(obs=near + 2 * FAR))


def setting() -> Setting:
    layout = Layout.of(jax.devices("cpu")[:1], CONFIG.seeds)
    return Setting(make(), point_robot(), layout, CONFIG.seed_numbers, TASKS, 0.9)


def run(path: Path, *, resume: bool = False) -> tuple[Any, Collector]:
    """The final states, and what was collected."""
    whole = setting()
    start = runs.resume if resume else runs.create
    folder = start(path, whole.algorithm.config, command="t", devices=jax.devices("cpu")[:1])
    collector = Collector(whole, path)
    states = train(
        folder,
        whole.algorithm,
        CONFIG,
        whole.layout,
        logged(),
        TASKS,
        collector=collector,
        quiet=True,
    )
    return states, collector


def assert_same_bits(left: Any, right: Any) -> None:
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def differ(left: Any, right: Any) -> bool:
    pairs = zip(*map(jax.tree.leaves, (left, right)), strict=True)
    return any(np.any(np.asarray(one) != np.asarray(other)) for one, other in pairs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder, final states and collector of a run of both stages."""
    path = tmp_path_factory.mktemp("finished") / "run"
    return path, *run(path)


def states_at(path: Path, step: int) -> Any:
    return load_states(runs.open_run(path), make(), CONFIG, setting().layout, step)[0]


def start_states() -> Any:
    return chunk.init_states(make(), setting().layout, CONFIG.seed_numbers)


# --- An update ---


def test_encoder_and_decoder_step_as_they_do_in_smac():
    sizes = {"encoder_hidden": (4,), "decoder_hidden": (4,), "latent": 2, "initial": "uniform"}
    smac = SmacConfig(hidden=(4,), **sizes)
    model = RewardModelConfig(**sizes).smac
    learner = smac_learner.init(smac, SPEC, KEY)
    data = make_data(SPEC, num_tasks=3)
    batch, context = (
        jax.vmap(partial(gather, data), (0, None))(jnp.arange(3), jnp.arange(*rows))
        for rows in ((0, 8), (10, 15))
    )
    noise = jax.vmap(partial(noise_of_task, smac, 8, 2))(jax.random.split(KEY, 3))
    after, _, metrics = quick_jit(partial(smac_learner.step, smac))(learner, batch, context, noise)
    found, opt, told = quick_jit(partial(step_rewards, model))(
        learner.representation, learner.representation_opt, batch, context, noise.z
    )
    for one, other in (
        (found, after.representation),
        (opt, after.representation_opt),
        (told, {name: metrics[name] for name in told}),
    ):
        for left, right in zip(*map(jax.tree.leaves, (one, other)), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)
    assert differ(found, learner.representation)


def test_it_has_the_defaults_of_smac():
    assert RewardModelConfig().smac == SmacConfig()


def test_macaw_learns_as_it_does_alone():
    algorithm = make_self_supervised()
    state = algorithm.init(KEY)
    batches = make_batches(KEY)
    alone, _ = jax.jit(algorithm.macaw.update)(state.macaw, batches, KEY)
    after, _ = jax.jit(algorithm.self_supervised_update)(state, batches, KEY)
    assert_same_bits(after.macaw, alone)
    assert_same_bits(after[1:], state[1:])


def test_rates_decay_over_both_stages():
    config = MacawSelfSupervisedConfig(steps=30, online_steps=12, hidden=(7,))
    assert (config.macaw.steps, config.macaw.hidden) == (42, (7,))


def test_a_run_without_the_second_stage():
    """To compare with: all but self-supervision."""
    algorithm = make_self_supervised(online_steps=0)
    assert [stage.name for stage in algorithm.stages()] == ["offline"]


def test_it_solves_the_bandits_that_only_the_context_tells_apart_and_labels_them():
    sizes = {
        "encoder_hidden": (16, 16), "decoder_hidden": (16, 16), "latent": 1, "initial": "uniform",
        "kl_weight": 0.01, "encoder_lr": 1e-2, "decoder_lr": 1e-2,
    }  # fmt: skip
    rates = dict.fromkeys(("policy_lr", "value_lr", "lr_lr", "inner_lr"), 1e-2)
    algorithm = make_self_supervised(
        bandits.SPEC,
        **rates,
        hidden=(16,),
        task_batch=2,
        temperature=bandits.TEMPERATURE,
        online_steps=0,
        rewards=RewardModelConfig(**sizes),
    )
    _, state, _, actions = bandits.solve(algorithm, bandits.opposite)
    assert np.mean(actions * bandits.SIGNS) == pytest.approx(bandits.BEST, abs=0.1)
    some = jnp.linspace(-0.9, 0.9, 7)
    begun = algorithm.begin(state, KEY)
    adapt, predict = quick_jit(algorithm.adapt), quick_jit(algorithm.predict_reward)
    for index, sign in enumerate(bandits.SIGNS):
        of_task = jax.tree.map(lambda leaf, index=index: leaf[index], bandits.opposite(KEY))
        task = adapt(state, begun, of_task, KEY)
        labels = [predict(state, task, bandits.OBS, action[None], bandits.OBS) for action in some]
        np.testing.assert_allclose(labels, sign * some, atol=0.15)


# --- A run ---


def test_the_second_stage_leaves_encoder_and_decoder_as_they_are(finished):
    path, states, _ = finished
    np.testing.assert_array_equal(states.step, [STEPS, STEPS])
    begun, offline = start_states(), states_at(path, OFFLINE)
    assert_same_bits(states[1:], offline[1:])
    assert differ(begun.representation.encoder, offline.representation.encoder)
    assert differ(begun.representation.decoder, offline.representation.decoder)
    for one, other in ((begun, offline), (offline, states)):
        assert differ(one.macaw.meta.value, other.macaw.meta.value)
        assert differ(one.macaw.meta.policy, other.macaw.meta.policy)


def test_labels_are_the_decoders_by_one_logged_history_of_the_task(finished):
    path, states, _ = finished
    parts = [ExploredFiles(path).read_file(number) for number in range(2)]
    algorithm, data = make(), logged()
    guess, decode = jax.jit(partial(guessed, algorithm)), jax.jit(smac_learner.decoded_rewards)
    for step, part in zip((OFFLINE, 8), parts, strict=True):
        numbers = {}
        labels = np.split(part.reward, part.starts[1:-1])
        assert not np.any([np.ptp(of_one) == 0 for of_one in labels])
        for n in range(len(part.length)):
            seed, task = int(part.seed[n]), int(part.task[n])
            number = numbers[seed, task] = numbers.get((seed, task), -1) + 1
            key = trajectory_key(
                *map(jnp.int32, (CONFIG.first_seed + seed, step, TASKS[task], number))
            )
            context_key, guess_key = jax.random.split(jax.random.split(key, 4)[3])
            rows = sample_rows(BatchSpec("context", 4), data.encoder.num_rows[task], context_key)
            state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], states)
            known = guess(state, gather(data.encoder, task, rows), guess_key)
            first = part.starts[n]
            obs = part.obs[first + n : first + n + part.length[n] + 1]
            action = part.action[first : first + part.length[n]]
            scaled = (obs[None, :-1] - np.float32(SCALED.obs_mean)) / np.float32(SCALED.obs_std)
            expected = decode(state.representation.decoder, scaled, action[None], known.z[None])
            np.testing.assert_allclose(labels[n], expected[0], rtol=1e-4, atol=1e-5)
    explored = concatenated(parts)
    assert sorted(set(explored.posterior.tolist())) == [False, True]
    np.testing.assert_array_equal(explored.in_encoder, ~explored.posterior)
    parameters = np.repeat(point_robot().tasks[TASKS[explored.task]], explored.length, axis=0)
    true = point_robot().reward(explored.terms, explored.action, parameters)
    assert np.abs(explored.reward - true).mean() > 0.1
    np.testing.assert_allclose(
        explored.returned, np.add.reduceat(true, explored.starts[:-1]), rtol=1e-5
    )


def test_returns_of_what_was_explored_are_those_of_its_labels(finished):
    path, _, collector = finished
    first = ExploredFiles(path).read_file(0)
    seed, task = 1, int(first.task[-1])
    buffer = jax.tree.map(lambda leaf: leaf[seed], collector.buffers.main)
    held = gather(buffer, task, jnp.arange(20))
    # Episodes of 20 steps, none of which ends early.
    labels = np.asarray(held.reward, np.float64)
    expected = [sum(labels[t:] * 0.9 ** np.arange(20 - t)) for t in range(20)]
    np.testing.assert_allclose(held.mc_return, expected, rtol=1e-5)


def test_it_adapts_to_what_its_unadapted_policy_explored(finished):
    _, _, collector = finished
    offline, online = make().stages()
    of_seed = jax.tree.map(lambda leaf: leaf[0], collector.buffers)
    args = jnp.asarray(TASKS, jnp.int32), jnp.int32(3), jnp.int32(7)
    drawn = jax.jit(partial(chunk._draw, offline))(logged(), (None, None), *args).batches
    for name, distance in (("inner", 2), ("outer", 1), ("batch", 1), ("context", 2)):
        assert np.abs(drawn[name].obs - distance * FAR).max() < FAR / 2
    assert set(drawn) == {"inner", "outer", "batch", "context"}
    draw = jax.jit(partial(chunk._draw, online))
    several = [draw(logged(), (of_seed, None), *args[:2], jnp.int32(step)) for step in range(7, 17)]
    inner, outer = (
        np.concatenate([drawn.batches[name].obs for drawn in several])
        for name in ("inner", "outer")
    )
    assert np.abs(inner).max() < FAR / 2
    logged_share = (np.abs(outer) > FAR / 2).all(-1).mean()
    assert 0.2 < logged_share < 0.9
    # Of what acted on the prior in the last exploration of the task alone.
    np.testing.assert_array_equal(collector.buffers.encoder.num_rows, 20)
    assert np.all(np.asarray(collector.buffers.main.num_rows) >= 20)


@pytest.mark.parametrize("step", [OFFLINE, 8])
def test_a_resumed_run_is_the_uninterrupted_one(finished, step, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    for later in (path / "checkpoints").iterdir():
        if int(later.name) > step:
            shutil.rmtree(later)
    states, collector = run(path, resume=True)
    assert_same_bits((states, collector.buffers), (finished[1], finished[2].buffers))


# --- Settings ---


def test_too_little_is_explored_for_an_inner_batch():
    algorithm = make_self_supervised(
        SPEC, inner_batch=BatchSpec("inner", 21, "without_replacement", buffer="encoder")
    )
    with pytest.raises(InputError, match=r"batch 'inner' needs 21 rows .* there are 20"):
        check_data(algorithm, make_data(SPEC, num_tasks=5), TASKS)


def test_too_little_is_explored_for_a_context():
    """Whatever was logged: the posterior is of what was explored."""
    exploration = replace(SELF_SUPERVISED_SIZES["exploration"], context_size=21)
    algorithm = make_self_supervised(SPEC, exploration=exploration)
    with pytest.raises(InputError, match=r"context_size: 21 transitions .* has 20 there"):
        check_data(algorithm, make_data(SPEC, num_tasks=5), TASKS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": BatchSpec("batch", 5)}, "is named 'batch' and 'context'"),
        ({"online_steps": -1}, "online_steps: -1 is not a whole number from 0"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        make_self_supervised(**changes)


# --- The preset ---


@pytest.mark.slow
def test_the_preset_goes_all_the_way(tmp_path, capsys):
    """With the command, in its own evaluation."""
    preset = PRESETS["macaw-self-supervised-cheetah-vel"].config
    env = metatrain.registry.make(preset.env)
    few = replace(env, task_table=env.task_table[:8])
    write_data(tmp_path / "data", few)
    options = (
        "--train-tasks 0 1 2 3 --eval.tasks 5 6 --eval.episodes 1 --slice all --algo.task-batch 2 "
        "--algo.steps 1 --algo.online-steps 2 --algo.hidden 8 --algo.head-hidden 8 --algo.latent 4 "
        "--algo.rewards.encoder-hidden 8 --algo.rewards.decoder-hidden 8 "
        "--algo.inner-batch.size 16 --algo.outer-batch.size 16 "
        "--algo.exploration.explored-tasks 2 --algo.exploration.initial-steps 200 "
        "--algo.exploration.prior-steps 200 --algo.exploration.posterior-steps 200 "
        "--algo.exploration.context-size 100 --encoder-slice all --no-separate-encoder --quiet"
    )
    out = tmp_path / "run"
    command = ["train", "macaw-self-supervised-cheetah-vel", "--data", str(tmp_path / "data")]
    assert main([*command, "--out", str(out), *options.split()]) == 0
    trained = metatrain.load_trained(out)
    assert isinstance(trained.record.run.algo, MacawSelfSupervisedConfig)
    assert trained.record.run.algo.rewards.encoder_hidden == (8,)
    returns = metatrain.evaluate_trained(trained).returns
    assert returns.shape == (1, 2, 3, 1)
    assert np.isfinite(returns).all()
