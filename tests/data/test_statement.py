"""What has to be stated about other programs' files, and what is said where it is not."""

import json

import foreign
import pytest
from points import PointEnv, assert_holds, lifetime

from omrl.data import exchange
from omrl.data.exchange import import_dataset
from omrl.data.formats.source import Statement
from omrl.errors import InputError

OTHER = {0: (0.25,), 1: (0.75,)}
"""Tasks that are not canonical ones of `PointEnv`."""
SPLITS = {"train": (0,), "test": (1,)}


def test_other_tasks_and_splits_are_stated(tmp_path, load, lifetimes):
    two = {index: lifetimes[index] for index in (0, 1)}
    foreign.npz(tmp_path / "npz", two)
    dataset = load(tmp_path / "npz", "npz", given=Statement(tasks=OTHER, splits=SPLITS))
    assert dataset.splits == SPLITS
    assert [task.parameters for task in dataset.manifest.tasks] == [(0.25,), (0.75,)]


def test_a_statement_beside_the_data_is_read(tmp_path, load, lifetimes):
    foreign.npz(tmp_path / "npz", {index: lifetimes[index] for index in (0, 1)})
    fields = {"tasks": [[0.25], 0.75], "splits": {"train": [0], "test": [1]}}
    (tmp_path / "npz/tasks.json").write_text(json.dumps(fields))
    dataset = load(tmp_path / "npz", "npz")
    assert (dataset.splits, dataset.task_parameters[1, 0]) == (SPLITS, 0.75)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "parameters of task 0 are not known; state them with --tasks FILE"),
        ({"given": Statement(tasks=OTHER)}, "which tasks are for training is not known"),
        ({"given": Statement(tasks={0: (0.1,)})}, "parameters of task 1 are not known"),
        ({"given": Statement(tasks={0: (1.0, 2.0), 1: (1.0, 2.0)})}, "task 0 has 2 parameters"),
        ({"given": Statement(tasks=OTHER, splits={"train": (0, 9)})}, "'train' has task 9"),
        ({"given": Statement(tasks=OTHER, splits={"a": (0, 0)})}, "'a' has a task twice"),
        ({"canonical": True, "path_length": 0}, "path length 0: must be at least 1"),
        ({"canonical": True, "dtype": "int8"}, "dtype 'int8': must be float32"),
    ],
)
def test_what_is_missing_or_wrong_in_a_statement_is_named(
    tmp_path, load, lifetimes, options, message
):
    foreign.npz(tmp_path / "npz", {index: lifetimes[index] for index in (0, 1)})
    with pytest.raises(InputError, match=message):
        load(tmp_path / "npz", "npz", **options)
    assert not (tmp_path / "imported").exists()


def test_a_gap_in_tasks_that_are_not_canonical_is_refused(tmp_path, load, lifetimes):
    foreign.npz(tmp_path / "npz", {index: lifetimes[index] for index in (0, 2)})
    assert load(tmp_path / "npz", "npz", canonical=True).task_indices == (0, 2)
    with pytest.raises(InputError, match=r"tasks 0, 2, which are not those .* 0 to 1"):
        load(tmp_path / "npz", "npz", given=Statement(tasks={0: (0.1,), 2: (0.2,)}))


