"""`omrl collect`: what is compared on resuming, and what the dataset's hash depends on."""

from __future__ import annotations

import shlex

import pytest

from omrl.algos.sac import SacConfig
from omrl.algos.td3 import Td3Config
from omrl.cli import main
from omrl.cli.collect import CollectOptions, canonical_command
from omrl.cli.options import parse
from omrl.data.collect.config import CollectConfig
from omrl.data.collect.presets import default_config
from omrl.data.store import Writer, open_dataset
from omrl.errors import InputError

SETTINGS = [
    "--tasks 0 3",
    "--steps 160",
    "--envs 4",
    "--updates-per-step 1",
    "--agent.hidden 8",
    "--agent.batch-size 16",
]
"""Two rounds of 4 episodes of 20 steps."""


def collect(out, *options: str) -> int:
    words = shlex.split(" ".join(options))
    return main(["collect", "point-robot/oyster-v1", "--out", str(out), *words])


def interrupt(monkeypatch, out, *options: str) -> None:
    """Leave `out` after its first task went on record."""
    complete = Writer.complete

    def complete_one(self, index, behaviour):
        if index != 0:
            raise InputError("stopped here")
        complete(self, index, behaviour)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "complete", complete_one)
        assert collect(out, *options) == 2


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("collect") / "data"
    assert collect(out, *SETTINGS) == 0
    return open_dataset(out)


def test_it_resumes_whatever_else_is_written_in_another_way(tmp_path, monkeypatch, uninterrupted):
    out = tmp_path / "data"
    interrupt(monkeypatch, out, *SETTINGS)
    others = ["--json", "--threads 1", "--device cpu", "--checkpoint-every 1", "--resume"]
    defaults = ["--seed 0", "--agent.discount 0.99"]
    reordered = [*reversed(SETTINGS[1:]), *defaults, "--tasks 3 0"]
    assert collect(out, *others, *reordered) == 0
    assert open_dataset(out).hash == uninterrupted.hash


@pytest.mark.parametrize("other", ["--tasks 0", "--seed 1", "--agent.discount 0.9"])
def test_it_does_not_resume_with_other_settings(tmp_path, monkeypatch, capsys, other):
    out = tmp_path / "data"
    interrupt(monkeypatch, out, *SETTINGS)
    capsys.readouterr()
    assert collect(out, *SETTINGS, other, "--resume") == 2
    begun = "'omrl collect point-robot/oyster-v1 --agent.hidden 8 --agent.batch-size 16 --tasks 0 3"
    error = capsys.readouterr().err.splitlines()[-1]
    assert "begun by another command" in error
    assert begun in error


@pytest.mark.parametrize(
    "config",
    [
        default_config("cheetah-vel/macaw-v1"),
        default_config("ant-dir/fwd-v1"),
        CollectConfig(agent=Td3Config(hidden=(), target_noise=1e-5), tasks=(3, 5), seed=7),
        CollectConfig("ant-dir/fwd-v1", agent=SacConfig(target_entropy=-1.5, hidden=(3, 4))),
    ],
)
def test_the_canonical_command_makes_the_config(config):
    program, command, env_id, *options = shlex.split(canonical_command(config))
    assert (program, command, env_id) == ("omrl", "collect", config.env)
    arguments = [*options, "--out", "data"]
    parsed = parse(CollectOptions, "collect", arguments, config=default_config(env_id))
    assert parsed.config == config


def test_the_environment_decides_the_learner_so_it_comes_first(tmp_path, capsys):
    options = ["cheetah-vel-10min", "--env", "ant-dir/fwd-v1", "--out", str(tmp_path / "data")]
    assert main(["collect", *options]) == 2
    assert "say omrl collect ant-dir/fwd-v1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
