"""Plans of studies are exact, results are those of single evaluations, folders are checked."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fake_results import TASKS
from fake_studies import CONFIG, FACTS, make_study, save
from omrl import metatrain, stats
from omrl.context import draw_contexts
from omrl.data.store import open_dataset
from omrl.errors import InputError
from omrl.protocol import EvalConfig
from omrl.studies import results, run
from omrl.studies.figures import NAMES, study_figure
from omrl.studies.plan import Facts, Part, plan
from omrl.studies.results import UnfinishedError

STUDIES = ("steps", "context-size", "context-quality", "distribution")


def with_part(*values) -> Facts:
    return replace(FACTS, part=lambda data, name: Part(*values))


# --- Plans ---


@pytest.mark.parametrize(("each", "x"), [(1, [0, 1, 5]), (3, [0, 3, 15])])
def test_steps_is_one_evaluation_with_its_shots_as_points(each, x):
    config = replace(CONFIG, shots=(0, 1, 5), context_size=8)
    study = plan("steps", config, replace(FACTS, gradient_steps=each))
    assert [evaluation.config for evaluation in study.evaluations] == [config]
    assert [(point.x, point.rounds, point.label) for point in study.points] == [
        (float(steps), rounds, str(steps)) for steps, rounds in zip(x, (0, 1, 5), strict=True)
    ]


def test_without_gradient_steps_there_is_a_line_and_no_second_round():
    study = plan("steps", replace(CONFIG, shots=(0, 1, 5)), replace(FACTS, gradient_steps=0))
    assert study.evaluations[0].config.shots == (0, 1)
    assert [(point.x, point.rounds) for point in study.points] == [(0.0, 0), (None, 1)]
    assert "without gradient steps" in study.left_out[0]


def test_sizes_of_contexts():
    study = plan("context-size", replace(CONFIG, shots=(0, 1, 4)), FACTS)
    assert study.left_out == ()
    before, *evaluations = [evaluation.config for evaluation in study.evaluations]
    assert (before.protocol, before.shots) == ("zero-shot", (0,))
    sizes = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    assert evaluations == [
        *(replace(CONFIG, shots=(4,), context_size=size) for size in sizes),
        *(
            replace(CONFIG, shots=(4,), context_size=size, context_unit="trajectories")
            for size in range(1, 6)
        ),
    ]
    points = study.points
    assert [p.x for p in points] == [None, *map(float, sizes), 200.0, 400.0, 600.0, 800.0, 1000.0]
    assert [p.evaluation for p in points] == list(range(16))
    assert [p.rounds for p in points] == [0] + [4] * 15
    labels = ["8 transitions", "4096 transitions", "1 trajectory", "5 trajectories"]
    assert [points[at].label for at in (1, 10, 11, 15)] == labels


@pytest.mark.parametrize(
    ("part", "sizes", "left_out"),
    [
        (
            (280, 2, 20, 0.0),
            [8, 16, 32, 64, 128, 256, 1, 2],
            (
                "512 transitions or more: a task has 280",
                "more than 2 trajectories: a task has no more",
            ),
        ),
        ((4096, 9, 0, 0.0), [2**n for n in range(3, 13)], ("whole trajectories: they are of",)),
        ((7, 9, 0, 0.0), [], ("8 transitions or more", "whole trajectories")),
    ],
)
def test_sizes_are_those_that_the_data_has(part, sizes, left_out):
    study = plan("context-size", CONFIG, with_part(*part))
    assert [evaluation.config.context_size for evaluation in study.evaluations[1:]] == sizes
    assert len(study.left_out) == len(left_out)
    for told, expected in zip(study.left_out, left_out, strict=True):
        assert told.startswith(expected)


def test_sizes_may_be_chosen():
    study = plan("context-size", CONFIG, FACTS, points=("5", "2-trajectories"))
    assert [(p.series, p.x) for p in study.points[1:]] == [
        ("single transitions", 5.0),
        ("whole trajectories", 400.0),
    ]


def test_parts_of_the_lifetime_stand_at_their_mean_return():
    returns = {"all": -50.0, "first-500": -90.0, "last-500": -20.0, "part-0.0-0.2": -80.0}

    def part(data: str, name: str) -> Part:
        return Part(10_000, 1500, 20, -300.0 if data else returns.get(name, -40.0))

    facts = replace(FACTS, part=part)
    study = plan("context-quality", CONFIG, facts, more_data=("data/random",))
    placed = {(p.series, p.label): p.x for p in study.points if p.x is not None}
    assert placed == {
        ("whole lifetime", "all"): -50.0,
        ("fifths of the lifetime", "part-0.0-0.2"): -80.0,
        ("fifths of the lifetime", "part-0.2-0.4"): -40.0,
        ("fifths of the lifetime", "part-0.4-0.6"): -40.0,
        ("fifths of the lifetime", "part-0.6-0.8"): -40.0,
        ("fifths of the lifetime", "part-0.8-1.0"): -40.0,
        ("500 trajectories", "first-500"): -90.0,
        ("500 trajectories", "middle-500"): -40.0,
        ("500 trajectories", "last-500"): -20.0,
        ("other data", "random"): -300.0,
    }
    slices = [evaluation.config.context_slice for evaluation in study.evaluations]
    assert slices[2:4] == ["part-0.0-0.2", "part-0.2-0.4"]
    assert [evaluation.data for evaluation in study.evaluations] == [""] * 10 + ["data/random"]
    assert {evaluation.config.context_size for evaluation in study.evaluations} == {256}


def test_parts_that_overlap_or_are_too_short_are_left_out():
    facts = replace(FACTS, part=lambda _, name: Part(900 if name == "all" else 200, 1499, 20, 0.0))
    study = plan("context-quality", CONFIG, facts)
    assert [point.label for point in study.points] == ["none", "all"]
    assert len(study.left_out) == 6
    assert study.left_out[0] == "part-0.0-0.2: 256 transitions, and a task has 200 there"
    assert "1499 trajectories, so they overlap" in study.left_out[-1]
    few = plan("context-quality", CONFIG, with_part(9000, 4, 20, 0.0))
    assert few.left_out[0] == "fifths: a task has 4 trajectories"


def test_distribution_is_one_evaluation_of_all_tasks():
    config = replace(CONFIG, tasks=(), shots=(0, 1, 5))
    facts = replace(FACTS, holdout="kept", splits=dict(FACTS.splits) | {"kept": (30,)})
    study = plan("distribution", config, facts)
    (evaluation,) = study.evaluations
    assert evaluation.config == replace(config, tasks=(2, 7, 15, 20, 30), shots=(0, 5))
    groups = {p.series: p.tasks for p in study.points if p.x is None}
    assert groups == {
        "test tasks, before": (2,),
        "test tasks, after 5": (2,),
        "training tasks, before": (7, 15, 20),
        "training tasks, after 5": (7, 15, 20),
        "kept tasks, before": (30,),
        "kept tasks, after 5": (30,),
    }
    assert study.trained_range == pytest.approx((0.6, 1.575))
    single = [(p.x, p.tasks) for p in study.points if p.series == "training tasks, after 5"][1:]
    assert single == [(pytest.approx(0.075 * (t + 1)), (t,)) for t in (7, 15, 20)]


def test_tasks_of_several_parameters_have_no_place_on_a_line():
    facts = replace(
        FACTS, task_names=("x", "y"), task_parameters=tuple((1.0, float(i)) for i in range(40))
    )
    study = plan("distribution", replace(CONFIG, tasks=()), facts)
    assert study.trained_range == ()
    assert [point.x for point in study.points] == [None] * 4


@pytest.mark.parametrize(
    ("name", "changes", "options", "message"),
    [
        ("steps", {"protocol": "zero-shot", "shots": (0,)}, {}, "use --protocol given"),
        ("context-size", {"shots": (0,)}, {}, "nothing is adapted"),
        ("steps", {}, {"points": ("8",)}, "its points are --shots"),
        ("distribution", {}, {"points": ("8",)}, "choose among its tasks by --tasks"),
        ("steps", {}, {"more_data": ("x",)}, "only context-quality compares datasets, not steps"),
        ("context-size", {}, {"points": ("0",)}, "'0' is no size; give 64 or 2-trajectories"),
        ("context-size", {}, {"points": ("8", "8")}, "points: 8-transitions is there twice"),
        ("context-quality", {}, {"points": ("all", "all")}, "all is there twice"),
        ("context-quality", {}, {"more_data": ("d", "d")}, "d is there twice"),
        ("context-quality", {}, {"points": ("best",)}, "points: no slice 'best'"),
        ("distribution", {"tasks": (7, 15)}, {}, "all of its 2 tasks are training tasks"),
        ("distribution", {"tasks": (2,)}, {}, "all of its 1 tasks are test tasks"),
    ],
)
def test_what_cannot_be_studied_is_refused(name, changes, options, message):
    with pytest.raises(InputError, match=message):
        plan(name, replace(CONFIG, **changes), FACTS, **options)


def test_trajectories_of_different_lengths_are_no_size():
    facts = with_part(100, 9, 0, 0.0)
    with pytest.raises(InputError, match="1-trajectories, but those of all are of different"):
        plan("context-size", CONFIG, facts, points=("1-trajectories",))


# --- Contexts and parts ---


def test_a_larger_context_contains_the_smaller_one(cheetah_data):
    data = open_dataset(cheetah_data)
    env = metatrain.registry.make("cheetah-vel/macaw-v1")

    def drawn(size: int, unit: str) -> np.ndarray:
        config = EvalConfig(tasks=(2, 7), context_size=size, context_unit=unit)
        batch = draw_contexts(data, env, config, seeds=(0, 3), discount=0.9).batch
        return np.asarray(batch.obs)

    for size in (1, 8, 16):
        assert (drawn(size, "transitions") == drawn(200, "transitions")[:, :, :size]).all()
    one, three = drawn(1, "trajectories"), drawn(3, "trajectories")
    for seed in range(2):
        for task in range(2):
            rows = {row.tobytes() for row in three[seed, task]}
            assert all(row.tobytes() in rows for row in one[seed, task])


def test_a_part_is_measured(cheetah_data):
    data = open_dataset(cheetah_data)
    part = run.measure_part(data, "last-4", (2, 7))
    expected = np.mean([data.task(t).reward.reshape(14, 20)[-4:].sum(1).mean() for t in (2, 7)])
    assert part == replace(Part(80, 4, 20, 0.0), mean_return=part.mean_return)
    assert part.mean_return == pytest.approx(expected, rel=1e-6)
    assert run.measure_part(data, "first-30-transitions", (2,)).length == 0


# --- Running ---


@pytest.fixture(scope="module")
def trained(cheetah_run):
    return metatrain.load_trained(cheetah_run, shots=(0, 1, 2))


@pytest.fixture
def config(trained):
    """Of a test task and a training task."""
    return replace(trained.record.run.eval, tasks=(2, 3), shots=(0, 1, 2), traces=())


def equal(one, other) -> bool:
    return np.array_equal(one.returns, other.returns) and one.config == other.config


def test_results_are_those_of_single_evaluations(trained, config, tmp_path):
    """Bit for bit, in memory and from the folder."""
    size = run.run_study(trained, "context-size", config, points=("8",), out=tmp_path / "size")
    assert size.tasks == (2, 3)
    configs = [
        replace(config, protocol="zero-shot", shots=(0,)),
        replace(config, shots=(2,), context_size=8),
    ]
    read = results.load(tmp_path / "size")
    assert read.record == size.record
    for one, two, single in zip(size.results, read.results, configs, strict=True):
        alone = metatrain.evaluate_trained(trained, None, single)
        assert equal(one, alone)
        assert equal(two, alone)
    steps = run.run_study(trained, "steps", config)
    alone = metatrain.evaluate_trained(trained, None, config)
    for position, point in enumerate(steps.study.points):
        assert (steps.returns(point) == alone.returns[:, :, position]).all()


def test_other_data_and_groups_of_tasks(trained, config, cheetah_data, tmp_path):
    copy = shutil.copytree(cheetah_data, tmp_path / "random")
    study = run.run_study(trained, "context-quality", config, points=("end",), more_data=[copy])
    assert study.results[2].provenance.dataset == str(copy)
    end, whole = (run.measure_part(open_dataset(copy), name, (2, 3)) for name in ("end", "all"))
    assert [p.x for p in study.study.points] == [None, end.mean_return, whole.mean_return]
    groups = run.run_study(trained, "distribution", replace(config, shots=(0, 1)))
    assert [(p.series, p.label) for p in groups.study.points if p.x is None] == [
        ("test tasks, before", "1 task"),
        ("test tasks, after 1", "1 task"),
        ("training tasks, before", "1 task"),
        ("training tasks, after 1", "1 task"),
    ]
    last = groups.study.points[-1]
    assert last.tasks == (3,)
    assert (groups.returns(last) == groups.results[0].returns[:, 1:2, 1]).all()


def test_an_interrupted_study_goes_on(trained, config, tmp_path, monkeypatch):
    out, asked = tmp_path / "study", []

    def study(**options):
        sizes = options.pop("points", ("8", "16"))
        return run.run_study(trained, "context-size", config, points=sizes, out=out, **options)

    evaluate = metatrain.evaluate_trained

    def stops(trained, data, config):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(config.context_size)
        return evaluate(trained, data, config)

    monkeypatch.setattr(run, "evaluate_trained", stops)
    with pytest.raises(KeyboardInterrupt):
        study()
    with pytest.raises(UnfinishedError, match="1 of 3 evaluations are still to come"):
        results.load(out)
    kept = [results.file_of(out, number).read_bytes() for number in range(2)]
    asked.clear()
    lines = []
    whole = study(report=lines.append)
    assert asked == [16]
    assert lines == [
        "study context-size, 3 of 3: context 16 transitions drawn i.i.d. without replacement "
        "from all"
    ]
    assert [results.file_of(out, number).read_bytes() for number in range(2)] == kept
    assert all(map(equal, results.load(out).results, whole.results))
    with pytest.raises(InputError, match=r"points: 'none, 8 tr.*16 tr.*32 tr.*--overwrite"):
        study(points=("8", "32"))
    asked.clear()
    monkeypatch.setattr(run, "evaluate_trained", evaluate)
    again = study(points=("8",), overwrite=True)
    assert len(again.results) == len(list(out.glob("*.npz"))) == 2


def test_results_of_other_data_are_not_gone_on_with(trained, config, tmp_path, cheetah_data):
    out = tmp_path / "study"
    run.run_study(trained, "context-size", config, points=("8",), out=out)
    copy = shutil.copytree(cheetah_data, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"command": "another"}))
    with pytest.raises(InputError, match="its contexts are of data with hash"):
        run.run_study(trained, "context-size", config, points=("8",), out=out, data=copy)


def test_results_of_another_run_are_not_gone_on_with(trained, config, tmp_path):
    out = tmp_path / "study"
    run.run_study(trained, "context-size", config, points=("8",), out=out)
    other = replace(trained.record.run, discount=0.5)
    other = replace(trained, record=replace(trained.record, run=other), source="elsewhere")
    with pytest.raises(InputError, match=r"holds another study \(run_hash: .* is not"):
        run.run_study(other, "context-size", config, points=("8",), out=out)
    own = json.loads((out / "study.json").read_text())
    (out / "study.json").write_text(json.dumps(own | {"run_hash": other.record.hash}))
    with pytest.raises(InputError, match=r"00.npz: its run_hash is not that of"):
        run.run_study(other, "context-size", config, points=("8",), out=out)


def test_what_cannot_be_evaluated_leaves_no_folder(trained, config, tmp_path):
    for name in ("steps", "distribution"):
        with pytest.raises(InputError, match="a context of 281 transitions"):
            run.run_study(trained, name, replace(config, context_size=281), out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_folder_of_something_else_is_not_touched(trained, config, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is no study; give another folder with --out"):
        run.run_study(trained, "steps", config, out=tmp_path, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


# --- Reading ---


@pytest.mark.parametrize("name", STUDIES)
def test_saved_and_loaded_is_the_same(name, tmp_path):
    study = make_study(name)
    read = results.load(save(study, tmp_path / "study"))
    assert read.record == study.record
    assert read.to_json() == study.to_json()


def test_statistics_of_a_point_are_literal():
    study = make_study("steps")
    # Seeds and episodes each add 0 or 1; after 3 rounds tasks are -10 - position / 3.
    point = study.study.points[2]
    assert study.returns(point).shape == (2, 3, 2)
    told = study.to_json()["points"][2]
    assert (told["x"], told["tasks"]) == (3.0, list(TASKS))
    assert told["statistics"].keys() == stats.STATISTICS.keys() == NAMES.keys()
    mean = told["statistics"]["mean"]
    assert mean["value"] == pytest.approx(-10 - 1 / 3 + 1)
    # Scores of the six runs: -9.5, -8.5, and 1/3 and 2/3 less.
    median = told["statistics"]["median"]
    assert median["value"] == pytest.approx((-9.5 - 9.1666667) / 2)
    header, rows = results.table(study)
    assert header == ["gradient steps of adaptation", "mean", "median"]
    assert rows[2][0] == "3"
    assert rows[2][1].startswith("-9.3 [")
    assert rows[2][2] == "-9.3 (-9.8, -8.9)"


def test_one_seed_has_no_standard_error():
    error = make_study("steps", seeds=1).to_json()["points"][0]["statistics"]["standard-error"]
    assert error["low"] is None
    json.dumps(error, allow_nan=False)


def test_a_point_is_over_its_tasks():
    study = make_study("distribution")
    by_series = {p.series: study.returns(p) for p in study.study.points if p.x is None}
    assert by_series["test tasks, after 3"].shape == (2, 1, 2)
    # Task 2 is at position 1 of the results.
    assert by_series["test tasks, after 3"].mean() == pytest.approx(-10 - 1 / 3 + 1)
    assert [row[1] for row in results.table(study)[1]] == ["2 tasks"] * 2 + ["1 task"] * 2


def test_what_the_numbers_are_is_told(capsys):
    results.print_study(make_study("context-size", points=("8",)))
    text = capsys.readouterr().out
    for part in (
        "| context size (transitions) |",
        "study context-size of runs/macaw",
        "spec abababababab; tasks 7, 2, 15",
        "protocol given; contexts drawn without replacement from all, 3 rounds of adaptation; ",
        "data/cheetah-vel (cdcdcdcdcdcd), context seed 0",
        "Macaw after 1,000 updates, seeds 0, 1; 2 episodes per seed and task",
        "median: median and quartiles over 6 runs, each one seed on one task",
        "for comparison, mean over the tasks: behaviour -60.0, random -300.0, zero -200.0\n",
    ):
        assert part in text


def edit(path, change):
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "study.json").unlink(), "no study"),
        (lambda f: (f / "study.json").write_text("{"), "not JSON"),
        (lambda f: (f / "study.json").write_text("[]"), "format None, this version reads"),
        (lambda f: edit(f / "study.json", lambda s: s.update(format="x")), "format 'x'"),
        (lambda f: edit(f / "study.json", lambda s: s.pop("seeds")), "seeds: missing"),
        (lambda f: edit(f / "study.json", lambda s: s["study"].update(points=[])), "no point"),
        (
            lambda f: edit(f / "study.json", lambda s: s["study"].update(trained_range=[1.0])),
            "is no range",
        ),
        (
            lambda f: edit(f / "study.json", lambda s: s["study"]["points"][1].update(rounds=2)),
            r"points\[1\].rounds: 2 is none of",
        ),
        (
            lambda f: edit(
                f / "study.json", lambda s: s["study"]["points"][0].update(evaluation=-1)
            ),
            r"points\[0\].evaluation: -1 is not there",
        ),
        (
            lambda f: edit(f / "study.json", lambda s: s["study"]["points"][0].update(tasks=[1])),
            "has no task 1",
        ),
        (lambda f: edit(f / "study.json", lambda s: s.update(step=5)), "00.npz: its step is not"),
        (lambda f: edit(f / "study.json", lambda s: s.update(seeds=[5])), "its seeds is not"),
        (lambda f: (f / "00.npz").write_bytes(b"PK"), "00.npz: damaged"),
        (lambda f: shutil.copy(f / "00.npz", f / "01.npz"), "01.npz: its config is not that of"),
        (lambda f: (f / "01.npz").unlink(), "1 of 2 evaluations are still to come"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_damage_is_one_clear_line(tmp_path, damage, message):
    folder = save(make_study("context-size", points=("8",)), tmp_path / "study")
    damage(folder)
    with pytest.raises(InputError, match=message) as caught:
        results.load(folder)
    assert "\n" not in str(caught.value)


# --- Figures ---


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("seeds", [1, 3])
def test_figures_of_one_run(name, seeds):
    study = make_study(name, seeds=seeds)
    for statistic in ("mean", "standard-error", "median"):
        drawn = study_figure({"a $run$": study}, statistic)
        assert drawn.startswith(b"<?xml")
        assert drawn == study_figure({"a $run$": study}, statistic)
    assert study_figure({"run": study}, "mean", png=True).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("statistic", "seeds", "episodes", "told"),
    [
        ("mean", 3, 2, "mean, 95 % bootstrap interval<"),
        ("mean", 1, 2, "interval (where there is one seed over episodes, not over training runs)<"),
        ("iqm", 1, 1, "interval (no interval where there is one run of each)<"),
        ("median", 1, 2, "median and quartiles over seeds and tasks<"),
    ],
)
def test_a_picture_says_what_its_ranges_are(statistic, seeds, episodes, told):
    study = make_study("steps", seeds=seeds, episodes=episodes)
    drawn = study_figure({"run": study}, statistic).decode()
    assert told in drawn
    assert "cheetah-vel/macaw-v1 (spec " in drawn
    assert "protocol given" in drawn
    assert ("behaviour (mean)<" in drawn) == (statistic != "mean")


@pytest.mark.parametrize("name", STUDIES)
def test_figures_of_several_runs(name):
    runs = {f"run {number}": make_study(name, seeds=1 + number % 2) for number in range(9)}
    assert b"<svg" in study_figure(runs, "iqm")


def test_a_group_without_a_place_is_drawn_beside_nothing():
    facts = replace(FACTS, task_names=("x", "y"), task_parameters=((0.0, 1.0),) * 40)
    assert b"<svg" in study_figure({"run": make_study("distribution", facts=facts)}, "mean")


def test_without_gradient_steps_the_line_is_horizontal():
    flat = make_study("steps", facts=replace(FACTS, gradient_steps=0))
    assert b"<svg" in study_figure({"pearl": flat, "macaw": make_study("steps")}, "median")


# --- Several runs ---


def test_only_what_is_alike_is_compared():
    one = make_study("steps", context_size=8)
    results.check_comparable([one, make_study("steps", context_size=256, run="other")])
    with pytest.raises(InputError, match="other: its study is distribution, that of runs/macaw st"):
        results.check_comparable([one, make_study("distribution", run="other")])


def test_another_environment_or_other_tasks_are_refused():
    one, other = make_study("steps"), make_study("steps", run="other")
    source = replace(other.results[0].provenance, spec_hash="99" * 32, env_id="ant/x-v1")
    foreign = replace(other, results=(replace(other.results[0], provenance=source),))
    with pytest.raises(InputError, match=r"other: its environment is ant/x-v1 \(999999999999\)"):
        results.check_comparable([one, foreign])
    indices = replace(other.results[0], task_indices=np.array([1, 2, 3]))
    with pytest.raises(
        InputError, match="other: its tasks is 1, 2, 3, that of runs/macaw 7, 2, 15"
    ):
        results.check_comparable([one, replace(other, results=(indices,))])


def test_settings_that_differ_are_marked():
    steps = [make_study("steps", context_size=size) for size in (8, 256)]
    assert results.differing(steps) == ["context 8 transitions", "context 256 transitions"]
    assert results.differing([steps[0], steps[0]]) == ["", ""]
    sizes = [make_study("context-size", shots=(0, n), context_size=8 * n) for n in (1, 20)]
    assert results.differing(sizes) == ["rounds 1", "rounds 20"]
    parts = [make_study("context-quality", context_slice=name) for name in ("all", "end")]
    assert results.differing(parts) == ["", ""]
