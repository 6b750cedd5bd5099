"""What SMAC's experiments declare: the settings that were measured, and who reads which data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_results import make_result
from omrl.algos.registry import build
from omrl.config import differences, to_json
from omrl.data.sample import BatchSpec, check_sizes
from omrl.envs import registry
from omrl.errors import InputError
from omrl.experiments import rows, smac
from omrl.experiments.declare import FromRun, Planned, Scale, collecting, plan
from omrl.experiments.registry import EXPERIMENTS
from omrl.experiments.stages import Outcome, Sources
from omrl.preset_smac import ENVS
from omrl.presets import PRESETS
from test_presets import spec_of

ON, OFF = smac.ONLINE, smac.OFFLINE
FIGURES_5 = [f"smac-fig5-{problem}" for problem in ENVS]
SOURCES = Sources("main", "encoder", "relabelled")


def planned(name: str, scale: Scale) -> dict[str, Planned]:
    return {each.arm.label: each for each in plan(EXPERIMENTS[name], scale)}


def algo(each: Planned) -> Any:
    return each.config.algo


def test_settings_of_gpu_are_those_that_were_measured():
    """docs/results.md: data from 50 and 40 iterations of PEARL, 20 and 15 iterations online."""
    cheetah, ant = (EXPERIMENTS[f"smac-fig5-{name}"] for name in ("cheetah-vel", "ant-dir"))
    assert collecting(cheetah, "gpu").config.algo.steps == 50 * 16_000
    assert collecting(ant, "gpu").config.algo.steps == 40 * 16_000
    for name, first, online, weight in (
        ("cheetah-vel", "first-1200-transitions", 20, 1.0),
        ("ant-dir", "last-1200-transitions", 15, 0.05),
    ):
        arms = planned(f"smac-fig5-{name}", "gpu")
        ours = arms[f"SMAC, {ON}"]
        assert ours.preset == f"smac-{name}"
        assert ours.config.train.seeds == 4
        assert algo(ours).online_steps == online * algo(ours).exploration.every == online * 20_000
        assert algo(ours).self_supervised_reparam_weight == weight
        for each in arms.values():
            if not each.arm.collects and each.arm.reads == "data":
                assert each.config.slice == first
        for label in (f"SMAC, {OFF}", f"meta-BC, {OFF}", f"Online Oracle (ii), {ON}"):
            assert arms[label].config.encoder_slice == "last-400-transitions"
        # Runs that were not measured at other settings are the presets.
        for kind in ("original", "matched"):
            for method in ("macaw", "borel"):
                preset = PRESETS[f"{method}-smac-{name}-{kind}"].config
                own = arms[f"{'MACAW' if method == 'macaw' else 'BOReL'} ({kind}), {OFF}"].config
                assert own.algo == preset.algo
                assert own.eval == preset.eval


@pytest.mark.parametrize("problem", smac.PHYSICS)
def test_walkers_and_hoppers_learn_from_the_part_that_validation_tasks_chose(problem):
    for figure in (f"smac-fig5-{problem}", f"smac-fig2-shift-{problem}", f"smac-fig8-{problem}"):
        reading = [
            each
            for each in planned(figure, "gpu").values()
            if not each.arm.collects and each.arm.reads == "data"
        ]
        assert {each.config.slice for each in reading} == {"last-1200-transitions"}
    assert (
        algo(planned(f"smac-fig5-{problem}", "gpu")[f"SMAC, {ON}"]).self_supervised_reparam_weight
        == 0.05
    )
    paper = planned(f"smac-fig5-{problem}", "paper")[f"SMAC, {ON}"]
    assert paper.config.slice == "first-1200-transitions"


@pytest.mark.parametrize("problem", ["cheetah-vel", "ant-dir"])
def test_variants_are_the_presets_of_their_names(problem):
    arms = planned(f"smac-fig5-{problem}", "gpu")
    steps = algo(arms[f"SMAC, {ON}"]).online_steps
    for label, preset, updates in (
        (f"SMAC (actor ablation), {ON}", "actor-ablation", steps),
        (f"meta-BC, {OFF}", "meta-bc", 0),
        (f"Online Oracle (ii), {ON}", "oracle", steps),
    ):
        expected: Any = PRESETS[f"smac-{problem}-{preset}"].config.algo
        assert algo(arms[label]) == replace(expected, online_steps=updates)


@pytest.mark.parametrize("name", FIGURES_5)
def test_scale_paper_has_the_presets_of_the_paper(name):
    problem = name.removeprefix("smac-fig5-")
    ours = planned(name, "paper")[f"SMAC, {ON}"]
    assert ours.preset == f"smac-{problem}-paper"
    expected = PRESETS[ours.preset].config
    train = replace(expected.train, seeds=4, checkpoint_every=10_000)
    assert ours.config == replace(expected, train=train)
    data = collecting(EXPERIMENTS[name], "paper")
    assert data.config == PRESETS[f"smac-data-{problem}"].config


@pytest.mark.parametrize("scale", ["smoke", "gpu", "paper"])
@pytest.mark.parametrize("name", FIGURES_5)
def test_who_reads_what(name, scale):
    """SMAC both buffers where the paper has two, MACAW and BOReL the main one, the run that
    collects nothing; and both stages of SMAC are one training."""
    arms = planned(name, scale)
    two = name.removeprefix("smac-fig5-") in ("cheetah-vel", "ant-dir")
    for label, each in arms.items():
        read = SOURCES.of(each)
        if label == f"Online Oracle (i), {ON}":
            assert read == ("", "")
            assert each.config == collecting(EXPERIMENTS[name], scale).config
        elif label.startswith(("MACAW", "BOReL")):
            assert read == ("relabelled" if "relabelled" in label else "main", "")
        else:
            assert read == ("main", "encoder" if two else "")
        assert each.evaluation.protocol == "explore"
    assert arms[f"SMAC, {OFF}"].config == arms[f"SMAC, {ON}"].config


def test_only_rewards_are_relabelled():
    """Where tasks differ in their physics no task can take over what was done in another."""
    for problem, env in ENVS.items():
        source = EXPERIMENTS[f"smac-fig5-{problem}"].scales["gpu"].data
        assert isinstance(source, FromRun)
        assert (source.relabelled is None) == registry.make(env).task_changes_physics


SMOKE_DATA = [
    name for name, each in EXPERIMENTS.items()
    if "smoke" in each.scales and isinstance(each.scales["smoke"].data, FromRun)
]  # fmt: skip


@pytest.mark.parametrize("name", SMOKE_DATA)
def test_smoke_is_small_fits_its_data_and_says_so(name):
    setting = EXPERIMENTS[name].scales["smoke"]
    assert "the mechanism, not the result" in setting.note
    exploration = collecting(EXPERIMENTS[name], "smoke").config.algo.exploration
    # What a task has at least: the slices of SMAC's data have to be there.
    assert exploration.initial_steps >= 1200
    assert exploration.prior_steps >= 400
    test_tasks = registry.make(collecting(EXPERIMENTS[name], "smoke").config.env).splits["test"]
    for each in planned(name, "smoke").values():
        assert sum(s.steps for s in build(algo(each), spec_of(each.config.env)).stages()) <= 500
        assert set(each.config.eval.tasks) <= set(test_tasks)


@pytest.mark.parametrize(("name", "scale"), [
    (each.id, scale) for each in smac.EXPERIMENTS for scale, setting in each.scales.items()
    if isinstance(setting.data, FromRun)
])  # fmt: skip
def test_batches_fit_into_the_slices(name, scale):
    """1,200 transitions of a task, and 400 of its encoder buffer where there are two."""
    for each in planned(name, scale).values():
        two = each.config.separate_encoder
        for stage in build(algo(each), spec_of(each.config.env)).stages():
            if stage.exploration is None or stage.exploration.draw == "union":
                of_rows = [spec for spec in stage.batches if isinstance(spec, BatchSpec)]
                check_sizes([spec for spec in of_rows if spec.buffer == "main"], [1200])
                check_sizes(
                    [spec for spec in of_rows if spec.buffer == "encoder"], [400 if two else 1200]
                )


def test_figure_2_has_the_trainings_of_figure_5():
    for problem in ENVS:
        for scale in ("smoke", "gpu", "paper"):
            one = planned(f"smac-fig5-{problem}", scale)[f"SMAC, {ON}"]
            other = planned(f"smac-fig2-shift-{problem}", scale)[f"SMAC, {ON}"]
            assert one.config == other.config
            assert one.diagnose == {}
            shift = other.diagnose["shift"]
            assert shift.split == "train"
            assert not set(shift.tasks) & set(other.config.eval.tasks)
    offline = planned("smac-fig2-shift-ant-dir", "gpu")[f"SMAC, {OFF}"]
    assert offline.diagnose == {}


@pytest.mark.parametrize("name", ["walker-params", "hopper-params", "sawyer8"])
def test_figure_8_changes_the_physics_alone(name):
    for scale in EXPERIMENTS[f"smac-fig8-{name}"].scales:
        arms = planned(f"smac-fig8-{name}", scale)
        train, test = (
            arms[f"SMAC on {which} tasks, {ON}"].config for which in ("training", "test")
        )
        assert train.algo.exploration.physics == "own"
        exploration = replace(train.algo.exploration, physics="test")
        assert replace(train, algo=replace(train.algo, exploration=exploration)) == test
        oracle = arms[f"oracle on test tasks, {ON}"]
        assert oracle.config.train_split == "test"
        assert algo(oracle).exploration.test_tasks
        assert SOURCES.of(oracle) == ("", "")
        assert oracle.config.env == test.env
        tasks = oracle.config.train_tasks or ()
        assert set(tasks) <= set(registry.make(test.env).splits["test"])


@pytest.mark.parametrize("scale", ["gpu", "paper"])
def test_figure_5_of_sawyer_is_smac_without_a_part_each(scale):
    by_label = planned("smac-fig5-sawyer", scale)
    borel = [by_label.pop(label) for label in tuple(by_label) if label.startswith("BOReL")]
    assert {each.config.env for each in borel} == {"sawyer-manip/smac3-v1"}
    assert {each.config.env for each in by_label.values()} == {"sawyer-manip/smac3-h50-v1"}
    macaw = [by_label.pop(label) for label in tuple(by_label) if label.startswith("MACAW")]
    assert len(macaw) == len(borel) == 2
    ours = by_label["SMAC, after the online phase"]
    changed = {
        label: set(differences(to_json(algo(ours)), to_json(algo(each))))
        for label, each in by_label.items()
    }
    assert changed["SMAC, after offline training"] == set()
    assert {
        line.split(":")[0] for line in changed["Online Oracle (ii), after the online phase"]
    } == {
        "oracle",
        "exploration.label_context",
    }
    actor = changed["SMAC (actor ablation), after the online phase"]
    assert {"awac_weight: 1.0 is not 0.0", "reparam_weight: 0.0 is not 1.0"} <= actor
    assert (
        f"online_steps: {algo(ours).online_steps} is not 0"
        in changed["meta-BC, after offline training"]
    )


# --- Tables ---


def test_the_better_of_both_is_told_where_both_are_there():
    study = EXPERIMENTS["smac-fig5-cheetah-vel"]
    some = plan(study, "gpu", only=["MACAW (original)", "MACAW (matched)", "BOReL (matched)"])
    outcomes = []
    for number, each in enumerate(some):
        result = make_result(protocol="explore", shots=(0, 2))
        result = replace(result, returns=result.returns + 10.0 * number)
        outcomes.append(Outcome(each, Path("run"), "ef" * 32, result, (), 1.0, 1.0))
    made = rows.make_rows(study, outcomes)
    lines = [line for line in rows.notes(study, "gpu", made) if "the better one" in line]
    (line,) = lines
    assert line.startswith("MACAW, the better one as in the paper: MACAW (matched), ")
    header, cells = rows.table(study, made)
    assert cells[0][header.index("adaptation")] == "2 trajectories"
    text = "\n".join(rows.notes(study, "gpu", made))
    assert "Macaw after 1,000 updates, seeds 0, 1" in text


def test_what_the_online_phase_gains_is_paired():
    """The same seeds and tasks: every difference is 10, whatever is drawn."""
    study = EXPERIMENTS["smac-fig5-cheetah-vel"]
    offline, online = plan(study, "smoke", only=["SMAC"])
    early = make_result(protocol="explore", shots=(0, 2))
    late = replace(early, returns=early.returns + 10.0)
    outcomes = [
        Outcome(each, Path("run"), "ef" * 32, result, (), 1.0, 1.0)
        for each, result in ((offline, early), (online, late))
    ]
    lines = rows.notes(study, "smoke", rows.make_rows(study, outcomes))
    (gain,) = [line for line in lines if f"SMAC, {ON}, minus SMAC, {OFF}" in line]
    assert "10.0 [10.0, 10.0]" in gain
    other = [replace(outcomes[0], folder=Path("another")), outcomes[1]]
    assert not any(
        ", minus " in line for line in rows.notes(study, "smoke", rows.make_rows(study, other))
    )


def test_rows_that_explored_test_tasks_are_marked():
    study = EXPERIMENTS["smac-fig8-walker-params"]
    outcomes = []
    for each in plan(study, "smoke", only=SMACS):
        result = make_result(protocol="explore", shots=(0, 2))
        told = "without their rewards" if "test" in each.arm.method else ""
        result = replace(result, provenance=replace(result.provenance, test_tasks=told))
        outcomes.append(Outcome(each, Path(each.slug), "ef" * 32, result, (), 1.0, 1.0))
    lines = rows.notes(study, "smoke", rows.make_rows(study, outcomes))
    marks = [line for line in lines if "META-TRAINED IN TEST TASKS" in line]
    assert marks == [f"SMAC on test tasks, {ON}: META-TRAINED IN TEST TASKS, without their rewards"]


SMACS = (f"SMAC on training tasks, {ON}", f"SMAC on test tasks, {ON}")


def test_the_better_of_what_is_not_there():
    study = EXPERIMENTS["smac-fig5-cheetah-vel"]
    with pytest.raises(InputError, match="the better of 'MAKAW'; did you mean"):
        replace(study, better_of={"MACAW": ("MAKAW",)})
