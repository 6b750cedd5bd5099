"""`omrl reproduce` from data to page, at the smallest sizes; stopped and killed on the way."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tiny_study
from omrl import metatrain
from omrl.cli import collect, main
from omrl.cli import reproduce as command
from omrl.data.collect.presets import named_config
from omrl.errors import InputError, Stopped
from omrl.experiments import holding, registry, stages
from omrl.experiments.declare import plan
from omrl.experiments.folder import LIST
from omrl.experiments.holding import LOCKS
from omrl.logs import read_log
from omrl.results import EvalResult
from tiny_study import STUDY


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setattr(registry, "EXPERIMENTS", {STUDY.id: STUDY})


def reproduce(capsys, data: Path, out: Path, *options: object) -> str:
    """Standard output of the command, which has to succeed."""
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", out, "--data", data]
    code = main([str(part) for part in [*arguments, "--device", "cpu", *options]])
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


def forbid_training(monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr(metatrain, "start", refuse)
    monkeypatch.setattr(metatrain, "go_on", refuse)


@pytest.fixture(scope="module")
def done(tmp_path_factory, cheetah_data) -> Path:
    """The folder of the whole study; not to be changed."""
    out = tmp_path_factory.mktemp("study") / "done"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "EXPERIMENTS", {STUDY.id: STUDY})
        arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(out)]
        arguments += ["--data", str(cheetah_data), "--device", "cpu", "--quiet", "--json"]
        assert main(arguments) == 0
    return out


def returns(out: Path) -> dict[str, np.ndarray]:
    return {path.stem: EvalResult.load(path).returns for path in (out / "results").iterdir()}


def test_a_study_from_data_to_page(done, cheetah_run):
    found = json.loads((done / "results.json").read_text())
    labels = [row["label"] for row in found["rows"]]
    assert labels == ["MACAW", "MACAW, one trajectory", "BC"]
    first, second, third = found["rows"]
    # One training, two evaluations.
    assert first["run"] == second["run"]
    assert len(list((done / "runs").iterdir())) == 2
    assert second["evaluation"]["context_unit"] == "trajectories"
    assert (third["updates"], third["seeds"]) == (3, [0, 1])
    # Cloning does not adapt.
    assert third["improvement"]["low"] == third["improvement"]["high"] == 0.0
    assert third["probability"] is not None
    files = {str(path.relative_to(done)) for path in done.iterdir()} - {LOCKS, LIST}
    assert files == {"runs", "results", "table.md", "results.json", "figure.png", "page.html"}
    assert returns(done).keys() == {"macaw", "macaw-one-trajectory", "bc"}
    # The same run by hand.
    by_hand = EvalResult.load(cheetah_run / "eval" / "step-00000003.npz")
    np.testing.assert_array_equal(returns(done)["macaw"], by_hand.returns)


def test_what_is_done_is_not_done_again(capsys, monkeypatch, done, cheetah_data, tmp_path):
    forbid_training(monkeypatch)
    printed = reproduce(capsys, cheetah_data, tmp_path / "again", "--cache", done)
    assert printed.startswith("| ")
    header, _, *rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert "improvement" in header
    assert len(rows) == 3
    assert "paper: Nothing. (no paper)" in printed
    assert "page.html" in printed
    assert {path.name for path in (tmp_path / "again").iterdir()}.isdisjoint({"runs", LOCKS})
    for label, values in returns(tmp_path / "again").items():
        np.testing.assert_array_equal(values, returns(done)[label])


def test_what_another_command_is_making_is_waited_for_and_then_found(
    capsys, monkeypatch, done, cheetah_data, tmp_path
):
    """Runs and evaluations come to be while their locks are waited for; none is made twice."""
    forbid_training(monkeypatch)
    monkeypatch.setattr(metatrain, "evaluate_trained", metatrain.start)
    cache, waited = tmp_path / "cache", []

    @contextmanager
    def wait(path, say):
        assert path.parent == cache / LOCKS
        waited.append(path.name)
        for run in (done / "runs").iterdir():
            if path.name == run.name:
                without = shutil.ignore_patterns("*.npz")
                shutil.copytree(run, cache / "runs" / run.name, ignore=without)
            elif path.name.startswith(run.name):
                shutil.copytree(
                    run / "eval", cache / "runs" / run.name / "eval", dirs_exist_ok=True
                )
        yield

    monkeypatch.setattr(stages, "holding", wait)
    out = tmp_path / "out"
    reproduce(capsys, cheetah_data, out, "--cache", cache)
    for label, values in returns(out).items():
        np.testing.assert_array_equal(values, returns(done)[label])
    macaw, bc = (path.name for path in sorted((done / "runs").iterdir(), reverse=True))
    assert waited == [macaw, f"{macaw}-step-00000003", bc, f"{bc}-step-00000003"]


def test_damage_in_the_cache_is_told_with_what_to_do(
    capsys, monkeypatch, done, cheetah_data, tmp_path
):
    forbid_training(monkeypatch)
    cache = shutil.copytree(done, tmp_path / "cache")
    (run,) = cache.glob("runs/bc-*")
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(cache), "--only", "BC"]
    arguments += ["--data", str(cheetah_data), "--device", "cpu"]

    def refused() -> str:
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    file = run / "eval" / "step-00000003.npz"
    file.write_bytes(file.read_bytes()[:100])
    line = refused()
    assert str(file) in line
    assert line.endswith("; delete it and repeat the command")
    file.unlink()  # as it says
    reproduce(capsys, cheetah_data, cache, "--only", "BC")
    np.testing.assert_array_equal(returns(cache)["bc"], returns(done)["bc"])
    (run / "config.json").unlink()
    assert f"{run}: has no config.json" in refused()


def test_a_changed_setting_is_another_run(capsys, monkeypatch, done, cheetah_data, tmp_path):
    started = []

    def start(config, data, folder, **_):
        started.append((config.train.seeds, folder))
        raise InputError("as expected")

    monkeypatch.setattr(metatrain, "start", start)
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(tmp_path / "out")]
    arguments += ["--data", str(cheetah_data), "--cache", str(done), "--seeds", "3"]
    assert main([*arguments, "--only", "BC", "--device", "cpu"]) == 2
    ((seeds, folder),) = started
    assert seeds == 3
    assert folder.parent == done / "runs"
    assert folder.name.startswith("bc-cheetah-vel-")
    assert not folder.exists()


def test_other_data_is_another_run(done, cheetah_data):
    (planned,) = plan(STUDY, "smoke", only=["BC"])
    problem = metatrain.open_problem(planned.config, cheetah_data)
    name = stages.address(planned, problem)
    assert (done / "runs" / name).is_dir()
    other = metatrain.open_problem(planned.config, "bundled:cheetah-vel")
    assert stages.address(planned, other) != name


def test_an_evaluation_that_was_lost_is_made_again(
    capsys, monkeypatch, done, cheetah_data, tmp_path
):
    forbid_training(monkeypatch)
    cache = shutil.copytree(done, tmp_path / "cache")
    (run,) = cache.glob("runs/bc-*")
    (run / "eval" / "step-00000003.npz").unlink()
    reproduce(capsys, cheetah_data, cache, "--only", "BC")
    np.testing.assert_array_equal(returns(cache)["bc"], returns(done)["bc"])


def test_an_evaluation_of_another_run_is_not_believed(
    capsys, monkeypatch, done, cheetah_data, tmp_path
):
    forbid_training(monkeypatch)
    cache = shutil.copytree(done, tmp_path / "cache")
    (other,), (run,) = cache.glob("runs/macaw-*"), cache.glob("runs/bc-*")
    file = run / "eval" / "step-00000003.npz"
    shutil.copy(other / "eval" / file.name, file)
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(cache), "--only", "BC"]
    assert main([*arguments, "--data", str(cheetah_data), "--device", "cpu"]) == 2
    assert "step-00000003.npz: is no evaluation of this run" in capsys.readouterr().err
    file.unlink()  # as it says
    reproduce(capsys, cheetah_data, cache, "--only", "BC")
    np.testing.assert_array_equal(returns(cache)["bc"], returns(done)["bc"])
    assert list(returns(cache)) == ["bc"]  # and nothing of rows that the table lacks


def test_results_of_something_else_are_not_replaced(
    capsys, monkeypatch, done, cheetah_data, tmp_path
):
    forbid_training(monkeypatch)
    out = shutil.copytree(done, tmp_path / "out")
    found = json.loads((out / "results.json").read_text())
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(out), "--device", "cpu"]
    arguments += ["--data", str(cheetah_data)]

    def refused() -> str:
        assert main(arguments) == 2
        return capsys.readouterr().err

    (out / "results.json").write_text(json.dumps(found | {"experiment": "another"}))
    assert "out: has results of another, scale smoke, 2 seeds; give another" in refused()
    (out / "results.json").write_text("[]")
    assert "results.json: not the results of an experiment; remove it" in refused()
    (out / "results.json").unlink()
    (out / "table.md").unlink()
    (out / "table.md").mkdir()
    assert "table.md: is a folder, where a file is to be" in refused()
    (out / "table.md").rmdir()
    (run,) = out.glob("runs/bc-*")
    (run / "versions.json").unlink()  # which may be, as its own error says
    reproduce(capsys, cheetah_data, out)


def test_files_of_others_are_neither_removed_nor_replaced(
    capsys, monkeypatch, done, cheetah_data, tmp_path
):
    forbid_training(monkeypatch)
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--data", str(cheetah_data)]
    arguments += ["--cache", str(done), "--device", "cpu", "--out"]
    for name in ("table.md", "figure.png", "results/mine.npz", "diagnoses/my.png"):
        out = tmp_path / name.replace("/", "-")
        file = out / name
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        assert main([*arguments, str(out)]) == 2
        assert f"{file}: is not of omrl reproduce" in capsys.readouterr().err
        assert file.read_text() == "mine"
    out = tmp_path / "ours"
    reproduce(capsys, cheetah_data, out, "--cache", done)
    (out / "results" / "mine.npz").write_text("mine")
    reproduce(capsys, cheetah_data, out, "--cache", done, "--only", "BC")
    assert {path.name for path in (out / "results").iterdir()} == {"bc.npz", "mine.npz"}


def test_results_of_other_data_are_not_replaced(capsys, monkeypatch, done, cheetah_data, tmp_path):
    forbid_training(monkeypatch)
    out = tmp_path / "out"
    reproduce(capsys, cheetah_data, out, "--cache", done)
    found = json.loads((out / "results.json").read_text())
    found["rows"][2]["data_hash"] = "0" * 64
    (out / "results.json").write_text(json.dumps(found))
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--data", str(cheetah_data)]
    assert main([*arguments, "--cache", str(done), "--out", str(out), "--device", "cpu"]) == 2
    assert "its row 'BC' is of other data (000000000000, now " in capsys.readouterr().err


def test_what_is_not_of_the_run_is_not_believed(capsys, done, cheetah_data, tmp_path):
    """A config that another run began with, an evaluation on the way; a log may be gone."""
    cache = shutil.copytree(done, tmp_path / "cache")
    (other,), (run,) = cache.glob("runs/macaw-*"), cache.glob("runs/bc-*")
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(cache), "--only", "BC"]
    arguments += ["--data", str(cheetah_data), "--device", "cpu"]
    (run / "log.jsonl").unlink()
    reproduce(capsys, cheetah_data, cache, "--only", "BC")
    (row,) = json.loads((cache / "results.json").read_text())["rows"]
    assert row["seconds"] is row["updates_per_s"] is None
    strange = run / "eval" / "step-00000001.npz"
    shutil.copy(other / "eval" / "step-00000003.npz", strange)
    assert main(arguments) == 2
    assert f"{strange}: is no evaluation of this run" in capsys.readouterr().err
    strange.unlink()
    config = json.loads((run / "config.json").read_text())
    config["run"]["train"]["log_every"] += 1
    (run / "config.json").write_text(json.dumps(config))
    (run / "eval" / "step-00000003.npz").unlink()
    assert main(arguments) == 2
    assert "config.json: is of another run than the folder's name says (train.log_every" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "step"), [("macaw-cheetah-vel", 0), ("bc-cheetah-vel", 2)])
def test_a_killed_study_goes_on_where_it_was(
    capsys, monkeypatch, done, cheetah_data, tmp_path, preset, step
):
    """The same returns as never killed; the run that was done is left alone."""
    program = Path(tiny_study.__file__)
    out = tmp_path / "killed"
    arguments = [sys.executable, str(program), str(cheetah_data), str(out), preset, str(step)]
    killed = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (run,) = out.glob(f"runs/{preset}-*")
    assert stages._updates_made(run) == step
    assert not (out / "results.json").exists()
    reproduce(capsys, cheetah_data, out)
    # One line for every time that it was trained.
    sessions = {p.name: (p / "command.txt").read_text().count("\n") for p in out.glob("runs/*")}
    assert sessions == {path.name: 2 if path == run else 1 for path in out.glob("runs/*")}
    assert [row["step"] for row in read_log(run) if "evaluation" in row] == [3]
    for label, values in returns(out).items():
        np.testing.assert_array_equal(values, returns(done)[label])


def test_a_folder_that_a_kill_left_empty_is_no_obstacle(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.json.1234.tmp").write_text("{")
    stages._clear_stillborn(folder)
    assert not folder.exists()
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    stages._clear_stillborn(folder)
    assert folder.exists()


def test_who_stops_it_is_told_how_it_goes_on(capsys, monkeypatch, cheetah_data, tmp_path):
    def stop(*_, **__):
        raise Stopped(
            143, "stopped by SIGTERM after 2 updates, which are saved; go on with --resume"
        )

    monkeypatch.setattr(metatrain, "start", stop)
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--data", str(cheetah_data), "--device", "cpu", "--quiet"]) == 143
    error = capsys.readouterr().err
    assert "after 2 updates, which are saved; repeat the command to go on" in error


def test_data_that_does_not_fit_is_told_before_anything_is_trained(
    capsys, monkeypatch, cheetah_data, tmp_path
):
    forbid_training(monkeypatch)
    arguments = ["reproduce", STUDY.id, "--scale", "smoke", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--data", str(tmp_path), "--device", "cpu", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("omrl: error: ")


# --- Data that is collected first ---


def test_data_of_a_scale_is_collected_once(monkeypatch, tmp_path):
    collected = []

    def run(config, folder, *, command, resume, device, quiet):
        collected.append((config, command, resume, device))
        folder.mkdir(parents=True)

    monkeypatch.setattr(collect, "run", run)
    setting = replace(STUDY.scales["gpu"], data="cheetah-vel-random")
    study = replace(STUDY, scales={"gpu": setting})
    options = command.ReproduceOptions("gpu", tmp_path / "out", cache=tmp_path / "cache")
    said: list[str] = []
    folder = Path(command._data(study, options, said.append))
    assert folder.parent == tmp_path / "cache" / "data"
    assert folder.name.startswith("cheetah-vel-random-")
    assert said == [f"collecting {folder}"]
    assert command._data(study, options, said.append) == str(folder)
    config = named_config("cheetah-vel-random")
    assert collected == [(config, collect.canonical_command(config), False, "auto")]
    folder.rename(folder.with_name(folder.name + ".partial"))
    command._data(study, options, said.append)
    assert collected[1][2] is True
    assert said[-1] == f"going on with {folder}"


def test_a_folder_that_cannot_take_the_results_is_told_before_anything_is_collected(
    capsys, monkeypatch, done, tmp_path
):
    def run(*_, **__):
        raise AssertionError("nothing is to be collected")

    monkeypatch.setattr(collect, "run", run)
    setting = replace(STUDY.scales["gpu"], data="cheetah-vel-random")
    study = replace(STUDY, id="another", scales={"gpu": setting})
    monkeypatch.setattr(registry, "EXPERIMENTS", {"another": study})
    arguments = ["reproduce", "another", "--scale", "gpu", "--cache", str(tmp_path)]
    assert main([*arguments, "--out", str(done), "--device", "cpu"]) == 2
    assert "has results of tiny-study" in capsys.readouterr().err


def test_data_that_another_command_collects_is_waited_for(monkeypatch, tmp_path):
    def run(*_, **__):
        raise AssertionError("it is there by now")

    @contextmanager
    def wait(path, say):
        (tmp_path / "cache" / "data" / path.name).mkdir(parents=True)
        yield

    monkeypatch.setattr(collect, "run", run)
    monkeypatch.setattr(holding, "holding", wait)
    setting = replace(STUDY.scales["gpu"], data="cheetah-vel-random")
    study = replace(STUDY, scales={"gpu": setting})
    options = command.ReproduceOptions("gpu", tmp_path / "out", cache=tmp_path / "cache")
    assert Path(command._data(study, options, print)).is_dir()
