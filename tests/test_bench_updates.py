"""The benchmark of the baselines times the updates of their presets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from omrl import bench, presets
from omrl.cli import bench as command
from omrl.cli import main


def test_the_command_names_what_there_is():
    assert tuple(bench.BASELINES) == command.BASELINES
    assert set(bench.BASELINES.values()) <= presets.PRESETS.keys()


def test_it_times_the_updates_of_the_preset(monkeypatch, capsys):
    """Of a tiny one, whose parameters are counted by hand."""
    name = bench.BASELINES["meta_bc"]
    tiny = presets.PRESETS[name]
    algo = replace(tiny.config.algo, layer="linear", hidden=(4,))
    algo = replace(algo, inner_batch=replace(algo.inner_batch, size=8))
    algo = replace(algo, outer_batch=replace(algo.outer_batch, size=8))
    tiny = replace(tiny, config=replace(tiny.config, algo=algo))
    monkeypatch.setitem(presets.PRESETS, name, tiny)
    short = ["--seconds", "0.01", "--repeats", "3", "--device", "cpu"]
    assert main(["bench", "meta_bc", "--seeds", "2", "--json", *short]) == 0
    printed = json.loads(capsys.readouterr().out)
    # 20 observations to 4 units to 6 actions, and a rate for each of the two tensors of a layer.
    assert printed["parameters"] == (20 + 1) * 4 + (4 + 1) * 6 + 2 * 2
    assert printed["preset"] == name
    assert printed["seeds"] == 2
    assert len(printed["repeats"]) == 3
    assert sorted(printed["repeats"])[1] == pytest.approx(printed["updates_per_s"])
    assert printed["updates_per_s"] > 0
    assert main(["bench", "meta_bc", *short]) == 0
    text = capsys.readouterr().out
    assert text.startswith("meta_bc on 1 x cpu, 1 seed(s), 118 parameters of meta-bc-cheetah-vel: ")
