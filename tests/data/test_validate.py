"""Bad data: each kind gets one line that names the file, the task, the field and the row."""

import ast
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from omrl.arrays import map_npy
from omrl.config import json_hash
from omrl.data import finding, validate
from omrl.data import manifest as manifests
from omrl.data.store import create, open_dataset, open_for_training, with_tasks_of
from omrl.errors import InputError


def rewrite(dataset, name, change, index=0):
    """Replace a column of `index` behind the manifest's back."""
    path = dataset.path / f"task-00{index}/{name}.npy"
    np.save(path, change(np.load(path, allow_pickle=False)), allow_pickle=False)


def declare_objects(dataset, name):
    """Make the header of a column say that its content is pickled objects; there is none."""
    path = dataset.path / f"task-000/{name}.npy"
    content = path.read_bytes()
    # As many characters, so that the header keeps its length.
    path.write_bytes(content.replace(b"'<f4'", b"'|O' ", 1))
    assert path.read_bytes() != content


def rewrite_recorded(dataset, name, change, index=0):
    """Replace a column and its record, so that only its content can tell."""
    rewrite(dataset, name, change, index)
    folder, fields = dataset.path, manifests.to_json(dataset.manifest)
    path = folder / f"task-00{index}/{name}.npy"
    shape, dtype, _ = validate.read_header(path)
    record = {"dtype": dtype.name, "shape": list(shape), "sha256": validate.sha256(path)}
    fields["tasks"][index]["columns"][name] = record
    (folder / "manifest.json").write_text(json.dumps(fields))


def put(row, value):
    """A change of one row."""

    def change(column):
        column = column.copy()
        column[row] = value
        return column

    return change


def findings(dataset, env):
    return validate.validate(dataset.path, manifests.read(dataset.path), env).findings


def only(dataset, env):
    (finding,) = findings(dataset, env)
    return finding


# --- Clean data ---


def test_a_finished_dataset_is_validated_and_says_so(dataset, env):
    assert findings(dataset, env) == ()
    assert dataset.manifest.validated
    assert dataset.manifest.validation["reward"] == "checked"


def test_without_an_environment_only_rewards_are_left_out(dataset):
    report = validate.validate(dataset.path, dataset.manifest, None)
    assert report.findings == ()
    assert report.reward == "not checkable: the environment is not known here"


# --- What opening finds ---


def edit_shape(fields):
    fields["tasks"][1]["columns"]["obs"]["shape"][0] = "9"
    return fields


def test_a_folder_without_a_manifest(tmp_path):
    with pytest.raises(InputError, match=r"not a dataset \(no manifest.json\)"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"format_version": 2}, "format must be omrl-dataset version 1"),
        (lambda m: {k: v for k, v in m.items() if k != "command"}, r"\.command: missing"),
        (lambda m: m | {"command": 3}, r"\.command: 3 is not of type str"),
        (lambda m: m | {"dtype": "float64"}, "dtype must be float32 or float16"),
        (lambda m: m | {"spec_hash": "0" * 64}, "spec does not match spec_hash"),
        (lambda m: m | {"spec": m["spec"] | {"horizon": "5"}}, r"\.spec\.horizon: '5' is not of"),
        (
            lambda m: m | {"splits": {"train": {"tasks": [0], "hash": ""}}},
            r"\.splits\.train: the tasks do",
        ),
        (lambda m: m | {"tasks": [m["tasks"][0]] * 2}, "tasks: an index occurs twice"),
        (lambda m: m | {"tasks": [m["tasks"][0] | {"episodes": 0}]}, "task 0 must have episodes"),
        (
            lambda m: m | {"tasks": [m["tasks"][0] | {"parameters": []}]},
            r"tasks\[0\]\.parameters: must",
        ),
        (lambda m: m | {"tasks": [m["tasks"][0] | {"index": -1}]}, "index -1 must be 0 or more"),
        (lambda m: m | {"tasks": 7}, r"\.tasks: 7 is not a list"),
        (edit_shape, r"json\.tasks\[1\]\.columns\.obs\.shape\[0\]: '9' is not of type int"),
        (lambda m: [m], "is not an object"),
    ],
)
def test_a_malformed_manifest(dataset, change, message):
    path = dataset.path / "manifest.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=message) as raised:
        open_dataset(dataset.path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "{", '{"format": NaN}', "\xff"])
