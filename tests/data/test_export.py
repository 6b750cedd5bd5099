"""What is exported comes back the same to the bit, and other programs read it."""

import json
import pickle
import warnings

import numpy as np
import pytest
from foreign import episodes, without_terms
from points import BEHAVIOUR, files_of, lifetime

from omrl.data.exchange import export_dataset, import_dataset
from omrl.data.formats import FORMATS, layout, unpickle
from omrl.data.formats.macaw_buffer import MacawReplayBuffer
from omrl.data.slice import Slice
from omrl.data.store import create, open_dataset, write_slice
from omrl.envs import registry
from omrl.errors import InputError

h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")

WRITABLE = [name for name, each in FORMATS.items() if each.is_writable]


@pytest.fixture(params=WRITABLE)
def format(request):
    return request.param


@pytest.fixture
def cheetah(tmp_path, cheetah_data):
    """An episode of every task of a registered environment."""
    part = open_dataset(cheetah_data).view(Slice.parse("first-1"))
    env = registry.make(part.env_id)
    return write_slice(part, tmp_path / "cheetah", env, command="test")


def round_trip(dataset, folder, format, env):
    """Export and import again, without any statement."""
    export_dataset(dataset, folder / "exported", format)
    return import_dataset(folder / "exported", folder / "back", format, command="test", env=env)


def assert_same(back, dataset):
    """Task records have the hashes of all columns."""
    assert back.manifest.tasks == dataset.manifest.tasks
    assert back.splits == dataset.splits
    assert back.spec == dataset.spec
    assert back.manifest.dtype == dataset.manifest.dtype
    assert back.manifest.validation["reward"] == dataset.manifest.validation["reward"]


def write(path, env, columns, **options):
    writer = create(path, env, command="test", **options)
    for index, task in columns.items():
        writer.write_task(index, behaviour=BEHAVIOUR | {"task": index}, **task)
    return writer.finish()


@pytest.mark.parametrize("batch_bytes", [layout.BATCH_BYTES, 500])
def test_a_round_trip_changes_no_bit(tmp_path, monkeypatch, env, dataset, format, batch_bytes):
    monkeypatch.setattr(layout, "BATCH_BYTES", batch_bytes)
    assert_same(round_trip(dataset, tmp_path, format, env), dataset)


def test_so_does_one_of_half_precision(tmp_path, env, dataset, format):
    half = write_slice(dataset, tmp_path / "half", env, dtype="float16", command="test")
    assert_same(round_trip(half, tmp_path, format, env), half)


def test_and_one_without_terms_with_both_flags_at_an_end(tmp_path, env, columns, format):
    columns = without_terms(columns)
    columns[0]["terminated"][4] = columns[0]["truncated"][4] = True
    dataset = write(tmp_path / "both", env, columns)
    assert_same(round_trip(dataset, tmp_path, format, env), dataset)


def test_and_one_of_tasks_and_splits_of_its_own(tmp_path, env, format):
    own = env.with_tasks(np.array([[0.1], [0.7]]), {"all": (0, 1), "late": (1,)})
    columns = {index: lifetime(own, index, [5, 2, 5]) for index in (0, 1)}
    dataset = write(tmp_path / "own", own, columns)
    assert_same(round_trip(dataset, tmp_path, format, env), dataset)


def test_and_one_of_some_canonical_tasks(tmp_path, env, columns, format):
    dataset = write(tmp_path / "some", env, {1: columns[1], 2: columns[2]})
    assert_same(round_trip(dataset, tmp_path, format, env), dataset)


def test_a_slice_is_exported(tmp_path, env, dataset, format):
    part = dataset.view(Slice.parse("every-2"))
    back = round_trip(part, tmp_path, format, env)
    for index in back.task_indices:
        for name in ("obs", "action", "reward", "terms", "terminated", "truncated"):
            np.testing.assert_array_equal(
                back.task(index).column(name), part.task(index).column(name)
            )


def test_a_registered_environment_needs_no_option(tmp_path, cheetah):
    assert_same(round_trip(cheetah, tmp_path, "npz", None), cheetah)


def test_another_mdp_under_the_same_name_is_refused(tmp_path, dataset, other_env, format):
    with pytest.raises(InputError, match="another MDP; give the right --env"):
        round_trip(dataset, tmp_path, format, other_env)


def test_a_folder_that_exists_is_left_alone(tmp_path, dataset, format):
    export_dataset(dataset, tmp_path / "out", format)
    before = files_of(tmp_path / "out")
    with pytest.raises(InputError, match="exists"):
        export_dataset(dataset, tmp_path / "out", format)
    assert files_of(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "points"]


def test_what_an_interrupted_export_left_is_replaced(tmp_path, env, dataset, format):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    module = FORMATS[format].load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "savez", interrupt)
        patch.setattr(pickle, "dumps", interrupt)
        patch.setattr(json, "dumps", interrupt)
        with pytest.raises(KeyboardInterrupt):
            export_dataset(dataset, tmp_path / "exported", format)
    assert not (tmp_path / "exported").exists() or module.__name__.endswith("minari")
    assert_same(round_trip(dataset, tmp_path, format, env), dataset)


