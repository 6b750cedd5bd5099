"""Data of the best policies of tasks: whose, when they turn to another, and how often at random."""

from __future__ import annotations

import dataclasses
import io
import signal
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console
from test_collect import stop_after

from omrl.cli import main
from omrl.cli.collect import canonical_command, read_options
from omrl.data.collect.config import CollectConfig, OracleConfig
from omrl.data.collect.run import collect
from omrl.envs.registry import make
from omrl.errors import InputError, Stopped

GRID = CollectConfig(
    env="gridnav/borel-v1", agent=OracleConfig(random=0.0), tasks=(0, 20), steps=600, envs=20
)
"""Two rounds of episodes of 15 steps."""
ENV = make(GRID.env)


def played(out, *, resume=False, config=GRID, **agent: Any):
    """The dataset `out` by a config whose agent has other settings."""
    assert isinstance(config.agent, OracleConfig)
    config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, **agent))
    quiet = Console(file=io.StringIO())
    device = jax.devices()[0]
    return collect(config, out, command="t", device=device, resume=resume, console=quiet)


def moves(dataset, task):
    """Numbers of the actions [episode, step]."""
    return np.asarray(dataset.task(task).action).argmax(axis=-1).reshape(-1, 15)


def test_alone_it_goes_straight_to_its_own_goal(tmp_path):
    """Goals (2, 0) and (4, 4): two moves right, and four before four moves up; then it stays."""
    dataset = played(tmp_path / "data")
    for task, way in ((0, [2, 2] + 13 * [0]), (20, 4 * [2] + 4 * [1] + 7 * [0])):
        assert len(moves(dataset, task)) == 40
        np.testing.assert_array_equal(moves(dataset, task), np.tile(way, (40, 1)))
        assert "final_return" not in dataset.task(task).record.behaviour
    behaviour = dataset.task(0).record.behaviour
    assert behaviour["agent"] == {
        "algorithm": "oracle",
        "own": 1.0,
        "turn": 0.0,
        "leave": 0.0,
        "random": 0.0,
    }


def test_others_are_training_tasks_and_of_an_episode_the_same(tmp_path):
    """Of 80 episodes nearly all of 21 goals are seen, and every one is reached by its own way."""
    dataset = played(tmp_path / "data", own=0.0)
    ways = set()
    for goal in ENV.tasks.astype(int):
        ways.add((*goal[0] * [2], *goal[1] * [1], *(15 - goal.sum()) * [0]))
    seen = {tuple(way) for task in GRID.tasks for way in moves(dataset, task).tolist()}
    assert seen <= ways
    assert len(seen) > 15


def test_it_turns_as_often_as_told(tmp_path):
    """To stay somewhere is to have arrived: with a turn at each step it seldom does."""
    stays = [
        np.mean(moves(played(tmp_path / f"{turn}", own=0.0, turn=turn), 20) == 0)
        for turn in (0.0, 0.2, 1.0)
    ]
    assert stays[0] > 0.6
    assert 0.2 < stays[1] < 0.45
    assert stays[2] < 0.15


def test_who_leaves_is_done(tmp_path):
    """It stays only if the new goal is the old one, 1 in 21, and never turns on its way: a corner
    is 8 moves from the other, so that few episodes have more than 4 goals."""
    leaving = moves(played(tmp_path / "leaving", own=0.0, leave=1.0), 20)
    assert 0.0 < np.mean(leaving == 0) < 0.1
    halfway = moves(played(tmp_path / "half", own=0.0, leave=0.5), 20)
    assert np.mean(leaving == 0) < np.mean(halfway == 0) < 0.35
    turning = moves(played(tmp_path / "both", own=0.0, turn=1.0, leave=0.5), 20)
    without = moves(played(tmp_path / "turn", own=0.0, turn=1.0), 20)
    np.testing.assert_array_equal(turning, without)


def test_own_and_random_are_probabilities(tmp_path):
    """Of 600 episodes. Four in five random actions are not the best: 0.24 at first, deviation
    0.017. Its own way is that of one in 21 others too: 0.52, deviation 0.02."""
    many = dataclasses.replace(GRID, steps=9000)
    noisy = moves(played(tmp_path / "random", config=many, random=0.3), 0)
    assert abs(np.mean(noisy[:, 0] != 2) - 0.24) < 0.07
    own = moves(played(tmp_path / "own", config=many, own=0.5), 20)
    way = 4 * [2] + 4 * [1] + 7 * [0]
    assert abs(np.mean((own == way).all(axis=1)) - (0.5 + 0.5 / 21)) < 0.08


def test_it_resumes_exactly(tmp_path, monkeypatch):
    agent: Any = {"own": 0.5, "turn": 0.2, "random": 0.1}
    whole = played(tmp_path / "whole", **agent)
    with monkeypatch.context() as patch:
        stop_after(patch, 1, signal.SIGTERM)
        with pytest.raises(Stopped):
            played(tmp_path / "data", **agent)
    assert played(tmp_path / "data", resume=True, **agent).hash == whole.hash
    other = played(tmp_path / "other", config=dataclasses.replace(GRID, seed=1), **agent)
    alone = played(tmp_path / "alone", config=dataclasses.replace(GRID, tasks=(20,)), **agent)
    assert not np.array_equal(moves(other, 20), moves(whole, 20))
    np.testing.assert_array_equal(moves(alone, 20), moves(whole, 20))


def test_by_command(tmp_path, capsys):
    words = ["--agent", "oracle", "--agent.own", "0.2", "--steps", "30", "--out", "data"]
    config = read_options(["gridnav/borel-v1", *words])[0].config
    assert config.agent == OracleConfig(own=0.2)
    command = canonical_command(config)
    assert command.startswith("omrl collect gridnav/borel-v1 --agent oracle --")
    assert read_options([*command.split()[2:], "--out", "data"])[0].config == config
    words = ["--agent", "oracle", "--out", str(tmp_path / "data")]
    assert main(["collect", "cheetah-vel/macaw-v1", *words]) == 2
    assert "cheetah-vel/macaw-v1 has no closed form" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="turn"):
        OracleConfig(turn=1.5)
