"""SMAC's online phase on the point robot: what it collects, what it learns, what it must not."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl import explorers, metatrain
from omrl.algos.smac import Smac
from omrl.algos.smac_config import SmacConfig
from omrl.checkpoint import steps_in
from omrl.chunk import init_states
from omrl.cli import main
from omrl.collector import Collector
from omrl.data.buffers import Buffers, gather_rows, joined
from omrl.data.device import load
from omrl.data.explored import Explored
from omrl.data.mixture import open_view
from omrl.data.sample import BatchSpec, gather, sample_rows
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.exploration_setting import Setting
from omrl.layout import Layout
from omrl.logs import read_log
from omrl.presets import PRESETS, RunConfig
from omrl.protocol import EvalConfig, exploring
from omrl.runs import open_run
from omrl.train import TrainConfig
from omrl.types import Spec
from test_evaluate import HORIZON, write_walks
from test_exploration import assert_same_bits, in_a_process, log_of, parts_of, untimed

TASKS = (3, 1, 7, 9, 20)
ENV = registry.make("point-robot/oyster-v1")
SPEC = Spec(obs_dim=2, act_dim=2, num_train_tasks=5, horizon=HORIZON)
MAIN, ENCODER = 6 * HORIZON, 2 * HORIZON
"""Logged transitions of a task."""
EXPLORATION = Exploration(
    every=5, explored_tasks=3, initial_steps=0, prior_steps=40, posterior_steps=40, context_size=7,
    resample_every="step", clear_encoder=False, draw="union", label_context=9,
)  # fmt: skip
CONFIG = RunConfig(
    env="point-robot/oyster-v1",
    train_tasks=TASKS,
    separate_encoder=True,
    algo=SmacConfig(
        hidden=(4,),
        encoder_hidden=(4,),
        decoder_hidden=(4,),
        latent=2,
        initial="uniform",
        steps=6,
        task_batch=3,
        batch=BatchSpec("batch", 8),
        context=BatchSpec("context", 5, buffer="encoder"),
        online_steps=12,
        online_batch=BatchSpec("batch", 10),
        exploration=EXPLORATION,
    ),
    train=TrainConfig(seeds=2, log_every=4, checkpoint_every=4, keep=1),
    eval=EvalConfig(protocol="zero-shot", shots=(0,), episodes=2, tasks=(80, 81)),
)
ORACLE = {"oracle": True, "exploration": replace(EXPLORATION, label_context=0)}


def with_algo(**changes: Any) -> RunConfig:
    return replace(CONFIG, algo=replace(CONFIG.algo, **changes))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> dict[str, Path]:
    """Datasets of both buffers; the second has fewer trajectories."""
    folder = tmp_path_factory.mktemp("walks")
    main_data, encoder = (
        write_walks(folder / name, TASKS, rows // HORIZON).path
        for name, rows in (("main", MAIN), ("encoder", ENCODER))
    )
    return {"data": main_data, "encoder_data": encoder}


@pytest.fixture(scope="module")
def run(tmp_path_factory, data) -> Path:
    path = tmp_path_factory.mktemp("smac") / "run"
    metatrain.start(CONFIG, out=path, quiet=True, report=lambda _: None, **data)
    return path


def learners(path: Path) -> tuple[Any, Any]:
    """Before and after the online phase."""
    return tuple(metatrain.load_trained(path, step=step).states.learner for step in (6, 18))


def same(one: Any, other: Any) -> list[bool]:
    pairs = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return [bool(np.all(np.asarray(left) == np.asarray(right))) for left, right in pairs]


def true_rewards(explored: Explored) -> np.ndarray:
    parameters = np.repeat(ENV.tasks[np.array(TASKS)[explored.task]], explored.length, axis=0)
    return ENV.reward(explored.terms, explored.action, parameters)


# --- The stage ---


def test_two_stages_or_the_offline_one_alone():
    offline, online = Smac(CONFIG.algo, SPEC).stages()
    assert (offline.name, offline.steps, offline.exploration) == ("offline", 6, None)
    assert (online.name, online.steps, online.exploration) == ("self_supervised", 12, EXPLORATION)
    assert [spec.size for spec in (*offline.batches, *online.batches)] == [8, 5, 10, 5]
    (alone,) = Smac(with_algo(online_steps=0).algo, SPEC).stages()
    assert alone.name == "offline"
    _, oracle = Smac(with_algo(**ORACLE).algo, SPEC).stages()
    assert oracle.name == "online_oracle"


def test_what_the_decoder_and_encoder_know_stays_as_it_was(run):
    before, after = learners(run)
    assert_same_bits(before.representation, after.representation)
    assert_same_bits(before.representation_opt, after.representation_opt)
    for net in ("critics", "policy"):
        assert not any(same(*(getattr(each.actor_critic, net) for each in (before, after))))
    assert not any(same(before.target_critics, after.target_critics))


def test_it_explores_between_its_updates_and_logs_both_phases(run):
    rows = read_log(run)
    assert [r["step"] for r in rows if "exploration" in r] == [6, 11, 16]
    # 3 tasks x 80 steps.
    assert [r["exploration"]["env_steps"] for r in rows if "exploration" in r] == [240] * 3
    stages = [row["stage"] for row in rows if "stage" in row]
    assert sorted(set(stages)) == ["offline", "self_supervised"]
    names = [sorted(row["metrics"]) for row in rows if row.get("stage") == "self_supervised"]
    assert all(each == ["kl", "policy_loss", "q_loss"] for each in names)


def test_before_and_after_can_be_compared(run, capsys):
    """`keep` is 1, and still the end of the offline phase is there."""
    assert steps_in(open_run(run).checkpoints) == [6, 18]
    for step in (6, 18):
        assert main(["evaluate", str(run), "--step", str(step), "--json", "--quiet"]) == 0
    assert len(capsys.readouterr().out) > 0
    trained = metatrain.load_trained(run, step=6)
    config = exploring("explore-code", replace(CONFIG.eval, tasks=(80,)))
    assert metatrain.evaluate_trained(trained, config=config).returns.shape == (2, 1, 3, 4)


# --- Labels ---


def logged(folder: Path):
    return load(open_view("all", open_dataset(folder)), TASKS, discount=0.99)


def test_rewards_are_labels_by_one_z_of_logged_history(run, data):
    """z is of transitions of the encoder buffer of the same task, drawn for the trajectory; encoder
    and decoder are those of before the phase, so one checkpoint tells the labels of all of it."""
    states = metatrain.load_trained(run, step=6).states
    algorithm = metatrain.load_trained(run).algorithm
    assert isinstance(algorithm, Smac)
    encoder = logged(data["encoder_data"])

    @jax.jit
    def z_and_labels(state, key, task, obs, action):
        context_key, guess_key = jax.random.split(jax.random.split(key, 4)[3])
        rows = sample_rows(BatchSpec("context", 9), encoder.num_rows[task], context_key)
        history = gather(encoder, task, rows)
        z = explorers.guessed(algorithm, state, history, guess_key).z
        return z, jax.vmap(lambda s, a: algorithm.label(state, z, s, a))(obs, action)

    told = []
    for step, part in zip((6, 11, 16), parts_of(run), strict=True):
        numbers = np.zeros((2, 5), int)
        for n, (seed, task, length) in enumerate(zip(*part[:3], strict=True)):
            assert length == HORIZON
            first = part.starts[n]
            ids = (seed, step, np.array(TASKS)[task], numbers[seed, task])
            key = explorers.trajectory_key(*map(jnp.int32, ids))
            numbers[seed, task] += 1
            z, labels = z_and_labels(
                jax.tree.map(lambda leaf, seed=seed: leaf[seed], states),
                key,
                jnp.int32(task),
                part.obs[first + n : first + n + length],
                part.action[first : first + length],
            )
            reward = part.reward[first : first + length]
            np.testing.assert_allclose(reward, labels, rtol=1e-4, atol=1e-5)
            told.append(np.asarray(z))
        assert numbers.sum() == 2 * 3 * 4
        assert np.max(np.abs(part.reward - true_rewards(part))) > 0.1
    # Of every trajectory its own.
    assert len(np.unique(np.stack(told), axis=0)) == len(told) == 72


# --- Buffers ---


def explored(folder: Path, data: dict[str, Path], **changes: Any) -> tuple[Collector, Buffers]:
    """What one exploration leaves, without any update, and the logged data."""
    algo = replace(CONFIG.algo, **{"exploration": EXPLORATION} | changes)
    algorithm = Smac(algo, SPEC)
    layout = Layout.of(jax.devices("cpu")[:1], 2)
    seeds = np.arange(2)
    collector = Collector(Setting(algorithm, ENV, layout, seeds, np.array(TASKS), 0.99), folder)
    buffers = Buffers(logged(data["data"]), logged(data["encoder_data"]))
    states = init_states(algorithm, layout, seeds)
    collector.explore(algo.exploration, states, buffers, step=6, first=True)
    return collector, buffers


@pytest.mark.parametrize(("into", "share"), [("none", 0.0), ("prior", 0.5), ("all", 1.0)])
def test_the_encoder_buffer_gets_what_the_schedule_says(tmp_path, data, into, share):
    exploration = replace(EXPLORATION, into_encoder=into)
    collector, buffers = explored(tmp_path, data, exploration=exploration)
    main_rows, encoder_rows = (np.asarray(each.num_rows) for each in collector.buffers)
    assert main_rows.sum() == 2 * 3 * 80
    np.testing.assert_array_equal(encoder_rows, share * main_rows)
    # A task that was explored, and all that contexts can be drawn from.
    task = int(np.argmax(main_rows[0]))
    of_seed = jax.tree.map(lambda leaf: leaf[0], collector.buffers)
    both = joined(buffers, of_seed, exploration).encoder
    count = int(both.num_rows[task])
    assert count == ENCODER + share * main_rows[0, task]
    held, old = (
        gather_rows(buffer, task, jnp.arange(ENCODER)) for buffer in (both, buffers.encoder)
    )
    assert_same_bits(held, old)


def test_batches_are_drawn_from_logged_and_collected_alike(tmp_path, data):
    collector, buffers = explored(tmp_path, data)
    of_seed = jax.tree.map(lambda leaf: leaf[0], collector.buffers)
    both = joined(buffers, of_seed, EXPLORATION).main
    task = int(np.argmax(of_seed.main.num_rows))
    new = int(of_seed.main.num_rows[task])
    spec = BatchSpec("batch", 4000)
    rows = sample_rows(spec, both.num_rows[task], jax.random.PRNGKey(0))
    batch = gather_rows(both, task, rows)
    is_old, is_new = (
        np.isin(batch.reward, buffer.reward[task, :count])
        for buffer, count in ((buffers.main, MAIN), (of_seed.main, new))
    )
    assert np.all(is_old ^ is_new)
    share = MAIN / (MAIN + new)
    assert abs(is_old.mean() - share) < 4 * np.sqrt(share * (1 - share) / 4000)


def test_the_oracle_is_shown_rewards_and_learns_all_of_it(tmp_path, data):
    path = tmp_path / "run"
    metatrain.start(with_algo(**ORACLE), out=path, quiet=True, report=lambda _: None, **data)
    before, after = learners(path)
    assert not any(same(before.representation, after.representation))
    found = log_of(path)
    np.testing.assert_allclose(found.reward, true_rewards(found), rtol=1e-5, atol=1e-6)
    rows = [row for row in read_log(path) if row.get("stage") == "online_oracle"]
    assert sorted(rows[0]["metrics"]) == ["kl", "policy_loss", "q_loss", "reward_loss"]


# --- Resume ---


@pytest.mark.slow
def test_killed_in_the_middle_of_the_online_phase(tmp_path, run, data):
    """SIGKILL behind the third exploration; it goes on from a checkpoint within the phase."""
    path = tmp_path / "run"
    folders = [f"--{name.replace('_', '-')}={folder}" for name, folder in data.items()]
    assert in_a_process(path, CONFIG, "--kill-behind", "3", *folders) == -signal.SIGKILL
    assert steps_in(open_run(path).checkpoints)[0] == 6
    assert steps_in(open_run(path).checkpoints)[-1] in (12, 16)  # what was written by then
    devices = jax.devices("cpu")[:1]
    options: dict[str, Any] = {"command": "omrl train --resume", "devices": devices, "quiet": True}
    metatrain.go_on(path, data=None, report=lambda _: None, **options)
    assert_same_bits(*(metatrain.load_trained(folder).states for folder in (path, run)))
    assert_same_bits(*(log_of(folder) for folder in (path, run)))
    assert untimed(path) == untimed(run)


# --- Presets ---

SMAC = {name: each for name, each in PRESETS.items() if isinstance(each.config.algo, SmacConfig)}
OFFLINE = ("smac-ml1-", "smac-ml45", "smac-offline-")
"""Of the offline phase alone."""


@pytest.mark.parametrize("name", [name for name in SMAC if not name.startswith(OFFLINE)])
def test_gradient_steps_per_environment_step(name):
    """Table 1 of the paper has 4; the code makes 16,000 updates for 5 x 1,000."""
    config = SMAC[name].config
    algo, tasks = config.algo, 100
    assert algo.online_steps % algo.exploration.every == 0
    per_step = algo.online_steps / algo.exploration.env_steps(algo.online_steps, tasks)
    assert per_step == (3.2 if name.endswith("-code") else 4)
    settings = "explore-paper" if name.endswith("-paper") else "explore-code"
    assert config.eval == exploring(settings, config.eval)
    assert config.separate_encoder == bool(config.encoder_slice)


def test_paper_and_code_of_each_problem():
    def of(name: str) -> Exploration:
        return SMAC[f"smac-{name}"].config.algo.exploration

    assert of("cheetah-vel-paper").into_encoder == "none"
    assert [of(f"cheetah-vel{kind}").into_encoder for kind in ("", "-code")] == ["prior"] * 2
    assert [of(f"ant-dir{kind}").into_encoder for kind in ("-paper", "-code")] == ["prior", "all"]
    assert not any(each.config.algo.exploration.clear_encoder for each in SMAC.values())
    code = SMAC["smac-cheetah-vel-code"].config.algo
    assert (code.online_steps, code.batch.size, code.online_batch.size) == (51 * 16_000, 128, 256)
    # Algorithm 1, line 7: only on the prior.
    assert of("ant-dir-paper").posterior_steps == 0
    assert code.exploration.posterior_steps == 600
    assert {name for name, each in SMAC.items() if each.config.algo.oracle} == {
        "smac-cheetah-vel-oracle",
        "smac-ant-dir-oracle",
    }


# --- What cannot be ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"oracle": True}, "exploration.label_context: 9 has the decoder make the rewards"),
        (
            {"exploration": replace(EXPLORATION, label_context=0)},
            "exploration.label_context: 0 learns from the environment's rewards",
        ),
        ({"online_batch": BatchSpec("online", 8)}, "online_batch: its name is 'batch', not 'onlin"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(InputError, match=message):
        with_algo(**changes)


@pytest.mark.parametrize(
    ("changes", "folders", "message"),
    [
        ({}, ("data",), "separate_encoder: contexts are of a dataset of their own.*--encoder-data"),
        (
            {"context": BatchSpec("context", 41, buffer="encoder")},
            ("data", "encoder_data"),
            "task 3: batch 'context' needs 41 rows .* there are 40",
        ),
        (
            {"exploration": replace(EXPLORATION, label_context=41)},
            ("data", "encoder_data"),
            "exploration.label_context: 41 transitions .* task 3 has 40 there; take at most",
        ),
        (
            {"exploration": replace(EXPLORATION, context_size=81)},
            ("data", "encoder_data"),
            "exploration.context_size: 81 transitions .* task 3 has 80 there",
        ),
        (
            {"exploration": replace(EXPLORATION, context_size=41, into_encoder="none")},
            ("data", "encoder_data"),
            "exploration.context_size: 41 transitions .* task 3 has 40 there",
        ),
    ],
)
def test_data_that_will_not_do(tmp_path, data, changes, folders, message):
    with pytest.raises(InputError, match=message):
        metatrain.start(
            with_algo(**changes),
            out=tmp_path / "run",
            report=lambda _: None,
            **{name: data[name] for name in folders},
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["cheetah-vel-paper", "cheetah-vel-code", "ant-dir-paper"])
def test_presets_with_an_encoder_buffer_of_its_own_say_that_it_is_missing(name, data, capsys):
    command = ["train", f"smac-{name}", "--data", str(data["data"]), "--out", "none"]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--encoder-data" in line
    assert "--no-separate-encoder" in line


def test_without_a_simulator_the_offline_phase_is_left(tmp_path, data, monkeypatch):
    def physics(self, num_threads):
        raise NotImplementedError  # What the contract says of an MDP without simulator.

    monkeypatch.setattr(type(ENV), "physics", physics)
    with pytest.raises(InputError, match=r"without stage self_supervised: --algo\.online-steps 0$"):
        metatrain.start(CONFIG, out=tmp_path / "run", report=lambda _: None, **data)
    assert not (tmp_path / "run").exists()
