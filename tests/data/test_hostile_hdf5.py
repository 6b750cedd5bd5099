"""HDF5 files of strangers: content that is elsewhere, sizes that are lies, rows in no order."""

import foreign
import numpy as np
import pytest
from hostile import GOALS, HUGE, assert_refused, cases, load, one_task

from omrl.errors import InputError

h5py = pytest.importorskip("h5py")

CASES, case = cases()


# --- HDF5: content elsewhere, sizes that are lies ---


def hdf5_source(format, path):
    """A source, the file in it, and the path of its observations."""
    if format == "macaw":
        foreign.macaw(path, foreign.without_terms(one_task()), GOALS)
        return path / "buffers_point_train_0_sub_task_0.hdf5", "obs"
    if format == "d4rl":
        foreign.d4rl(path, one_task()[0])
        return path, "observations"
    foreign.minari_hdf5(path / "data", one_task()[0])
    return path / "data/main_data.hdf5", "episode_2/observations"


def external_link(file, name, shape):
    file[name] = h5py.ExternalLink("/etc/secret.hdf5", "/data")


def soft_link(file, name, shape):
    file["elsewhere"] = np.zeros(shape, "f4")
    file[name] = h5py.SoftLink("/elsewhere")


def virtual_dataset(file, name, shape):
    layout = h5py.VirtualLayout(shape=shape, dtype="f4")
    layout[:] = h5py.VirtualSource("/etc/secret.hdf5", "data", shape=shape)
    file.create_virtual_dataset(name, layout)


def external_storage(file, name, shape):
    file.create_dataset(name, shape, "f4", external=[("/etc/passwd", 0, 8 * shape[0])])


def objects(file, name, shape):
    file.create_dataset(name, shape, h5py.vlen_dtype(np.float32))


def strings(file, name, shape):
    file.create_dataset(name, shape, "S4")


def compound(file, name, shape):
    file.create_dataset(name, shape, [("a", "f4")])


def rare_filter(file, name, shape):
    file.create_dataset(name, data=np.zeros(shape, "f4"), scaleoffset=2)


def never_written(file, name, shape):
    file.create_dataset(name, (HUGE, 2), "f4", chunks=(1024, 2))


def never_written_but_compressed(file, name, shape):
    file.create_dataset(name, (HUGE, 2), "f4", chunks=(1024, 2), compression="gzip")


def contiguous_never_written(file, name, shape):
    file.create_dataset(name, (HUGE, 2), "f4")


def chunk_of_a_gigabyte(file, name, shape):
    chunks = (2**27, 2)
    file.create_dataset(name, shape, "f4", maxshape=(None, 2), chunks=chunks, compression="gzip")


def missing(file, name, shape):
    pass


def group_instead(file, name, shape):
    file.create_group(name)


def scalar(file, name, shape):
    file[name] = 1.0


def whole_numbers(file, name, shape):
    file[name] = np.zeros(shape, "i4")


def nans(file, name, shape):
    file[name] = np.full(shape, np.nan, "f4")


def other_width(file, name, shape):
    file[name] = np.zeros((shape[0], 3), "f4")


HDF5 = [
    (external_link, "ExternalLink; links are not followed"),
    (soft_link, "SoftLink; links are not followed"),
    (virtual_dataset, "content is in other files"),
    (external_storage, "content is in other files"),
    (objects, "dtype object; only numbers"),
    (strings, r"dtype \|S4; only numbers"),
    (compound, "only numbers are read"),
    (rare_filter, "filter 6; allowed are deflate"),
    (never_written, "was declared, but only 0 of 8,796,093,022,208 bytes were written"),
    (never_written_but_compressed, "more than 100 times the file"),
    (contiguous_never_written, "was declared, but only 0 of"),
    (chunk_of_a_gigabyte, "chunks above 268,435,456 bytes"),
    (missing, "no (episode_2/)?obs(ervations)?; it is needed"),
    (group_instead, "must be a dataset, is a group"),
    (scalar, r"shape \(\)|shape \(1,\)"),
    (whole_numbers, "dtype int32, must be floating-point|dtype int32"),
    (nans, "NaN or infinity|does not go on"),
    (other_width, r"must be \(\d+, 2\)"),
]


@pytest.mark.parametrize("format", ["macaw", "d4rl", "minari"])
@pytest.mark.parametrize(
    ("replace", "message"), HDF5, ids=lambda value: getattr(value, "__name__", "")
)
def test_hdf5_content_is_refused(tmp_path, format, replace, message):
    def make(source):
        path, name = hdf5_source(format, source)
        with h5py.File(path, "a") as file:
            shape = file[name].shape
            del file[name]
            replace(file, name, shape)

    if replace is soft_link and format == "minari":
        message += "|groups for"
    assert_refused(tmp_path, format, make, message)


