"""MACAW's experiments beyond one figure on cheetah velocity: problems, data and protocols agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from omrl import metatrain
from omrl.algos.macaw_config import MacawConfig
from omrl.data.collect.presets import PRESETS as COLLECTIONS
from omrl.envs import registry
from omrl.experiments import later, macaw, macaw_behaviour, macaw_problems, macaw_shift
from omrl.experiments.declare import SCALES, plan
from omrl.experiments.macaw_ml45 import FIGURE_7
from omrl.presets import PRESETS
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
            curve = trajectories // 10
            online = replace(papers.finetune, eval_every=curve, policy_lr=rate, value_lr=rate)
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


# --- Meta-World, and the data itself ---


def test_figure_7_has_the_papers_settings_and_is_evaluated_along_the_training():
    """Tables 3 to 5, column Meta-World; 20 steps of fine-tuning, success in all 5 test tasks."""
    for scale, updates, points in (("paper", 100_000, 10), ("gpu", 20_000, 10)):
        planned = {each.preset: each for each in plan(FIGURE_7, scale)}
        assert list(planned) == ["macaw-ml45-paper", "mt-awr-ml45-paper", "pearl-ml45-paper"]
        for name, each in planned.items():
            config, preset = each.config, PRESETS[name].config
            train = replace(
                preset.train,
                seeds=4,
                keep=1,
                checkpoint_every=config.train.eval_every,
                eval_every=config.train.eval_every,
            )
            assert config.train == train
            assert replace(config, algo=preset.algo, train=preset.train) == preset
            scaled = {"scale_returns": True} if "macaw" in name else {}
            algo = replace(preset.algo, steps=config.algo.steps, **scaled)
            assert config.algo == algo
            if "pearl" not in name:
                assert config.algo.steps == updates
            assert config.algo.steps / config.train.eval_every >= points
            assert not config.eval.tasks
        assert planned["mt-awr-ml45-paper"].evaluation.shots[-1] == 20
        assert len(registry.make(config.env).splits["test"]) == 5


def test_the_tasks_of_figure_7_at_smoke_are_collected():
    data = FIGURE_7.scales["smoke"].data
    collected = COLLECTIONS[data].config.tasks
    test_tasks = registry.make("ml45/continuous-v1reward-h150-v1").splits["test"]
    assert set(test_tasks) < set(collected)
    for each in plan(FIGURE_7, "smoke"):
        assert set(each.config.train_tasks) == set(collected) - set(test_tasks)
        assert set(each.evaluation.tasks) <= set(test_tasks)
        assert each.config.train.eval_every < each.config.algo.steps


@pytest.mark.parametrize("scale", SCALES)
def test_figures_of_the_data_are_of_what_the_others_train_on(scale):
    by_name = {problem.name: problem for problem in macaw_behaviour.FIGURE_8.problems}
    assert list(by_name) == ["cheetah-dir", "cheetah-vel", "ant-dir", "walker-params"]
    for name, problem in by_name.items():
        figure = macaw.FIGURE_3 if name == "cheetah-vel" else OF_PROBLEMS[f"macaw-fig3-{name}"]
        assert problem.data[scale] == figure.scales[scale].data
        assert {each.config.env for each in plan(figure, scale)} == {problem.env}
    (ml45,) = macaw_behaviour.FIGURE_9.problems
    assert ml45.data[scale] == FIGURE_7.scales[scale].data
    assert {each.config.env for each in plan(FIGURE_7, scale)} == {ml45.env}


def test_later_tables_are_on_their_mdps():
    """UNICORN, Table 2: rewards of speed alone for ants, no bonus for hoppers, x observed."""
    envs = {each.id: {p.config.env for p in plan(each, "gpu")} for each in later.EXPERIMENTS}
    assert envs == {
        "unicorn-table2-cheetah-vel": {"cheetah-vel/oyster-v1"},
        "unicorn-table2-ant-dir": {"ant-dir/fwd-v1"},
        "unicorn-table2-walker-params": {"walker-params/corro-v1"},
        "unicorn-table2-hopper-params": {"hopper-params/corro-v1"},
    }
    for each in later.EXPERIMENTS:
        (env,) = envs[each.id]
        assert COLLECTIONS[each.scales["gpu"].data].config.env == env
        assert each.claim.numbers.keys() == {"MACAW"}
