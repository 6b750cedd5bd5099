"""`omrl data info | validate | slice`."""

import json
import shlex
import shutil

import numpy as np
import pytest

from omrl.cli.data import main
from omrl.data.slice import GRAMMAR
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.errors import InputError


@pytest.fixture(autouse=True)
def _registered(monkeypatch, env):
    monkeypatch.setattr(registry, "make", lambda env_id: env)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def flip(dataset, name, task):
    path = dataset.path / f"task-00{task}/{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_info_tells_what_is_there(dataset, env, capsys):
    main(["info", str(dataset.path)], "omrl data info")
    text = capsys.readouterr().out
    for part in (env.spec.id, env.spec.hash, "train: [0, 1]; test: [2]", "goal", "transitions"):
        assert part in text
    task = dataset.manifest.record(1)
    assert f"{task.return_mean:.1f}" in text


def test_info_as_json(dataset, capsys):
    main(["info", str(dataset.path), "--json"], "")
    summary = json.loads(capsys.readouterr().out)
    assert summary["transitions"] == 40 + 20 + 25
    assert summary["episodes"] == 10 + 4 + 7
    # Per transition 2 observations, action, reward, term of 4 bytes and 2 truth values; per episode
    # one more observation and a boundary of 8 bytes; per task one more boundary.
    assert summary["bytes"] == 85 * (5 * 4 + 2) + 21 * (2 * 4 + 8) + 3 * 8
    assert summary["validated"] is True
    assert [task["index"] for task in summary["tasks"]] == [0, 1, 2]


def test_validate_puts_a_clean_result_on_record(dataset, capsys):
    path = dataset.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"validation": None}))
    main(["validate", str(dataset.path)], "")
    assert capsys.readouterr().out == "no finding; rewards: checked\n"
    assert open_dataset(dataset.path).manifest.validated


def test_validate_prints_every_finding_and_fails(dataset, capsys):
    flip(dataset, "obs", 0)
    flip(dataset, "terminated", 2)
    with pytest.raises(InputError, match=r"task-000/obs.npy .*sha256 differs.* \(and 1 more"):
        main(["validate", str(dataset.path)], "")
    text = capsys.readouterr().out
    assert text.count("sha256 differs") == 2
    assert "task-000/obs.npy" in text
    assert "task-002/terminated.npy" in text
    with pytest.raises(InputError):
        main(["validate", str(dataset.path), "--json"], "")
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(finding["task"], finding["field"]) for finding in found] == [
        (0, "obs"),
        (2, "terminated"),
    ]


def test_validate_of_an_unknown_environment_records_nothing(dataset, capsys, monkeypatch):
    def unknown(env_id):
        raise InputError("unknown environment")

    monkeypatch.setattr(registry, "make", unknown)
    path = dataset.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"validation": None}))
    main(["validate", str(dataset.path)], "")
    assert "not checkable: the environment is not known here" in capsys.readouterr().out
    assert not open_dataset(dataset.path).manifest.validated


def test_validate_refuses_another_mdp(dataset, other_env, monkeypatch):
    monkeypatch.setattr(registry, "make", lambda env_id: other_env)
    with pytest.raises(InputError, match="another MDP"):
        main(["validate", str(dataset.path)], "")


@pytest.mark.parametrize("command", ["slice", "relabel", "export"])
def test_help_lists_every_slice(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"], "")
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert GRAMMAR in told


def test_slice_writes_a_smaller_dataset(dataset, tmp_path, capsys):
    out = tmp_path / "small"
    options = ["--slice", "last-4", "--every", "2", "--dtype", "float16", "--json"]
    main(["slice", str(dataset.path), str(out), *options], "omrl data slice …")
    assert json.loads(capsys.readouterr().out)["episodes"] == 6
    small = open_dataset(out)
    name = dataset.path.name  # No path of a machine.
    assert small.manifest.command == (
        f"omrl data slice {name} OUT --slice last-4 --every 2 --dtype float16"
    )
    np.testing.assert_array_equal(small.task(1).lengths, [5, 5])
    reordered = [*options[2:-1], "--slice", "last-4"]
    main(["slice", str(dataset.path), str(tmp_path / "again"), *reordered], "another text")
    assert open_dataset(tmp_path / "again").hash == small.hash
    with pytest.raises(InputError, match="exists; give another folder"):
        main(["slice", str(dataset.path), str(out)], "")
    main(["slice", str(dataset.path), str(out), "--overwrite"], "")
    assert open_dataset(out).task(1).num_episodes == 4


def test_slice_cuts_to_transitions_and_mixes(dataset, tmp_path, capsys):
    cut, mixed = tmp_path / "cut", tmp_path / "mixed"
    main(["slice", str(dataset.path), str(cut), "--slice", "first-12-transitions", "--json"], "")
    assert json.loads(capsys.readouterr().out)["transitions"] == 36
    options = ["--slice", ".5:last-6-transitions+.5:all", "--mix", str(cut), "--json"]
    main(["slice", str(dataset.path), str(mixed), *options], "")
    assert json.loads(capsys.readouterr().out)["command"] == (
        f"omrl data slice {dataset.path.name} OUT --slice 0.5:last-6-transitions+0.5:all --mix cut"
    )
    # Of task 0 the episodes of 2 and 4, and of those of 5, 3 and 4 two, since 5 is less than 6.
    np.testing.assert_array_equal(open_dataset(mixed).task(0).lengths, [2, 5, 4, 4])
    with pytest.raises(InputError, match=r"mix: .* and slice 'all' is no mixture"):
        main(["slice", str(dataset.path), str(tmp_path / "x"), "--mix", str(cut)], "")


def test_the_command_on_record_can_be_repeated(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(dataset.path.parent)
    main(["slice", f"./{dataset.path.name}/", str(tmp_path / "one"), "--slice", "last-4"], "")
    command = open_dataset(tmp_path / "one").manifest.command
    assert command == f"omrl data slice {dataset.path.name} OUT --slice last-4"
    main(shlex.split(command)[2:], "")
    assert open_dataset("OUT").hash == open_dataset(tmp_path / "one").hash


@pytest.mark.parametrize("given", ["slice", "relabel --per-task 1"])
@pytest.mark.parametrize("out", ["same", "link", "mixed in", "around", "partial"])
def test_what_is_read_is_not_replaced(dataset, tmp_path, given, out):
    """Whatever name the source has, and also where it lies within what would be removed."""
    command, *options = given.split()
    source, target = dataset.path, dataset.path
    if out == "link":
        target = tmp_path / "link"
        target.symlink_to(source)
    elif out == "mixed in":
        if command != "slice":
            return
        source = shutil.copytree(dataset.path, tmp_path / "copy")
        options = ["--slice", "0.5:all+0.5:all", "--mix", str(target)]
    elif out == "around":
        target = shutil.copytree(dataset.path, tmp_path / "around")
        source = shutil.copytree(dataset.path, target / "inner")
    elif out == "partial":
        source = shutil.copytree(dataset.path, tmp_path / "new.partial")
        target = tmp_path / "new"
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"takes the place of .*write to another folder"):
        main([command, str(source), str(target), *options, "--overwrite"], "")
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert open_dataset(dataset.path).hash == dataset.hash


@pytest.mark.parametrize("arguments", [[], ["inf"]])
def test_commands_that_do_not_exist(arguments):
    with pytest.raises(InputError, match="info"):
        main(arguments, "")
