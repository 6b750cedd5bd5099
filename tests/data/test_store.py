"""Writing and reading: what goes in comes out, and what cannot be written is refused."""

import json
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from points import BEHAVIOUR, assert_holds, episodes_of, files_of

from omrl.data import store
from omrl.data.manifest import COLUMNS
from omrl.data.slice import Slice
from omrl.data.store import create, open_dataset, write_slice
from omrl.envs import registry
from omrl.envs.engine import VectorEnv
from omrl.errors import InputError
from omrl.files import check_room

# --- Reading back ---


def test_every_column_reads_as_it_was_written(dataset, columns):
    assert_holds(dataset, columns)
    assert_holds(open_dataset(dataset.path), columns)


def test_columns_are_memory_mapped_views(dataset):
    whole, part = dataset.task(0), dataset.view(Slice.parse("last-4")).task(0)
    for task in (whole, part):
        base = task.columns["obs"]
        assert isinstance(base, np.memmap)
        assert np.shares_memory(task.obs, base)


def test_the_folder_has_the_documented_layout(dataset):
    names = {"obs", "action", "reward", "terms", "terminated", "truncated", "episode_start"}
    for index in range(3):
        folder = dataset.path / f"task-00{index}"
        assert {path.name for path in folder.iterdir()} == {f"{name}.npy" for name in names}
    obs = np.load(dataset.path / "task-000/obs.npy", allow_pickle=False)
    assert obs.shape == (40 + 10, 2)


def test_the_manifest_describes_the_data(dataset, env, columns):
    task = dataset.manifest.record(1)
    returns = columns[1]["reward"].reshape(4, 5).sum(axis=1)
    assert (task.episodes, task.transitions, task.parameters) == (4, 20, (0.5,))
    np.testing.assert_allclose(task.return_mean, returns.mean(), rtol=1e-6)
    np.testing.assert_allclose(task.return_min, returns.min(), rtol=1e-6)
    np.testing.assert_allclose(task.return_max, returns.max(), rtol=1e-6)
    assert task.behaviour == BEHAVIOUR
    assert dataset.spec == env.spec
    assert dataset.splits == {"train": (0, 1), "test": (2,)}
    assert dataset.task_indices == (0, 1, 2)
    np.testing.assert_array_equal(dataset.task_parameters, [[0.0], [0.5], [1.0]])
    written = json.loads((dataset.path / "manifest.json").read_text())
    assert written["spec_hash"] == env.spec.hash
    assert written["versions"]["numpy"] == np.__version__


def test_an_unknown_task_is_named(dataset):
    with pytest.raises(InputError, match="no task 7; it holds 0, 1, 2"):
        dataset.task(7)


def test_data_without_terms_is_kept_and_its_rewards_are_not_checkable(tmp_path, env, columns):
    del columns[1]["terms"]
    writer = create(tmp_path / "imported", env, command="test")
    writer.write_task(1, behaviour=BEHAVIOUR, **columns[1])
    dataset = writer.finish()
    assert_holds(dataset, {1: columns[1]})
    assert dataset.manifest.validation["reward"] == "not checkable: no terms were recorded"


def test_data_of_a_real_environment(tmp_path):
    env = registry.make("cheetah-vel/macaw-v1")
    engine = VectorEnv(env, env.tasks[[3]], seed=0, num_threads=1)
    rng = np.random.Generator(np.random.Philox(key=[0, 0]))
    obs, steps = [engine.reset()], []
    for _ in range(env.spec.horizon):
        action = rng.uniform(-1, 1, (1, 6)).astype(np.float32)
        step = engine.step(action)
        steps.append((action, step))
        obs.append(step.obs)
    engine.close()
    writer = create(tmp_path / "cheetah", env, command="test")
    writer.write_task(
        3,
        behaviour=BEHAVIOUR,
        obs=np.concatenate(obs),
        action=np.concatenate([action for action, _ in steps]),
        reward=np.concatenate([step.reward for _, step in steps]),
        terms=np.concatenate([step.terms for _, step in steps]),
        terminated=np.concatenate([step.terminated for _, step in steps]),
        truncated=np.concatenate([step.truncated for _, step in steps]),
        episode_start=np.array([0, 200]),
    )
    dataset = store.open_for_training(writer.finish().path, env, ("train",))
    assert dataset.manifest.validation["reward"] == "checked"
    small = write_slice(dataset, tmp_path / "small", env, dtype="float16", command="test")
    assert small.manifest.validation["reward"] == "checked"
    np.testing.assert_allclose(small.task(3).reward, dataset.task(3).reward, atol=4e-3)


