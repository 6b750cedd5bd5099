"""The chain of SMAC's experiments from nothing to the page, stopped on the way."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from omrl import metatrain
from omrl.cli import main
from omrl.data.store import open_dataset
from omrl.diagnostics.kinds import KINDS
from omrl.diagnostics.results import ShiftResult
from omrl.errors import InputError, Stopped
from omrl.experiments import registry, stages
from omrl.experiments.declare import collecting, plan
from omrl.experiments.folder import check_out
from omrl.results import EvalResult
from tiny_smac_study import STUDY, TASKS, TEST_TASKS

pytestmark = pytest.mark.slow

SMAC_UPDATES = (3, 7)
"""At the ends of both phases."""


@pytest.fixture(autouse=True, scope="module")
def _known():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "EXPERIMENTS", {STUDY.id: STUDY})
        yield


def reproduce(out: Path, *options: object) -> int:
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", out, "--device", "cpu"]
    return main([str(part) for part in [*arguments, "--quiet", *options]])


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """The folder of the whole chain, made by two commands: the first one is stopped when the data
    is there. Not to be changed."""
    out = tmp_path_factory.mktemp("chain") / "done"
    start, started = metatrain.start, []

    def stopped_before_smac(config, data, folder, **how):
        started.append(folder.name)
        if data is not None:
            raise Stopped(143, "stopped by SIGTERM after 0 updates, which are saved; go on")
        return start(config, data, folder, **how)

    def counted(config, data, folder, **how):
        started.append(folder.name)
        return start(config, data, folder, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metatrain, "start", stopped_before_smac)
        assert reproduce(out) == 143
        assert not (out / "results.json").exists()
        assert [name.split("-")[:2] for name in started] == [["smac", "data"], ["smac", "cheetah"]]
        started.clear()
        patch.setattr(metatrain, "start", counted)
        assert reproduce(out) == 0
    assert [name.split("-")[:2] for name in started] == [["smac", "cheetah"]] * 2
    return out


def forbid_training(monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr(metatrain, "start", refuse)
    monkeypatch.setattr(metatrain, "go_on", refuse)


def test_stages_of_one_training_are_two_rows(done):
    found = json.loads((done / "results.json").read_text())
    offline, online, relabelled, pearl = found["rows"]
    assert offline["run"] == online["run"] != relabelled["run"]
    assert (offline["updates"], online["updates"]) == SMAC_UPDATES
    assert offline["tasks"] == online["tasks"] == pearl["tasks"] == TEST_TASKS
    assert len(list((done / "runs").iterdir())) == 3
    # The run that collects has a seed of its own.
    assert [len(row["seeds"]) for row in found["rows"]] == [2, 2, 2, 1]
    assert [row["collects"] for row in found["rows"]] == [False, False, False, True]
    by_hand = metatrain.evaluate_trained(metatrain.load_trained(offline["run"], step=3))
    stored = EvalResult.load(done / "results" / "smac-offline.npz")
    np.testing.assert_array_equal(stored.returns, by_hand.returns)
    assert not np.array_equal(
        stored.returns, EvalResult.load(done / "results" / "smac-online.npz").returns
    )


def test_data_is_of_both_buffers_of_the_run_that_collects(done):
    name = stages.address(collecting(STUDY, "smoke"), metatrain.open_problem(
        collecting(STUDY, "smoke").config
    ))  # fmt: skip
    main_data, encoder = (open_dataset(done / "data" / f"{name}{end}") for end in ("", "-encoder"))
    assert main_data.task_indices == tuple(TASKS)
    assert (done / "runs" / name).is_dir()
    by_label = {planned.arm.label: planned for planned in plan(STUDY, "smoke")}
    (relabelled,) = (done / "data").glob(f"{name}-relabelled-*")
    shop = stages.Sources(str(main_data.path), str(encoder.path), str(relabelled))
    assert shop.of(by_label["SMAC, online"]) == (str(main_data.path), str(encoder.path))
    assert shop.of(by_label["SMAC, relabelled, online"]) == (str(relabelled), "")
    assert shop.of(by_label["PEARL, online"]) == ("", "")
    taken = open_dataset(relabelled).manifest.record(0).behaviour["relabelled"]["episodes_from"]
    assert {"1", "2"} & set(taken)
    for row in json.loads((done / "results.json").read_text())["rows"][:2]:
        record = metatrain.record_of(row["run"])
        assert (record.data, record.encoder_data) == (str(main_data.path), str(encoder.path))


def test_the_shift_is_told_at_every_kept_checkpoint(done):
    rows = json.loads((done / "results.json").read_text())["rows"]
    assert [len(row["shift"]) for row in rows] == [0, 2, 2, 0]
    steps = [result["provenance"]["step"] for result in rows[1]["shift"]]
    assert tuple(steps) == SMAC_UPDATES
    assert rows[1]["shift"][0]["tasks"] == {"train": TASKS[:2]}
    for text in ((done / "page.html").read_text(), (done / "table.md").read_text()):
        assert text.count("SMAC: shift between offline and online contexts") == 1
        assert "KL to prior (nats)" in text


def test_traces_and_rewards_are_told_at_the_ends_of_stages(done):
    """Test tasks have no data here: of them explored transitions alone, by what was explored."""
    rows = json.loads((done / "results.json").read_text())["rows"]
    for name in ("traces", "rewards"):
        assert [len(row[name]) for row in rows] == [0, 2, 2, 0]
        steps = [result["provenance"]["step"] for result in rows[1][name]]
        assert tuple(steps) == SMAC_UPDATES
        folder = done / "diagnoses"
        for step in steps:
            path = folder / f"smac-online-{name}-{step:08d}.npz"
            assert KINDS[name].result.load(path).provenance.step == step
        assert (folder / f"smac-online-{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not list((done / "diagnoses").glob("*-all*"))
    groups = rows[1]["rewards"][1]["groups"]
    assert groups["test"]["held-out"] == {"offline": None, "online": None, "constant": None}
    assert groups["test"]["explored"]["offline"] is None
    assert groups["test"]["explored"]["online"]["value"] > 0
    for name in ("trained-on", "held-out", "explored"):
        assert groups["train"][name]["offline"]["value"] > 0
    logged = [result["groups"]["train"]["trained-on"] for result in rows[1]["rewards"]]
    assert logged[0] == logged[1]  # The online phase trains neither encoder nor decoder.
    page = (done / "page.html").read_text()
    assert "SMAC: trajectories after offline and online contexts" in page
    assert "SMAC: errors of predicted rewards" in page


def test_a_diagnosis_of_another_run_is_not_believed(capsys, monkeypatch, done, tmp_path):
    forbid_training(monkeypatch)
    cache = shutil.copytree(done, tmp_path / "cache")
    for path in cache.glob("runs/smac-cheetah-*/eval/diagnose-shift/*.npz"):
        result = ShiftResult.load(path)
        replace(result, provenance=replace(result.provenance, run_hash="another")).save(path)
    assert reproduce(tmp_path / "out", "--cache", cache, "--only", "SMAC") == 2
    assert ".npz: is no diagnosis of this run after 3 updates; delete it" in capsys.readouterr().err


def test_what_has_to_be_said_is(done):
    notes = json.loads((done / "results.json").read_text())["notes"]
    assert notes[1] == "the mechanism, not the result"
    (better,) = [line for line in notes if line.startswith("SMAC of two kinds, the better one")]
    assert ": SMAC" in better


def test_pieces_that_are_lost_are_made_again(monkeypatch, done, tmp_path):
    """Without any training: they are of runs that are done."""
    cache = shutil.copytree(done, tmp_path / "cache")
    forbid_training(monkeypatch)
    for lost in ("data/*-encoder", "data/*-relabelled-*", "runs/smac-cheetah-*/eval"):
        for folder in cache.glob(lost):
            shutil.rmtree(folder)
    monkeypatch.chdir(tmp_path)
    assert reproduce(tmp_path / "again", "--cache", cache) == 0
    for path in (done / "results").iterdir():
        again = EvalResult.load(tmp_path / "again" / "results" / path.name)
        np.testing.assert_array_equal(EvalResult.load(path).returns, again.returns)


def test_data_of_ones_own_has_its_encoder_buffer_beside_it(capsys, monkeypatch, done, tmp_path):
    forbid_training(monkeypatch)
    (data,) = (done / "data").glob("*-encoder")
    main_data = str(data).removesuffix("-encoder")
    only = ("--cache", done, "--only", "SMAC")
    assert reproduce(tmp_path / "out", "--data", main_data, *only) == 0
    alone = shutil.copytree(main_data, tmp_path / "alone")
    assert reproduce(tmp_path / "other", "--data", alone, *only) == 2
    assert "alone-encoder: is not there" in capsys.readouterr().err


def test_the_run_that_collects_is_no_reason_to_refuse_a_folder(done):
    """It has one seed, beside others that have two."""
    for seeds in (2, None):
        check_out(done, STUDY.id, "smoke", seeds=seeds)
    with pytest.raises(InputError, match="has results of tiny-smac, scale smoke, 2 seeds"):
        check_out(done, STUDY.id, "smoke", seeds=3)