def test_a_manifest_that_is_not_json(dataset, text):
    (dataset.path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"manifest.json: .*; create the dataset again"):
        open_dataset(dataset.path)


def opening_error(dataset):
    with pytest.raises(InputError) as raised:
        open_dataset(dataset.path)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_missing_file(dataset):
    (dataset.path / "task-001/terms.npy").unlink()
    assert opening_error(dataset) == (
        f"{dataset.path}/task-001/terms.npy (task 1, terms): the file is missing; "
        "copy the dataset again from its source"
    )


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (128 + 399, "truncated: 527 of 528 bytes"),  # 50 x 2 observations of 4 bytes
        (100, "not a readable .npy file"),
        (0, "not a readable .npy file"),
    ],
)
def test_a_truncated_file(dataset, size, message):
    os.truncate(dataset.path / "task-000/obs.npy", size)
    assert f"task-000/obs.npy (task 0, obs): {message}" in opening_error(dataset)


def test_a_file_with_a_tail(dataset):
    with (dataset.path / "task-000/reward.npy").open("ab") as file:
        file.write(b"1234")
    assert "(task 0, reward): too long: 292 of 288 bytes" in opening_error(dataset)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("reward", lambda c: c.astype(np.float64), "dtype float64, must be float32"),
        ("reward", lambda c: c.astype(">f4"), "dtype >f4, must be float32"),
        ("reward", lambda c: c.astype(np.float16), "dtype float16, must be float32"),
        ("truncated", lambda c: c.astype(np.int8), "dtype int8, must be bool"),
        ("episode_start", lambda c: c.astype(np.int32), "dtype int32, must be int64"),
        ("reward", lambda c: c[:, None], r"shape (40, 1), but the manifest's counts"),
        ("action", lambda c: c[:-1], r"shape (39, 1), but the manifest's counts"),
        ("obs", np.asfortranarray, "not a readable .npy file (Fortran order)"),
    ],
)
def test_wrong_dtypes_and_shapes(dataset, name, change, message):
    rewrite(dataset, name, change)
    assert f"task-000/{name}.npy (task 0, {name}): {message}" in opening_error(dataset)


def test_pickled_objects_are_never_loaded(dataset):
    declare_objects(dataset, "reward")
    message = "task-000/reward.npy (task 0, reward): dtype object, must be float32"
    assert message in opening_error(dataset)


def test_all_of_it_is_found_by_a_validation(dataset, env):
    declare_objects(dataset, "reward")
    os.truncate(dataset.path / "task-001/obs.npy", 130)
    (dataset.path / "task-002/action.npy").unlink()
    found = findings(dataset, env)
    assert [(finding.task, finding.field) for finding in found] == [
        (0, "reward"),
        (1, "obs"),
        (2, "action"),
    ]
    assert "(and 2 more findings)" in opening_error(dataset)


# --- What a validation finds ---


@pytest.mark.parametrize("name", ["obs", "reward", "terminated", "episode_start"])
def test_a_flipped_bit(dataset, env, name):
    path = dataset.path / f"task-002/{name}.npy"
    data = bytearray(path.read_bytes())
    data[128 + 8] ^= 1  # The header has 128 bytes.
    path.write_bytes(data)
    open_dataset(dataset.path)
    found = findings(dataset, env)
    assert ("task-002/" + name + ".npy", "sha256 differs") in {(f.file, f.problem) for f in found}


