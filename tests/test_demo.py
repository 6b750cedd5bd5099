"""The demo with tiny stand-ins for what is bundled; and the real settings fit the real data."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

import tiny_cheetah
from omrl import bundled, demo, metatrain
from omrl.cli import main
from omrl.errors import InputError
from omrl.presets import PRESETS
from omrl.results import EvalResult

REAL = [bundled.FOLDER / name for name in ("cheetah-vel", "macaw-cheetah-vel")]
CONFIG = dataclasses.replace(
    tiny_cheetah.config(steps=4), train=dataclasses.replace(demo.DEMO_CONFIG.train, seeds=1)
)


@pytest.fixture(scope="module")
def result(stand_in_files, tmp_path_factory):
    """Of one demo, whose folder is not to be changed."""
    folder, shown = tmp_path_factory.mktemp("made") / "demo", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "FOLDER", stand_in_files)
        result = demo.run_demo(folder, CONFIG, say=lambda text: None, show=shown.append, quiet=True)
    assert shown == [result.bundled, result.from_scratch]
    return result


def test_both_are_measured_on_the_same_unseen_tasks(result):
    for evaluation, steps in ((result.bundled, 3), (result.from_scratch, 4)):
        assert evaluation.task_indices.tolist() == [2, 7, 15, 23, 26]
        assert evaluation.provenance.step == steps
        assert evaluation.provenance.dataset == "bundled:cheetah-vel"
        assert evaluation.config == CONFIG.eval
    np.testing.assert_array_equal(result.bundled.random, result.from_scratch.random)
    assert not np.array_equal(result.bundled.returns, result.from_scratch.returns)


def test_the_folder_is_a_run_and_has_the_report(result):
    folder = result.report.parent
    assert result.report == folder / "report.html"
    text = result.report.read_text()
    assert "bundled: given, test tasks" in text
    assert "this run: given, test tasks" in text
    saved = EvalResult.load(folder / "eval" / "bundled" / "step-00000003.npz")
    np.testing.assert_array_equal(saved.returns, result.bundled.returns)
    assert metatrain.load_trained(folder).record.run == CONFIG
    assert metatrain.load_trained(folder).record.data == "bundled:cheetah-vel"


@pytest.mark.usefixtures("stand_ins")
def test_an_earlier_demo_is_replaced_and_nothing_else(result, tmp_path):
    folder = shutil.copytree(result.report.parent, tmp_path / "demo")
    (folder / "note.txt").write_text("of the earlier one")
    demo.run_demo(folder, CONFIG, say=lambda text: None, quiet=True)
    assert not (folder / "note.txt").exists()
    (folder / "command.txt").write_text("omrl train macaw-cheetah-vel\n")
    with pytest.raises(InputError, match="is not of an earlier demo"):
        demo.run_demo(folder, CONFIG)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not of an earlier demo"):
        demo.run_demo(tmp_path / "file", CONFIG)


def test_without_bundled_files_nothing_is_touched(result, tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "nothing")
    with pytest.raises(InputError, match="came without any"):
        demo.run_demo(result.report.parent, CONFIG, say=lambda text: None)
    assert result.report.exists()


@pytest.mark.slow
def test_the_command(stand_ins, tmp_path, monkeypatch, capsys):
    longer = dataclasses.replace(CONFIG, algo=dataclasses.replace(CONFIG.algo, steps=5))
    monkeypatch.setattr(demo, "DEMO_CONFIG", longer)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--episodes", "2", "--steps", "4", "--device", "cpu"]) == 0
    output = capsys.readouterr()
    assert "35 half-cheetah tasks" in output.err
    assert "4 steps" in output.err
    assert output.out.count("| mean |") == 2
    assert output.out.endswith("report: runs/demo/report.html\n")
    assert main(["demo", "--json", "--steps", "4", "--episodes", "1"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    printed = json.loads(output.out)
    assert printed["from_scratch"]["provenance"]["step"] == 4
    assert [task["index"] for task in printed["bundled"]["tasks"]] == [2, 7, 15, 23, 26]
    assert printed["seconds"].keys() == {"bundled", "from_scratch"}


def test_the_settings_are_the_preset_made_short():
    preset = PRESETS["macaw-cheetah-vel"].config
    assert demo.DEMO_CONFIG.eval == preset.eval
    assert demo.DEMO_CONFIG.env == preset.env
    assert demo.DEMO_CONFIG.train.seeds == 1
    assert f"{demo.DEMO_CONFIG.algo.steps:,} steps" in demo.introduction(demo.DEMO_CONFIG)


@pytest.mark.slow
def test_the_real_files_serve_the_real_settings(tmp_path):
    config = dataclasses.replace(
        demo.DEMO_CONFIG,
        algo=dataclasses.replace(demo.DEMO_CONFIG.algo, steps=2),
        eval=dataclasses.replace(demo.DEMO_CONFIG.eval, episodes=1),
    )
    result = demo.run_demo(tmp_path / "demo", config, quiet=True)
    before, after = (result.bundled.shot(rounds).mean() for rounds in (0, 1))
    assert after > -50
    assert before < -150
    size = sum(path.stat().st_size for path in REAL[0].rglob("*") if path.is_file())
    assert size <= 14 * 2**20
