"""Data of the script of Sawyer Manipulation, and use of it where episodes are shorter."""

import dataclasses

import numpy as np
import pytest
from test_collect import collected

from omrl.cli import main
from omrl.cli.collect import canonical_command, read_options
from omrl.context import draw_contexts
from omrl.data.collect.config import CollectConfig, ScriptedConfig
from omrl.data.collect.presets import PRESETS
from omrl.data.store import open_dataset, open_for_training
from omrl.envs import render
from omrl.envs.registry import make
from omrl.errors import InputError
from omrl.protocol import EvalConfig

LONG, SHORT = "sawyer-manip/smac3-v1", "sawyer-manip/smac3-h50-v1"
CONFIG = CollectConfig(env=LONG, agent=ScriptedConfig(), tasks=(2, 51), steps=300, envs=2)
"""Two rounds of two episodes of 75 steps."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return collected(CONFIG, tmp_path_factory.mktemp("sawyer") / "data").path


def columns(path, task):
    held = open_dataset(path).task(task)
    names = ("obs", "action", "reward", "terms", "episode_start")
    return {name: np.asarray(getattr(held, name)) for name in names}


def assert_same(ours, theirs):
    for name, column in ours.items():
        np.testing.assert_array_equal(column, theirs[name], err_msg=name)


def test_the_data_is_whole_episodes_with_rewards_that_follow_from_its_terms(data):
    dataset, env = open_for_training(data, make(LONG)), make(LONG)
    for task in CONFIG.tasks:
        rows = columns(data, task)
        np.testing.assert_array_equal(rows["episode_start"], [0, 75, 150, 225, 300])
        again = env.reward(rows["terms"], rows["action"], env.tasks[[task]])
        np.testing.assert_array_equal(rows["reward"], again)
        assert np.abs(rows["action"]).max() <= 1.0
        # Four different episodes: the noise is of (seed, task, environment, round).
        firsts = rows["action"][rows["episode_start"][:-1]]
        assert len(np.unique(firsts, axis=0)) == 4
    assert dataset.manifest.tasks[0].behaviour["agent"] == {
        "algorithm": "scripted",
        "noise": 0.1,
        "random": [0.0, 0.0],
    }


def test_neither_other_tasks_nor_other_environments_change_a_task(data, tmp_path):
    alone = dataclasses.replace(CONFIG, tasks=(51,))
    assert_same(columns(data, 51), columns(collected(alone, tmp_path / "alone").path, 51))


def test_without_noise_episodes_differ_in_what_they_choose_alone(tmp_path):
    still = dataclasses.replace(CONFIG, tasks=(13,), agent=ScriptedConfig(noise=0.0))
    rows = columns(collected(still, tmp_path / "still").path, 13)
    # They begin by lifting the open hand, or by moving it to where it rests: 3 (goal - start).
    firsts = np.unique(rows["action"][rows["episode_start"][:-1]], axis=0)
    rest = [0.225, -0.45, 0.27, -1.0]
    np.testing.assert_allclose(firsts, [[0, 0, 1, -1], rest], atol=1e-6)


def test_random_actions_become_fewer_over_a_lifetime(tmp_path):
    """Of three rounds all actions of the first, and fewer of each other, are random."""
    agent = ScriptedConfig(noise=0.0, random=(1.0, 0.0))
    config = dataclasses.replace(CONFIG, tasks=(51,), agent=agent, steps=450)
    action = columns(collected(config, tmp_path / "all").path, 51)["action"].reshape(3, 2, 75, 4)
    # Without noise the script's gripper is at one end of its box, or on its way by steps of .5.
    share = (action[..., 3] % 0.5 != 0).mean(axis=(1, 2))
    assert share[0] == 1.0
    np.testing.assert_allclose(share[1:], [2 / 3, 1 / 3], atol=0.1)  # 300 and 150 of 450 are left
    assert np.abs(action[0].mean()) < 0.1


def test_presets_have_the_sizes_of_the_paper():
    for name in ("sawyer-manip-smac-paper", "sawyer-manip-fixedgoal", "sawyer-manip-8"):
        config = PRESETS[name].config
        assert (config.steps, config.envs, config.algorithm) == (3750, 50, "scripted")
        assert len(make(config.env).tasks) == 60
    options, _ = read_options(["sawyer-manip-smac-paper", "--out", "data"])
    assert canonical_command(options.config) == f"omrl collect {LONG}"
    options, _ = read_options([LONG, "--agent", "random", "--out", "data"])
    assert canonical_command(options.config) == f"omrl collect {LONG} --agent random"


def test_an_environment_without_a_script(tmp_path, capsys):
    command = ["collect", "point-robot/oyster-v1", "--agent", "scripted", "--out"]
    assert main([*command, str(tmp_path / "data")]) == 2
    assert "point-robot/oyster-v1 has no script" in capsys.readouterr().err


def test_longer_logs_serve_where_episodes_are_shorter_but_not_the_other_way_round(data, tmp_path):
    short = make(SHORT)
    dataset = open_for_training(data, short)
    config = EvalConfig(tasks=(51,), context_size=8)
    assert draw_contexts(dataset, short, config, seeds=(0,), discount=0.99).batch is not None
    few = dataclasses.replace(CONFIG, env=SHORT, tasks=(51,), steps=100)
    path = collected(few, tmp_path / "short").path
    np.testing.assert_array_equal(columns(path, 51)["episode_start"], [0, 50, 100])
    with pytest.raises(InputError, match=r"another MDP \(id, horizon\)"):
        open_for_training(path, make(LONG))


def test_films_of_the_script_are_its_episodes():
    env = make(LONG)
    one, two = render.play(env, 2, "scripted", episodes=2, steps=None, seed=1)
    (again,) = render.play(env, 2, "scripted", episodes=1, steps=None, seed=1)
    np.testing.assert_array_equal(one.states, again.states)
    assert (one.states[1] != two.states[1]).any()
    with pytest.raises(InputError, match="point-robot/oyster-v1 has no script"):
        render.play(make("point-robot/oyster-v1"), 0, "scripted", episodes=1, steps=1, seed=0)