@pytest.mark.parametrize(
    ("name", "row"), [("obs", (49, 1)), ("action", (3, 0)), ("reward", 7), ("terms", (12, 0))]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(dataset, env, name, row, value):
    rewrite_recorded(dataset, name, put(row, value))
    found = {(f.file, f.field, f.row, f.problem) for f in findings(dataset, env)}
    number = row if isinstance(row, int) else row[0]
    assert (f"task-000/{name}.npy", name, number, "NaN or infinity") in found
    assert {row for _, _, row, _ in found} == {number}


def test_one_finding_counts_all_rows_of_its_kind(dataset, env):
    rewrite_recorded(dataset, "obs", put([4, 9, 11], np.nan))
    assert only(dataset, env).problem == "NaN or infinity (and in 2 more rows)"
    assert only(dataset, env).row == 4


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path, monkeypatch):
    """CPython 3.11 fails one of two that parse Python at once, and a whole file was called
    damaged."""
    path = tmp_path / "column.npy"
    np.save(path, np.arange(3))
    inside, most, parse = [], [], ast.literal_eval

    def slow(text):
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.005)
        inside.pop()
        return parse(text)

    monkeypatch.setattr(ast, "literal_eval", slow)
    with ThreadPoolExecutor(4) as threads:
        read = [threads.submit(map_npy, path, "mend it") for _ in range(6)]
        read += [threads.submit(validate.read_header, path) for _ in range(6)]
        for each in read:
            each.result()
    assert len(most) == 12
    assert max(most) == 1


def test_an_action_out_of_bounds(dataset, env):
    rewrite_recorded(dataset, "action", put(5, np.nextafter(np.float32(1), np.float32(2))))
    assert str(only(dataset, env)) == (
        "task-000/action.npy (task 0, action, row 5): outside [-1, 1]; "
        "correct the data and create the dataset again"
    )


@pytest.mark.parametrize(
    ("row", "value", "found_row", "problem"),
    [
        (0, 1, 0, "the episodes do not cover the rows from 0 to the last"),
        (-1, 39, 10, "the episodes do not cover the rows from 0 to the last"),
        (2, 5, 1, "not increasing: an episode without a row"),
        (3, 20, 3, "not increasing: an episode without a row"),
        (1, 2, 1, "an episode longer than the horizon 5"),
    ],
)
def test_episode_boundaries(dataset, env, row, value, found_row, problem):
    # The boundaries are 0, 5, 8, 13, 14, 19, 24, 26, 31, 36, 40.
    rewrite_recorded(dataset, "episode_start", put(row, value))
    found = {(f.file, f.row, f.problem) for f in findings(dataset, env)}
    assert ("task-000/episode_start.npy", found_row, problem) in found


@pytest.mark.parametrize(
    ("name", "row", "value", "problem"),
    [
        ("terminated", 2, True, "set within an episode"),
        ("truncated", 38, True, "set within an episode"),
        ("truncated", 4, False, "an episode ends neither terminated nor truncated"),
    ],
)
def test_the_ends_of_episodes(dataset, env, name, row, value, problem):
    rewrite_recorded(dataset, name, put(row, value))
    finding = only(dataset, env)
    assert (finding.field, finding.row, finding.problem) == (name, row, problem)


def test_an_episode_may_both_terminate_and_be_truncated(dataset, env):
    rewrite_recorded(dataset, "terminated", put(4, True))
    assert findings(dataset, env) == ()


def test_a_reward_that_the_terms_do_not_give(dataset, env):
    reward = dataset.task(0).reward.copy()
    rewrite_recorded(dataset, "reward", put(6, reward[6] - 0.01))
    found = findings(dataset, env)
    assert [(f.file, f.row) for f in found] == [("manifest.json", None), ("task-000/reward.npy", 6)]
    assert found[1].problem == (
        f"stored {reward[6] - 0.01:.6g}, but reward(terms, action, task) is {reward[6]:.6g} "
        "(differs in 1 of 40 rows)"
    )


def test_rounding_is_no_mismatch(dataset, env):
    reward = dataset.task(0).reward
    rewrite_recorded(dataset, "reward", put(6, np.nextafter(reward[6], np.float32(-9))))
    assert [f.file for f in findings(dataset, env)] == ["manifest.json"]


