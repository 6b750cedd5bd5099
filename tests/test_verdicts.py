"""benchmarks/verdicts.py and the page that it writes."""

from pathlib import Path

import numpy as np
import pytest

import scripts
from omrl import stats
from omrl.experiments.registry import BEHAVIOUR, EXPERIMENTS, OUTSIDE_RL

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def verdicts():
    with scripts.benchmark("verdicts") as module:
        yield module


def test_the_page_is_what_the_results_say(verdicts):
    assert (ROOT / "docs" / "verdicts.md").read_text() == verdicts.page(), (
        "write it again: python benchmarks/verdicts.py docs/verdicts.md"
    )


def test_every_experiment_is_on_the_page(verdicts):
    page = verdicts.page()
    for name in (*EXPERIMENTS, *BEHAVIOUR, *OUTSIDE_RL):
        assert f"[{name}](" in page or f"`{name}`" in page
    assert verdicts.MEASURED.keys() <= {*EXPERIMENTS, *OUTSIDE_RL}


def test_every_experiment_has_a_verdict_or_a_reason_why_not(verdicts):
    done = {*verdicts.MEASURED, *verdicts.DRAWN}
    assert {*EXPERIMENTS, *BEHAVIOUR, *OUTSIDE_RL} - done == verdicts.WHY.keys()


@pytest.mark.parametrize(
    ("shift", "expected"), [(3.0, "reproduced"), (-3.0, "not"), (0.0, "partly")]
)
def test_the_rule(verdicts, shift, expected):
    noise = np.random.default_rng(0).normal(size=(4, 5, 2))
    found = stats.improvement(noise + shift, np.zeros_like(noise))
    assert verdicts.verdict(found) == expected


def test_a_difference_without_an_interval_is_no_verdict(verdicts):
    one = np.ones((1, 2, 1))
    assert verdicts.verdict(stats.improvement(one, one - 5.0)) == "partly"


@pytest.mark.parametrize(
    ("of_lines", "expected"),
    [
        (["reproduced", "reproduced"], "reproduced"),
        (["not", "not"], "not"),
        (["reproduced", "not"], "partly"),
        (["reproduced", "partly"], "partly"),
    ],
)
def test_a_figure_is_what_all_its_lines_are(verdicts, of_lines, expected):
    assert verdicts.of_all(of_lines) == expected


def test_a_difference_is_of_the_same_seed_task_and_episode(verdicts, tmp_path, monkeypatch):
    returns = np.zeros((2, 3, 2, 4))
    returns[:, :, -1] = np.arange(24.0).reshape(2, 3, 4)
    np.savez(tmp_path / "below.npz", returns=returns)
    np.savez(tmp_path / "above.npz", returns=returns + 1.0)
    monkeypatch.setattr(verdicts, "RESULTS", tmp_path)
    sides = verdicts.Side("above.npz"), verdicts.Side("below.npz")
    found = verdicts.Difference("one more", *sides).estimate()
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
