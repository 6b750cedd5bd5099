"""Small files in every foreign layout, as its program writes them, and what becomes of them."""

import pickle

import foreign
import numpy as np
import pytest
from points import HORIZON, assert_holds, lifetime

from omrl.data.formats import from_episodes, layout
from omrl.data.formats.source import Statement
from omrl.errors import InputError

GOALS = (0.0, 0.5, 1.0)
"""Of the canonical tasks of `PointEnv`."""


@pytest.fixture(autouse=True)
def _batches(monkeypatch):
    """A few rows at a time; the exports are read in one batch."""
    monkeypatch.setattr(layout, "BATCH_BYTES", 500)


def not_checkable(dataset):
    return dataset.manifest.validation["reward"].startswith("not checkable")


# --- MACAW ---


def test_macaw_buffers(tmp_path, load, lifetimes):
    pytest.importorskip("h5py")
    foreign.macaw(tmp_path / "macaw", lifetimes, GOALS)
    dataset = load(tmp_path / "macaw", "macaw")
    assert_holds(dataset, lifetimes)
    assert not_checkable(dataset)
    np.testing.assert_array_equal(dataset.task_parameters[:, 0], GOALS)
    assert dataset.splits == {"train": (0, 1), "test": (2,)}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        # Rows 16 to 19 went to 0 to 3; of the oldest trajectory only its first step is left.
        (16, [(0, slice(0, 1)), (1, None), (2, None), (3, None)]),
        # The ring wrapped between trajectories: nothing tells where, so the order of places it is.
        (15, [(3, None), (1, None), (2, None)]),
        (20, [(0, None), (1, None), (2, None), (3, None)]),
    ],
)
def test_a_macaw_buffer_that_wrapped_is_unrolled(tmp_path, env, load, size, expected):
    pytest.importorskip("h5py")
    whole = list(foreign.episodes(lifetime(env, 0, [5, 5, 5, 5])))
    task = foreign.joined(whole)
    foreign.macaw(tmp_path / "macaw", {0: task}, GOALS, size=size)
    parts = []
    for number, rows in expected:
        part = dict(whole[number])
        if rows is not None:
            part = {name: column[rows] for name, column in part.items()}
            part["obs"] = whole[number]["obs"][: len(part["reward"]) + 1]
            part["truncated"] = np.array([True])
        del part["terms"]
        parts.append(part)
    assert_holds(load(tmp_path / "macaw", "macaw"), {0: foreign.joined(parts)})


# --- rlkit and oyster ---


@pytest.mark.parametrize("writer", ["protocol-2", "protocol-5", "joblib", "joblib-compressed"])
@pytest.mark.parametrize("buffer", ["replay_buffer", "enc_replay_buffer"])
def test_snapshots_of_oyster(tmp_path, monkeypatch, load, lifetimes, writer, buffer):
    path = tmp_path / "extra_data.pkl"
    content = {
        "epoch": 49,
        buffer: foreign.oyster_buffer(monkeypatch, lifetimes),
        "other": [1, None],
    }
    if writer.startswith("joblib"):
        foreign.joblib_dump(monkeypatch, content, path, compress="compressed" in writer)
    else:
        path.write_bytes(pickle.dumps(content, protocol=int(writer[-1])))
    dataset = load(path, "rlkit", canonical=True, buffer=buffer)
    assert_holds(dataset, lifetimes)
    assert dataset.manifest.record(1).behaviour["buffer"] == buffer
    assert not_checkable(dataset)


def test_a_ring_that_overwrote_its_oldest_rows_begins_within_an_episode(
    tmp_path, monkeypatch, env, load
):
    whole = list(foreign.episodes(lifetime(env, 0, [5, 5, 3, 5])))
    buffer = foreign.oyster_buffer(
        monkeypatch, {0: foreign.joined(whole)}, capacity=16, dtype=np.float64
    )
    (tmp_path / "buffer.pkl").write_bytes(pickle.dumps(buffer))
    kept = {n: c[2:] for n, c in whole[0].items()}  # 18 rows in 16 places
    parts = [{n: c for n, c in p.items() if n != "terms"} for p in [kept, *whole[1:]]]
    dataset = load(tmp_path / "buffer.pkl", "rlkit", canonical=True)
    assert_holds(dataset, {0: foreign.joined(parts)})


