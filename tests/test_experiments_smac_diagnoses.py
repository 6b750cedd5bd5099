"""Figures 6 and 7 of SMAC and its reward accuracy: whose runs, and what is diagnosed."""

from __future__ import annotations

import pytest

from fake_shift import make_traces
from omrl.data.collect.presets import PRESETS
from omrl.diagnostics.kinds import KINDS
from omrl.envs import registry
from omrl.experiments.declare import SCALES, Scale, collecting, plan
from omrl.experiments.registry import EXPERIMENTS
from omrl.experiments.smac import OFFLINE, ONLINE


def rows_of(name: str, scale: Scale):
    return {each.arm.label: each for each in plan(EXPERIMENTS[name], scale)}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["smac-fig6-traces", "smac-fig7-traces"])
def test_figures_6_and_7_are_of_the_runs_of_figure_5(name, scale):
    """One training, found in a shared cache, with one diagnosis of it for both."""
    own, other = rows_of(name, scale), rows_of("smac-fig5-ant-dir", scale)
    assert own.keys() == {f"SMAC, {OFFLINE}", f"SMAC, {ONLINE}"}
    for label, each in own.items():
        assert each.config == other[label].config
        assert each.evaluation == other[label].evaluation
    ours, theirs = (collecting(EXPERIMENTS[e], scale) for e in (name, "smac-fig5-ant-dir"))
    assert ours.config == theirs.config
    assert own[f"SMAC, {OFFLINE}"].diagnose == {}
    traces = own[f"SMAC, {ONLINE}"].diagnose["traces"]
    trained = own[f"SMAC, {ONLINE}"].config.train_tasks
    assert set(traces.tasks) <= set(trained or registry.make("ant-dir/smac-v1").splits["train"])
    assert traces == rows_of("smac-fig6-traces", scale)[f"SMAC, {ONLINE}"].diagnose["traces"]


@pytest.mark.parametrize("scale", ["gpu", "paper"])
def test_reward_accuracy_is_of_the_runs_of_sawyer(scale):
    own, other = rows_of("smac-reward-accuracy", scale), rows_of("smac-fig5-sawyer", scale)
    assert EXPERIMENTS["smac-reward-accuracy"].scales[scale].data == "sawyer-manip-smac-paper"
    for label, each in own.items():
        assert each.config == other[label].config
    diagnosed = own[f"SMAC, {ONLINE}"]
    assert diagnosed.diagnose == {"rewards": diagnosed.evaluation}
    assert (diagnosed.evaluation.split, diagnosed.evaluation.tasks) == ("test", ())


def test_smoke_of_reward_accuracy_has_data_of_all_its_tasks():
    """And as many transitions as a context or a label is inferred from."""
    setting = EXPERIMENTS["smac-reward-accuracy"].scales["smoke"]
    collected = PRESETS[str(setting.data)].config
    for each in rows_of("smac-reward-accuracy", "smoke").values():
        assert set(each.config.train_tasks or ()) <= set(collected.tasks)
        assert set(each.evaluation.tasks) <= set(collected.tasks)
        assert each.config.algo.exploration.label_context <= collected.steps
        for diagnosed in each.diagnose.values():
            assert set(diagnosed.tasks) <= set(collected.tasks)
            assert diagnosed.context_size <= collected.steps
    assert collected.env == PRESETS["sawyer-manip-smac-paper"].config.env


def test_pictures_are_those_of_their_diagnosis():
    held = [each.name for each in KINDS["traces"].figures([make_traces()])]
    for number in (6, 7):
        chosen = EXPERIMENTS[f"smac-fig{number}-traces"].pictures
        assert len(chosen) == 2
        assert set(chosen) <= set(held)
