"""Policies kept of a lifetime, data of these and of random actions, and named collections."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console
from test_collect import TINY, collected, contents, stop_after

from omrl import presets
from omrl.algos.td3 import Td3Config
from omrl.cli import main
from omrl.cli.collect import canonical_command, read_options
from omrl.data.collect.config import CollectConfig, KeptConfig, RandomConfig
from omrl.data.collect.learner import Learner
from omrl.data.collect.presets import PRESETS
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import FinalAgents, KeptPolicies, load
from omrl.data.collect.run import collect
from omrl.data.store import open_dataset
from omrl.envs.registry import make
from omrl.errors import InputError, Stopped

COLUMNS = ("obs", "action", "reward", "terms", "terminated", "truncated", "episode_start")
HALVES = dataclasses.replace(TINY, keep_agents=2)
RANDOM = dataclasses.replace(TINY, agent=RandomConfig(), steps=160)
"""Two rounds."""
ENV = make(TINY.env)


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A dataset with policies kept at half of the lifetimes and at their end."""
    return collected(HALVES, tmp_path_factory.mktemp("collect") / "data").path


@pytest.fixture(scope="module")
def kept(halves):
    return KeptPolicies.load(halves, ENV)


def mixture(kept: KeptPolicies, **changes) -> CollectConfig:
    """Four rounds, of which the first policy plays one and the second three."""
    agent = KeptConfig(source=kept.hash, policies=(1, 2), shares=(1.0, 3.0), **changes)
    return dataclasses.replace(TINY, agent=agent, steps=320)


def play(config, kept, out, resume=False):
    quiet = Console(file=io.StringIO())
    device = jax.devices()[0]
    return collect(config, out, command="t", device=device, resume=resume, kept=kept, console=quiet)


def columns(dataset, task):
    return {name: np.asarray(dataset.task(task).column(name)) for name in COLUMNS}


def assert_equal(left, right):
    for name in COLUMNS:
        np.testing.assert_array_equal(left[name], right[name])


# --- Kept policies ---