# --- What a writer refuses ---


def test_an_existing_dataset_is_replaced_only_on_request(tmp_path, env, dataset, columns):
    with pytest.raises(InputError, match="exists; give another folder"):
        create(dataset.path, env, command="test")
    writer = create(dataset.path, env, command="new", overwrite=True)
    writer.write_task(1, behaviour=BEHAVIOUR, **columns[1])
    assert open_dataset(dataset.path).task_indices == (0, 1, 2)
    assert writer.finish().task_indices == (1,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["points"]


def test_a_folder_that_is_no_dataset_is_never_replaced(tmp_path, env):
    (tmp_path / "home").mkdir()
    with pytest.raises(InputError, match="exists and is not a dataset"):
        create(tmp_path / "home", env, command="test", overwrite=True)


def test_a_dataset_that_appears_meanwhile_is_not_replaced(tmp_path, env, columns, dataset):
    writer = create(tmp_path / "late", env, command="test")
    writer.write_task(1, behaviour=BEHAVIOUR, **columns[1])
    shutil.copytree(dataset.path, tmp_path / "late")
    with pytest.raises(InputError, match="exists by now"):
        writer.finish()
    assert open_dataset(tmp_path / "late").task_indices == (0, 1, 2)


def test_columns_may_be_lists(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    lists = {name: column.tolist() for name, column in columns[0].items()}
    writer.write_task(0, behaviour=BEHAVIOUR, **lists)
    assert_holds(writer.finish(), {0: columns[0]})


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("reward", [[1.0], [1.0, 2.0]], "task 0: not an array"),
        ("reward", np.array(1.0), r"task 0, obs: .*for 1 rows"),
        ("episode_start", np.array(3), "task 0, obs: .*in 0 episodes"),
        ("action", ["a"], "task 0, action: <U1"),
    ],
)
def test_columns_that_are_no_arrays(tmp_path, env, columns, name, column, message):
    writer = create(tmp_path / "points", env, command="test")
    with pytest.raises(InputError, match=message):
        writer.append(0, **columns[0] | {name: column})


@pytest.mark.parametrize("value", [np.float32(1.0), np.int64(1), float("nan"), {1, 2}, b"x"])
def test_a_behaviour_that_is_no_json_leaves_the_task_incomplete(tmp_path, env, columns, value):
    writer = create(tmp_path / "points", env, command="test")
    with pytest.raises(InputError, match=r"task 0, behaviour: .*give plain numbers"):
        writer.write_task(0, behaviour={"score": value}, **columns[0])
    assert not writer.is_complete(0)
    writer.complete(0, BEHAVIOUR)
    assert_holds(writer.finish(), {0: columns[0]})


def test_a_disk_without_room_is_named_before_a_byte_is_written(tmp_path, env, columns, monkeypatch):
    writer = create(tmp_path / "points", env, command="test")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6 - 100, 100))
    # 24 x 2 obs, 20 each of action, reward, terms: 4 bytes; 2 x 20 bool; 5 x 8 episode_start.
    needed = 4 * (48 + 60) + 40 + 40
    with pytest.raises(InputError, match=f"needs {needed} bytes on this disk, 100 are available"):
        writer.append(1, **columns[1])
    assert not (writer.partial / "task-001").exists()
    with pytest.raises(InputError, match="needs 101 bytes"):
        check_room(tmp_path / "not/yet/there", 101)
    check_room(tmp_path, 100)


def test_the_bytes_of_a_task_are_known_beforehand(env):
    assert store.task_bytes(env.spec, 20, 4) == 4 * (48 + 60) + 40 + 40
    assert store.task_bytes(env.spec, 20, 4, "float16") == 2 * (48 + 60) + 40 + 40


