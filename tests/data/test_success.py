"""How often logged episodes succeeded: by hand, in `omrl data info` and beside evaluations."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from points import PointEnv
from test_collect import collected

from omrl.cli.data import main as data_command
from omrl.context import draw_contexts
from omrl.data import success
from omrl.data.collect.config import CollectConfig, OracleConfig
from omrl.data.dataset import TaskData
from omrl.data.manifest import TaskRecord
from omrl.data.slice import Selection
from omrl.data.store import open_for_training
from omrl.envs import registry
from omrl.protocol import EvalConfig

GRID = registry.make("gridnav/borel-v1")
GOAL = GRID.tasks[3]
STARTS = np.array([0, 3, 4, 6, 10])


def task_of(columns, parameters=GOAL):
    episodes = len(STARTS) - 1
    record = TaskRecord(3, tuple(parameters), episodes, int(STARTS[-1]), 0.0, 0.0, 0.0, {}, {})
    return TaskData(
        Path(), record, {"episode_start": STARTS, **columns}, Selection(np.arange(episodes))
    )


def terms_at_goal(*rows):
    """Of transitions that end on the goal in these rows, and elsewhere in the others."""
    terms = np.zeros((STARTS[-1], len(GRID.spec.term_names)), np.float32)
    terms[list(rows)] = GOAL
    return {"terms": terms}


@pytest.mark.parametrize(
    ("rows", "rate"),
    [((), 0.0), ((2,), 0.25), ((3, 6), 0.5), ((0, 1, 2, 5), 0.5), ((0, 3, 5, 9), 1.0)],
)
@pytest.mark.parametrize("block", [1, 2**22])
def test_an_episode_succeeds_from_any_of_its_steps(rows, rate, block, monkeypatch):
    monkeypatch.setattr(success, "_BLOCK_ENTRIES", block)
    assert success.success_rate(task_of(terms_at_goal(*rows)), GRID) == rate


def test_it_is_that_of_the_tasks_own_goal():
    other = next(task for task in GRID.tasks if (task != GOAL).any())
    assert success.success_rate(task_of(terms_at_goal(0), other), GRID) == 0.0


def test_it_is_not_known_without_terms_or_where_nothing_is_done_or_left_undone():
    assert success.success_rate(task_of({}), GRID) is None
    assert success.success_rate(task_of(terms_at_goal(0)), PointEnv()) is None


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    agent = OracleConfig(own=0.0, turn=0.2)
    config = CollectConfig(env=GRID.spec.id, agent=agent, tasks=(0, 18), steps=300, envs=2)
    return collected(config, tmp_path_factory.mktemp("grid") / "data").path


def brute_force(data, index):
    """The reward of grid navigation is 1 on the goal alone."""
    task = open_for_training(data, GRID).task(index)
    episodes = np.split(np.asarray(task.reward), task.episode_start[1:-1])
    return float(np.mean([(episode == 1.0).any() for episode in episodes]))


def test_it_is_told_of_the_data_and_beside_evaluations(data, capsys):
    rates = [brute_force(data, index) for index in (0, 18)]
    assert 0 < sum(rates) < 2
    data_command(["info", str(data)], "")
    text = capsys.readouterr().out
    assert f"mean of the tasks {100 * np.mean(rates):.1f} %" in text
    row = next(line for line in text.splitlines() if line.startswith("│ 18 "))
    assert row.strip("│").split("│")[-1].strip() in (f"{100 * rates[1]:.1f} %", "0 %")
    dataset = open_for_training(data, GRID)
    config = EvalConfig(protocol="zero-shot", shots=(0,), tasks=(18, 0))
    contexts = draw_contexts(dataset, GRID, config, seeds=(0,), discount=0.9)
    np.testing.assert_array_equal(contexts.behaviour_success, rates[::-1])
    unknown = dataclasses.replace(config, tasks=(18, 1))
    contexts = draw_contexts(dataset, GRID, unknown, seeds=(0,), discount=0.9)
    np.testing.assert_array_equal(contexts.behaviour_success, [rates[1], np.nan])
