"""`omrl data import | export`, as a person types it."""

import json

import foreign
import numpy as np
import pytest
from points import PointEnv, lifetime

from omrl.cli.data import main
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.errors import InputError

ID = "test-point/test-v1"


@pytest.fixture(autouse=True)
def _registered(monkeypatch, env):
    monkeypatch.setattr(registry, "make", lambda env_id: env)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def source(tmp_path, columns):
    foreign.npz(tmp_path / "npz", columns)
    return str(tmp_path / "npz")


def imported(tmp_path, source, *options):
    out = tmp_path / "imported"
    main(["import", source, str(out), "--format", "npz", *options], "")
    return open_dataset(out)


def test_a_dataset_goes_out_and_comes_back(tmp_path, dataset, capsys):
    pytest.importorskip("h5py")
    root, back = tmp_path / "root", tmp_path / "back"
    main(["export", str(dataset.path), str(root), "--format", "minari"], "")
    text = capsys.readouterr().out
    assert "3 tasks of test-point/test-v1, 21 episodes, 85 transitions" in text
    assert "minari.load_dataset('omrl/test-point/test-v1/points/task-000-v0')" in text
    main(["import", str(root), str(back), "--format", "minari", "--json"], "")
    summary = json.loads(capsys.readouterr().out)
    assert (summary["transitions"], summary["reward"]) == (85, "checked")
    assert summary["command"] == "omrl data import root OUT --format minari"
    assert (summary["source"]["format"], summary["source"]["name"]) == ("minari", "root")
    assert open_dataset(back).manifest.tasks == dataset.manifest.tasks


def test_an_export_as_json(tmp_path, dataset, capsys):
    out = str(tmp_path / "out")
    main(["export", str(dataset.path), out, "--format", "npz", "--slice", "last-2", "--json"], "")
    summary = json.loads(capsys.readouterr().out)
    assert (summary["path"], summary["format"], summary["episodes"]) == (out, "npz", 6)


def test_tasks_and_splits_as_options(tmp_path, source):
    numbers = ["--parameters", "0", "0.5", "1"]
    dataset = imported(tmp_path, source, "--env", ID, *numbers, "--train", "0", "2", "--test", "1")
    assert dataset.splits == {"train": (0, 2), "test": (1,)}
    np.testing.assert_array_equal(dataset.task_parameters[:, 0], [0, 0.5, 1])


def test_tasks_and_splits_in_a_file(tmp_path, source):
    fields = {"env": ID, "tasks": [[0], [0.5], [1]], "splits": {"train": [0], "late": [2, 1]}}
    (tmp_path / "mine.json").write_text(json.dumps(fields))
    dataset = imported(tmp_path, source, "--tasks", str(tmp_path / "mine.json"))
    assert dataset.splits == {"train": (0,), "late": (2, 1)}


def test_canonical_tasks(tmp_path, source, env):
    dataset = imported(tmp_path, source, "--env", ID, "--canonical", "--dtype", "float16")
    assert dataset.splits == env.splits
    assert dataset.manifest.dtype == "float16"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--parameters", "0"], "--parameters needs --env, and no --canonical"),
        (["--env", ID, "--canonical", "--parameters", "0"], "--parameters needs --env, and no"),
        (["--env", ID, "--parameters", "0", "1"], "parameters of task 2 are not known"),
        (["--tasks", "nowhere.json"], "cannot read nowhere.json"),
        (["--buffer", "rl"], "invalid choice|--buffer"),
        (["--tasksfile", "x"], "[Uu]nrecognized options"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, source, options, message):
    with pytest.raises(InputError, match=message) as caught:
        imported(tmp_path, source, *options)
    assert "\n" not in str(caught.value)


def test_an_environment_that_the_file_contradicts_is_named(tmp_path, source):
    (tmp_path / "mine.json").write_text('{"env": "other/env-v1"}')
    with pytest.raises(InputError, match=f"env is other/env-v1, --env {ID}; give one"):
        imported(tmp_path, source, "--tasks", str(tmp_path / "mine.json"), "--env", ID)


def test_a_missing_package_is_named_with_its_installation(tmp_path, monkeypatch, dataset):
    import sys

    for package in ("h5py", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    for format, package in (("minari", "h5py"), ("minari-arrow", "pyarrow"), ("macaw", "h5py")):
        with pytest.raises(InputError, match=rf"{package}, which is not .*'omrl\[formats\]'"):
            main(["export", str(dataset.path), str(tmp_path / format), "--format", format], "")
    (tmp_path / "file.hdf5").write_bytes(b"")
    arguments = [str(tmp_path / "file.hdf5"), str(tmp_path / "x"), "--env", ID, "--canonical"]
    with pytest.raises(InputError, match="h5py, which is not installed"):
        main(["import", *arguments, "--format", "d4rl"], "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.hdf5", "points"]


def test_a_task_of_several_parameters(tmp_path, monkeypatch):
    import dataclasses

    env = PointEnv()
    spec = dataclasses.replace(env.spec, task_names=("goal", "unused"))
    env = dataclasses.replace(env, spec=spec, task_table=((0.0, 1.0), (0.5, 2.0)), split_table=())
    monkeypatch.setattr(registry, "make", lambda env_id: env)
    foreign.npz(tmp_path / "npz", {index: lifetime(env, index, [5, 5]) for index in (0, 1)})
    source = str(tmp_path / "npz")
    numbers = ["--parameters", "0.0", "1", "0.5", "2.5", "--train", "0", "1"]
    dataset = imported(tmp_path, source, "--env", ID, *numbers)
    np.testing.assert_array_equal(dataset.task_parameters, [[0, 1], [0.5, 2.5]])
    with pytest.raises(InputError, match="--parameters: 3 numbers, must be 2 for every task"):
        imported(tmp_path / "second", source, "--env", ID, "--parameters", "0.0", "1", "0.5")