def test_an_unfinished_last_episode_is_truncated(tmp_path, monkeypatch, env, load):
    task = lifetime(env, 0, [5, 5])
    cut = foreign.episodes(task)
    first, second = next(cut), next(cut)
    second = {n: c[: 4 if n == "obs" else 3] for n, c in second.items()}
    shorter = foreign.joined([first, second])
    buffer = foreign.oyster_buffer(monkeypatch, {0: shorter})
    (tmp_path / "buffer.pkl").write_bytes(pickle.dumps(buffer))
    dataset = load(tmp_path / "buffer.pkl", "rlkit", canonical=True)
    shorter["truncated"][-1] = True
    assert_holds(dataset, foreign.without_terms({0: shorter}))


def test_time_limits_of_another_length_are_stated(tmp_path, monkeypatch, env, load):
    task = lifetime(env, 0, [4, 4, 4])
    task["terminated"][:] = False
    task["truncated"] = np.arange(12) % 4 == 3
    buffer = foreign.oyster_buffer(monkeypatch, {0: task})
    (tmp_path / "buffer.pkl").write_bytes(pickle.dumps(buffer))
    with pytest.raises(InputError, match=r"buffer\.pkl, task 0, row 4: does not go on where row 3"):
        load(tmp_path / "buffer.pkl", "rlkit", canonical=True)
    dataset = load(tmp_path / "buffer.pkl", "rlkit", canonical=True, path_length=4)
    assert_holds(dataset, foreign.without_terms({0: task}))


# --- SMAC, FOCAL, BOReL ---


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("buffer", ["replay_buffer", "enc_replay_buffer"])
def test_smac_dicts(tmp_path, load, lifetimes, marked, buffer):
    foreign.smac(tmp_path / "smac", lifetimes, GOALS, buffer=buffer, marked=marked)
    dataset = load(tmp_path / "smac", "smac", buffer=buffer)
    assert_holds(dataset, lifetimes)
    np.testing.assert_array_equal(dataset.task_parameters[:, 0], GOALS)
    assert not_checkable(dataset)


def test_directions_of_smac_are_degrees(tmp_path, load, lifetimes):
    foreign.smac(tmp_path / "smac", lifetimes, (90.0, 180.0, 45.0), key="goal")
    dataset = load(tmp_path / "smac", "smac", given=Statement(splits={"train": (0, 1, 2)}))
    np.testing.assert_allclose(dataset.task_parameters[:, 0], np.pi / np.array([2, 1, 4]))


def test_focal_trajectories(tmp_path, load, lifetimes):
    foreign.focal(tmp_path / "focal", lifetimes)
    foreign.focal(tmp_path / "focal", lifetimes, kind="eval")
    dataset = load(tmp_path / "focal", "focal", canonical=True, pattern="trj_evalsample*.npy")
    assert_holds(dataset, lifetimes)
    assert dataset.manifest.record(0).behaviour["trajectories"] == 10
    assert not_checkable(dataset)


@pytest.mark.parametrize("cube", [0, 2 * HORIZON])
def test_borel_trees(tmp_path, env, load, cube):
    columns = {index: lifetime(env, index, [5] * 6) for index in range(3)}
    foreign.borel(tmp_path / "borel", columns, GOALS, cube=cube)
    dataset = load(tmp_path / "borel", "borel")
    for task in columns.values():  # The wrapper's stale observation, see the reader.
        second = task["episode_start"][1:-1:2]
        number = np.arange(1, 6, 2)
        task["obs"][second + number] = task["obs"][second + number - 1]
    assert_holds(dataset, foreign.without_terms(columns))
    np.testing.assert_array_equal(dataset.task_parameters[:, 0], GOALS)
    assert not_checkable(dataset)


def test_the_flag_that_borel_appends_to_observations_is_dropped(tmp_path, env, load):
    columns = {0: lifetime(env, 0, [5] * 4)}
    foreign.borel(tmp_path / "borel", columns, GOALS)
    (folder,) = (tmp_path / "borel").iterdir()
    for name in ("obs", "next_obs"):
        array = np.load(folder / f"{name}.npy")
        np.save(folder / f"{name}.npy", np.concatenate([array, np.ones((20, 1), "f4")], axis=1))
    dataset = load(tmp_path / "borel", "borel")
    np.testing.assert_array_equal(dataset.task(0).obs[0], columns[0]["obs"][0])


# --- D4RL, npz, Minari ---


@pytest.mark.parametrize("timeouts", [True, False])
def test_d4rl_files(tmp_path, load, lifetimes, timeouts):
    pytest.importorskip("h5py")
    (tmp_path / "d4rl").mkdir()
    for index, task in lifetimes.items():
        foreign.d4rl(tmp_path / f"d4rl/point-task-{index}-v2.hdf5", task, timeouts=timeouts)
    dataset = load(tmp_path / "d4rl", "d4rl", canonical=True)
    assert_holds(dataset, lifetimes)
    assert not_checkable(dataset)


