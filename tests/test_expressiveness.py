"""What `benchmarks/expressiveness.py` says of the layers, on small ones, and that it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from scripts import benchmark

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def expressiveness():
    """The benchmark as a module."""
    with benchmark("expressiveness") as module:
        yield module


@pytest.fixture(scope="module")
def measured(expressiveness):
    settings = expressiveness.Settings(
        width=12,
        latent=5,
        obs_dim=7,
        act_dim=3,
        samples=(1, 2, 4, 300),
        latents=(1, 3),
        span_latent=2,
        span_updates=6,
    )
    with jax.enable_x64(True):
        return expressiveness.measure(settings)


def test_the_rank_of_an_update(measured):
    """One per sample up to the width of 12, or the whole at once, whatever the length of z."""
    assert measured["rank"] == {
        "plain": [1, 2, 4, 12],
        "bias transform": [1, 2, 4, 12],
        "weight transform": [12, 12, 12, 12],
        "weight transform, z alone": [12, 12, 12, 12],
    }
    assert measured["rank_by_length_of_z"] == {"1": 12, "3": 12}


def test_z_bounds_how_many_updates_are_independent(measured):
    assert measured["independent_updates"] == {
        "plain": 6,
        "bias transform": 6,
        "weight transform": 6,
        "weight transform, z alone": 2,
    }


def test_singular_values_and_rank_by_hand(expressiveness):
    # Rows of length 3 and 4, at right angles.
    values = expressiveness.singular_values(np.array([[0.0, 3.0], [4.0, 0.0]]))
    np.testing.assert_allclose(values, [4.0, 3.0])
    assert expressiveness.rank([4.0, 3.0, 1e-8]) == 3
    assert expressiveness.rank([4.0, 3.0, 1e-9]) == 2


def test_files_and_figure(expressiveness, measured, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(expressiveness, "measure", lambda settings: measured)
    monkeypatch.setattr(sys, "argv", ["expressiveness.py", "--out", str(tmp_path / "new")])
    expressiveness.main()
    written = json.loads((tmp_path / "new" / "expressiveness.json").read_text())
    assert written["rank"] == measured["rank"]
    assert "<svg" in (tmp_path / "new" / "expressiveness.svg").read_text()
    assert "independent_updates" in capsys.readouterr().out
    ranks, spectra = expressiveness.picture.__wrapped__(measured).axes
    assert [list(line.get_ydata()) for line in ranks.lines] == [*measured["rank"].values()]
    # The spectra are those of 4 samples, the number nearest to 10 of 1, 2, 4 and 300.
    first = measured["singular_values"]["plain"][2]
    np.testing.assert_allclose(spectra.lines[0].get_ydata(), np.array(first) / first[0])


def test_the_page_has_no_other_kinds(expressiveness):
    """Its tables have the layers that are measured, and as many columns as there are sizes."""
    page = (ROOT / "docs" / "algorithms" / "expressiveness.md").read_text()
    settings = expressiveness.Settings()
    header = " | ".join(["samples of the step", *map(str, settings.samples)])
    assert f"| {header} |" in page
    for name in expressiveness.layer_kinds(settings):
        assert page.count(f"\n| {name} | ") == 2
