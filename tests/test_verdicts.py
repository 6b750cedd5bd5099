"""benchmarks/verdicts.py and the page that it writes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scripts
from omrl import stats
from omrl.errors import InputError
from omrl.experiments.registry import BEHAVIOUR, EXPERIMENTS, OUTSIDE_RL

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "write it again: python benchmarks/verdicts.py docs/verdicts.md"


@pytest.fixture(scope="module")
def verdicts():
    with scripts.benchmark("verdicts") as module:
        yield module


@pytest.fixture(scope="module")
def page(verdicts):
    """Text and figures."""
    return verdicts.page()


def test_the_page_is_what_the_results_say(page):
    text, _ = page
    assert (ROOT / "docs" / "verdicts.md").read_text() == text, AGAIN


def test_figures_are_drawn_from_the_raw_returns(page):
    """As they are committed, to the byte."""
    _, figures = page
    committed = {each.stem: each for each in (ROOT / "docs/img/verdicts").iterdir()}
    assert committed.keys() == figures.keys(), AGAIN
    for name, content in figures.items():
        assert committed[name].read_bytes() == content, f"{name}: {AGAIN}"


def test_every_experiment_that_was_run_has_a_figure(verdicts, page):
    _, figures = page
    for name in (*verdicts.MEASURED, *verdicts.DRAWN):
        assert any(figure == name or figure.startswith(f"{name}-") for figure in figures)


@pytest.mark.parametrize(
    ("rows", "error", "told"),
    [
        ({"MCAW": "macaw-fig3-walker-params/macaw"}, KeyError, "MCAW"),
        ({"MACAW": "macaw-fig3-walker-params/mcaw"}, InputError, "mcaw"),
    ],
)
def test_a_row_or_a_named_file_that_is_not_there_is_an_error(
    verdicts, monkeypatch, rows, error, told
):
    name = "macaw-fig3-walker-params"
    monkeypatch.setitem(verdicts.MEASURED, name, replace(verdicts.MEASURED[name], rows=rows))
    with pytest.raises(error, match=told):
        verdicts.rows_of(name)


def test_every_experiment_is_on_the_page(verdicts, page):
    text, _ = page
    for name in (*EXPERIMENTS, *BEHAVIOUR, *OUTSIDE_RL):
        assert f"[{name}](" in text or f"`{name}`" in text
    assert verdicts.MEASURED.keys() <= {*EXPERIMENTS, *OUTSIDE_RL}


def test_every_experiment_is_measured_and_rows_that_are_not_have_a_reason(verdicts):
    assert {*EXPERIMENTS, *BEHAVIOUR, *OUTSIDE_RL} == {*verdicts.MEASURED, *verdicts.DRAWN}
    missing = {
        name: verdicts.rows_of(name)[1]
        for name in EXPERIMENTS
        if not verdicts.MEASURED[name].diagnosis
    }
    told = {name: list(rows) for name, rows in verdicts.WHY.items()}
    assert {name: sorted(rows) for name, rows in missing.items() if rows} == {
        name: sorted(rows) for name, rows in told.items()
    }


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


def test_a_difference_is_of_the_same_seed_task_and_episode(tmp_path, monkeypatch):
    returns = np.zeros((2, 3, 2, 4))
    returns[:, :, -1] = np.arange(24.0).reshape(2, 3, 4)
    np.savez(tmp_path / "below.npz", returns=returns)
    np.savez(tmp_path / "above.npz", returns=returns + 1.0)
    with scripts.benchmark("difference") as module:
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        sides = module.Side("above.npz"), module.Side("below.npz")
        found = module.Difference("one more", *sides).estimate()
        assert module.Difference("one more", *sides).seeds_above() == "2 of 2"
        assert module.Difference("one less", *sides[::-1]).seeds_above() == "0 of 2"
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_several_runs_are_one_mean_for_each_seed(tmp_path, monkeypatch):
    of_seed = np.arange(4.0)[:, None, None, None]
    for name, value in (("before", 0.0), ("after", 2.0), ("again", of_seed - 5.0)):
        np.savez(tmp_path / f"{name}.npz", returns=np.zeros((4, 3, 2, 4)) + value)
    with scripts.benchmark("difference") as module:
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        difference = module.Difference(
            "after - before",
            module.Side("after.npz", again=("again.npz",)),
            module.Side("before.npz", again=("before.npz",)),
        )
        assert difference.above.values()[:, 0, 0].tolist() == [-1.5, -1.0, -0.5, 0.0]
        assert difference.seeds_above() == "0 of 4"
    assert difference.estimate().value == -0.75
