"""Minari datasets of strangers: metadata and ids that are lies, Arrow files that are none."""

import json

import foreign
import numpy as np
import pytest
from hostile import HUGE, assert_refused, cases, load, one_task

from omrl.errors import InputError

h5py = pytest.importorskip("h5py")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.ipc")

CASES, case = cases()


# --- Minari ---


def change_metadata(path, **fields):
    foreign.minari_hdf5(path / "data", one_task()[0])
    file = path / "data/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


for fields, message in (
    ({"total_episodes": HUGE}, "holds 4 groups for 1099511627776 episodes"),
    ({"total_episodes": "4"}, "total_episodes must be a number"),
    ({"data_format": "parquet"}, "data_format 'parquet'; must be hdf5 or arrow"),
    ({"data_format": ["hdf5"]}, r"data_format \['hdf5'\]; must be"),
    ({"omrl": []}, "omrl: must be an object with the number of the task"),
    ({"omrl": {"task": -1}}, "omrl: must be an object with the number of the task"),
    ({"omrl": {"task": 0, "x": 1}}, "omrl.x: no such field; there are env"),
    ({"omrl": {"task": 7}}, "task 7; test-point/test-v1 has 3 tasks"),
):

    def minari_metadata(path, fields=fields):
        change_metadata(path, **fields)

    case("minari", message)(minari_metadata)


@case("minari", "not JSON")
def minari_metadata_that_nests(path):
    change_metadata(path)
    (path / "data/metadata.json").write_text("[" * 10**6)


@case("minari", "larger than .* bytes; not a description")
def minari_metadata_that_is_huge(path):
    change_metadata(path)
    with (path / "data/metadata.json").open("r+b") as file:
        file.truncate(2**40)


@case("minari", "no Minari dataset; give a folder")
def minari_nothing(path):
    path.mkdir()


@case("minari", "task 0 is in .* already; give one")
def minari_two_datasets_of_a_task(path):
    for name in ("a/task-0-v0", "b/task-0-v0"):
        foreign.minari_hdf5(path / name / "data", one_task()[0], name=name)


@case("minari", "has no task number")
def minari_datasets_without_a_number(path):
    for name in ("a/medium-v0", "a/expert-v0"):
        foreign.minari_hdf5(path / name / "data", one_task()[0], name=name)


@case("minari", "episode_1: its id is of another episode")
def minari_episode_ids_twice(path):
    foreign.minari_hdf5(path / "data", one_task()[0])
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file["episode_1"].attrs["id"] = 0


@case("minari", "attribute id must be a whole number")
def minari_ids_that_are_arrays(path):
    foreign.minari_hdf5(path / "data", one_task()[0])
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file["episode_1"].attrs["id"] = np.zeros(1000)


@case("minari", "an episode of this environment has at most 96 bytes in a column")
def minari_episode_that_is_too_long(path):
    foreign.minari_hdf5(path / "data", one_task()[0])
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        del file["episode_1/observations"]
        file["episode_1/observations"] = np.zeros((200, 2), "f4")


def change_arrow(path, **columns):
    foreign.minari_arrow(path / "data", one_task()[0], **columns)


def lists(width, values=12):
    return pa.FixedSizeListArray.from_arrays(np.zeros(values, "f4"), width)


for columns, message in (
    ({"observations": lists(3, 18)}, r"obs: shape \(6, 3\), must be \(6, 2\)"),
    ({"observations": pa.array([[0.0]] * 6)}, "list<.*>.* must be numbers, all there"),
    ({"observations": pa.array([None] * 6)}, "null or empty values"),
    ({"rewards": pa.array([0.0, None, 0.0, 0.0, 0.0, 0.0])}, "double or empty values; must be"),
    ({"rewards": pa.array(["a"] * 6)}, "string or empty values"),
    ({"rewards": pa.array([0] * 6)}, "reward: dtype int64, must be floating-point"),
    ({"rewards": pa.array([float("nan")] * 6)}, "reward, row 0.*NaN or infinity"),
    ({"rewards": pa.array([b"x"] * 6).dictionary_encode()}, "no record batch where one must be"),
    ({"infos": pa.array([{"terms": None}] * 6)}, "infos/terms: null or empty values"),
    ({"infos": pa.array([{"terms": {"speed": 1.0}}] * 6)}, "damaged"),
):

    def minari_columns(path, columns=columns):
        change_arrow(path, **columns)

    case("minari", message)(minari_columns)


@case("minari", "part-0.arrow: compressed; write it without compression")
def minari_compressed_arrow(path):
    change_arrow(path)
    batch = pa.RecordBatch.from_pydict({"observations": lists(2, 2**20)})
    foreign.write_arrow(path / "data/1", batch, 1, compression="zstd")


@case("minari", "its folders are not the numbers 0 to 3")
def minari_arrow_folders_twice(path):
    change_arrow(path)
    (path / "data/01").mkdir()


@case("minari", "its id in metadata.json must be 1")
def minari_arrow_ids_twice(path):
    change_arrow(path)
    (path / "data/1/metadata.json").write_text('{"id": 0}')


@case("minari", "2 .arrow files; an episode has one")
def minari_arrow_files_twice(path):
    change_arrow(path)
    (path / "data/1/part-1.arrow").write_bytes(b"")


@case("minari", "larger than an episode of 5 steps")
def minari_arrow_of_a_terabyte(path):
    change_arrow(path)
    with (path / "data/1/part-0.arrow").open("r+b") as file:
        file.truncate(2**40)


@case("minari", "part-0.arrow: damaged")
def minari_arrow_of_many_rows(path):
    change_arrow(path)
    file = path / "data/1/part-0.arrow"
    six, many = (number.to_bytes(8, "little") for number in (6, HUGE))
    assert six in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(six, many))


@case("minari", "not an Arrow file")
def minari_other_than_arrow(path):
    change_arrow(path)
    (path / "data/1/part-0.arrow").write_bytes(b"PK\x03\x04")


def test_damaged_arrow_files_are_data_or_one_message(tmp_path):
    change_arrow(tmp_path / "source")
    path = tmp_path / "source/data/1/part-0.arrow"
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for number in range(100):
        content = bytearray(whole)
        if number < 50:
            del content[number * len(whole) // 50 :]
        else:
            content[rng.integers(8, len(whole))] ^= int(rng.integers(1, 256))
        path.write_bytes(content)
        try:
            load(tmp_path, "minari", f"out-{number}")
        except InputError:
            refused += 1
    assert refused > 40


@pytest.mark.parametrize(("format", "make", "message"), CASES)
def test_it_is_refused(tmp_path, format, make, message):
    assert_refused(tmp_path, format, make, message)
