"""The benchmark of SMAC: its counts of products, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import measured
from omrl import bench_smac
from omrl.algos.smac_config import SmacConfig
from omrl.cli import main
from omrl.data.sample import BatchSpec
from omrl.types import Spec

pytestmark = pytest.mark.usefixtures("own_programs")


def test_the_counts_of_products_by_hand():
    """One hidden layer of 10 and one row: no square product, first and last layers alone."""
    config = SmacConfig(
        hidden=(10,),
        encoder_hidden=(10,),
        decoder_hidden=(10,),
        latent=2,
        task_batch=1,
        batch=BatchSpec("batch", 1),
        context=BatchSpec("context", 1),
    )
    spec = Spec(obs_dim=3, act_dim=2, num_train_tasks=1, horizon=1)
    # In layers of [in] x [out]: forward, weights, and but for the first layer inputs.
    q, policy = 2 * (2 * 50 + 3 * 10), 2 * 30 + 3 * 40
    targets, next_policy = 2 * (50 + 10), 30 + 40
    same = q + policy + targets + next_policy
    decoder, encoder = 2 * 50 + 3 * 10, 2 * 60 + 3 * 40
    offline = same + 2 * (50 + 10) + decoder + encoder
    # Qs at the policy's actions: forward, and back to the two actions of the five inputs.
    frozen = same + 2 * (50 + 10 + 10 + 20) + (60 + 40)
    for expected, is_frozen in ((offline, False), (frozen, True)):
        count = bench_smac.num_products(config, spec, frozen=is_frozen)
        assert count == pytest.approx(expected / 100)


@pytest.mark.parametrize(("phase", "frozen"), [("offline", False), ("self-supervised", True)])
def test_the_large_products_are_those_of_the_docstring(phase, frozen):
    """Without thin layers nothing but them would be left."""
    narrow = replace(
        bench_smac.CONFIG,
        context=BatchSpec("context", 1),
        encoder_hidden=(1,),
        decoder_hidden=(1,),
    )
    spec = Spec(obs_dim=1, act_dim=1, num_train_tasks=1, horizon=1)
    count = bench_smac.num_products(narrow, spec, frozen=frozen)
    assert count == pytest.approx(bench_smac.SQUARE_PRODUCTS[phase], rel=0.015)


@pytest.mark.slow
def test_it_times_both_phases_and_the_chain_in_turns(monkeypatch, capsys):
    """Of a tiny update, whose parameters are counted by hand."""
    tiny = replace(
        bench_smac.CONFIG,
        hidden=(4, 4),
        encoder_hidden=(3,),
        decoder_hidden=(2,),
        latent=2,
        task_batch=2,
        batch=BatchSpec("batch", 8),
        context=BatchSpec("context", 4),
    )
    monkeypatch.setattr(bench_smac, "CONFIG", tiny)
    asked = measured.once(monkeypatch, bench_smac, "bench_smac")
    short = ["--seeds", "2", "--seconds", "0.01", "--repeats", "3", "--device", "cpu"]
    assert main(["bench", "smac", "--json", *short]) == 0
    printed = json.loads(capsys.readouterr().out)
    q, policy = (28 + 1) * 4 + 4 * 5 + 5, (22 + 1) * 4 + 4 * 5 + 5 * 12
    encoder, decoder = (27 + 1) * 3 + 4 * 4, (28 + 1) * 2 + 3
    assert printed["seeds"] == 2
    assert printed["parameters"] == 4 * q + policy + encoder + decoder
    for name, frozen, square in (("offline", False, 28), ("self_supervised", True, 32)):
        phase = printed[name]
        updates, products = np.array(phase["rounds"]).T
        assert len(updates) == 3
        assert phase["gradient_steps_per_s"] == pytest.approx(np.median(updates))
        of_an_update = bench_smac.num_products(tiny, bench_smac.SPEC, frozen=frozen)
        expected = np.median(updates * of_an_update / products)
        assert phase["ratio"] == pytest.approx(expected)
        assert phase["ratio_square"] == pytest.approx(expected * square / of_an_update)
    assert main(["bench", "smac", *short]) == 0
    assert asked == [{"seeds": 2, "seconds": 0.01, "repeats": 3}] * 2
    first, *phases = capsys.readouterr().out.splitlines()
    assert first.startswith("smac on cpu, 2 seed(s), ")
    assert [line.split(":")[0] for line in phases] == ["offline", "self-supervised"]
