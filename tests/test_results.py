"""Results survive the disk, damage is refused, and the table says what its numbers are."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from fake_results import TASKS, make_result
from omrl.errors import InputError
from omrl.results import EvalResult, print_table
from omrl.tuning import FinetuneConfig


def equal(left: EvalResult, right: EvalResult) -> bool:
    names = [field.name for field in dataclasses.fields(EvalResult)]
    plain = ("config", "provenance", "traces")
    return (
        all(getattr(left, name) == getattr(right, name) for name in plain[:2])
        and left.traces.keys() == right.traces.keys()
        and np.array_equal(left.env_steps, right.env_steps)
        and np.array_equal(left.success, right.success)
        and np.array_equal(left.behaviour_success, right.behaviour_success)
        and np.array_equal(left.rounds_taken, right.rounds_taken)
        and all(np.array_equal(left.traces[name], right.traces[name]) for name in left.traces)
        and all(
            np.array_equal(getattr(left, name), getattr(right, name), equal_nan=True)
            for name in names
            if name not in (*plain, "env_steps", "success", "behaviour_success", "rounds_taken")
        )
    )


def test_saved_and_loaded_is_the_same(tmp_path):
    result = make_result()
    path = result.save(tmp_path / "eval" / "given.npz")
    assert equal(EvalResult.load(path), result)
    assert [file.name for file in path.parent.iterdir()] == ["given.npz"]


ONLINE = {"protocol": "finetune", "shots": (0, 20), "finetune": FinetuneConfig(eval_every=10)}


def test_of_online_learning_too(tmp_path, capsys):
    result = make_result(**ONLINE)
    assert result.returns.shape[2] == 3
    again = EvalResult.load(result.save(tmp_path / "finetune.npz"))
    assert equal(again, result)
    print_table(again)
    text = capsys.readouterr().out
    assert "| 0 steps | 4,000 steps |" in text
    assert "1 adaptation round offline, then online: 100 gradient steps per trajectory" in text
    assert "seed 0\n" in text  # of the context
    again.env_steps[0, 0, 2] += 3
    assert again.shot_name(20) == "about 4,000 steps"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("env_steps"), "is missing; delete it and evaluate again"),
        (lambda arrays: arrays.update(env_steps=np.zeros((2, 3, 2), np.int64)), "env_steps has"),
        (lambda arrays: arrays.update(env_steps=np.zeros((2, 3, 3))), "env_steps is float64"),
        (lambda arrays: arrays.update(returns=np.zeros((2, 3, 2, 2))), "returns has shape"),
    ],
)
def test_other_shapes_of_online_learning_are_refused(tmp_path, change, message):
    path = make_result(**ONLINE).save(tmp_path / "r.npz")
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        EvalResult.load(path)


def test_results_from_before_online_learning_are_read(tmp_path):
    path = make_result().save(tmp_path / "r.npz")
    with np.load(path) as file:
        arrays = dict(file)
    fields = json.loads(str(arrays["json"]))
    del fields["config"]["finetune"]
    np.savez(path, **arrays | {"json": np.array(json.dumps(fields))})
    assert equal(EvalResult.load(path), make_result())
    del fields["config"]["shots"]
    np.savez(path, **arrays | {"json": np.array(json.dumps(fields))})
    with pytest.raises(InputError, match=r"config\.shots: missing"):
        EvalResult.load(path)


def test_the_file_is_plain_arrays_and_one_json_string(tmp_path):
    path = make_result().save(tmp_path / "r.npz")
    with np.load(path, allow_pickle=False) as file:
        assert file["returns"].shape == (2, 3, 2, 2)
        assert file["trace/x_velocity"].shape == (2, 3, 2, 5)
        fields = json.loads(str(file["json"]))
    assert fields["config"]["protocol"] == "given"
    assert fields["config"]["context_size"] == 256
    assert fields["provenance"]["env_id"] == "cheetah-vel/macaw-v1"


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = make_result(step=1).save(tmp_path / "r.npz")

    def fails(file, **arrays):
        file.write(b"part")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", fails)
    with pytest.raises(OSError, match="no space"):
        make_result(step=2).save(path)
    assert EvalResult.load(path).provenance.step == 1
    assert list(tmp_path.iterdir()) == [path]


def rewrite(path, **changes):
    with np.load(path) as file:
        arrays = dict(file) | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def with_json(path, **changes):
    with np.load(path) as file:
        fields = json.loads(str(file["json"]))
    rewrite(path, json=np.array(json.dumps(fields | changes)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "cannot read"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "r.npz: damaged ("),
        (lambda path: path.write_bytes(b""), "r.npz: damaged ("),
        (lambda path: np.save(path.open("wb"), np.zeros(3)), "r.npz: damaged ("),
        (lambda path: rewrite(path, returns=None), "returns is missing"),
        (lambda path: rewrite(path, returns=np.array([{}])), "r.npz: damaged ("),
        (lambda path: rewrite(path, returns=np.zeros((2, 3, 2, 2), np.float32)), "float32"),
        (lambda path: rewrite(path, returns=np.zeros((2, 3, 1, 2))), "expected (2, 3, 2, 2)"),
        (lambda path: rewrite(path, returns=np.full((2, 3, 2, 2), np.nan)), "finite"),
        (lambda path: rewrite(path, oracle=np.zeros(2)), "oracle has shape (2,)"),
        (lambda path: rewrite(path, **{"trace/x_velocity": np.zeros((2, 3, 1, 5))}), "trace"),
        (lambda path: with_json(path, format="omrl-evaluation-9"), "omrl-evaluation-9"),
        (lambda path: with_json(path, config={}), "missing"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_damage_is_one_clear_line(tmp_path, damage, message):
    path = make_result().save(tmp_path / "r.npz")
    damage(path)
    with pytest.raises(InputError) as caught:
        EvalResult.load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def printed(capsys):
    def text(result: EvalResult) -> str:
        print_table(result)
        return capsys.readouterr().out

    return text


def test_table_has_a_row_per_task_with_its_own_numbers(printed):
    lines = printed(make_result()).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    header = next(row for row in cells if "target_velocity" in row)
    assert header == [
        "task", "target_velocity", "before", "after 1", "behaviour", "random", "zero", "oracle",
    ]  # fmt: skip
    rows = {row[0]: row[1:] for row in cells}
    # Seeds and episodes each add 0 or 1, 1 on average.
    assert rows["7"] == ["0.6", "-99.0", "-9.0", "-60.0", "-300.0", "-200.0", "-20.0"]
    assert rows["2"] == ["0.225", "-100.0", "-10.0", "-50.0", "-300.0", "-200.0", "-"]
    assert rows["mean"] == ["", "-100.0", "-10.0", "-60.0", "-300.0", "-200.0", "-"]
    # Seeds differ by 1 on every task, so a resampled mean lies within half a unit of the mean.
    assert -10.5 <= float(rows["from"][2]) < -10 < float(rows["to"][2]) <= -9.5
    assert rows["from"][3:] == [""] * 4


def test_a_narrow_terminal_cuts_no_number(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    print_table(make_result(shots=(0, 1, 2, 3)))
    text = capsys.readouterr().out
    assert "…" not in text
    assert "-300.0" in text


def test_what_the_numbers_are_is_always_printed(printed):
    text = printed(make_result(context_slice="last-500", context_seed=3))
    for part in (
        "environment cheetah-vel/macaw-v1, spec abababababab",
        "protocol given; context: 256 transitions drawn i.i.d. without replacement from last-500 "
        "of data/cheetah-vel (cdcdcdcdcdcd), seed 3",
        "Macaw after 1,000 updates, seeds 0, 1; 2 episodes per seed and task",
        "95 % interval",
        "2 seeds resampled within each task",
        "after 1: IQM -10.0",
        "gain over before, paired: after 1 90.0",
        "standard error over 2 seeds",
    ):
        assert part in text
    assert "over episodes, not over training runs" in printed(make_result(seeds=1))


def test_zero_shot_is_named_so(printed):
    text = printed(make_result(protocol="zero-shot", shots=(0,)))
    assert "gain" not in text
    assert "zero-shot" in text
    assert "after" not in text.replace("Macaw after", "")


def test_success_and_the_sum_of_trajectories_are_told(printed, tmp_path):
    result = make_result(protocol="explore", shots=(0, 2), succeeds=True)
    text = printed(result)
    assert "success at any step: trajectory 1 0.50 [0.50, 0.50], trajectory 3 0.50" in text
    assert "[0.50, 0.50], behaviour 0.30\n" in text
    assert "sum of 3 trajectories: -119.5 [" in text
    fields = result.to_json()
    assert fields["success"]["2"]["value"] == 0.5
    assert fields["behaviour_success"] == pytest.approx(0.3)
    assert fields["sum"]["value"] == pytest.approx(-119.5)
    again = EvalResult.load(result.save(tmp_path / "result.npz"))
    assert again.success is not None
    np.testing.assert_array_equal(again.success, result.success)
    np.testing.assert_array_equal(again.behaviour_success, result.behaviour_success)
    without = make_result()
    assert without.to_json()["success"] == {}
    assert without.to_json()["behaviour_success"] is None
    some = dataclasses.replace(result, behaviour_success=np.array([0.5, np.nan, 0.5]))
    assert some.to_json()["behaviour_success"] is None
    assert "behaviour 0" not in printed(some)
    assert "sum" not in without.to_json()
    text = printed(without)
    assert "success" not in text
    assert "sum of" not in text
    assert EvalResult.load(without.save(tmp_path / "without.npz")).success is None


def test_json_holds_the_table_and_only_json_numbers():
    text = json.dumps(make_result(shots=(0, 1, 2)).to_json(), allow_nan=False)
    fields = json.loads(text)
    assert [task["index"] for task in fields["tasks"]] == list(TASKS)
    assert fields["tasks"][1]["parameters"] == {"target_velocity": 0.225}
    assert fields["tasks"][1]["returns"] == {"0": -100.0, "1": -10.0, "2": -9.5}
    assert fields["tasks"][1]["oracle"] is None
    mean = fields["summary"]["1"]["mean"]
    assert mean["value"] == pytest.approx(-10.0)
    assert mean["low"] < -10 < mean["high"]
    assert fields["summary"]["0"]["standard_error"]["method"].endswith("over 2 seeds")
    assert list(fields["gains"]) == ["1", "2"]
    assert fields["gains"]["2"]["value"] == pytest.approx(90.5)
    assert fields["gains"]["2"]["method"].startswith("paired differences")
    assert fields["baselines"] == {
        "behaviour": -60.0, "random": -300.0, "zero": -200.0, "oracle": None,
    }  # fmt: skip
