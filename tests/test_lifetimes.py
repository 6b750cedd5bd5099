"""Figures of behaviour data: its episodes in time order, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from test_collect import collected as collect_now

from omrl.cli import collect, main, reproduce_behaviour
from omrl.cli.reproduce_data import collection
from omrl.data.collect.config import CollectConfig, OracleConfig
from omrl.data.collect.presets import named_config
from omrl.data.store import open_dataset
from omrl.experiments import lifetimes, ray_stages, registry
from omrl.experiments.folder import LIST
from omrl.experiments.lifetimes import Lifetime, Problem
from omrl.experiments.macaw_behaviour import FIGURE_8, FIGURE_9

VEL = next(problem for problem in FIGURE_8.problems if problem.name == "cheetah-vel")


def lifetime(**changes) -> Lifetime:
    """Twenty episodes that return 0 to 19 and get longer; the last five succeed."""
    fields = {
        "index": 3,
        "title": "x 1",
        "split": "train",
        "returns": np.arange(20.0),
        "lengths": np.arange(1, 21),
        "success": np.arange(20) >= 15,
        "final_return": None,
    }
    return Lifetime(**fields | changes)


def test_start_and_end_are_tenths_of_the_episodes():
    task = lifetime()
    assert (task.start(task.returns), task.end(task.returns)) == (0.5, 18.5)
    assert (task.start(task.success), task.end(task.success)) == (0.0, 1.0)
    few = lifetime(returns=np.array([2.0, 4.0, 9.0]), lengths=np.ones(3, int), success=None)
    assert (few.start(few.returns), few.end(few.returns)) == (2.0, 9.0)


def test_a_curve_is_the_means_of_parts_at_the_transitions_where_they_end(monkeypatch):
    task = lifetime()
    steps, means = task.curve(task.returns)
    np.testing.assert_array_equal(means, np.arange(20.0))
    np.testing.assert_array_equal(steps, np.cumsum(np.arange(1, 21)))
    monkeypatch.setattr(lifetimes, "PARTS", 3)
    steps, means = task.curve(task.returns)
    # Episodes 0 to 5, 6 to 12 and 13 to 19, of 21, 70 and 119 transitions.
    np.testing.assert_array_equal(means, [2.5, 9.0, 16.0])
    np.testing.assert_array_equal(steps, [21, 91, 210])
    np.testing.assert_allclose(task.curve(task.success)[1], [0.0, 0.0, 5 / 7])


@pytest.mark.parametrize(
    ("episodes", "parts"), [(3, 3), (29, 20), (136, 20), (240, 30), (12_500, 100)]
)
def test_a_part_has_episodes_enough_to_be_a_mean(episodes, parts):
    task = lifetime(returns=np.ones(episodes), lengths=np.ones(episodes, int), success=None)
    assert len(task.curve(task.returns)[1]) == parts


def test_what_is_read_is_what_was_logged():
    found = lifetimes.read(VEL, "bundled:cheetah-vel")
    dataset = open_dataset("bundled:cheetah-vel")
    assert [task.index for task in found.tasks] == list(range(40))
    assert found.agent == "td3"
    assert not found.succeeds
    for task in found.tasks[::13]:
        np.testing.assert_array_equal(task.returns, dataset.task(task.index).returns)
        assert task.transitions == 5800
        assert task.final_return == dataset.task(task.index).behaviour["final_return"]
    assert {task.index for task in found.tasks if task.split == "test"} == {2, 7, 15, 23, 26}
    # As docs and figures have it: every agent learned.
    assert all(task.end(task.returns) > task.start(task.returns) for task in found.tasks)


def test_success_is_told_where_tasks_are_done_or_left_undone(tmp_path):
    """Its oracles reach the goal of the task, which is a reward of 1, in most episodes."""
    problem = Problem("gridnav", "gridnav/borel-v1", {})
    agent = OracleConfig(random=0.5)
    config = CollectConfig(env=problem.env, agent=agent, tasks=(0, 18), steps=300, envs=2)
    data = collect_now(config, tmp_path / "grid")
    found = lifetimes.read(problem, str(data.path))
    assert found.succeeds
    assert found.tasks[0].title.count(",") == 1
    for task in found.tasks:
        logged = data.task(task.index)
        episodes = np.split(np.asarray(logged.reward), logged.episode_start[1:-1])
        assert task.success is not None
        assert task.success.tolist() == [bool((each == 1.0).any()) for each in episodes]


# --- The command ---


def reproduce(capsys, *arguments: object) -> tuple[int, str, str]:
    given = [str(part) for part in ("reproduce", *arguments, "--device", "cpu")]
    code = main(given)
    output = capsys.readouterr()
    return code, output.out, output.err


def test_from_data_to_page(capsys, tmp_path):
    scale = ("--scale", "smoke", "--out", tmp_path / "out", "--only", "cheetah-vel")
    code, printed, told = reproduce(capsys, FIGURE_8.id, *scale)
    assert code == 0, told
    assert "40 of 40 tasks" in printed
    assert "td3" in printed
    out = tmp_path / "out"
    files = {path.name for path in out.iterdir()} - {LIST}
    assert files == {"results", "table.md", "results.json", "figure.png", "page.html"}
    assert "## Tasks of cheetah-vel" in (out / "table.md").read_text()
    with np.load(out / "results" / "cheetah-vel.npz") as raw:
        dataset = open_dataset("bundled:cheetah-vel")
        assert raw["episodes"].tolist() == [29] * 40
        np.testing.assert_array_equal(raw["returns"][29:58], dataset.task(1).returns)
        np.testing.assert_array_equal(raw["lengths"], np.full(40 * 29, 200))
        assert "success" not in raw
    (row,) = json.loads((out / "results.json").read_text())["rows"]
    assert row["data_hash"] == dataset.hash
    assert row["tasks"][2]["split"] == "test"
    assert row["tasks"][0]["curve"]["transitions"][-1] == 5800
    # Another scale would replace these results.
    code, _, error = reproduce(capsys, FIGURE_8.id, "--scale", "gpu", "--out", out)
    assert code == 2
    assert "has results of macaw-fig8-behaviour, scale smoke" in error


def test_collections_are_those_of_the_other_experiments(capsys, monkeypatch, tmp_path):
    """Found in the cache where `macaw-fig3-cheetah-dir` would collect them, else collected."""
    made = []

    def run(config, folder, *, command, resume, device, quiet):
        made.append(folder)
        tiny = replace(config, steps=200, envs=1)
        return collect_now(tiny, folder)

    monkeypatch.setattr(collect, "run", run)
    cache = tmp_path / "cache"
    some = ("--scale", "smoke", "--out", tmp_path / "out", "--cache", cache)
    for _ in range(2):
        code, printed, told = reproduce(
            capsys, FIGURE_8.id, *some, "--only", "cheetah-dir", "--json"
        )
        assert code == 0, told
        (row,) = json.loads(printed)["rows"]
        assert row["agent"] == "random"
    assert made == [collection("cheetah-dir-smoke", cache)[2]]
    assert made[0].parent == cache / "data"
    assert named_config("cheetah-dir-smoke").env == row["env"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "cheetah-vl"], "has no 'cheetah-vl'; did you mean cheetah-vel"),
        (["--data", "bundled:cheetah-vel"], "data: is of one problem; say which with --only"),
        (
            ["--data", "bundled:cheetah-vel", "--only", "ant-dir"],
            "made with cheetah-vel/macaw-v1 of spec hash",
        ),
        (["--seeds", "3"], "--seeds"),
    ],
)
def test_wrong_usage_is_one_line(capsys, tmp_path, arguments, message):
    where = ("--scale", "smoke", "--out", tmp_path / "out", "--quiet")
    code, _, error = reproduce(capsys, FIGURE_8.id, *where, *arguments)
    assert code == 2
    assert error.startswith("omrl: error: ")
    assert message in error
    assert error.count("\n") == 1


def test_side_by_side_what_is_not_there_is_one_task_each(monkeypatch, tmp_path):
    """What is bundled or was collected before is none."""
    ordered = []
    monkeypatch.setattr(
        ray_stages, "order_collection", lambda crew, shop, name, collect: ordered.append(name)
    )
    options = reproduce_behaviour.BehaviourOptions("smoke", tmp_path)
    collection("ant-dir-smoke", tmp_path)[2].mkdir(parents=True)

    class Nobody:
        command = "x"
        say = print

    reproduce_behaviour.order(FIGURE_8, options, Nobody())  # pyright: ignore[reportArgumentType]
    assert ordered == ["cheetah-dir-smoke", "walker-params-smoke"]


def test_figure_9_says_that_it_is_not_the_papers():
    assert FIGURE_9.deviates.startswith("THIS CANNOT BE THE PAPER'S FIGURE")
    assert lifetimes.extras(FIGURE_9, "smoke") == ("metaworld",)
    assert lifetimes.extras(FIGURE_8, "paper") == ()
    assert set(registry.BEHAVIOUR) == {FIGURE_8.id, FIGURE_9.id}
