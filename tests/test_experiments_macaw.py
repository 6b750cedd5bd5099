"""MACAW's experiments beyond one figure on cheetah velocity: problems, data and protocols agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omrl import metatrain
from omrl.algos.macaw_config import MacawConfig
from omrl.data.collect.presets import PRESETS as COLLECTIONS
from omrl.envs import registry
from omrl.experiments import macaw_problems, macaw_shift
from omrl.experiments.declare import SCALES, plan
from omrl.protocol import finetuning

OF_PROBLEMS = {each.id: each for each in macaw_problems.EXPERIMENTS}
OF_SHIFT = {each.id: each for each in macaw_shift.EXPERIMENTS}


def of_figure(prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in OF_PROBLEMS if name.startswith(prefix)}


def test_figures_are_of_the_problems_of_the_paper():
    """Cheetah velocity is with `experiments.macaw`, where its figures 3 and 5 are told apart."""
    assert of_figure("macaw-fig3-") == {"cheetah-dir", "ant-dir", "walker-params"}
    assert of_figure("macaw-fig5-wt-") == {"cheetah-dir", "ant-dir", "walker-params"}
    assert of_figure("macaw-workshop-fig1-") == {"cheetah-dir", "cheetah-vel", "walker-params"}


@pytest.mark.parametrize("name", OF_PROBLEMS)
@pytest.mark.parametrize("scale", SCALES)
def test_the_data_of_a_problem_has_its_tasks(name, scale):
    data = OF_PROBLEMS[name].scales[scale].data
    assert isinstance(data, str)
    collected = "cheetah-vel/macaw-v1" if "bundled" in data else COLLECTIONS[data].config.env
    for each in plan(OF_PROBLEMS[name], scale):
        assert each.config.env == collected
        env = registry.make(collected)
        assert each.config.algo.task_batch <= len(env.splits["train"])
        assert set(each.config.eval.traces) <= set(env.spec.term_names)


def test_methods_on_a_problem_differ_from_those_on_cheetah_velocity_by_the_problem_alone():
    ant = {each.preset: each.config for each in plan(OF_PROBLEMS["macaw-fig3-ant-dir"], "paper")}
    velocity = OF_PROBLEMS["macaw-workshop-fig1-cheetah-vel"]
    shared = [each for each in plan(velocity, "paper") if each.preset in ant]
    assert len(shared) == 3
    for each in shared:
        assert ant[each.preset] == replace(each.config, env="ant-dir/macaw-v1")


def test_without_weight_transforms_layers_are_plain_and_as_wide():
    for scale in SCALES:
        ours, plain = plan(OF_PROBLEMS["macaw-fig5-wt-walker-params"], scale)
        assert isinstance(ours.config.algo, MacawConfig)
        assert ours.config.algo.layer == "weight_transform"
        assert plain.config == replace(ours.config, algo=replace(ours.config.algo, layer="linear"))


def test_the_table_fine_tunes_as_the_paper_does_for_as_many_steps_as_it_has():
    """Appendices C.2 and D.4; 200 environment steps per trajectory, on 13 tasks above 2."""
    table = OF_SHIFT["macaw-table1-online"]
    by_label = {each.arm.label: each for each in plan(table, "paper")}
    assert set(table.claim.numbers) < set(by_label)
    for label, rate in (("MACAW", 1e-5), ("MT-AWR + FT", 1e-4), ("PEARL + FT", None)):
        for steps, trajectories in (("20,000", 100), ("200,000", 1000)):
            each = by_label[f"{label}, {steps} steps"]
            papers = finetuning("finetune-paper", each.config.eval)
            online = replace(papers.finetune, eval_every=0, policy_lr=rate, value_lr=rate)
            assert each.evaluation == replace(papers, shots=(0, trajectories), finetune=online)
    env = registry.make("cheetah-vel/macaw-v1")
    assert np.all(env.tasks[list(each.config.train_tasks)] <= 2.0)
    assert np.all(env.tasks[list(each.evaluation.tasks)] > 2.0)
    assert len(each.evaluation.tasks) == 13


def test_figure_2_of_the_workshop_adapts_to_8_transitions_and_infers_from_256():
    """Section 4: gradient steps of MACAW and fine-tuning see 8 transitions, PEARL's context 256;
    appendix A.1: 13 training tasks up to 1, 27 test tasks above."""
    planned = plan(OF_SHIFT["macaw-workshop-fig2"], "gpu")
    for each in planned:
        assert each.evaluation.context_size == (256 if "PEARL" in each.arm.method else 8)
        assert (len(each.config.train_tasks), len(each.evaluation.tasks)) == (13, 27)
    steps = {each.arm.group: each.evaluation.shots[-1] for each in planned}
    assert steps == {"1 gradient step": 1, "5 gradient steps": 5, "20 gradient steps": 20} | {
        "inference": 1
    }
    assert len({each.config for each in planned}) == 3, "all numbers of steps share a training"


@pytest.mark.parametrize("name", [*OF_SHIFT, "macaw-workshop-fig1-cheetah-vel"])
def test_the_bundled_data_has_all_that_smoke_reads(name):
    for each in plan((OF_SHIFT | OF_PROBLEMS)[name], "smoke"):
        metatrain.open_problem(each.config, "bundled:cheetah-vel")