def test_tasks_that_the_source_tells_are_compared_with_the_canonical_ones(tmp_path, env, load):
    columns = {index: lifetime(env, index, [5, 5]) for index in range(3)}
    foreign.borel(tmp_path / "borel", columns, (0.0004, 0.5, 0.9))
    with pytest.raises(InputError, match=r"task 2 is \(0.9,\) there and \(1.0,\) in"):
        load(tmp_path / "borel", "borel", canonical=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "must hold a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"task": []}', "task: no such field; there are env, spec_hash"),
        ('{"env": 1}', "env: 1 is not of type str"),
        ('{"dtype": "int8"}', "dtype: 'int8' is not one of '', 'float32'"),
        ('{"tasks": [["a"]]}', r"tasks.0\[0\]: 'a' is not of type float"),
        ('{"tasks": [[true]]}', r"tasks.0\[0\]: True is not of type float"),
        ('{"tasks": [[1e999]]}', "not JSON .* beyond 64-bit floating point"),
        ('{"tasks": [[1' + "0" * 400 + "]]}", "not JSON .* beyond 64-bit integers"),
        ('{"tasks": {"one": [1]}}', "'one' is not the number of a task"),
        ('{"splits": {"train": 0}}', "splits.train: 0 is not a list"),
        ('{"splits": {"train": [true]}}', r"splits.train\[0\]: True is not of type int"),
        ('{"behaviour": {"0": 1}}', "behaviour.0: 1 is not an object"),
    ],
)
def test_a_wrong_statement_is_named(tmp_path, load, lifetimes, content, message):
    foreign.npz(tmp_path / "npz", {0: lifetimes[0]})
    (tmp_path / "npz/tasks.json").write_text(content)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "npz", "npz", given=Statement(splits={"train": (0,)}))


def test_an_interrupted_import_goes_on_unless_the_source_changed(
    tmp_path, load, lifetimes, monkeypatch
):
    foreign.npz(tmp_path / "npz", {index: lifetimes[index] for index in (0, 1)})
    import_task = exchange._import_task

    def interrupted(writer, task, behaviour):
        if task.index == 1:
            raise KeyboardInterrupt
        import_task(writer, task, behaviour)

    with monkeypatch.context() as patch:
        patch.setattr(exchange, "_import_task", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(tmp_path / "npz", "npz", canonical=True)
    before = (tmp_path / "imported.partial/task-000/obs.npy").stat().st_ino
    path = tmp_path / "npz/task-1/episode-0.npz"
    good = path.read_bytes()
    path.write_bytes(good + b" ")
    with pytest.raises(InputError, match="from other data or with other tasks"):
        load(tmp_path / "npz", "npz", canonical=True)
    path.write_bytes(good)
    dataset = load(tmp_path / "npz", "npz", canonical=True)
    assert (tmp_path / "imported/task-000/obs.npy").stat().st_ino == before
    assert_holds(dataset, {0: lifetimes[0], 1: lifetimes[1]})


def test_an_import_that_failed_leaves_nothing_so_that_the_source_can_be_mended(
    tmp_path, load, lifetimes
):
    foreign.npz(tmp_path / "npz", {index: lifetimes[index] for index in (0, 1)})
    path = tmp_path / "npz/task-1/episode-0.npz"
    good = path.read_bytes()
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"episode-0\.npz: damaged"):
        load(tmp_path / "npz", "npz", canonical=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["npz"]
    path.write_bytes(good)
    dataset = load(tmp_path / "npz", "npz", canonical=True)
    assert_holds(dataset, {0: lifetimes[0], 1: lifetimes[1]})


def test_the_environment_has_to_be_known(tmp_path, lifetimes):
    foreign.npz(tmp_path / "npz", {0: lifetimes[0]})

    def load(**options):
        import_dataset(tmp_path / "npz", tmp_path / "out", "npz", command="", **options)

    with pytest.raises(InputError, match="does not say of which environment it is; give --env"):
        load()
    with pytest.raises(InputError, match="unknown environment 'cheetah'"):
        load(given=Statement(env="cheetah"))
    (tmp_path / "npz/tasks.json").write_text('{"env": "point-robot/oyster-v1"}')
    with pytest.raises(InputError, match="is data of point-robot/oyster-v1, not of gridnav"):
        load(given=Statement(env="gridnav"))
    (tmp_path / "npz/tasks.json").write_text('{"spec_hash": "abc"}')
    with pytest.raises(InputError, match="another MDP"):
        load(env=PointEnv())


def test_an_unknown_format_is_named(tmp_path, load):
    with pytest.raises(InputError, match="no format is called 'hdf'; did you mean"):
        load(tmp_path, "hdf")
    with pytest.raises(InputError, match="no such file or folder"):
        load(tmp_path / "nothing", "npz")
