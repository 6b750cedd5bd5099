"""Experiments as declarations: all of them exist, and their tables are the numbers by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake_results import make_result
from omrl import metatrain
from omrl.algos.registry import build
from omrl.cli import main
from omrl.config import differences, to_json
from omrl.data.collect.presets import PRESETS as COLLECTIONS
from omrl.errors import InputError
from omrl.experiments import macaw, page, rows, stages
from omrl.experiments.declare import (
    SCALES,
    Arm,
    Claim,
    Experiment,
    FromRun,
    Number,
    Setting,
    collecting,
    override,
    plan,
)
from omrl.experiments.registry import BEHAVIOUR, EXPERIMENTS
from omrl.experiments.stages import Outcome
from omrl.presets import PRESETS, RunConfig
from test_presets import spec_of

# --- Declarations ---


OF_MACAW = [each.id for each in macaw.EXPERIMENTS]
DECLARED = [(name, scale) for name, each in EXPERIMENTS.items() for scale in each.scales]


@pytest.mark.parametrize(("name", "scale"), DECLARED)
def test_every_declaration_is_of_things_that_exist(name, scale):
    """Presets, settings, environments, splits, stages, data; and no two files of one name."""
    experiment = EXPERIMENTS[name]
    planned = plan(experiment, scale)
    assert [each.arm for each in planned] == [a for a in experiment.arms if scale in a.scales]
    slugs = [each.slug for each in planned]
    assert len(set(slugs)) == len(slugs)
    results = [(each.config, each.evaluation, each.arm.after, each.arm.reads) for each in planned]
    assert len(set(results)) == len(results), "two arms are one result"
    assert any(arm.method == experiment.reference for arm in experiment.arms)
    data = experiment.scales[scale].data
    if isinstance(data, FromRun):
        assert collecting(experiment, scale).preset in PRESETS
    else:
        assert data in COLLECTIONS or data == "bundled:cheetah-vel"
    assert experiment.claim.source
    assert experiment.claim.words
    for each in planned:
        algorithm = build(each.config.algo, spec_of(each.config.env))
        assert stages._updates_at(each, algorithm.stages()) > 0


@pytest.mark.parametrize("name", OF_MACAW)
@pytest.mark.parametrize("scale", SCALES)
def test_figures_of_macaw_have_all_scales(name, scale):
    assert plan(EXPERIMENTS[name], scale)


@pytest.mark.parametrize("name", OF_MACAW)
def test_the_bundled_data_has_all_that_smoke_reads(name):
    for each in plan(EXPERIMENTS[name], "smoke"):
        metatrain.open_problem(each.config, "bundled:cheetah-vel")


def test_the_quality_study_is_of_the_parts_that_the_paper_names():
    """Appendix D.3: what is adapted to, in training and evaluation, is the first, middle or last
    500 trajectories; outer batches are of the last 500 in all runs."""
    planned = plan(EXPERIMENTS["macaw-fig4-quality"], "gpu")
    assert len(planned) == 6
    for each in planned:
        config = each.config
        part = {"bad data": "first-500", "medium data": "middle-500", "good data": "last-500"}
        assert config.encoder_slice == config.eval.context_slice == part[each.arm.group]
        assert config.slice == "last-500"
        assert (config.algo.inner_batch.buffer, config.algo.outer_batch.buffer) == (
            "encoder",
            "main",
        )
        assert (config.algo.outer_batch.start, config.algo.outer_batch.stop) == (0.0, 1.0)
        assert config.algo.advantage_head == (each.arm.method == "MACAW")
        assert config.algo.layer == "weight_transform"


def test_the_sparsity_study_has_the_splits_of_the_paper():
    """Appendix D.3: with 3 training tasks these are 0, 16 and 32, and all others are tested on."""
    by_label = {p.arm.label: p.config for p in plan(EXPERIMENTS["macaw-fig4-sparsity"], "gpu")}
    three = by_label["MACAW, 3 tasks"]
    assert three.train_tasks == (0, 16, 32)
    assert set(three.eval.tasks) == set(range(40)) - {0, 16, 32}
    assert three.algo.task_batch == 3
    assert by_label["MT-AWR + FT, 20 tasks"].train_tasks == tuple(range(0, 40, 2))
    assert by_label["MACAW, 35 tasks"].train_tasks == ()
    assert by_label["MACAW, 35 tasks"].eval.split == "test"


def test_at_most_all_tasks_make_an_update():
    few = Arm("A", "macaw-cheetah-vel", split_of="cheetah-vel/sparse-5-v1")
    setting = Setting("bundled:cheetah-vel", 2, {"algo.task_batch": 4})
    study = make_experiment(
        few, scales={"smoke": Setting("bundled:cheetah-vel", 2), "gpu": setting}
    )
    assert plan(study, "smoke")[0].config.algo.task_batch == 5
    assert plan(study, "gpu")[0].config.algo.task_batch == 4
    fewer = replace(study, arms=(replace(few, split_of="cheetah-vel/sparse-3-v1"),))
    assert plan(fewer, "gpu")[0].config.algo.task_batch == 3


def test_figures_share_the_runs_that_are_the_same():
    one = {p.arm.label: p.config for p in plan(EXPERIMENTS["macaw-fig3-cheetah-vel"], "gpu")}
    other = {p.arm.label: p.config for p in plan(EXPERIMENTS["macaw-fig4-sparsity"], "gpu")}
    assert one["MACAW"] == other["MACAW, 35 tasks"]
    assert one["MT-AWR + FT"] == other["MT-AWR + FT, 35 tasks"]


def make_experiment(*arms: Arm, **fields) -> Experiment:
    settings = {scale: Setting("bundled:cheetah-vel", 2) for scale in SCALES}
    defaults = {
        "id": "study",
        "title": "A study",
        "claim": Claim("All is well.", "nowhere"),
        "scales": settings,
        "reference": "A",
    }
    return Experiment(arms=arms, **defaults | fields)


def test_later_overrides_win():
    arm = Arm(
        "A",
        "macaw-cheetah-vel",
        overrides={"algo.latent": 4, "algo.sigma": 0.4},
        at={"gpu": {"algo.sigma": 0.5}},
        presets={"paper": "macaw-cheetah-vel-paper"},
    )
    setting = Setting(
        "bundled:cheetah-vel",
        seeds=3,
        overrides={"algo.latent": 1, "algo.steps": 1, "discount": 0.5},
        of_algorithm={"macaw": {"algo.latent": 2, "algo.steps": 2}, "mt-awr": {"algo.steps": 9}},
    )
    study = make_experiment(arm, scales=dict.fromkeys(SCALES, setting))
    (smoke,), (gpu,), (paper,) = (plan(study, scale) for scale in SCALES)
    assert set(
        differences(to_json(PRESETS["macaw-cheetah-vel"].config), to_json(smoke.config))
    ) == {
        "algo.latent: 100 is not 4",
        "algo.sigma: 0.2 is not 0.4",
        "algo.steps: 60000 is not 2",
        "discount: 0.99 is not 0.5",
        "train.seeds: 1 is not 3",
    }
    assert gpu.config.algo.sigma == 0.5
    assert paper.preset == "macaw-cheetah-vel-paper"
    assert not paper.config.algo.normalize_obs
    assert plan(study, "gpu", seeds=7)[0].config.train.seeds == 7


def test_an_evaluation_of_its_own_leaves_the_training_as_it_is():
    arms = (
        Arm("A", "macaw-cheetah-vel"),
        Arm("A", "macaw-cheetah-vel", "two", evaluate={"shots": [0, 2]}),
    )
    one, other = plan(make_experiment(*arms), "smoke")
    assert one.config == other.config
    assert one.evaluation == one.config.eval
    assert other.evaluation == replace(one.config.eval, shots=(0, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algo.latant": 3}, "study, A: algo.latant: no such setting of RunConfig"),
        ({"algos.latent": 3}, "no such setting"),
        ({"discount.x": 3}, "no such setting"),
        ({"algo.latent": "3"}, "algo.latent: '3' is not of type int"),
        ({"algo.latent": 0}, "latent"),
    ],
)
def test_overrides_that_are_none(changes, message):
    with pytest.raises(InputError, match=message):
        plan(make_experiment(Arm("A", "macaw-cheetah-vel", overrides=changes)), "smoke")


def test_overriding_changes_no_value():
    config = RunConfig()
    assert override(config, {"algo.inner_batch.size": 3}).algo.inner_batch.size == 3  # pyright: ignore
    assert config == RunConfig()


def test_declarations_that_are_none():
    arm = Arm("A", "macaw-cheetah-vel")
    with pytest.raises(InputError, match="two arms are called 'A'"):
        make_experiment(arm, arm)
    with pytest.raises(InputError, match="a number of 'B'; did you mean A"):
        make_experiment(arm, claim=Claim("", "", {"B": Number(1.0)}))
    with pytest.raises(
        InputError, match="no preset 'macaw-cheeta-vel'; did you mean macaw-cheetah"
    ):
        plan(make_experiment(Arm("A", "macaw-cheeta-vel")), "smoke")
    with pytest.raises(InputError, match="oyster-v1 has other tasks than cheetah-vel/macaw-v1"):
        plan(make_experiment(replace(arm, split_of="cheetah-vel/oyster-v1")), "smoke")


def test_a_scale_that_is_not_declared():
    setting = Setting("bundled:cheetah-vel", 2)
    study = make_experiment(Arm("A", "macaw-cheetah-vel"), scales={"smoke": setting})
    with pytest.raises(InputError, match="study has no scale gpu, only smoke"):
        plan(study, "gpu")


def test_a_row_that_takes_too_long_for_a_scale():
    arms = Arm("A", "macaw-cheetah-vel"), Arm("B", "bc-cheetah-vel", scales=("gpu",))
    study = make_experiment(*arms)
    assert [len(plan(study, scale)) for scale in SCALES] == [1, 2, 1]
    with pytest.raises(InputError, match="study has no 'B' at scale smoke; did you mean A"):
        plan(study, "smoke", only=["B"])


def test_some_rows_only():
    study = EXPERIMENTS["macaw-fig4-sparsity"]
    assert len(plan(study, "gpu", only=["MACAW"])) == 5
    (one,) = plan(study, "gpu", only=["MACAW, 10 tasks"])
    assert one.slug == "macaw-10-tasks"
    with pytest.raises(InputError, match="has no 'macaw' at scale gpu; did you mean MACAW"):
        plan(study, "gpu", only=["macaw"])


# --- Tables ---


def outcome(planned, returns, folder: Path = Path("run")) -> Outcome:
    """Of scores [seed, task, shot], the same in both episodes."""
    result = make_result()
    values = np.repeat(np.asarray(returns, np.float64)[..., None], 2, axis=-1)
    result = replace(result, returns=values)
    return Outcome(planned, folder, "ef" * 32, result, (result,), 12.0, 34.5)


BEFORE_AND_AFTER = {
    # Seed 1 is 100 better throughout; every task gains 10.
    "A": [[[-90, -80], [-60, -50], [-30, -20]], [[10, 20], [40, 50], [70, 80]]],
    # Nothing is gained, everywhere 5 below what A has afterwards.
    "B": [[[-85, -85], [-55, -55], [-25, -25]], [[15, 15], [45, 45], [75, 75]]],
}


@pytest.fixture
def study():
    arms = Arm("A", "macaw-cheetah-vel"), Arm("B", "bc-cheetah-vel")
    return make_experiment(*arms, claim=Claim("A wins.", "Table 9", {"A": Number(-1.5, 0.25)}))


@pytest.fixture
def outcomes(study):
    return [outcome(each, BEFORE_AND_AFTER[each.arm.method]) for each in plan(study, "smoke")]


def test_a_table_is_literal(study, outcomes):
    ours, theirs = rows.make_rows(study, outcomes)
    assert ours.before.value == pytest.approx(-10.0)  # of -90, -60, -30, 10, 40, 70
    assert ours.after.value == pytest.approx(0.0)
    # Every difference is 10, whatever is drawn; unpaired, the interval is as wide as the seeds.
    assert ours.improvement.low == ours.improvement.value == ours.improvement.high == 10.0
    assert ours.before.high - ours.before.low > 50
    assert ours.probability is None
    assert theirs.improvement.value == 0.0
    # Per task B's seeds x - 5, x + 95 against A's x, x + 100: only x + 95 > x, one pair of four.
    assert theirs.probability is not None
    assert theirs.probability.value == pytest.approx(0.25)
    header, cells = rows.table(study, [ours, theirs])
    assert header == [
        "method",
        "adaptation",
        "before",
        "after",
        "improvement",
        "P(beats A)",
        "paper",
    ]
    assert cells[0][0] == "A"
    assert cells[0][1] == "1 round"
    assert cells[0][4] == "10.0 [10.0, 10.0]"
    assert cells[0][5:] == ["", "-1.5 ± 0.2"]
    assert cells[1][5].startswith("0.25 [")
    assert cells[1][6] == ""


def test_only_rows_of_one_group_are_compared(outcomes):
    arms = [Arm(m, "macaw-cheetah-vel", g) for m, g in (("A", "x"), ("B", "x"), ("B", "y"))]
    study = make_experiment(*arms)
    groups = [outcome(each, BEFORE_AND_AFTER[each.arm.method]) for each in plan(study, "smoke")]
    assert [row.probability is None for row in rows.make_rows(study, groups)] == [True, False, True]


def test_notes_say_what_the_numbers_are(study, outcomes):
    text = "\n".join(rows.notes(study, "smoke", rows.make_rows(study, outcomes)))
    for part in (
        "study, scale smoke",
        "environment cheetah-vel/macaw-v1, spec abababababab",
        "protocol given; context: 256 transitions",
        "Macaw after 1,000 updates, seeds 0, 1; 2 episodes per seed and task",
        "before, after: mean over seeds and tasks; 95 % interval",
        "improvement: paired differences",
        "P(improvement); 95 % interval",
        "paper: A wins. (Table 9)",
    ):
        assert text.count(part) == 1, part
    assert "IQM" not in text  # Numbers of one evaluation are of no row.
    assert "gain over" not in text


@pytest.mark.parametrize("figure", ["bars", "lines"])
def test_what_is_left_behind(study, outcomes, cheetah_run, tmp_path, figure):
    at_run = [replace(each, folder=cheetah_run) for each in outcomes]
    made = rows.make_rows(study, at_run)
    found = page.write(tmp_path, replace(study, figure=figure), "smoke", made, "omrl reproduce x")
    assert json.loads((tmp_path / "results.json").read_text()) == found
    assert found["rows"][0]["improvement"]["low"] == 10.0
    assert found["rows"][1]["probability"]["value"] == pytest.approx(0.25)
    assert found["claim"]["numbers"] == {"A": {"value": -1.5, "error": 0.25}}
    assert "10.0 [10.0, 10.0]" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "curves.png").exists()
    text = (tmp_path / "page.html").read_text()
    for part in (
        "A study",
        "A wins.",
        "Table 9",
        "-1.5 ± 0.2",
        "omrl reproduce x",
        "34.5",
        "jaxlib",
    ):
        assert part in text, part
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"a.npz", "b.npz"}


def test_runs_that_were_evaluated_while_they_trained_have_curves(
    study, outcomes, cheetah_run, tmp_path
):
    curve = tuple(make_result(step=step) for step in (500, 1000))
    at_run = [replace(each, folder=cheetah_run, curve=curve) for each in outcomes]
    page.write(tmp_path, study, "smoke", rows.make_rows(study, at_run), "command")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_earlier_stage_is_no_curve_of_its_own(outcomes, cheetah_run, tmp_path):
    """It is the beginning of that of the whole training."""
    curve = tuple(make_result(step=step) for step in (500, 1000))
    early = [
        replace(
            each,
            folder=cheetah_run,
            curve=curve,
            planned=replace(each.planned, arm=replace(each.planned.arm, after="meta-train")),
        )
        for each in outcomes
    ]
    study = make_experiment(*(each.planned.arm for each in early))
    page.write(tmp_path, study, "smoke", rows.make_rows(study, early), "command")
    assert not (tmp_path / "curves.png").exists()


# --- Wrong usage ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name an experiment: omrl reproduce ID"),
        (["--out", "x"], "--out: name an experiment before all options"),
        (
            ["macaw-fig3-chetah-vel"],
            "no experiment 'macaw-fig3-chetah-vel'; did you mean macaw-fig3",
        ),
        (["macaw-fig4-quality"], "--scale"),
        (["macaw-fig4-quality", "--scale", "big", "--out", "x"], "big"),
        (["macaw-fig4-quality", "--scale", "gpu", "--out", "x", "--seeds", "0"], "seeds"),
        (
            ["macaw-fig4-quality", "--scale", "gpu", "--out", "x", "--only", "BC"],
            "--only: macaw-fig4-quality has no 'BC' at scale gpu",
        ),
        (
            ["macaw-fig4-quality", "--scale", "gpu", "--out", "x", "--data", "nowhere"],
            "nowhere",
        ),
    ],
)
def test_wrong_usage_is_one_line(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_experiments(capsys):
    assert main(["reproduce", "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: omrl reproduce ID" in text
    for name, each in [*EXPERIMENTS.items(), *BEHAVIOUR.items()]:
        assert f"{name}  " in text
        assert each.title in text
    assert max(map(len, text.splitlines())) <= 100
