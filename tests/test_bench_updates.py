"""The benchmark of algorithms times the updates of their presets."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import pytest

import measured
from omrl import bench, presets
from omrl.algos.registry import network_sizes
from omrl.cli import bench as command
from omrl.cli import main
from omrl.data.trajectories import TrajectorySpec
from omrl.nets.mlp import num_parameters


def test_the_command_names_what_there_is():
    assert tuple(bench.UPDATES) == command.UPDATES
    assert set(bench.UPDATES.values()) <= presets.PRESETS.keys()


def test_it_times_the_updates_of_the_preset(monkeypatch, capsys):
    """Of a tiny one, whose parameters are counted by hand."""
    name = bench.UPDATES["meta_bc"]
    tiny = presets.PRESETS[name]
    algo = replace(tiny.config.algo, layer="linear", hidden=(4,))
    algo = replace(algo, inner_batch=replace(algo.inner_batch, size=8))
    algo = replace(algo, outer_batch=replace(algo.outer_batch, size=8))
    tiny = replace(tiny, config=replace(tiny.config, algo=algo))
    monkeypatch.setitem(presets.PRESETS, name, tiny)
    asked = measured.once(monkeypatch, bench, "bench_updates")
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
    # More than the gradients of both seeds, and far less than the data.
    assert 2 * 4 * printed["parameters"] < printed["temporary_bytes"] < 10e6
    assert main(["bench", "meta_bc", *short]) == 0
    assert [settings["seeds"] for settings in asked] == [2, 1]
    text = capsys.readouterr().out
    assert text.startswith("meta_bc on 1 x cpu, 2 seed(s), 118 parameters of meta-bc-cheetah-vel: ")


def test_of_borel_it_is_the_model_at_the_size_of_the_paper():
    """Two episodes of 200 steps, and all networks of its state counted, the policy's too."""
    run = bench.Chunks(presets.preset("borel-cheetah-vel-code").config.algo, jax.devices(), 1)
    (trajectories,) = run.stage.batches
    assert isinstance(trajectories, TrajectorySpec)
    assert (run.stage.name, run.stage.task_batch) == ("vae", 4)
    assert (trajectories.size, trajectories.steps) == (8, 400)
    state = jax.eval_shape(run.algorithm.init, jax.random.PRNGKey(0))
    sizes = network_sizes(run.algorithm.config, bench.SPEC)
    # The temperature is one more.
    assert num_parameters(bench._learned(state)) == sum(sizes.values()) + 1