def test_d4rl_without_next_observations_loses_the_last_step_of_every_episode(
    tmp_path, load, lifetimes
):
    pytest.importorskip("h5py")
    foreign.d4rl(tmp_path / "one.hdf5", lifetimes[0], next_observations=False)
    dataset = load(tmp_path / "one.hdf5", "d4rl", canonical=True)
    parts = []
    for part in foreign.episodes(lifetimes[0]):
        if len(part["reward"]) > 1:
            kept = {name: column[:-1].copy() for name, column in part.items()}
            kept["truncated"][-1] = True
            parts.append(kept)
    assert_holds(dataset, {0: foreign.joined(parts)})


def test_npz_episodes(tmp_path, load, columns):
    foreign.npz(tmp_path / "npz", columns)
    dataset = load(tmp_path / "npz", "npz", canonical=True)
    assert_holds(dataset, columns)
    assert dataset.manifest.validation["reward"] == "checked"


@pytest.mark.parametrize("storage", ["hdf5", "arrow"])
def test_minari_datasets_made_elsewhere(tmp_path, load, columns, storage):
    pytest.importorskip("h5py" if storage == "hdf5" else "pyarrow")
    for index, task in columns.items():
        name = f"point/task-{index}-v0"
        write = foreign.minari_hdf5 if storage == "hdf5" else foreign.minari_arrow
        write(tmp_path / "root" / name / "data", task, name=name)
    dataset = load(tmp_path / "root", "minari", canonical=True)
    if storage == "arrow":
        columns = foreign.without_terms(columns)
    assert_holds(dataset, columns)
    assert not_checkable(dataset) == (storage == "arrow")


# --- Python ---


def as_mapping(part):
    fields = {theirs: part[ours] for ours, theirs in foreign.MINARI.items()}
    return fields | {"infos": {"terms": part["terms"]}}


def as_step_infos(part):
    infos = [{"terms": {"position": value}} for value in part["terms"][:, 0]]
    return as_mapping(part) | {"infos": [{"task": 1}, *infos]}


def as_named_terms(part):
    with_reset = np.concatenate([[np.nan], part["terms"][:, 0]])
    return as_mapping(part) | {"infos": {"terms": {"position": with_reset}}}


class Episode:
    def __init__(self, part):
        self.__dict__ = as_mapping(part)


@pytest.mark.parametrize("form", [as_mapping, as_step_infos, as_named_terms, Episode])
def test_episodes_of_a_program(tmp_path, env, columns, form):
    given = {i: (form(part) for part in foreign.episodes(task)) for i, task in columns.items()}
    dataset = from_episodes(tmp_path / "points", env, given, command="test")
    assert_holds(dataset, columns)
    assert dataset.manifest.validation["reward"] == "checked"


def test_what_was_refused_and_corrected_is_read_anew(tmp_path, env, columns):
    parts = [[as_mapping(part) for part in foreign.episodes(columns[task])] for task in (0, 1)]
    wrong = [*parts[1][:-1], parts[1][-1] | {"rewards": None}]
    with pytest.raises(InputError, match="no rewards"):
        from_episodes(tmp_path / "points", env, {0: parts[0], 1: wrong}, command="test")
    given = {0: parts[0][1:], 1: parts[1]}
    dataset = from_episodes(tmp_path / "points", env, given, command="test")
    assert dataset.task(0).num_episodes == len(parts[0]) - 1


def test_a_wrong_episode_of_a_program_is_named(tmp_path, env, columns):
    parts = [as_mapping(part) for part in foreign.episodes(columns[0])]
    for change, message in (
        ({"actions": parts[2]["actions"][:-1]}, r"episode 2, action: shape \(4, 1\), must be"),
        ({"rewards": None}, "episode 2: no rewards; an episode has"),
        ({"rewards": np.arange(5)}, "reward: dtype int64, must be floating-point"),
        ({"observations": [[0.0, 1.0], [0.0]]}, "obs: rows of different lengths"),
        ({"truncations": np.full(5, 0.5)}, "truncated: must be truth values"),
        ({"infos": {"terms": {"speed": [0.0] * 5}}}, "no 'position'"),
    ):
        given = [*parts[:2], parts[2] | change]
        with pytest.raises(InputError, match=f"task 0.*{message}"):
            from_episodes(tmp_path / "points", env, {0: given}, command="test")
    mixed = [parts[0], parts[1] | {"infos": {}}]
    with pytest.raises(InputError, match="terms are in some episodes only"):
        from_episodes(tmp_path / "points", env, {0: mixed}, command="test")