def test_a_disk_that_fills_up_leaves_the_last_good_state(tmp_path, env, columns, monkeypatch):
    writer = create(tmp_path / "points", env, command="test")
    writer.append(0, **episodes_of(columns[0], 0, 4))
    before = files_of(writer.partial)
    names = iter(["obs", "action", "reward"])

    def full(self, *args):
        if next(names, None) is None and args == ("ab",):
            raise OSError(28, "No space left on device")
        return real_open(self, *args)

    real_open = Path.open
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InputError, match="No space left on device"):
        writer.append(0, **episodes_of(columns[0], 4, 10))
    monkeypatch.undo()
    assert files_of(writer.partial) == before
    writer.append(0, **episodes_of(columns[0], 4, 10))
    writer.complete(0, BEHAVIOUR)
    assert_holds(writer.finish(), {0: columns[0]})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "obs",
            lambda c: c[:-1],
            r"task 1, obs: float32 \(23, 2\); give a float32 \(24, 2\)",
        ),
        ("reward", lambda c: c.astype(int), r"task 1, reward: int64 \(20,\)"),
        ("action", lambda c: c.astype(object), r"task 1, action: object \(20, 1\)"),
        ("terminated", lambda c: c.astype(float), r"task 1, terminated: float64 \(20,\)"),
        ("obs", lambda c: c.astype(complex), r"task 1, obs: complex128 .*; give a float32"),
        ("episode_start", lambda c: c.astype(float), r"task 1, episode_start: float64 \(5,\)"),
        ("terms", lambda c: c[:, 0], r"task 1, terms: float32 \(20,\); give a float32 \(20, 1\)"),
    ],
)
def test_wrong_kinds_and_shapes(tmp_path, env, columns, name, change, message):
    writer = create(tmp_path / "points", env, command="test")
    with pytest.raises(InputError, match=message):
        writer.append(1, **columns[1] | {name: change(columns[1][name])})


def test_missing_and_unknown_columns(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    task = columns[1] | {"cost": columns[1]["reward"]}
    del task["truncated"]
    with pytest.raises(InputError, match="missing or unknown columns: cost, truncated"):
        writer.append(1, **task)
    with pytest.raises(InputError, match="no task 3; test-point/test-v1 has 3"):
        writer.append(3, **columns[1])
    writer.append(0, **episodes_of(columns[0], 0, 2))
    rest = episodes_of(columns[0], 2, 10)
    del rest["terms"]
    with pytest.raises(InputError, match="terms must be given for all episodes or for none"):
        writer.append(0, **rest)


def test_finishing_needs_complete_tasks(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    with pytest.raises(InputError, match="no task was written"):
        writer.finish()
    with pytest.raises(InputError, match="task 1 has no episode"):
        writer.complete(1, BEHAVIOUR)
    writer.append(1, **columns[1])
    with pytest.raises(InputError, match="task-001 is not complete"):
        writer.finish()


def test_no_float_is_turned_into_infinity_unseen(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test", dtype="float16")
    columns[1]["obs"][3, 1] = 70000.0  # float16 ends at 65504
    with pytest.raises(InputError, match=r"obs.npy \(task 1, obs, row 3\): NaN or infinity"):
        writer.append(1, **columns[1])
    with pytest.raises(InputError, match="dtype 'float64': must be float32 or float16"):
        create(tmp_path / "other", env, command="test", dtype="float64")


# --- Smaller datasets ---


def test_a_thinned_half_precision_copy(tmp_path, env, dataset, columns):
    view = dataset.view(Slice.parse("last-4"))
    with pytest.raises(InputError, match="every 0: must be at least 1"):
        write_slice(view, tmp_path / "small", env, every=0, command="cut")
    small = write_slice(view, tmp_path / "small", env, every=3, dtype="float16", command="cut")
    # Episodes 6 and 9 of 10, 0 and 3 of 4, 3 and 6 of 7.
    for index, (first, second) in {0: (6, 9), 1: (0, 3), 2: (3, 6)}.items():
        parts = [episodes_of(columns[index], e, e + 1) for e in (first, second)]
        task = small.task(index)
        assert task.obs.dtype == task.reward.dtype == np.float16
        assert task.num_episodes == 2
        for name in ("obs", "action", "reward", "terms"):
            expected = np.concatenate([part[name] for part in parts]).astype(np.float16)
            np.testing.assert_array_equal(task.column(name), expected)
    assert small.splits == dataset.splits
    assert small.manifest.source == {"hash": dataset.manifest.hash, "slice": "last-4, every 3"}
    assert small.manifest.command == "cut"
    assert small.manifest.validated
    assert small.manifest.record(0).behaviour == BEHAVIOUR


@pytest.mark.parametrize("name", COLUMNS)
def test_no_slice_is_cut_from_damaged_data(tmp_path, env, dataset, name):
    path = dataset.path / f"task-002/{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"task-002/{name}.npy .*sha256 differs"):
        write_slice(dataset, tmp_path / "small", env, command="cut")
    assert not (tmp_path / "small").exists()


def test_a_slice_too_long_writes_nothing(tmp_path, env, dataset):
    view = dataset.view(Slice.parse("last-9"))
    with pytest.raises(InputError, match="slice last-9: the task has 4 episodes"):
        write_slice(view, tmp_path / "small", env, command="cut")
    assert not (tmp_path / "small.partial").exists()