@pytest.mark.parametrize("format", ["macaw", "d4rl", "minari"])
@pytest.mark.parametrize("content", [b"", b"no HDF5", b"\x89HDF\r\n\x1a\n" + bytes(500)])
def test_other_files_than_hdf5_are_refused(tmp_path, format, content):
    path, _ = hdf5_source(format, tmp_path / "source")
    whole = path.read_bytes()
    for number, damaged in enumerate((content, whole[: len(whole) // 2])):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            load(tmp_path, format, f"out-{number}")


# --- MACAW and D4RL: rows ---


def change_macaw(path, change, task=None):
    foreign.macaw(path, foreign.without_terms(task or one_task()), GOALS)
    with h5py.File(path / "buffers_point_train_0_sub_task_0.hdf5", "a") as file:
        fields = {name: file[name][()] for name in file}
        changed = change(fields)
        for name in fields:
            del file[name]
        for name, value in changed.items():
            file[name] = value


@case("macaw", "row 1: not the step before that of row 0; rows must be whole trajectories")
def macaw_buffer_saved_after_a_skip(path):
    change_macaw(path, lambda fields: {n: v[::3] if v.ndim else v for n, v in fields.items()})


@case("macaw", r"row \d+: not the step before")
def macaw_unsorted_rows(path):
    order = np.random.default_rng(0).permutation(20)
    change_macaw(path, lambda fields: {n: v[order] if v.ndim else v for n, v in fields.items()})


@case("macaw", r"row \d+: does not go on where row \d+ led, within an episode")
def macaw_unsorted_observations(path):
    change_macaw(path, lambda fields: fields | {"obs": fields["obs"][::-1]})


@case("macaw", "row 0: not the step before")
def macaw_discounts_that_are_not_finite(path):
    change_macaw(path, lambda fields: fields | {"terminal_discounts": np.full((20, 1), np.nan)})


@case("macaw", "discount_factor 1; between 0 and 0.9999")
def macaw_without_a_discount(path):
    change_macaw(path, lambda fields: fields | {"discount_factor": 1.0})


@case("macaw", r"terminal_discounts \(5, 1\)")
def macaw_lengths_differ(path):
    change_macaw(path, lambda fields: fields | {"terminal_discounts": np.ones((5, 1))})


@case("macaw", "reward, row 3.*NaN or infinity")
def macaw_nan(path):
    def change(fields):
        fields["rewards"][1] = np.nan
        return fields

    change_macaw(path, change)


@case("macaw", "task 0 is buffers_a_train_0_sub_task_0.hdf5 already; remove one")
def macaw_two_files_of_a_task(path):
    foreign.macaw(path, foreign.without_terms(one_task()), GOALS)
    (path / "buffers_point_train_0_sub_task_0.hdf5").rename(
        path / "buffers_a_train_0_sub_task_0.hdf5"
    )
    (path / "buffers_b_train_00_sub_task_0.hdf5").write_bytes(b"")


@case("d4rl", r"row \d+: does not go on where row \d+ led, within an episode")
def d4rl_unsorted_rows(path):
    task = one_task()[0]
    foreign.d4rl(path, task, observations=foreign.rows_of(task)["obs"][::-1])


@case("d4rl", "terminals: must be truth values, or the numbers 0 and 1")
def d4rl_flags_that_are_none(path):
    foreign.d4rl(path, one_task()[0], terminals=np.full(20, 0.5))


@case("d4rl", "rewards|reward: shape")
def d4rl_lengths_differ(path):
    foreign.d4rl(path, one_task()[0], rewards=np.zeros(7, "f4"))


@case("d4rl", "longer than the horizon 5")
def d4rl_episodes_that_do_not_end(path):
    foreign.d4rl(path, one_task([5])[0], timeouts=False, terminals=np.zeros(5, bool))
    with h5py.File(path, "a") as file:
        for name in ("observations", "next_observations", "actions", "rewards", "terminals"):
            value = file[name][()]
            del file[name]
            file[name] = np.repeat(value[:1], 8, axis=0)
        file["observations"][...] = file["next_observations"][...] = np.zeros((8, 2), "f4")
        file["timeouts"] = np.zeros(8, bool)


@case("d4rl", "mjpro.h5; name the files of the tasks task-0.hdf5")
def d4rl_files_without_a_number(path):
    path.mkdir()
    (path / "mjpro.h5").write_bytes(b"")


@pytest.mark.parametrize(("format", "make", "message"), CASES)
def test_it_is_refused(tmp_path, format, make, message):
    assert_refused(tmp_path, format, make, message)
