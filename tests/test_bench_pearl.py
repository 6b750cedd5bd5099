"""The benchmark of PEARL: its count of products, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import measured
from omrl import bench_pearl
from omrl.algos.pearl_config import PearlConfig
from omrl.cli import main
from omrl.data.sample import BatchSpec
from omrl.types import Spec

pytestmark = pytest.mark.usefixtures("own_programs")


def test_the_count_of_products_by_hand():
    """One hidden layer of 10 and one row: no square product, first and last layers alone."""
    config = PearlConfig(
        hidden=(10,),
        encoder_hidden=(10,),
        latent=2,
        task_batch=1,
        batch=BatchSpec("batch", 1),
        context=BatchSpec("context", 1),
    )
    spec = Spec(obs_dim=3, act_dim=2, num_train_tasks=1, horizon=1)
    # In layers of [in] x [out]: forward, weights, and but for the first layer inputs.
    q, v, policy = 2 * (2 * 50 + 3 * 10), 2 * 30 + 3 * 10, 2 * 30 + 3 * 40
    target, encoder = 30 + 10, 2 * 60 + 3 * 40
    # Qs at the policy's actions: forward, and back to the two actions of the five inputs.
    through = 2 * (50 + 10 + 10 + 20)
    expected = (q + v + policy + target + encoder + through) / 100
    assert bench_pearl.num_products(config, spec) == pytest.approx(expected)


def test_the_large_products_are_those_of_the_docstring():
    """Without thin layers nothing but them would be left."""
    narrow = replace(bench_pearl.CONFIG, context=BatchSpec("context", 1), encoder_hidden=(1,))
    spec = Spec(obs_dim=1, act_dim=1, num_train_tasks=1, horizon=1)
    count = bench_pearl.num_products(narrow, spec)
    assert count == pytest.approx(bench_pearl.SQUARE_PRODUCTS, rel=0.01)
    assert bench_pearl.num_products(bench_pearl.CONFIG, bench_pearl.SPEC) == pytest.approx(
        35.8, abs=0.05
    )


def test_it_times_updates_and_chain_in_turns(monkeypatch, capsys):
    """Of a tiny update, whose parameters are counted by hand."""
    tiny = replace(
        bench_pearl.CONFIG,
        hidden=(4, 4),
        encoder_hidden=(3,),
        latent=2,
        task_batch=2,
        batch=BatchSpec("batch", 8),
        context=BatchSpec("context", 4),
    )
    monkeypatch.setattr(bench_pearl, "CONFIG", tiny)
    asked = measured.once(monkeypatch, bench_pearl, "bench_pearl")
    short = ["--seconds", "0.01", "--repeats", "3", "--device", "cpu"]
    assert main(["bench", "pearl", "--json", *short]) == 0
    printed = json.loads(capsys.readouterr().out)
    hidden = 4 * 5
    q, v = (28 + 1) * 4 + hidden + 5, (22 + 1) * 4 + hidden + 5
    policy, encoder = (22 + 1) * 4 + hidden + 5 * 12, (27 + 1) * 3 + 4 * 4
    assert printed["parameters"] == 2 * q + 2 * v + policy + encoder
    updates, products = np.array(printed["rounds"]).T
    assert len(updates) == 3
    assert printed["gradient_steps_per_s"] == pytest.approx(np.median(updates))
    of_an_update = bench_pearl.num_products(tiny, bench_pearl.SPEC)
    expected = np.median(updates * of_an_update / products)
    assert printed["ratio"] == pytest.approx(expected)
    assert printed["ratio_square"] == pytest.approx(expected * 34 / of_an_update)
    assert main(["bench", "pearl", *short]) == 0
    assert asked == [{"seeds": 1, "seconds": 0.01, "repeats": 3}] * 2
    assert capsys.readouterr().out.startswith("pearl on cpu, ")
