"""`--diagnose rewards`: errors of a method that predicts the mean reward of its context."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omrl.diagnostics.base import SOURCES
from omrl.diagnostics.rewards import diagnose_rewards
from omrl.diagnostics.rewards_results import TRANSITIONS, RewardsResult, change, describe, table
from omrl.envs.point_robot import STEP_SIZE
from omrl.errors import InputError
from omrl.explore import NEXT_TRAJECTORY
from omrl.metatrain import Trained
from omrl.protocol import ExploreConfig
from omrl.report import diagnosis_section
from test_diagnose import CONFIG as OWN
from test_diagnose import Closed, Open, trained_of
from test_evaluate import ENV, HORIZON, TASKS, start_of, write_walks

CONFIG = replace(OWN, context_size=HORIZON, explore=ExploreConfig(episodes=1), shots=(1,))
"""Contexts are all of one trajectory, so what is predicted has one value."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Two episodes of each task."""
    return write_walks(tmp_path_factory.mktemp("data") / "walks", episodes=2).path


def trained_on_the_last(data: Path, algorithm: Open | None = None) -> Trained:
    """Of 80 and 91; 83 is a test task."""
    trained = trained_of(algorithm or Open(), data)
    run = replace(trained.record.run, slice="last-1")
    return replace(trained, record=replace(trained.record, run=run))


@pytest.fixture(scope="module")
def result(data) -> RewardsResult:
    return diagnose_rewards(trained_on_the_last(data), CONFIG)


def logged(data: Path, task: int) -> np.ndarray:
    return np.load(data / f"task-{task:03}" / "reward.npy").reshape(2, HORIZON).astype(float)


def explored(seed: int, t: int, repetition: int, number: int) -> np.ndarray:
    """Rewards of a walk to the left."""
    start = start_of(seed, TASKS[t], number * NEXT_TRAJECTORY + repetition)
    at = start - np.outer(STEP_SIZE * np.arange(1, HORIZON + 1), [1.0, 0.0])
    return -np.linalg.norm(at - ENV.tasks[TASKS[t]], axis=1)


def of(result: RewardsResult, source: str, name: str) -> np.ndarray:
    return result.error[SOURCES.index(source), TRANSITIONS.index(name)]


def test_training_tasks_are_tried_inside_and_outside_of_their_slice(result, data):
    for t in (1, 2):
        first, last = logged(data, TASKS[t])
        inside = np.mean((last - last.mean()) ** 2)
        outside = np.mean((first - last.mean()) ** 2)
        np.testing.assert_allclose(of(result, "offline", "trained-on")[:, t], inside, rtol=1e-4)
        np.testing.assert_allclose(of(result, "offline", "held-out")[:, t], outside, rtol=1e-4)
        np.testing.assert_allclose(result.constant[0, :, t], inside, rtol=1e-5)
        np.testing.assert_allclose(result.constant[1, :, t], np.var(first), rtol=1e-5)


def test_what_a_run_did_not_train_on_is_held_out(result, data):
    assert np.isnan(of(result, "offline", "trained-on")[:, 0]).all()
    assert np.isfinite(of(result, "offline", "held-out")[:, 0]).all()
    # Of both episodes of the test task as many as a context has.
    assert result.tried[:, 0, 0, 0].tolist() == [0, HORIZON, HORIZON]
    whole = diagnose_rewards(trained_on_the_last(data), replace(CONFIG, context_slice="first-2"))
    assert np.isnan(of(whole, "offline", "held-out")[:, 1:]).all()
    assert whole.tried[:, 0, 1, 0].tolist() == [HORIZON, 0, HORIZON]


def test_explored_ones_are_in_no_context(result, data):
    """The first trajectory is the online context, the second is tried on."""
    for s, t, r in ((0, 0, 0), (1, 2, 1)):
        context, tried = explored(s, t, r, 0), explored(s, t, r, 1)
        online = np.mean((tried - context.mean()) ** 2)
        offline = np.mean((tried - logged(data, TASKS[t])[1].mean()) ** 2)
        assert of(result, "online", "explored")[s, t, r] == pytest.approx(online, rel=1e-4)
        assert of(result, "offline", "explored")[s, t, r] == pytest.approx(offline, rel=1e-4)
        of_all = [explored(s, t, each, 1) for each in range(CONFIG.episodes)]
        constant = np.mean((tried - np.mean(of_all)) ** 2)
        assert constant > 1.001 * np.var(tried)
        assert result.constant[2, s, t, r] == pytest.approx(constant, rel=1e-4)


def test_a_task_without_data_has_an_online_context(result, tmp_path):
    alone = write_walks(tmp_path / "train", tasks=TASKS[1:], episodes=2)
    found = diagnose_rewards(trained_on_the_last(alone.path), CONFIG)
    np.testing.assert_allclose(found.error[:, :, :, 1:], result.error[:, :, :, 1:], rtol=1e-5)
    assert np.isnan(found.error[0, :, :, 0]).all()
    assert np.isnan(found.error[1, :2, :, 0]).all()
    np.testing.assert_allclose(
        of(found, "online", "explored")[:, 0], of(result, "online", "explored")[:, 0], rtol=1e-5
    )
    assert found.error_of("offline", "explored", "test") is None
    assert found.to_json()["groups"]["test"]["held-out"] == dict.fromkeys((*SOURCES, "constant"))
    with pytest.raises(InputError, match="has no data of the tasks 83, so nothing can be told"):
        diagnose_rewards(trained_on_the_last(alone.path), replace(CONFIG, tasks=(83,)))


def test_estimates_are_means_over_tasks(result):
    error = result.error_of("offline", "held-out", "train")
    assert error is not None
    assert error.value == pytest.approx(of(result, "offline", "held-out")[:, 1:].mean())
    later = replace(result, error=result.error + 0.5)
    moved = change(result, later, "explored", "train")
    assert moved is not None
    assert (moved.value, moved.low, moved.high) == pytest.approx((0.5, 0.5, 0.5))


def test_a_file_a_table_and_a_picture(result, tmp_path):
    loaded = RewardsResult.load(result.save(tmp_path / "a.npz"))
    np.testing.assert_array_equal(loaded.error, result.error)
    later = replace(loaded, provenance=replace(loaded.provenance, step=12))
    _, rows = table([loaded, later])
    told = [["test", "held-out"], ["test", "explored"], *(["train", name] for name in TRANSITIONS)]
    assert [row[:3] for row in rows] == [[step, *each] for step in ("11", "12") for each in told]
    notes = "\n".join(describe([loaded, later]))
    assert "train tasks, explored transitions, offline context: error after 12 minus" in notes
    section = diagnosis_section("rewards", [loaded, later])
    assert len(section["figures"]) == 1
    assert section["title"] == "Diagnosis: errors of predicted rewards"


def test_a_method_that_predicts_no_rewards_is_refused(data):
    with pytest.raises(InputError, match=r"^diagnose: .*; it is for methods that predict rewards"):
        diagnose_rewards(trained_on_the_last(data, Closed()), CONFIG)
