"""`--diagnose traces`: trajectories of a method whose every position is known in advance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from omrl.diagnostics.base import SETS, file_of
from omrl.diagnostics.kinds import KINDS
from omrl.diagnostics.traces import diagnose_traces
from omrl.diagnostics.traces_results import TracesResult, describe, table
from omrl.envs.point_robot import STEP_SIZE
from omrl.envs.positions import of_step, over_time, shown_quantities
from omrl.envs.registry import make
from omrl.errors import InputError
from omrl.explore import NEXT_TRAJECTORY
from omrl.report import diagnosis_section
from test_diagnose import CONFIG, Open, trained_of
from test_evaluate import ENV, HORIZON, TASKS, Fence, start_of, write_walks

FAR = STEP_SIZE * HORIZON
"""That a trajectory goes, straight on."""


@dataclass(frozen=True)
class Torn(Open):
    """It walks to the right after contexts of data, and up after those that it explored."""

    def act(self, state, task, obs, key, deterministic):
        after = jnp.where(task.own > 0, jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0]))
        return jnp.where(task.seen > 0, after, jnp.array([-1.0, 0.0]))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_walks(tmp_path_factory.mktemp("data") / "walks").path


@pytest.fixture(scope="module")
def result(data) -> TracesResult:
    return diagnose_traces(trained_of(Torn(), data), CONFIG)


def start(seed: int, t: int, repetition: int, number: int = 2) -> np.ndarray:
    return start_of(seed, TASKS[t], number * NEXT_TRAJECTORY + repetition)


def test_trajectories_are_those_after_each_context(result):
    assert result.states.shape == (len(SETS), 2, 3, 3, HORIZON, 2)
    steps = STEP_SIZE * np.arange(1, HORIZON + 1)
    ways = {"exploration": ([-1.0, 0.0], 0), "offline": ([1.0, 0.0], 2), "online": ([0.0, 1.0], 2)}
    for name, (way, number) in ways.items():
        for s, t, r in ((0, 0, 0), (1, 2, 1)):
            expected = start(s, t, r, number) + steps[:, None] * np.array(way)
            found = result.traces(name, 0)[s, t, r]
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_logged_trajectories_are_of_the_data(result, data):
    """Six episodes of a task are those of two seeds and three repetitions, each once."""
    terms = np.load(data / "task-080" / "terms.npy").reshape(6, HORIZON, 2)
    found = result.traces("dataset", 0)[:, 1].reshape(6, HORIZON, 2)
    order = np.lexsort(found[:, 0].T), np.lexsort(terms[:, 0].T)
    np.testing.assert_allclose(found[order[0]], terms[order[1]], rtol=1e-6)


def test_spread_and_gap(result):
    """Two training tasks: each is half the distance of both from their middle. The right is
    sqrt(2) times a trajectory's way from the top."""
    gap = result.gap_of("train")
    assert gap.value == pytest.approx(np.sqrt(2) * FAR, rel=1e-5)
    assert gap.high - gap.low == pytest.approx(0.0, abs=1e-4)
    halves = []
    for s in (0, 1):
        one, other = (np.mean([start(s, t, r) for r in range(3)], axis=0) for t in (1, 2))
        halves.append(np.linalg.norm(one - other) / 2)
    for name in ("offline", "online"):
        spread = result.spread_of(name, "train")
        assert spread is not None
        assert spread.value == pytest.approx(np.mean(halves), rel=1e-4)
    ends = result.ends("dataset")[:, 1:].swapaxes(0, 1).reshape(2, 6, 2).mean(1)
    logged = result.spread_of("dataset", "train")
    assert logged is not None
    assert logged.value == pytest.approx(np.linalg.norm(ends[0] - ends[1]) / 2)
    assert np.isnan(logged.low)
    assert result.spread_of("offline", "test") is None  # One task is not apart from others.


def test_an_end_is_the_last_state_that_there_is(result):
    states = result.states.copy()
    states[2, ..., 3:, :] = np.nan
    shorter = replace(result, states=states)
    np.testing.assert_array_equal(shorter.ends("offline"), states[2, ..., 2, :])
    np.testing.assert_array_equal(shorter.ends("online"), states[3, ..., -1, :])


def test_a_file_holds_all_of_it(result, tmp_path):
    path = result.save(file_of(tmp_path, CONFIG, 11))
    loaded = TracesResult.load(path)
    np.testing.assert_array_equal(loaded.states, result.states)
    assert loaded.pairs == [("x", "y")]
    told = loaded.to_json()
    assert told["quantities"] == ["x", "y"]
    assert told["groups"]["train"]["gap"]["value"] == result.gap_of("train").value
    assert told["groups"]["test"]["spread"]["online"] is None
    for name, damaged in (("quantities", np.array([1, 2])), ("states", result.states[:2])):
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        other = tmp_path / "other.npz"
        np.savez(other, allow_pickle=False, **(arrays | {name: damaged}))
        with pytest.raises(InputError, match=f"other.npz: {name} "):
            TracesResult.load(other)


def test_table_notes_and_pictures(result):
    later = replace(result, provenance=replace(result.provenance, step=12))
    header, rows = table([result, later])
    assert header[-1] == "gap, offline to online"
    expected = [[step, group] for step in ("11", "12") for group in ("test", "train")]
    assert [row[:2] for row in rows] == expected
    assert "spread: how far, by x and y, " in "\n".join(describe([result]))
    names = [each.name for each in KINDS["traces"].figures([result, later])]
    assert names == ["traces", "traces-by-task", "traces-all", "traces-all-by-task"]
    section = diagnosis_section("traces", [result, later], ("traces", "traces-all-by-task"))
    assert len(section["figures"]) == 2
    (drawn, *_) = KINDS["traces"].figures([result, later])
    svg = drawn.draw([result, later]).decode()
    assert "after 11 updates" in svg
    assert "after 12 updates" in svg
    assert "after offline context" in svg
    assert "logged data" not in svg
    assert drawn.draw([result], png=True).startswith(b"\x89PNG")


def test_along_a_line_x_is_the_sum_of_velocities():
    spec = make("cheetah-vel/oyster-v1").spec
    assert shown_quantities(spec) == ("x", "x_velocity")
    terms = np.array([[2.0, 9.0], [-1.0, 9.0]])
    steps = of_step(spec, np.zeros((2, spec.obs_dim)), terms)
    found = over_time(spec, steps)
    np.testing.assert_allclose(found, [[2.0 * spec.dt, 2.0], [1.0 * spec.dt, -1.0]])


def test_of_a_gripper_what_it_carries_is_shown_too():
    spec = make("sawyer-manip/smac3-h50-v1").spec
    names = shown_quantities(spec)
    assert names == ("hand_x", "hand_y", "object_x", "object_y", "lego_x", "lego_y")
    obs = np.arange(spec.obs_dim, dtype=float)[None]
    found = over_time(spec, of_step(spec, obs, np.zeros((1, len(spec.term_names)))))
    np.testing.assert_array_equal(found, [[0, 1, 4, 5, 7, 8]])


def test_what_tells_no_position_is_refused(data):
    trained = trained_of(Torn(), data)
    blind = replace(trained.env.spec, term_names=("a", "b"), obs_names=())
    env = Fence(blind, ENV.task_table, ENV.split_table)
    with pytest.raises(InputError, match="tells neither positions nor a velocity"):
        diagnose_traces(replace(trained, env=env), CONFIG)