def test_what_is_kept_at_half_of_a_lifetime_is_the_final_agent_of_half_of_it(halves, tmp_path):
    half = collected(dataclasses.replace(TINY, steps=TINY.steps // 2), tmp_path / "half")
    early, final = FinalAgents.load(halves, "agents-1-of-2.npz"), FinalAgents.load(half.path)
    for name, array in final.arrays().items():
        np.testing.assert_array_equal(array, early.arrays()[name])
    whole = open_dataset(halves)
    rows = half.task(0).num_rows
    np.testing.assert_array_equal(whole.task(0).column("action")[:rows], half.task(0).action)


def test_policies_survive_an_interruption(halves, tmp_path, monkeypatch):
    """Stopped after the first was kept, in the seventh of ten rounds."""
    with monkeypatch.context() as patch:
        stop_after(patch, 7, signal.SIGTERM)
        with pytest.raises(Stopped):
            collected(HALVES, tmp_path / "data")
    collected(HALVES, tmp_path / "data", resume=True)
    assert contents(tmp_path / "data") == contents(halves)
    held, whole = (load(at / "agents-1-of-2.npz") for at in (tmp_path / "data", halves))
    for name, array in whole.items():
        np.testing.assert_array_equal(held[name], array)


def test_each_policy_collects_its_share(kept, tmp_path):
    dataset = play(mixture(kept, noise=0.0), kept, tmp_path / "data")
    for task in TINY.tasks:
        data = dataset.task(task)
        assert data.record.behaviour["episodes_of_policies"] == [[1, 4], [2, 12]]
        assert "final_return" not in data.record.behaviour
        for number, first, last in ((1, 0, 80), (2, 80, 320)):
            episodes = np.arange(first, last) // 20
            obs = np.asarray(data.column("obs"))[np.arange(first, last) + episodes]
            best = kept.agents[number - 1].act(task, obs)
            np.testing.assert_allclose(data.column("action")[first:last], best, atol=1e-5)
    assert not list(dataset.path.glob("agents*"))
    assert (dataset.path / "curves.png").is_file()
    assert load(dataset.path / "curves.npz").keys() == {"tasks", "returns", "steps"}


@pytest.mark.parametrize("behaviour", ["random", "mixture"])
def test_without_learning_it_resumes_exactly_too(kept, tmp_path, monkeypatch, behaviour):
    config = RANDOM if behaviour == "random" else mixture(kept)
    whole = play(config, kept, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 1, signal.SIGTERM)
        with pytest.raises(Stopped):
            play(config, kept, tmp_path / "data")
    again = play(config, kept, tmp_path / "data", resume=True)
    assert again.hash == whole.hash
    other = play(dataclasses.replace(config, seed=1), kept, tmp_path / "other")
    for task in TINY.tasks:
        assert_equal(columns(again, task), columns(whole, task))
        assert not np.array_equal(other.task(task).action, whole.task(task).action)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--agent.policies 1 3", r"agent\.policies: 3, but 2 were kept of each lifetime"),
        ("--tasks 0 5", r"tasks: no policies were kept of 5; there are --tasks 0 3"),
        ("--agent.policies 1 2 --agent.shares 1", r"agent\.shares: 1 for 2 policies"),
        ("--agent.source abc", r"agent\.source: is of other policies than are given"),
        ("--agent sac", "--agent, --from-agents: give one of them"),
    ],
)
def test_policies_that_there_are_not(halves, tmp_path, capsys, options, message):
    words = shlex.split(f"--from-agents {halves} --tasks 0 {options} --out {tmp_path / 'data'}")
    assert main(["collect", TINY.env, *words]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_policies_of_another_environment(halves):
    with pytest.raises(InputError, match="another MDP"):
        KeptPolicies.load(halves, make("gridnav/borel-v1"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tasks", np.array([[0, 3]]).T),
        ("tasks", np.array([3, 3])),
        ("tasks", np.array([0, 10**12])),
        ("obs_mean", np.full((2, 2), np.nan, np.float32)),
        ("obs_scale", np.zeros((2, 2), np.float32)),
        ("obs_limit", np.zeros((2, 0), np.float32)),
        ("obs_limit", np.full(2, -1.0, np.float32)),
        ("act_dim", np.full((2, 2), 2)),
        ("act_dim", np.array([2, 10**9])),
        ("bias.0", np.zeros((2, 0), np.float32)),
    ],
)
def test_policies_that_cannot_act(halves, tmp_path, name, value):
    shutil.copytree(halves, tmp_path / "data")
    path = tmp_path / "data/agents-1-of-2.npz"
    np.savez(path, **{**load(path), name: value})
    with pytest.raises(InputError, match=r"agents-1-of-2\.npz: "):
        KeptPolicies.load(tmp_path / "data", ENV)


def test_the_final_agents_alone_are_no_news():
    """Or a dataset's hash would depend on the version that made it."""
    assert "keep_agents" not in CollectConfig().record()
    assert HALVES.record()["keep_agents"] == 2


# --- Random actions ---


def test_random_actions_are_those_of_a_warm_up_that_never_ends(halves, tmp_path):
    random, lifetimes = collected(RANDOM, tmp_path / "random"), open_dataset(halves)
    for task in TINY.tasks:
        for name, column in columns(random, task).items():
            np.testing.assert_array_equal(column, columns(lifetimes, task)[name][: len(column)])
    behaviour = random.manifest.tasks[0].behaviour
    assert behaviour["agent"] == {"algorithm": "random"}
    assert not {"updates_per_step", "warmup_rounds", "final_return"} & behaviour.keys()


# --- Time left ---


def test_no_round_waits_for_a_compiler(tmp_path, monkeypatch):
    """All programs are there when the clock of the progress starts."""
    programs = (Learner.act, Learner.insert, Learner.learn, Learner.end_round)
    counts = []

    def restart(self):
        counts.append([program._cache_size() for program in programs])

    monkeypatch.setattr(CollectProgress, "restart", restart)
    agent = Td3Config(hidden=(7,), batch_size=16)  # Of no other test.
    before = [program._cache_size() for program in programs]
    collected(dataclasses.replace(TINY, agent=agent, steps=240), tmp_path / "data")
    (started,) = counts
    assert all(count > held for count, held in zip(started, before, strict=True))
    # Evaluation after the last round has its own.
    evaluation = np.array([1, 0, 0, 0])
    ended = [program._cache_size() for program in programs] - evaluation
    assert ended.tolist() == started


def test_time_before_the_clock_starts_does_not_count(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("omrl.data.collect.progress.time.monotonic", lambda: now[0])
    text = io.StringIO()
    progress = CollectProgress(2000, 0, console=Console(file=text, width=200))
    now[0] += 90.0
    progress.restart()
    now[0] += 10.0
    progress.step(1000, 0)
    assert "100 env steps/s  0 updates/s  ETA 0:00:10" in text.getvalue()


# --- Presets ---


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_what_their_names_say(name):
    each = PRESETS[name]
    config, env = each.config, make(each.config.env)
    assert each.source
    assert f"{name}-".startswith(config.env.split("/")[0] + "-")
    assert read_options([name, "--out", "data"])[0].config == config
    if config.learns:
        config.make_agent(env.spec)
    if name.endswith("-random"):
        assert config.steps == 200 * env.spec.horizon
    if name.endswith("-10min"):
        numbers = re.match(r"(\d+) tasks x ([\d,]+) .* at ([\d,]+) per", each.deviates)
        num_tasks, steps, pace = (int(text.replace(",", "")) for text in numbers.groups())
        assert (num_tasks, steps) == (len(env.tasks), config.steps)
        assert 300 < num_tasks * steps / pace < 540


def test_lengths_and_learners_of_the_papers():
    held = {n: (c.config.algorithm, c.config.steps / 1e6) for n, c in PRESETS.items()}
    assert held["cheetah-vel-paper"] == ("td3", 2.5)
    assert held["cheetah-dir-paper"] == ("sac", 2.5)
    assert held["ant-dir-paper"] == ("sac", 2)
    assert held["walker-params-paper"] == ("sac", 1)
    workshop = [each for name, each in held.items() if name.endswith("-workshop")]
    assert workshop == 3 * [("sac", 1)]


def test_no_name_means_two_things_and_the_page_has_all():
    assert not PRESETS.keys() & presets.PRESETS.keys()
    page = (Path(__file__).parents[2] / "docs/collect.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| `(\S+)` \| (\w+) \| ([\d,]+) \|", page, re.MULTILINE)
    assert rows == [
        (name, each.config.env, each.config.algorithm, f"{each.config.steps:,}")
        for name, each in PRESETS.items()
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "name a preset or an environment"),
        ("--out data", "--out: name a preset or an environment before all options"),
        ("cheetah-vel-10mn --out data", "did you mean cheetah-vel-10min"),
        ("cheetah-vel/macaw --out data", "did you mean cheetah-vel/macaw-v1"),
        ("cheetah-vel-10min --agent randm --out data", "did you mean random"),
        ("cheetah-vel-10min --out data --agent", "--agent: needs a value"),
        ("cheetah-vel-10min --from-agents --out data", "--from-agents: needs a value"),
        ("cheetah-vel-10min --from-agents= --out data", "from_agents: an empty path"),
    ],
)
def test_names_that_are_wrong_or_missing(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["collect", *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_help_lists_the_presets(capsys):
    assert main(["collect", "--help"]) == 0
    text = capsys.readouterr().out
    for part in ("--agent td3|sac|random", "--from-agents", "--keep-agents", *PRESETS):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    "words",
    [
        "cheetah-vel-10min",
        "ant-dir-random --seed 3",
        "cheetah-vel/macaw-v1 --agent sac --agent.hidden 9",
        "cheetah-vel-paper --agent=random --steps 7",
    ],
)
def test_the_canonical_command_names_no_preset_and_makes_the_config(words):
    config = read_options([*words.split(), "--out", "data"])[0].config
    _, _, *rest = shlex.split(canonical_command(config))
    assert rest[0] == config.env
    again = read_options([*rest, "--out", "data"])[0].config
    assert canonical_command(again) == canonical_command(config)
    assert again.record() == config.record()


def test_the_canonical_command_of_kept_policies(halves, kept):
    words = ["--from-agents", str(halves), "--agent.policies", "2", "--out", "data"]
    config = read_options([TINY.env, *words])[0].config
    command = canonical_command(config)
    assert f"--from-agents DATASET --agent.source {kept.hash} --agent.policies 2" in command
    typed = shlex.split(command.replace("DATASET", str(halves)))[2:]
    assert read_options([*typed, "--out", "data"])[0].config == config
