"""The command line as a newcomer meets it: help at once, chains that work, errors of one line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError

import tiny_cheetah
from omrl import metatrain
from omrl.cli import COMMANDS, main
from omrl.cli import train as train_command
from omrl.config import to_json
from omrl.data.collect import presets as collections
from omrl.envs import registry
from omrl.envs.papers import USES
from omrl.errors import InputError
from omrl.presets import PRESETS
from omrl.protocol import AdaptConfig, EvalConfig, exploring, finetuning
from omrl.results import EvalResult

CPU = ["--device", "cpu"]


def run(capsys, *arguments: object) -> str:
    """Standard output of a command that has to succeed."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


def fail(capsys, *arguments: object, code: int = 2) -> str:
    """The one line of a command that has to fail."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1, error
    return error


# --- Help ---


def test_help_comes_at_once():
    program = (
        "import sys; from omrl.cli import main; code = main(['--help']); "
        "print(sorted({'jax', 'numpy', 'tyro', 'mujoco', 'gymnasium'} & set(sys.modules))); "
        "sys.exit(code)"
    )
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.3
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]"
    assert [line.split()[0] for line in lines[2:-2]] == list(COMMANDS)


def test_the_program_and_the_module_are_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "omrl", "nonsense"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("omrl: error: no command 'nonsense'; did you mean")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    arguments = [name, "macaw-cheetah-vel", "--help"] if name == "train" else [name, "--help"]
    try:
        assert main(arguments) == 0
    except SystemExit as stopped:
        assert not stopped.code  # noqa: PT017 - tyro ends the program after --help
    output = capsys.readouterr()
    assert f"usage: omrl {name}" in output.out
    assert output.err == ""


def test_no_command_is_wrong_usage(capsys):
    assert main([]) == 2
    assert "usage: omrl" in capsys.readouterr().out


# --- Lists ---


def test_presets(capsys):
    printed = json.loads(run(capsys, "presets", "--json"))
    assert printed.keys() == PRESETS.keys() | collections.PRESETS.keys()
    assert printed["cheetah-vel-paper"]["collect"]["steps"] == 2_500_000
    assert printed["macaw-cheetah-vel"] == json.loads(run(capsys, "presets", "macaw-cheetah-vel"))
    assert printed["macaw-cheetah-vel-paper"]["source"].startswith("arXiv:2008.06043")
    assert "macaw-cheetah-vel-code" in run(capsys, "presets")


def test_presets_that_match_a_pattern(capsys):
    everything = run(capsys, "presets")
    some = run(capsys, "presets", "cheetah-vel-*")
    assert some.startswith("Of omrl collect:\n\ncheetah-vel-paper\n")
    assert "Of omrl train" not in some
    listed = json.loads(run(capsys, "presets", "*-cheetah-vel-code", "--json"))
    assert {"macaw-cheetah-vel-code", "smac-cheetah-vel-code"} <= set(listed)
    assert all(name.endswith("-cheetah-vel-code") for name in listed)
    assert run(capsys, "presets", "*") == everything
    assert "no preset 'none-*'; `omrl presets` lists all" in fail(capsys, "presets", "none-*")


def test_envs(capsys):
    printed = json.loads(run(capsys, "envs", "--json"))
    assert [row["id"] for row in printed] == list(registry.all_ids())
    one = json.loads(run(capsys, "envs", "cheetah-vel/macaw-v1", "--json"))
    assert one["hash"] == printed[0]["hash"] == tiny_cheetah.ENV.spec.hash
    assert one["splits"]["test"] == [2, 7, 15, 23, 26]
    assert one["tasks"][7] == [pytest.approx(0.6)]
    assert "point-robot/oyster-v1" in run(capsys, "envs")


@pytest.mark.parametrize("env_id", registry.ids())
def test_an_environment_for_a_person(env_id, capsys):
    text, env = run(capsys, "envs", env_id), registry.make(env_id)
    lines = text.splitlines()
    assert lines[0] == env_id
    assert f"act         {env.spec.act_dim} entries: {env.spec.action}" in lines
    assert f"hash        {env.spec.hash}" in lines
    assert all(part in text for part in env.spec.reward.split("; "))
    tasks = ", ".join(f"{name} {len(split)}" for name, split in env.splits.items())
    assert f"tasks       {len(env.tasks)} ({tasks})" in lines
    assert all(paper in text for paper, _ in USES[env_id])


# --- Presets as files, and what help says ---


def test_train_help_tells_the_three_ways_and_lists_the_presets(capsys):
    text = run(capsys, "train", "--help")
    for part in ("train PRESET", "--from CONFIG.json", "--resume RUN", "--algo.steps", *PRESETS):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.fixture
def started(monkeypatch):
    """The configs with which training would have started."""
    configs = []
    monkeypatch.setattr(train_command, "_start", lambda options, _: configs.append(options.config))
    return configs


SEVEN_STEPS = ["--data", "d", "--out", "r", "--algo.steps", "7"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_printed_preset_is_a_file_of_settings(capsys, started, tmp_path, name):
    """Edited by an option."""
    path = tmp_path / "my.json"
    path.write_text(run(capsys, "presets", name))
    run(capsys, "train", "--from", path, *SEVEN_STEPS)
    config = PRESETS[name].config
    assert started == [replace(config, algo=replace(config.algo, steps=7))]


@pytest.mark.parametrize(
    "name", {type(of.config.algo): name for name, of in PRESETS.items()}.values()
)
def test_options_edit_the_preset_that_is_named(capsys, started, name):
    """What is named is read as what a file says, so one preset of every method will do."""
    run(capsys, "train", name, *SEVEN_STEPS)
    config = PRESETS[name].config
    assert started == [replace(config, algo=replace(config.algo, steps=7))]


def test_a_file_of_settings_is_named_with_a_blank_or_an_equals_sign(capsys, started, tmp_path):
    path = tmp_path / "my.json"
    path.write_text(run(capsys, "presets", "macaw-cheetah-vel"))
    for named in (["--from", path], [f"--from={path}"]):
        run(capsys, "train", *named, *SEVEN_STEPS)
    assert started[0] == started[1]
    assert started[1].algo.steps == 7


def test_ways_of_starting_that_are_none(capsys, tmp_path):
    assert "--from needs a file: omrl train PRESET" in fail(capsys, "train", "--from")
    error = fail(capsys, "train", "--data", "d", "macaw-cheetah-vel")
    assert "--data: name a preset before all options" in error
    assert f"{tmp_path}: not a run folder" in fail(capsys, "train", f"--resume={tmp_path}")
    for option in ("--algo.steps", "--train.seeds=3", "--train-tasks", "--no-separate-encoder"):
        error = fail(capsys, "train", "--resume", tmp_path, option, "3")
        assert f"{option.partition('=')[0]}: a resumed run keeps its settings" in error


OWN = EvalConfig(
    tasks=(7, 2),
    episodes=2,
    shots=(0, 3),
    context_size=5,
    context_unit="trajectories",
    context_slice="first-6",
    context_seed=4,
    deterministic=False,
    traces=("x_velocity",),
)
"""Of a run, in everything other than the presets."""


@pytest.fixture
def own_run(cheetah_run, tmp_path) -> Path:
    """A folder with the config of a run that has these settings."""
    config = json.loads((cheetah_run / "config.json").read_text())
    config["run"]["eval"] = to_json(OWN)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--traces"], {"traces": ()}),
        (["--traces", "control_cost"], {"traces": ("control_cost",)}),
        (["--episodes", "3", "--deterministic"], {"episodes": 3, "deterministic": True}),
        (["--split", "test"], {"tasks": ()}),
        (["--split=train", "--tasks", "3"], {"split": "train", "tasks": (3,)}),
        (["--protocol", "zero-shot", "--shots", "0"], {"protocol": "zero-shot", "shots": (0,)}),
        (["--protocol", "finetune"], vars(finetuning("finetune-paper", OWN))),
        (["--settings", "finetune-paper"], vars(finetuning("finetune-paper", OWN))),
        (
            ["--episodes", "1", "--settings", "explore-code"],
            {**vars(exploring("explore-code", OWN)), "episodes": 1},
        ),
        (
            ["--settings=finetune-code", "--finetune.burn-in", "4", "--shots", "0", "2"],
            {
                **vars(finetuning("finetune-code", OWN)),
                "shots": (0, 2),
                "finetune": replace(finetuning("finetune-code", OWN).finetune, burn_in=4),
            },
        ),
    ],
)
def test_a_run_is_evaluated_by_its_own_settings_but_for_the_options(
    capsys, monkeypatch, own_run, options, changes
):
    asked = []

    def load(path, devices, *, step, shots):
        asked.append(shots)
        return SimpleNamespace(step=3)

    def evaluate(trained, data, config, how):
        asked.append(config)
        raise InputError("as expected")

    monkeypatch.setattr(metatrain, "load_trained", load)
    monkeypatch.setattr(metatrain, "evaluate_trained", evaluate)
    expected = replace(OWN, **changes)
    for arguments in ([own_run, *options], ["--step", "2", own_run, *options]):
        assert "as expected" in fail(capsys, "evaluate", *arguments, *CPU)
    assert asked == [expected.rounds, expected] * 2


def test_a_run_is_adapted_to_what_it_is_evaluated_on(capsys, monkeypatch, own_run):
    asked = []

    def load(path, devices, *, step, shots):
        asked.append(shots)

    def adapt(trained, context, out, config, *, overwrite):
        asked.append(config)
        raise InputError("as expected")

    monkeypatch.setattr(metatrain, "load_trained", load)
    monkeypatch.setattr("omrl.deploy.adapt_and_export", adapt)
    command = ["adapt", own_run, "--context", "data", "--out", "policy", *CPU]
    assert "as expected" in fail(capsys, *command)
    assert "as expected" in fail(capsys, *command, "--rounds", "1", "--context-unit", "transitions")
    like = AdaptConfig(
        rounds=3,
        context_size=5,
        context_unit="trajectories",
        context_slice="first-6",
        context_seed=4,
    )
    other = replace(like, rounds=1, context_unit="transitions")
    assert asked == [(3,), like, (1,), other]
    assert AdaptConfig.like(EvalConfig(protocol="zero-shot", shots=(0,))).rounds == 1


@pytest.mark.parametrize("command", ["evaluate", "adapt"])
def test_help_shows_the_settings_of_the_run_that_is_named(capsys, own_run, command):
    for arguments, size in (([], "256"), ([own_run], "5")):
        capsys.readouterr()
        with pytest.raises(SystemExit, match="0"):
            main([command, *map(str, arguments), "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert re.search(rf"--context-size [^()]*\(default: {size}\)", text)


def test_there_is_room_for_the_rounds_of_the_runs_own_evaluations(monkeypatch, own_run):
    monkeypatch.setattr(metatrain, "load_states", lambda *_: (None, 3))
    assert metatrain.load_trained(own_run).algorithm.config.max_adapt_steps == 3
    assert metatrain.load_trained(own_run, shots=(5,)).algorithm.config.max_adapt_steps == 5


@pytest.mark.slow
def test_the_point_robot_preset_trains_on_what_is_collected_for_it(capsys, tmp_path):
    data, folder = tmp_path / "data", tmp_path / "run"
    agents = ["--steps", "160", "--envs", "4", "--agent.hidden", "8", "--agent.batch-size", "16"]
    tasks = ["--tasks", *map(str, (0, 1, 2, 3, 4, 80, 81))]
    collect = ["collect", "point-robot/oyster-v1", "--out", data, *tasks, *agents, *CPU]
    assert "7 tasks" in run(capsys, *collect, "--updates-per-step", "1")
    options = ["--data", data, "--out", folder, *tiny_cheetah.OPTIONS, *CPU, "--quiet", "--json"]
    trained = json.loads(run(capsys, "train", "macaw-point-robot", *options))
    assert trained["provenance"]["env_id"] == "point-robot/oyster-v1"
    assert [task["index"] for task in trained["tasks"]] == [80, 81]
    assert trained["provenance"]["step"] == 3


# --- Train, evaluate, adapt, report ---


@pytest.mark.slow
def test_a_run_learns_on_online(cheetah_run, tmp_path, capsys):
    folder = shutil.copytree(cheetah_run, tmp_path / "run")
    few = ["--tasks", "2", "7", "--shots", "0", "2", "--episodes", "1", "--context-size", "16"]
    steps = ["value-steps", "policy-steps", "burn-in", "eval-every"]
    settings = [word for name in steps for word in (f"--finetune.{name}", "1")]
    online = ["evaluate", folder, "--protocol", "finetune", *few, *settings, *CPU]
    printed = json.loads(run(capsys, *online, "--finetune.batch-size", "8", "--json"))
    assert [point["env_steps"] for point in printed["curve"]] == [0, 200, 400]
    assert printed["config"]["finetune"]["burn_in"] == 1
    result = EvalResult.load(printed["file"])
    assert result.returns.shape == (2, 2, 3, 1)
    assert Path(printed["file"]).name.startswith("finetune-")
    assert not list(folder.glob("eval/*.unfinished"))
    assert (result.shot(0) != result.shot(2)).all()
    run(capsys, "report", folder)
    text = (folder / "report.html").read_text()
    assert "Return while learning online: 1 gradient step per trajectory from the 1st on" in text


@pytest.mark.slow
def test_a_chain_of_commands(cheetah_data, tmp_path, capsys):
    folder = tmp_path / "run"
    options = ["--data", cheetah_data, "--out", folder, *tiny_cheetah.OPTIONS, *CPU]
    trained = json.loads(run(capsys, "train", "macaw-cheetah-vel", *options, "--json", "--quiet"))
    assert trained["run"] == str(folder)
    assert trained["provenance"]["step"] == 3
    returns = {task["index"]: task["returns"] for task in trained["tasks"]}
    assert returns.keys() == {2, 7, 15, 23, 26}

    size = ["--episodes", "1", "--context-size", "16"]
    evaluated = json.loads(run(capsys, "evaluate", folder, *size, *CPU, "--json"))
    assert {task["index"]: task["returns"] for task in evaluated["tasks"]} == returns
    assert EvalResult.load(evaluated["file"]).to_json()["summary"] == evaluated["summary"]
    table = run(capsys, "evaluate", folder, *size, *CPU, "--out", tmp_path / "other.npz")
    assert f"raw returns: {tmp_path / 'other.npz'}" in table
    assert (tmp_path / "other.npz").exists()
    again = ["evaluate", folder, *size, *CPU, "--out", tmp_path / "other.npz"]
    assert "replace it: --overwrite" in fail(capsys, *again)
    assert "raw returns" in run(capsys, *again, "--overwrite")

    policy = tmp_path / "policy.safetensors"
    written = ["adapt", folder, "--context", cheetah_data, "--out", policy, *size[2:], *CPU]
    text = run(capsys, *written, "--task", "7")
    assert "task 7 (target_velocity 0.6)" in text
    metadata = json.loads(run(capsys, *written, "--overwrite", "--json"))
    assert metadata["context"]["task"] == 0
    assert "exists" in fail(capsys, *written)

    assert run(capsys, "report", folder) == f"{folder / 'report.html'}\n"
    told = json.loads(run(capsys, "report", folder, "--json"))
    assert told == {"run": str(folder), "report": str(folder / "report.html")}
    assert "test tasks" in (folder / "report.html").read_text()

    again = json.loads(run(capsys, "train", "--resume", folder, *CPU, "--json", "--quiet"))
    assert again == trained
    assert len((folder / "command.txt").read_text().splitlines()) == 2
    last = folder / "eval" / "step-00000003.npz"
    last.rename(last.with_name("step-00000001.npz"))  # None is taken for another.
    error = fail(capsys, "train", "--resume", folder, *CPU, "--quiet")
    assert f"last evaluation is no longer in eval/; make a new one: omrl evaluate {folder}" in error
    repeated = ["--from", folder / "config.json", *options[:2], "--out", tmp_path / "again"]
    same = json.loads(run(capsys, "train", *repeated, *CPU, "--json", "--quiet"))
    assert same["tasks"] == trained["tasks"]


@pytest.mark.slow
def test_a_study_of_a_run_is_kept_and_shown(capsys, cheetah_run, tmp_path):
    folder = shutil.copytree(cheetah_run, tmp_path / "run")
    command = ["evaluate", folder, "--study", "steps", "--shots", "0", "1", *CPU]
    told = json.loads(run(capsys, *command, "--json"))
    assert told["folder"] == str(folder / "eval/study-steps")
    assert [(point["x"], point["rounds"]) for point in told["points"]] == [(0.0, 0), (1.0, 1)]
    single = json.loads(run(capsys, "evaluate", folder, *CPU, "--json"))
    for point in told["points"]:
        mean = single["summary"][str(point["rounds"])]["mean"]
        assert point["statistics"]["mean"] == mean
    table = run(capsys, *command)
    assert "| gradient steps of adaptation |" in table
    assert f"raw returns: {folder / 'eval/study-steps'}" in table
    assert "replace it with --overwrite" in fail(capsys, *command[:-3], "2", *CPU)
    run(capsys, "report", folder)
    assert "Study: steps" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--points", "8"], "points: belongs to a study"),
        (["--study", "context-quality", "--more-data", ""], "more_data: an empty path"),
        (["--more-data", "x"], "more_data: belongs to a study"),
        (["--study", "depth"], "invalid choice 'depth' for argument '--study'"),
        (["--study", "steps", "--points", "8"], "points: study steps has none to choose"),
        (["--study", "distribution", "--more-data", "bundled:cheetah-vel"], "only context-quality"),
        (["--study", "context-quality", "--more-data", "nowhere"], "nowhere"),
        (["--study", "context-size", "--shots", "0"], "nothing is adapted"),
        (
            ["--study", "context-size", "--points", "300"],
            "300 transitions of all, where a task has",
        ),
        (["--study", "context-quality", "--context-size", "300"], "a task has 280; ask for fewer"),
        (["--study", "context-size", "--protocol", "zero-shot", "--shots", "0"], "--protocol giv"),
        (["--finetune.burn-in=3"], "--finetune.burn-in: protocol given does not read it"),
        (["--explore.episodes", "3"], "--explore.episodes: protocol given does not read it"),
        (
            ["--protocol", "given", "--settings", "finetune-code"],
            "settings: finetune-code is of protocol finetune, and --protocol is given",
        ),
        (
            ["--protocol", "explore", "--settings", "finetune-code"],
            "settings: finetune-code is of protocol finetune, and --protocol is explore",
        ),
    ],
)
def test_wrong_options_of_studies(capsys, stand_ins, options, message):
    assert message in " ".join(
        fail(capsys, "evaluate", "bundled:macaw-cheetah-vel", *options, *CPU).split()
    )


def test_steps_has_shots_of_its_own(capsys, monkeypatch, own_run):
    asked = []

    def load(path, devices, *, step, shots):
        asked.append(shots)
        raise InputError("as expected")

    monkeypatch.setattr(metatrain, "load_trained", load)
    for study in (["--study", "steps"], ["--study=steps"], ["--study", "distribution"]):
        assert "as expected" in fail(capsys, "evaluate", own_run, *study, *CPU)
    assert asked == [(0, 1, 2, 3, 5, 10, 20)] * 2 + [OWN.shots]


def test_what_is_bundled_serves_as_run_and_as_data(stand_ins, tmp_path, capsys):
    size = ["--episodes", "1", "--context-size", "16", *CPU]
    evaluated = json.loads(run(capsys, "evaluate", "bundled:macaw-cheetah-vel", *size, "--json"))
    assert evaluated["file"] is None
    assert evaluated["provenance"]["dataset"] == "bundled:cheetah-vel"
    assert "mean" in run(capsys, "evaluate", "bundled:macaw-cheetah-vel", *size)
    assert sorted(path.name for path in stand_ins.rglob("*.npz")) == ["weights.npz"]
    adapt = ["adapt", "bundled:macaw-cheetah-vel", "--context", "bundled:cheetah-vel"]
    run(capsys, *adapt, "--out", tmp_path / "policy", *size[2:])
    assert (tmp_path / "policy.safetensors").exists()
    assert json.loads(run(capsys, "data", "info", "bundled:cheetah-vel", "--json"))["validated"]


# --- Errors ---


@pytest.fixture
def train(cheetah_data, tmp_path):
    """A training command that only needs something wrong added."""
    folders = ["--data", cheetah_data, "--out", tmp_path / "run"]
    return ["train", "macaw-cheetah-vel", *folders, *tiny_cheetah.OPTIONS, *CPU, "--quiet"]


def test_names_that_do_not_exist(capsys, tmp_path):
    assert "no experiment" in fail(capsys, "reproduce", "figure-9")
    assert "did you mean evaluate" in fail(capsys, "evalute", "x")
    assert "did you mean macaw-cheetah-vel" in fail(capsys, "train", "macaw-cheeta-vel")
    assert "did you mean macaw-cheetah-dir" in fail(capsys, "presets", "macaw-cheetah-di")
    assert "cheetah-vel/macaw-v1" in fail(capsys, "envs", "cheetah-vel/macaw")
    out = tmp_path / "d"
    assert "cheetah-vel/macaw-v1" in fail(capsys, "collect", "cheetah-vel/macaw", "--out", out)
    assert "no command data 'inf'" in fail(capsys, "data", "inf")
    assert "bundled" in fail(capsys, "evaluate", "bundled:nothing")
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_exist(capsys, train):
    assert "did you mean --json" in fail(capsys, "envs", "--jsn")
    assert "--algo.steps" in fail(capsys, *train, "--algo.step", "2")
    assert "RUN" in fail(capsys, "train")
    assert "--context" in fail(capsys, "adapt", "run")
    assert "PATH" in fail(capsys, "evaluate")
    assert "did you mean macaw" in fail(capsys, "bench", "mcaw")


def test_values_that_are_not_allowed(capsys, train):
    assert "--algo.steps: 'a' is not a whole number" in fail(capsys, *train, "--algo.steps", "a")
    assert "--discount: 'x' is not a number" in fail(capsys, *train, "--discount", "x")
    near = fail(capsys, "evaluate", "run", "--settings", "explore-papr")
    assert "'explore-papr' is not one of finetune-paper, finetune-code, explore-paper" in near
    assert "auto" in fail(capsys, *train, "--device", "tpu")
    assert "ascending" in fail(capsys, "evaluate", "run", "--shots", "1", "0")
    assert "invalid choice 'ask'" in fail(capsys, "evaluate", "run", "--protocol", "ask")
    few = ["--protocol", "explore", "--explore.episodes", "4"]
    assert "--shots 0 4" in fail(capsys, "evaluate", "run", *few)
    online = ["evaluate", "run", "--protocol", "finetune"]
    assert "buffer_size: 9 holds no batch" in fail(capsys, *online, "--finetune.buffer-size", "9")
    assert "finetune.burn-in" in fail(capsys, *online, "--finetune.burn-im", "3")
    assert "no slice 'lats-9'" in fail(capsys, *train, "--slice", "lats-9")
    assert "split 'tets'" in fail(capsys, *train, "--eval.split", "tets")


def test_folders_that_are_not_there_or_in_the_way(capsys, train, tmp_path, cheetah_run):
    missing = tmp_path / "missing"
    assert "not a dataset" in fail(capsys, *train, "--data", missing)
    for command in ("evaluate", "report"):
        assert str(missing) in fail(capsys, command, missing)
    assert "not a run folder" in fail(capsys, "train", "--resume", missing)
    assert "cannot read" in fail(capsys, "train", "--from", missing)
    out = tmp_path / "run"
    out.mkdir()
    (out / "note").write_text("keep")
    assert "exists; choose another folder" in fail(capsys, *train)
    assert [path.name for path in out.iterdir()] == ["note"]
    gone = tmp_path / "without-checkpoints"
    shutil.copytree(cheetah_run, gone, ignore=shutil.ignore_patterns("[0-9]*"))
    assert "no checkpoint" in fail(capsys, "evaluate", gone)


def test_a_file_that_cannot_be_written(capsys, cheetah_run, cheetah_data, tmp_path):
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "policy"
    adapt = ["adapt", cheetah_run, "--context", cheetah_data, "--context-size", "16", *CPU]
    assert "File exists" in fail(capsys, *adapt, "--out", inside)


def test_data_that_does_not_fit(capsys, train, cheetah_data, tmp_path):
    assert "281 rows" in fail(capsys, *train, "--algo.inner-batch.size", "281")
    assert "or train on this: omrl train --env cheetah-vel/macaw-v1" in fail(
        capsys, *train, "--env", "cheetah-vel/nopos-v1"
    )
    bundled_data = ["--env", "cheetah-dir/oyster-v1", "--data", "bundled:cheetah-vel"]
    other = fail(capsys, *train, *bundled_data)
    assert "error: bundled:cheetah-vel: made with" in other
    assert "another MDP" in other
    damaged = tmp_path / "damaged"
    shutil.copytree(cheetah_data, damaged)
    reward = np.load(damaged / "task-003" / "reward.npy")
    reward[5] = np.nan
    np.save(damaged / "task-003" / "reward.npy", reward)
    assert "sha256" in fail(capsys, *train, "--data", damaged)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_another_config(capsys, cheetah_run, cheetah_data, tmp_path):
    edited = tmp_path / "edited"
    shutil.copytree(cheetah_run, edited)
    config = json.loads((edited / "config.json").read_text())
    config["run"]["algo"]["sigma"] = 0.3
    (edited / "config.json").write_text(json.dumps(config))
    assert "another config: run.algo.sigma: 0.2 is not 0.3" in fail(capsys, "evaluate", edited)
    config["run"]["algo"]["sigmas"] = 0.3
    (edited / "config.json").write_text(json.dumps(config))
    assert "run.algo.sigmas: no such field" in fail(capsys, "train", "--resume", edited, *CPU)


def test_a_method_takes_its_settings_of_another_environment(capsys, tmp_path):
    robot, folders = "point-robot/oyster-v1", ["--data", tmp_path / "data", "--out", tmp_path / "r"]
    tasks = ["--tasks", 0, 1, 2, 80]
    few = ["--agent", "random", "--steps", 80, "--envs", 2, *tasks]
    run(capsys, "collect", robot, *few, "--out", tmp_path / "data")
    error = fail(capsys, "train", "macaw-point-robots", *folders)
    assert "did you mean macaw-point-robot" in error
    error = fail(capsys, "train", "mt-awr-point-robot", *folders)
    assert f"of another environment: mt-awr-cheetah-vel --env {robot}" in error
    sizes = [*tiny_cheetah.OPTIONS, "--algo.task-batch", 3, "--quiet", *CPU]
    train = ["train", "macaw-cheetah-vel", "--env", robot, *folders, *sizes]
    error = fail(capsys, *train, "--eval.traces", "x_velocity")
    assert f"'x_velocity' is not a term of {robot}" in error
    run(capsys, *train)
    assert json.loads((tmp_path / "r/config.json").read_text())["run"]["eval"]["traces"] == []


def test_a_trace_of_another_environment_is_refused_before_there_is_a_folder(
    capsys, cheetah_data, tmp_path
):
    folders = ["--data", cheetah_data, "--out", tmp_path / "run"]
    wrong = ["--eval.traces", "next_x", "--quiet"]
    error = fail(capsys, "train", "macaw-cheetah-vel", *folders, *tiny_cheetah.OPTIONS, *wrong)
    assert "'next_x' is not a term of cheetah-vel/macaw-v1: choose among x_velocity" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["collect", "point-robot/oyster-v1", "--out"],
        ["demo", "--json", "--out"],
        ["report"],
        ["data", "info"],
        ["data", "slice", "bundled:cheetah-vel"],
        ["evaluate", "bundled:macaw-cheetah-vel", "--overwrite", "--out"],
        ["adapt", "bundled:macaw-cheetah-vel", "--context", "bundled:cheetah-vel", "--out"],
        ["train", "macaw-cheetah-vel", "--data", "d", "--out"],
        ["train", "--resume"],
        ["train", "--from"],
    ],
)
def test_paths_that_cannot_be(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for path in ("a\0b", "a\udcffb"):
        assert "has a character that files cannot have" in fail(capsys, *command, path)
    fail(capsys, *command, ".")
    error = fail(capsys, *command, "")
    assert "an empty path" in error or command[-1] == "--from"
    if command[-1] == "--out":
        assert "out: an empty path" in fail(capsys, *command[:-1], "--out=")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_text_beside_the_present_folder_is_no_empty_path(capsys, train):
    assert "not a dataset" in fail(capsys, *train, "--data", ".", "--holdout", "")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PermissionError(13, "Permission denied", "x/y"), 2, "x/y: Permission denied; change its"),
        (OSError(28, "No space left on device"), 2, "error: No space left on device; make room"),
        (OSError(30, "Read-only file system", "a", None, "b"), 2, "b: Read-only file system; use"),
        (IsADirectoryError(21, "Is a directory", "x"), 2, "x: Is a directory; give the path of"),
        (OSError("odd"), 2, "odd; check the path and its disk"),
        (MemoryError(), 1, "out of memory (MemoryError): use fewer seeds"),
    ],
)
def test_what_the_system_refuses_ends_with_what_to_do(capsys, monkeypatch, error, code, message):
    def raises(*_):
        raise error

    monkeypatch.setattr("omrl.cli.presets.main", raises)
    assert message in fail(capsys, "presets", code=code)


def test_a_device_without_enough_memory_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("omrl.cli.presets.main", lambda *_: jnp.zeros(10**14))
    error = fail(capsys, "presets", code=1)
    assert "out of memory (RESOURCE_EXHAUSTED: Out of memory allocating 400000000000000" in error
    # What the CPU says where a program allocates while it runs.
    inside = JaxRuntimeError("INTERNAL: Error dispatching: Out of memory allocating 9")

    def raises(*_):
        raise inside

    monkeypatch.setattr("omrl.cli.presets.main", raises)
    assert "out of memory (INTERNAL: Error dispatching" in fail(capsys, "presets", code=1)
    monkeypatch.setattr("omrl.cli.presets.main", lambda *_: jnp.zeros(2) @ jnp.zeros(3))
    with pytest.raises(TypeError):
        main(["presets"])


def test_a_gpu_that_is_not_there(capsys, train, cheetah_run):
    for command in (train[:-3], ["evaluate", cheetah_run], ["bench", "macaw"]):
        error = fail(capsys, *command, "--device", "gpu")
        assert "pip install 'omrl[cuda]'" in error


def test_more_devices_than_there_are(capsys, train):
    assert "devices: 99 were asked for" in fail(capsys, *train, "--devices", "99")


@pytest.mark.parametrize(
    "arguments",
    [
        "train macaw-cheetah-vel --data x --out y --train-tasks",
        "train macaw-cheetah-vel --train-tasks --data x --out y",
        "train macaw-cheetah-vel --data x --out y --eval.tasks --json",
        "evaluate x --tasks",
        "collect cheetah-vel-random --out y --tasks",
        "reproduce macaw-fig3-cheetah-vel --scale smoke --out y --only",
    ],
)
def test_a_list_without_a_value_is_refused(capsys, arguments):
    message = fail(capsys, *arguments.split())
    assert re.search("--(eval.)?(train-)?(tasks|only): no value follows", message)


def test_a_list_can_be_emptied(capsys):
    arguments = "train macaw-cheetah-vel --data x --out y --eval.traces"
    message = fail(capsys, *arguments.split())
    assert message.startswith("omrl: error: x: ")