def test_formats_that_are_only_read_are_named(tmp_path, dataset):
    with pytest.raises(
        InputError, match="no format that is written is called 'rlkit'; did you mean"
    ):
        export_dataset(dataset, tmp_path / "out", "rlkit")


# --- What other programs find ---


def test_a_macaw_buffer_is_what_the_reference_code_would_have_saved(tmp_path, dataset):
    export_dataset(dataset, tmp_path / "out", "macaw")
    for index in dataset.task_indices:
        task = dataset.task(index)
        expected = MacawReplayBuffer(task.num_rows, 2, 1)
        columns = {name: task.column(name) for name in task.columns if name != "episode_start"}
        for part in episodes(columns | {"episode_start": task.episode_start}):
            expected.add_trajectory(part["obs"], part["action"], part["reward"], part["terminated"])
        path = tmp_path / f"out/buffers_test_point_train_{index}_sub_task_0.hdf5"
        with h5py.File(path) as file:
            for name, rows in expected.rows().items():
                assert file[name].dtype == rows.dtype
                assert file[name].compression == "lzf"
                np.testing.assert_array_equal(file[name][()], rows, err_msg=name)
            assert file["discount_factor"][()] == 0.99
        task_file = tmp_path / f"out/env_test_point_train_task{index}.pkl"
        expected_task = [{"goal": float(task.parameters[0])}]
        assert task_file.read_bytes() == pickle.dumps(expected_task, protocol=3)
        assert unpickle.read(task_file) == expected_task


@pytest.mark.parametrize("format", ["minari", "minari-arrow"])
def test_minari_loads_what_was_exported(tmp_path, monkeypatch, dataset, format):
    minari = pytest.importorskip(
        "minari", reason="Minari itself is compared with where it is there"
    )
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    summary = export_dataset(dataset, tmp_path / "root", format)
    assert summary["ids"] == [f"omrl/test-point/test-v1/points/task-00{i}-v0" for i in range(3)]
    assert list(minari.list_local_datasets()) == summary["ids"]
    for index, name in enumerate(summary["ids"]):
        task, loaded = dataset.task(index), minari.load_dataset(name)
        assert (loaded.total_episodes, loaded.total_steps) == (task.num_episodes, task.num_rows)
        assert loaded.action_space.shape == (1,)
        ours = loaded.storage.metadata["omrl"]
        assert ours["tasks"] == {str(index): list(task.parameters)}
        assert ours["spec"] == json.loads(dataset.spec.to_json())
        columns = {name: task.column(name) for name in task.columns if name != "episode_start"}
        expected = episodes(columns | {"episode_start": task.episode_start})
        for found, part in zip(loaded.iterate_episodes(), expected, strict=True):
            np.testing.assert_array_equal(found.observations, part["obs"])
            np.testing.assert_array_equal(found.actions, part["action"])
            np.testing.assert_array_equal(found.rewards, part["reward"])
            np.testing.assert_array_equal(found.terminations, part["terminated"])
            np.testing.assert_array_equal(found.truncations, part["truncated"])
            np.testing.assert_array_equal(found.infos["terms"][1:], part["terms"])


def test_minari_recovers_the_environment_and_task(tmp_path, monkeypatch, cheetah):
    minari = pytest.importorskip(
        "minari", reason="Minari itself is compared with where it is there"
    )
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ids = export_dataset(cheetah, tmp_path, "minari")["ids"]
    index = cheetah.task_indices[-1]
    env = minari.load_dataset(ids[-1]).recover_environment()
    _, info = env.reset(seed=0)
    np.testing.assert_array_equal(info["task"], cheetah.task(index).parameters)
    env.close()


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_what_minari_writes_is_read(tmp_path, monkeypatch, env, columns, storage):
    minari = pytest.importorskip(
        "minari", reason="Minari itself is compared with where it is there"
    )
    from gymnasium.spaces import Box
    from minari.data_collector.episode_buffer import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    for index, task in columns.items():
        buffers = [
            EpisodeBuffer(
                observations=part["obs"],
                actions=part["action"],
                rewards=part["reward"].astype(np.float32),
                terminations=part["terminated"],
                truncations=part["truncated"],
                infos={"terms": np.concatenate([[[np.nan]], part["terms"]]).astype(np.float32)},
            )
            for part in episodes(task)
        ]
        with warnings.catch_warnings(action="ignore"):  # About authors and the like.
            minari.create_dataset_from_buffers(
                f"point/task-{index}-v0",
                buffers,
                observation_space=Box(-np.inf, np.inf, (2,), np.float32),
                action_space=Box(-1, 1, (1,), np.float32),
                data_format=storage,
            )
    back = import_dataset(
        tmp_path / "root", tmp_path / "back", "minari", command="test", env=env, canonical=True
    )
    expected = write(tmp_path / "expected", env, columns)
    for index, record in enumerate(expected.manifest.tasks):
        assert back.manifest.record(index).columns == record.columns
