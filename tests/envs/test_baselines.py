"""Returns of known policies: closed forms, the file that keeps them, and the table."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from omrl.envs import baselines
from omrl.envs.base import SolvedEnv
from omrl.envs.baselines import (
    Baselines,
    Measured,
    baseline_returns,
    better,
    main,
    measure,
    read,
    recorded_oracle,
    table,
    write,
)
from omrl.envs.registry import ids, make
from omrl.errors import InputError

VEL = make("cheetah-vel/macaw-v1")
GRID = make("gridnav/borel-v1")
MEASURED = Measured("stand-in", (1.0,) * 40, (0.25,) * 40, 10, 0, "command", "machine")


# --- The best policies -------------------------------------------------------------------------


def test_the_best_return_of_the_grid():
    # Of d moves the last one pays, then staying does: (d - 1) * -.1 + (16 - d) * 1.
    moves = GRID.tasks.sum(axis=1)
    best = baseline_returns(GRID, "oracle", GRID.tasks, episodes=1)[:, 0]
    np.testing.assert_allclose(best, (moves - 1) * -0.1 + 16 - moves, rtol=1e-6)


def test_the_grid_oracle_finds_its_way_from_everywhere():
    assert isinstance(GRID, SolvedEnv)
    goal = np.array([2.0, 2.0])
    cells = np.array([[0, 2, 2], [0, 0, 4], [0, 4, 4], [0, 2, 0], [0, 2, 4]], float)
    moves = GRID.oracle_action(cells, goal).argmax(axis=1)
    assert moves.tolist() == [0, 2, 4, 1, 3]
    assert GRID.done(cells, goal).tolist() == [True, False, False, False, False]


def test_a_point_is_done_less_than_a_step_from_its_goal():
    env = make("point-robot/oyster-v1")
    assert isinstance(env, SolvedEnv)
    points = np.array([[0.5, -0.3], [0.55, -0.35], [0.65, -0.3], [0.5, -0.45]])
    assert env.done(points, np.array([0.5, -0.3])).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        # The goal of 45 degrees is .7071 away along each axis. After t steps the distance is
        # sqrt(2) (.7071 - .1 t), from the sixth on within .2: .1515, .0101, then 0.
        ("sparse-point-robot/borel-v1", 55.0),
        ("sparse-point-robot/oyster-v1", 15 - 0.1515 - 0.0101),
        # sum over t = 1 to 7 of the distance: sqrt(2) (7 * .7071 - .1 * 28)
        ("sparse-point-robot/oyster-dense-v1", -(7 - 2.8 * np.sqrt(2))),
    ],
)
def test_the_best_return_of_a_sparse_point_robot(env_id, expected):
    goal = np.array([[np.sqrt(0.5), np.sqrt(0.5)]])
    best = baseline_returns(make(env_id), "oracle", goal, episodes=1)
    assert best.item() == pytest.approx(expected, abs=1e-3)


def test_no_walk_beats_the_oracle_of_the_point_robot():
    env = make("point-robot/oyster-v1")
    best = baseline_returns(env, "oracle", env.tasks[:20], episodes=5)
    for policy in ("random", "zero"):
        assert (best >= baseline_returns(env, policy, env.tasks[:20], episodes=5)).all()


# --- Measuring ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["random", "zero"])
@pytest.mark.parametrize("env_id", ["cheetah-vel/macaw-v1", "ant-dir/macaw-v1", "gridnav/borel-v1"])
def test_shared_episodes_are_those_of_each_task_alone(env_id, policy):
    env = make(env_id)
    shared = baseline_returns(env, policy, env.tasks[:3], episodes=2, shared=True)
    for task in range(3):
        alone = baseline_returns(env, policy, env.tasks[[task]], episodes=2)
        np.testing.assert_allclose(shared[[task]], alone, rtol=1e-5, atol=1e-4)


def test_episodes_are_not_shared_where_physics_or_policy_depend_on_the_task():
    for env_id, policy in (("hopper-params/smac-v1", "zero"), ("gridnav/borel-v1", "oracle")):
        env = make(env_id)
        with pytest.raises(ValueError, match="cannot share"):
            baseline_returns(env, policy, env.tasks, episodes=1, shared=True)


def test_the_measured_error_is_that_of_the_mean():
    found = measure(GRID, "random", episodes=50, seed=3, command="again")
    returns = baseline_returns(GRID, "random", GRID.tasks, episodes=50, seed=3, shared=True)
    assert found.standard_error is not None
    np.testing.assert_allclose(found.mean, returns.mean(axis=1), atol=1e-3)
    expected = returns.std(axis=1, ddof=1) / np.sqrt(50)
    np.testing.assert_allclose(found.standard_error, expected, atol=1e-3)
    assert measure(GRID, "zero", episodes=1, seed=0, command="").standard_error is None


def test_a_dataset_has_the_oracle_on_record(cheetah_data):
    oracle = recorded_oracle(VEL, "bundled:cheetah-vel", "read it", "a card")
    assert oracle.mean[:2] == (-5.349, -4.874)
    assert (oracle.episodes, oracle.seed, oracle.standard_error) == (32, 0, None)
    assert oracle.command.startswith("omrl data slice data/cheetah-vel ")
    assert oracle.command.endswith(" && read it")
    assert oracle.hardware == "a card"
    split_otherwise = make("cheetah-vel/sparse-3-v1")
    assert recorded_oracle(split_otherwise, "bundled:cheetah-vel", "", "").mean == oracle.mean
    with pytest.raises(InputError, match="another MDP"):
        recorded_oracle(make("cheetah-vel/nopos-v1"), "bundled:cheetah-vel", "", "")
    with pytest.raises(InputError, match="no final_episodes on record"):
        recorded_oracle(VEL, str(cheetah_data), "", "")
    others = VEL.with_tasks(VEL.tasks[::-1], VEL.splits)
    with pytest.raises(InputError, match="its tasks are not those of cheetah-vel/macaw-v1"):
        recorded_oracle(others, "bundled:cheetah-vel", "", "")


def test_of_two_learned_oracles_each_task_keeps_the_better():
    first = recorded_oracle(VEL, "bundled:cheetah-vel", "first", "a card")
    worse = dataclasses.replace(first, mean=tuple(-99.0 for _ in first.mean), command="worse")
    partial = (None, 0.0, *[None] * 38)
    second = dataclasses.replace(first, mean=partial, command="second", hardware="another card")
    assert better(None, second) == second
    assert better(MEASURED, second) == second  # a closed form is not learned
    assert better(first, worse) == better(worse, first) == first
    merged = better(first, second)
    assert merged.mean == (first.mean[0], 0.0, *first.mean[2:])
    assert merged.command == f"{first.command}; second"
    assert merged.hardware == "a card; another card"
    assert better(merged, dataclasses.replace(second, mean=(None,) * 40)) == merged


def test_tasks_without_an_oracle_are_left_out_of_its_mean():
    oracle = dataclasses.replace(MEASURED, mean=(None, -3.0, *[None] * 38), standard_error=None)
    lines = table(VEL, Baselines(VEL.spec.hash, oracle=oracle)).splitlines()
    assert lines[2].endswith("|  |")
    assert lines[3].endswith("| -3.00 |")
    means = [line for line in lines if line.startswith("| mean of ")]
    assert means[0].endswith("| -3.00 (of 1) |")
    assert means[1].endswith("|  |")


# --- File and table ----------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "baselines.json"
    assert read(path) == {}
    known = {VEL.spec.id: Baselines(VEL.spec.hash, random=MEASURED, oracle=MEASURED)}
    write(path, known)
    assert read(path) == known


@pytest.mark.parametrize(
    "stale",
    [
        {VEL.spec.id: Baselines("0" * 64, random=MEASURED)},
        {VEL.spec.id: Baselines(VEL.spec.hash, random=dataclasses.replace(MEASURED, mean=(1.0,)))},
    ],
    ids=["another MDP", "another number of tasks"],
)
def test_what_is_of_another_environment_is_left_out(stale, tmp_path):
    path = tmp_path / "baselines.json"
    write(path, stale)
    assert read(path) == {}


@pytest.mark.parametrize("text", ["{", '{"cheetah-vel/macaw-v1": {}}', '{"a": NaN}'])
def test_a_damaged_file_is_named(text, tmp_path):
    path = tmp_path / "baselines.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"baselines\.json"):
        read(path)


def test_the_table():
    entry = Baselines(
        VEL.spec.hash, MEASURED, dataclasses.replace(MEASURED, mean=(-0.001,) * 40), None
    )
    lines = table(VEL, entry).splitlines()
    assert lines[0] == "| task | split | target_velocity | random | zero action | oracle |"
    assert lines[4] == "| 2 | test | 0.225 | 1.00 ± 0.25 | 0.00 ± 0.25 |  |"
    assert lines[7] == "| 5 | train, validation | 0.45 | 1.00 ± 0.25 | 0.00 ± 0.25 |  |"
    assert lines[42] == "| mean of 35 | train |  | 1.00 | 0.00 |  |"
    assert "mass" not in table(make("walker-params/macaw-v1"), Baselines(""))


def test_the_command_keeps_what_it_does_not_measure(capsys, monkeypatch, tmp_path):
    path = tmp_path / "baselines.json"
    oracle = dataclasses.replace(MEASURED, mean=(2.0,) * 21, standard_error=None)
    write(
        path,
        {
            VEL.spec.id: Baselines(VEL.spec.hash, random=MEASURED),
            GRID.spec.id: Baselines(GRID.spec.hash, oracle=oracle),
        },
    )
    arguments = ["", GRID.spec.id, "--episodes", "2", "--seed", "1", "--write", str(path)]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    assert list(json.loads(path.read_text())) == [VEL.spec.id, GRID.spec.id]
    grid = read(path)[GRID.spec.id]
    assert grid.zero is not None
    assert grid.zero.command.endswith("baselines gridnav/borel-v1 --episodes 2 --seed 1")
    assert grid.oracle is not None
    assert grid.oracle.mean[0] == pytest.approx(13.9)
    arguments = ["", VEL.spec.id, "--oracle-from", "bundled:cheetah-vel", "--write", str(path)]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    vel = read(path)[VEL.spec.id]
    assert vel.random == MEASURED
    assert vel.oracle is not None
    assert capsys.readouterr().out.count("| mean of ") == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["gridnav/borel"],
        ["gridnav/borel-v1", "--episodes", "0"],
        ["gridnav/borel-v1", "--seed", "-1"],
        ["gridnav/borel-v1", "--oracle-from", "nowhere"],
    ],
)
def test_wrong_arguments_are_one_line(arguments, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1


def test_the_oracle_needs_a_closed_form():
    solved = {env_id.split("/")[0] for env_id in ids() if isinstance(make(env_id), SolvedEnv)}
    assert solved == {"point-robot", "sparse-point-robot", "gridnav"}
    with pytest.raises(InputError, match="no closed form"):
        baselines.scripted(VEL, "oracle", 0)
