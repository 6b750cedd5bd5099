"""PEARL that collects its data itself: whole runs, what can go wrong, and that it learns."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from omrl import metatrain, preset_online
from omrl.algos.pearl_config import PearlConfig
from omrl.checkpoint import Checkpoints
from omrl.chunk import Layout, init_states, train_chunk
from omrl.cli import main
from omrl.collector import Collector
from omrl.config import to_json
from omrl.data.explored import ExploredFiles
from omrl.data.from_run import write_collected
from omrl.data.sample import BatchSpec
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.errors import InputError
from omrl.exploration import Exploration
from omrl.exploration_setting import Setting
from omrl.logs import read_log
from omrl.presets import PRESETS, RunConfig
from omrl.protocol import EvalConfig, exploring
from omrl.runs import open_run
from omrl.train import TrainConfig
from tiny_macaw import make_pearl
from toy import make_data

TASKS = (3, 1, 7, 9, 20)
EVAL = EvalConfig(protocol="zero-shot", shots=(0,), episodes=2, tasks=(80, 81))
EXPLORATION = Exploration(
    every=8, explored_tasks=4, initial_steps=30, prior_steps=30, posterior_steps=50, context_size=7
)
CONFIG = RunConfig(
    env="point-robot/oyster-v1",
    train_tasks=TASKS,
    algo=PearlConfig(
        hidden=(4,),
        encoder_hidden=(4,),
        latent=2,
        steps=20,
        task_batch=6,
        distinct_tasks=False,
        batch=BatchSpec("batch", 8),
        context=BatchSpec("context", 5, buffer="encoder"),
        exploration=EXPLORATION,
    ),
    train=TrainConfig(seeds=2, log_every=10, checkpoint_every=10),
    eval=EVAL,
)


def with_algo(**changes) -> RunConfig:
    return replace(CONFIG, algo=replace(CONFIG.algo, **changes))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("online") / "run"
    metatrain.start(CONFIG, None, path, quiet=True)
    return path


def test_a_run_without_any_data(run):
    record = metatrain.record_of(run)
    assert (record.data, record.data_hash) == ("", "")
    assert record.spec.num_train_tasks == 5
    assert record.spec.obs_mean == ()
    rows = [row for row in read_log(run) if "exploration" in row]
    assert [row["step"] for row in rows] == [0, 8, 16]
    trained = metatrain.load_trained(run)
    result = metatrain.evaluate_trained(trained)
    assert result.returns.shape == (2, 2, 1, 2)
    assert np.isnan(result.behaviour).all()
    explored = exploring("explore-paper", replace(EVAL, tasks=(80,)))
    assert metatrain.evaluate_trained(trained, config=explored).returns.shape == (2, 1, 3, 4)
    with pytest.raises(InputError, match="was trained without data; give some with --data"):
        metatrain.evaluate_trained(trained, config=EvalConfig(tasks=(80,)))


def test_resumed_without_data(run, tmp_path):
    path = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(path / "checkpoints" / "20")
    devices = jax.devices("cpu")[:1]
    metatrain.go_on(path, data=None, command="omrl train --resume", devices=devices, quiet=True)
    ends = [metatrain.load_trained(folder).states for folder in (run, path)]
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (with_algo(exploration=None), "--data: stage meta learns from logged"),
        (replace(CONFIG, slice="last-5"), "slice, encoder_slice: are of logged data"),
        (replace(CONFIG, eval=EvalConfig()), "eval.protocol: given adapts to logged data"),
        (with_algo(normalize_obs=True), "algo.normalize_obs: there is no data to measure"),
        (replace(CONFIG, train_tasks=(3, 80)), "would explore task 80, a test task of point"),
        (replace(CONFIG, train_tasks=(3, 100)), "train_tasks: point-robot/oyster-v1 has no task"),
        (replace(CONFIG, train_tasks=(), train_split="valid"), "split 'valid' is not one of"),
        (with_algo(distinct_tasks=True), "algo.task_batch is 6; point-robot/oyster-v1 has 5"),
    ],
)
def test_configs_that_cannot_run(config, message, tmp_path):
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        metatrain.start(config, None, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_test_tasks_are_explored_if_the_config_says_so():
    exploration = replace(EXPLORATION, test_tasks=True)
    config = replace(with_algo(exploration=exploration), train_tasks=(3, 80))
    assert metatrain.open_problem(config).train_tasks == (3, 80)


def test_tasks_that_are_both_may_be_explored():
    """As in cheetah-dir, where the two test tasks are those of training."""
    config = replace(
        CONFIG, env="cheetah-dir/oyster-v1", train_tasks=(), eval=replace(EVAL, tasks=())
    )
    assert metatrain.open_problem(config).train_tasks == (0, 1)


def test_tasks_of_an_update_may_be_drawn_twice():
    """Then they differ in their noise, and in their batches."""
    algorithm = make_pearl(task_batch=12, distinct_tasks=False)
    (stage,) = algorithm.stages()
    layout = Layout.of(jax.devices("cpu")[:1], 1)
    states = init_states(algorithm, layout, np.arange(1))
    _, metrics, _ = train_chunk(stage, layout, states, make_data(), np.arange(1), np.arange(6), 4)
    tasks, kl = (np.asarray(metrics[name])[0, :4] for name in ("task", "kl"))
    assert {len(set(row)) for row in tasks.tolist()} != {12}
    assert all(len(set(row)) == 12 for row in kl.tolist())


def test_datasets_of_what_was_collected(run, tmp_path, capsys):
    assert main(["data", "from-run", str(run), str(tmp_path / "d"), "--seed", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [told[name]["path"] for name in ("main", "encoder")] == [
        str(tmp_path / name) for name in ("d", "d-encoder")
    ]
    main_data, encoder = (open_dataset(tmp_path / name) for name in ("d", "d-encoder"))
    buffers = collected_of(run)
    for position, index in enumerate(TASKS):
        for dataset, name in ((main_data, "main"), (encoder, "encoder")):
            task = dataset.task(index)
            held = jax.tree.map(lambda leaf, n=position: leaf[1, n], getattr(buffers, name))
            count = int(held.num_rows)
            assert task.num_rows == count
            np.testing.assert_array_equal(task.action, held.action[:count])
            np.testing.assert_array_equal(task.reward, held.reward[:count])
            np.testing.assert_array_equal(task.obs, held.obs[: count + task.num_episodes])
            assert task.behaviour["buffer"] == name
            assert task.behaviour["updates"] == 20
    assert encoder.task(3).num_rows == 40
    assert main_data.splits["train"] == tuple(sorted(TASKS))
    for dataset, name in ((main_data, "main"), (encoder, "encoder")):
        assert dataset.manifest.command == "omrl data from-run run OUT --seed 1"
        assert dataset.manifest.source == {
            "run": "run",
            "env": "point-robot/oyster-v1",
            "config": metatrain.record_of(run).hash,
            "seed": "1",
            "updates": "20",
            "buffer": name,
        }
    capsys.readouterr()
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 2
    assert "or replace the dataset: --overwrite" in capsys.readouterr().err


def collected_of(run: Path):
    record = metatrain.record_of(run)
    layout = Layout.of(jax.devices("cpu")[:1], 2)
    algorithm = metatrain.build(record.run, record.spec)
    env, seeds = registry.make(record.run.env), record.run.train.seed_numbers
    collector = Collector(Setting(algorithm, env, layout, seeds, np.array(TASKS), 0.99), run)
    checkpoints = Checkpoints(open_run(run).checkpoints, read_only=True)
    collector.restore(checkpoints.read_meta(open_run(run).config)["collected"])
    checkpoints.close()
    return jax.tree.map(np.asarray, collector.buffers)


def test_datasets_that_cannot_be_taken_from_a_run(run, cheetah_run, tmp_path, capsys):
    out = str(tmp_path / "d")
    for arguments, message in (
        ([str(run), out, "--seed", "5"], "seed 5: "),
        ([str(cheetah_run), out], "learned from logged data"),
        ([str(tmp_path), out], "not a run folder"),
    ):
        assert main(["data", "from-run", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def without_task_7(monkeypatch):
    """Nothing was collected of it, and nothing at all for the encoder buffer."""
    read = ExploredFiles.read

    def less(files):
        for part in read(files):
            one = part.only(part.task != TASKS.index(7))
            yield one._replace(in_encoder=np.zeros_like(one.in_encoder))

    monkeypatch.setattr(ExploredFiles, "read", less)


@pytest.mark.usefixtures("without_task_7")
def test_what_was_not_collected_is_in_no_dataset(run, tmp_path):
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    dataset = open_dataset(tmp_path / "d")
    assert dataset.task_indices == dataset.splits["train"] == (1, 3, 9, 20)


def test_a_run_that_had_collected_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(ExploredFiles, "of_checkpoint", lambda folder, _: ExploredFiles(folder))
    with pytest.raises(InputError, match="had collected nothing at its last checkpoint, after 20"):
        write_collected(run, tmp_path / "d")


def test_both_datasets_or_none(run, tmp_path, capsys):
    (tmp_path / "d-encoder").mkdir()
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 2
    assert "d-encoder: exists; give another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["d-encoder"]


@pytest.mark.parametrize("seed", ["first_seed", "file"])
def test_files_of_another_run_leave_nothing_in_the_way(run, tmp_path, capsys, seed):
    """Neither a config of another seed is believed, nor a file; what was written of it is gone."""
    other = shutil.copytree(run, tmp_path / "other")
    if seed == "file":
        shutil.copy(other / "collected/000000.npz", other / "collected/000001.npz")
    else:
        record = json.loads((other / "config.json").read_text())
        record["run"]["train"]["first_seed"] += 7
        (other / "config.json").write_text(json.dumps(record))
    assert main(["data", "from-run", str(other), str(tmp_path / "d")]) == 2
    told = {"file": "not what the checkpoint was made with", "first_seed": "another config: run."}
    assert told[seed] in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_the_data_that_a_run_goes_on_with_stays(run, tmp_path, capsys):
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 0
    metatrain.start(
        with_algo(steps=1), tmp_path / "d", tmp_path / "on-it", quiet=True, report=lambda _: None
    )
    arguments = ["data", "from-run", str(tmp_path / "on-it"), str(tmp_path / "d"), "--overwrite"]
    assert main(arguments) == 2
    assert "takes the place of" in capsys.readouterr().err
    assert open_dataset(tmp_path / "d").manifest.source["run"] == run.name


def test_a_run_without_a_checkpoint_says_how_to_go_on(run, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "other")
    shutil.rmtree(copy / "checkpoints")
    assert main(["data", "from-run", str(copy), str(tmp_path / "d")]) == 2
    error = capsys.readouterr().err
    assert f"other: has no checkpoint yet; train on: omrl train --resume {copy}" in error


def test_what_an_interrupted_command_left_is_not_taken_over(run, tmp_path, request):
    """It may be of another run."""
    assert main(["data", "from-run", str(run), str(tmp_path / "whole")]) == 0
    (tmp_path / "whole").rename(tmp_path / "d.partial")
    request.getfixturevalue("without_task_7")
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 0
    assert open_dataset(tmp_path / "d").task_indices == (1, 3, 9, 20)


def test_data_that_is_not_learned_from_is_told(run, tmp_path, capsys):
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 0
    told = []
    config = with_algo(steps=1)
    metatrain.start(config, tmp_path / "d", tmp_path / "run", quiet=True, report=told.append)
    assert told == [
        f"none of {tmp_path / 'd'} is learned from, the run collects all that it draws; tasks, "
        "splits, scales and contexts of evaluations are of it"
    ]
    given = ["--protocol", "given", "--shots", "0", "1", "--split", "test"]
    assert main(["evaluate", str(tmp_path / "run"), *given]) == 2
    error = capsys.readouterr().err
    assert "no split 'test'; the dataset has train" in error
    assert error.endswith("(--split, --tasks)\n")


def test_offline_training_on_what_was_collected(run, tmp_path):
    """First-n and last-n slices, test tasks without data, and an evaluation that needs none."""
    assert main(["data", "from-run", str(run), str(tmp_path / "d")]) == 0
    config = with_algo(exploration=None)
    config = replace(
        config, train_tasks=(), train_split="train", eval=replace(EVAL, tasks=()),
        slice="first-45-transitions", encoder_slice="last-25-transitions",
    )  # fmt: skip
    problem = metatrain.open_problem(config, tmp_path / "d", encoder_data=tmp_path / "d-encoder")
    assert problem.train_tasks == tuple(sorted(TASKS))
    assert config.eval.task_indices(problem.env) == tuple(range(80, 100))
    assert [problem.view.task(3).num_rows, problem.encoder.task(3).num_rows] == [45, 25]


def test_the_command(tmp_path, capsys):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(to_json(CONFIG)))
    out = tmp_path / "run"
    assert main(["train", "--from", str(config), "--out", str(out), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(out)
    assert main(["train", "pearl-cheetah-vel", "--out", str(out) + "2"]) == 2
    assert "--data" in capsys.readouterr().err


@pytest.mark.parametrize("name", preset_online.ONLINE)
def test_gradient_steps_per_environment_step(name):
    """PEARL: 2,000 or 4,000 for 5 x 1,000; SMAC's data: 16,000."""
    config = PRESETS[name].config
    exploration = config.algo.exploration
    env = registry.make(config.env)
    tasks = len(env.splits["train"])
    collected = exploration.env_steps(config.algo.steps, tasks) - 2000 * tasks
    iterations = config.algo.steps // exploration.every
    per_iteration = 10_000 if name == "pearl-online-cheetah-dir-code" else 5000
    assert collected == iterations * per_iteration
    assert metatrain.open_problem(config).train_tasks == env.splits["train"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "count", "made"),
    [
        ("online.md", 3, {"runs", "my-data", "my-data-encoder"}),
        ("algorithms/smac.md", 7, {"runs", "buffers", "buffers-encoder"}),
        ("algorithms/borel.md#reward-relabelling", 5, {"runs", "my-data", "shared"}),
    ],
)
def test_the_commands_of_the_page_work(page, count, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, _, section = page.partition("#")
    text = (Path(__file__).parents[1] / "docs" / page).read_text()
    if section:
        title = "## " + section.capitalize().replace("-", " ") + "\n"
        text = text.partition(title)[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    assert len(lines) == count
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "omrl"
        trains = arguments[0] == "train" and "--out" in arguments
        narrow = [] if "borel" in page else ["--algo.hidden", "8"]
        quick = ["--eval.episodes", "1", *narrow] if trains else []
        assert main([*arguments, *quick]) == 0
    assert {path.name for path in tmp_path.iterdir()} == made


@pytest.mark.slow
def test_it_learns_where_to_go(tmp_path):
    """Eight goals: acting on the posterior has to become better than acting on the prior, which
    cannot know the goal."""
    algo = PearlConfig(
        hidden=(32, 32), encoder_hidden=(32, 32), latent=3, steps=8000, task_batch=6,
        critic_lr=1e-3, value_lr=1e-3, policy_lr=1e-3, encoder_lr=1e-3, discount=0.9,
        target_rate=0.02, kl_weight=0.01, reward_scale=20.0, mean_penalty=0.0,
        log_std_penalty=0.0, batch=BatchSpec("batch", 64),
        context=BatchSpec("context", 40, buffer="encoder"),
        exploration=Exploration(
            every=400, explored_tasks=8, initial_steps=100, prior_steps=40, posterior_steps=60,
            context_size=40,
        ),
    )  # fmt: skip
    goals = (0, 3, 4, 6, 28, 31, 35, 54)
    train = TrainConfig(log_every=4000, checkpoint_every=8000)
    config = replace(CONFIG, algo=algo, train_tasks=goals, train=train)
    metatrain.start(config, None, tmp_path / "run", quiet=True)
    rows = [r["exploration"] for r in read_log(tmp_path / "run") if "exploration" in r]
    prior, posterior = (
        np.array([row[f"{name}_return"] for row in rows]) for name in ("prior", "posterior")
    )
    assert posterior[:5].mean() < -19
    assert posterior[-5:].mean() > -15
    assert posterior[-5:].mean() > prior[-5:].mean() + 3