def test_the_rewards_of_another_task(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    with pytest.raises(InputError, match=r"task-000/reward.npy \(task 0, reward, row 0\): stored"):
        writer.write_task(0, behaviour={}, **columns[1])


def test_half_precision_is_checked_with_the_tolerance_of_half_precision(tmp_path, env, columns):
    writer = create(tmp_path / "half", env, command="test", dtype="float16")
    writer.write_task(0, behaviour={}, **columns[0])
    dataset = writer.finish()
    assert findings(dataset, env) == ()
    rewrite_recorded(dataset, "reward", lambda c: c - np.float16(0.1))
    assert "reward" in [finding.field for finding in findings(dataset, env)]


def test_blocks_do_not_change_what_is_found(dataset, env, monkeypatch):
    rewrite_recorded(dataset, "action", put(5, 1.5), index=1)
    rewrite_recorded(dataset, "obs", put(33, np.nan))
    rewrite_recorded(dataset, "truncated", put(7, True))
    whole = findings(dataset, env)
    assert len(whole) > 3
    monkeypatch.setattr(finding, "BLOCK_ROWS", 3)
    assert findings(dataset, env) == whole


# --- Opening for training ---


def test_a_validated_dataset_is_opened_without_another_pass(dataset, env, monkeypatch):
    monkeypatch.delattr(validate, "_task_findings")
    assert open_for_training(dataset.path, env, ("train", "test")).hash == dataset.hash


def test_a_dataset_without_a_record_is_validated_first(dataset, env):
    path = dataset.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"validation": None}))
    assert not open_dataset(dataset.path).manifest.validated
    assert open_for_training(dataset.path, env).manifest.validated
    assert open_dataset(dataset.path).manifest.validated


def test_a_record_of_other_data_does_not_count(dataset, env):
    rewrite_recorded(dataset, "action", put(5, 1.5))
    with pytest.raises(
        InputError, match=r"action.npy \(task 0, action, row 5\): outside \[-1, 1\]"
    ):
        open_for_training(dataset.path, env)


def test_a_dataset_that_cannot_be_written_is_validated_in_memory(dataset, env, monkeypatch):
    path = dataset.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"validation": None}))

    def read_only(folder, manifest):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifests, "write", read_only)
    assert open_for_training(dataset.path, env).manifest.validated
    assert not open_dataset(dataset.path).manifest.validated


def test_another_mdp(dataset, env, other_env):
    with pytest.raises(InputError, match=f"{env.spec.hash[:12]}, not .*another MDP"):
        open_for_training(dataset.path, other_env)


def test_the_dataset_decides_what_its_tasks_are(dataset, env):
    assert with_tasks_of(dataset, env) == env
    shifted = env.with_tasks(np.array([[0.0], [0.6], [1.0]]), {"train": (0, 1, 2)})
    assert with_tasks_of(open_for_training(dataset.path, shifted), shifted) == env
    longer = env.with_tasks(np.array([[0.0], [0.5], [1.0], [2.0]]), {})
    bound = with_tasks_of(dataset, longer)
    assert len(bound.tasks) == 4
    assert bound.splits == {"train": (0, 1), "test": (2,)}


def test_tasks_of_its_own_are_numbered_without_a_gap(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    for index in (0, 2):
        writer.write_task(index, behaviour={}, **columns[index])
    dataset = writer.finish()
    assert with_tasks_of(dataset, env).splits == {"train": (0,), "test": (2,)}
    other = env.with_tasks(np.array([[7.0]]), {})
    with pytest.raises(InputError, match=r"numbers \(0, 2\) have a gap; number them 0 to 1"):
        with_tasks_of(dataset, other)


def test_splits_keep_the_tasks_that_were_written(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    writer.write_task(0, behaviour={}, **columns[0])
    path = writer.finish().path
    assert open_for_training(path, env, ("train",)).splits == {"train": (0,)}
    with pytest.raises(InputError, match="no split 'test'; the dataset has train"):
        open_for_training(path, env, ("train", "test"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tasks": []}, r"\(tasks\): a dataset without a task"),
        ({"splits": {"train": [0, 5]}}, r"\(splits.train\): names task 5, which has no data"),
        ({"splits": {"train": []}}, r"\(splits.train\): names no task"),
    ],
)
def test_a_manifest_names_the_tasks_that_are_there(dataset, fields, problem):
    path = dataset.path / "manifest.json"
    if "splits" in fields:
        splits = {
            name: {"tasks": tasks, "hash": json_hash(tasks)}
            for name, tasks in fields["splits"].items()
        }
        fields = {"splits": splits}
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(InputError, match=problem):
        open_dataset(dataset.path)
