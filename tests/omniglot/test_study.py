"""`omrl reproduce macaw-fig6-omniglot` from archives to page, at the smallest sizes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tiny_omniglot
from omrl.cli import main
from omrl.errors import InputError, NonFiniteError, Stopped
from omrl.experiments.folder import LIST
from omrl.omniglot import study, training
from omrl.omniglot.learner import Data
from omrl.omniglot.settings import ID, Choices, Start, Training
from omrl.omniglot.study import planned, steps_to
from omrl.omniglot.training import Result, train
from tiny_omniglot import LEARNER, SCALE, write_data

pytestmark = pytest.mark.usefixtures("own_programs")
LABELS = [network.label for network in SCALE.networks]
FILES = {"runs", "results", "table.md", "results.json", "figure.png", "figure.svg", "page.html"}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setattr(study, "SCALES", {"smoke": SCALE})


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return write_data(tmp_path_factory.mktemp("omniglot") / "data")


@pytest.fixture(scope="module")
def done(tmp_path_factory, images) -> Path:
    """The folder of the whole study; not to be changed."""
    out = tmp_path_factory.mktemp("study") / "done"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "SCALES", {"smoke": SCALE})
        assert main(arguments(images, out)) == 0
    return out


def arguments(images: Path, out: Path, *options: object) -> list[str]:
    wanted = ["--data", images, "--out", out, "--device", "cpu", "--quiet", *options]
    return ["reproduce", ID, "--scale", "smoke", *map(str, wanted)]


def accuracies(out: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path)["accuracy"] for path in (out / "results").iterdir()}


def forbid_training(monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr(training, "_Trainer", refuse)


def test_a_study_from_archives_to_page(done):
    assert {path.name for path in done.iterdir()} - {LIST} == FILES
    found = json.loads((done / "results.json").read_text())
    assert [row["label"] for row in found["rows"]] == LABELS
    for row in found["rows"]:
        best = max(row["search"], key=lambda tried: tried["validation"])
        assert (row["inner_lr"], row["outer_lr"]) == (best["inner_lr"], best["outer_lr"])
        assert row["seeds"] == [0, 1]
        assert row["curve"]["meta_steps"] == [0, 8, 9]
        test = np.array(row["curve"]["test"])
        assert test.shape == (2, 3)
        np.testing.assert_allclose(row["percent"]["test"]["value"], 100 * test[:, -1].mean())
        # Any accuracy is at least 0.
        assert row["steps_to"][0] == {"validation": 0.0, "meta_steps": [0, 0]}
        # Of two inner rates each is at an end; of one outer rate there is no end.
        taken = f"{row['inner_lr']:g}"
        edge = f"{row['label']}: its inner rate, {taken}, is at the end of those tried"
        assert [note for note in found["notes"] if note.startswith(row["label"])] == [edge]
    raw = accuracies(done)
    assert raw.keys() == {"weight-transform", "plain-equal-width"}
    assert raw["weight-transform"].shape == (2, 3, 3, 4)
    assert found["split"]["test"] == ["Epsilon"]
    svg = (done / "figure.svg").read_text()
    assert "test: Epsilon; validation: Delta (new); train: Alpha" in svg
    assert "Weight transforms" not in svg
    page = (done / "page.html").read_text()
    assert "32 classes, 4 turns of 8 characters" in page
    assert "sums of rewards" not in page


def test_what_is_done_is_not_done_again(capsys, monkeypatch, done, images, tmp_path):
    forbid_training(monkeypatch)
    shutil.copytree(done / "runs", tmp_path / "out" / "runs")
    assert main(arguments(images, tmp_path / "out", "--only", LABELS[1], "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["label"] for row in found["rows"]] == LABELS[1:]
    found = accuracies(tmp_path / "out")
    assert found.keys() == {"plain-equal-width"}
    np.testing.assert_array_equal(found["plain-equal-width"], accuracies(done)["plain-equal-width"])
    assert main(arguments(images, tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("| ")
    assert "split by alphabet, not by the lists of Vinyals" in printed


@pytest.mark.slow
def test_a_killed_study_goes_on_with_the_same_bits(done, images, tmp_path):
    out = tmp_path / "out"
    program = [sys.executable, tiny_omniglot.__file__, str(images), str(out), LABELS[0], "8"]
    killed = subprocess.run(program, check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (run,) = (out / "runs").glob("weight-transform-*")
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["5"]
    assert not (out / "results.json").exists()
    assert main(arguments(images, out)) == 0
    for name, values in accuracies(out).items():
        np.testing.assert_array_equal(values, accuracies(done)[name])


# --- A training ---


@pytest.fixture
def data(images) -> Data:
    classes = study.open_problem(images, LEARNER).classes
    return Data(jnp.asarray(classes.pixels), jnp.asarray(classes.on_side))


def make_training(*starts: Start) -> Training:
    return Training(LEARNER, starts, steps=5, eval_every=2, checkpoint_every=3, data="")


def test_learners_side_by_side_are_those_alone(data, tmp_path):
    one, other = Start(0, 0.1, 0.01), Start(3, 0.3, 0.003)

    def trained(*starts):
        how = {"devices": jax.devices()[:1], "command": "test", "quiet": True}
        return train(make_training(*starts), "test", data, tmp_path, **how).accuracy

    both = trained(one, other)
    np.testing.assert_array_equal(both[:1], trained(one))
    np.testing.assert_array_equal(both[1:], trained(other))
    assert (both[0] != both[1]).any()


def trainer(path: Path, data: Data, monkeypatch, advance, *starts: Start, **how) -> Result:
    monkeypatch.setattr(training, "_advance", advance)
    how |= {"devices": jax.devices()[:1], "command": "test", "quiet": True}
    return train(make_training(*starts), "tiny", data, path, **how)


def test_a_signal_stops_after_a_checkpoint(data, monkeypatch, tmp_path):
    def advance(learner, layout, states, seeds, data, length):
        signal.raise_signal(signal.SIGTERM)
        return states, np.zeros(2, np.float32)

    starts = Start(0, 0.1, 0.01), Start(1, 0.1, 0.01)
    with pytest.raises(Stopped, match="tiny: stopped by SIGTERM after 1 meta-steps") as stopped:
        trainer(tmp_path, data, monkeypatch, advance, *starts)
    assert stopped.value.code == 128 + signal.SIGTERM
    (run,) = tmp_path.iterdir()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["1"]


def test_a_loss_that_is_not_finite_names_the_seed(data, monkeypatch, tmp_path):
    def advance(learner, layout, states, seeds, data, length):
        return states, np.array([1.0, np.nan], np.float32)

    same = Start(0, 0.1, 0.01), Start(7, 0.1, 0.01)
    with pytest.raises(NonFiniteError, match=r"tiny, seed 7: .* rates 0.1 and 0.01; take smaller"):
        trainer(tmp_path, data, monkeypatch, advance, *same)
    # A search goes on without the pair that diverges.
    found = trainer(tmp_path, data, monkeypatch, advance, *same, may_diverge=True)
    assert found.accuracy.shape == (2, 4, 3, 4)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"accuracy": np.zeros((2, 4, 3, 4), np.float32)}, "holds accuracy"),
        ({"accuracy": np.zeros((2, 4, 3, 5), np.float32)}, r"shape \(2, 4, 3, 5\), expected"),
        ({"accuracy": np.full((2, 4, 3, 4), np.nan, np.float32)}, "not between 0 and 1"),
    ],
)
def test_a_result_that_is_none(data, monkeypatch, tmp_path, arrays, message):
    def refuse(*_, **__):
        raise AssertionError

    wanted = make_training(Start(0, 0.1, 0.01), Start(1, 0.1, 0.01))
    path = tmp_path / f"tiny-{training.json_hash(training.to_json(wanted))[:12]}"
    path.mkdir()
    seconds = {} if message == "holds accuracy" else {"seconds": np.float64(1)}
    np.savez(path / training.RESULT, **arrays, **seconds)
    with pytest.raises(InputError, match=f"{training.RESULT}: .*{message}.*; remove .*tiny"):
        trainer(tmp_path, data, monkeypatch, refuse, *wanted.starts)


# --- Plans ---


def test_meta_steps_to_an_accuracy_are_of_validation_classes():
    wanted = make_training(Start(0, 0.1, 0.01), Start(1, 0.1, 0.01))
    accuracy = np.zeros((2, 4, 3, 4), np.float32)
    accuracy[:, :, [0, 2]] = 1.0
    accuracy[0, 2, 1] = [0.5, 0.5, 1.0, 1.0]
    result = Result(wanted, Path(), accuracy, 0.0)
    assert steps_to(result, 0.75) == [4, None]
    assert steps_to(result, 0.76) == [None, None]


def test_choices_replace_what_the_scale_says():
    plan = planned("smoke", Choices(only=(LABELS[0],), steps=1, meta_batch=7, inner_lr=0.5))
    (network,) = plan.networks
    assert network.learner == replace(LEARNER, meta_batch=7)
    assert (plan.inner_lrs, plan.outer_lrs) == ((0.5,), SCALE.outer_lrs)
    assert (plan.steps, plan.search_steps, plan.seeds) == (1, 1, 2)


def test_given_rates_are_not_searched_for(images, tmp_path, monkeypatch):
    asked = []

    def note(training, label, **_):
        asked.append((label, training.starts))
        return Result(training, tmp_path, np.zeros((2, 4, 3, 4), np.float32), 0.0)

    monkeypatch.setattr(training, "train", note)
    plan = planned("smoke", Choices(inner_lr=0.2, outer_lr=0.1))
    problem = study.open_problem(images, LEARNER)
    how = {"command": "test", "say": lambda text: None}
    found = study.carry_out(plan, problem, tmp_path, [], **how)
    assert asked == [(label, (Start(0, 0.2, 0.1), Start(1, 0.2, 0.1))) for label in LABELS]
    assert [each.search for each in found] == [(), ()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scale", "paper"], f"{ID} has no scale paper, only smoke"),
        (["--scale", "smoke", "--only", "plain"], "--only: .* has no 'plain'; did you mean plain,"),
        (["--scale", "smoke", "--target", "2"], r"target\[0\]: 2.0 is not a number from 0 to 1"),
        (["--scale", "smoke", "--queries", "9"], "queries: episodes take 10 drawings"),
        (["--scale", "smoke", "--data", "nowhere"], "nowhere"),
    ],
)
def test_wrong_usage_is_one_line(capsys, images, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", ID, "--out", "out", "--data", str(images), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1
    assert re.search(message, error)
    assert list(tmp_path.iterdir()) == []


def test_results_of_something_else_are_kept(capsys, images, done, monkeypatch):
    forbid_training(monkeypatch)
    assert main(arguments(images, done, "--seeds", "1")) == 2
    assert "2 seeds; give another folder with --out" in capsys.readouterr().err
