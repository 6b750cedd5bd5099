"""Headers of .npy files that are lies, archives that are bombs, rows in no order."""

import struct
import zipfile

import foreign
import numpy as np
import pytest
from hostile import GOALS, HUGE, assert_refused, cases, npy, one_task

CASES, case = cases()


# --- BOReL and npz ---


NPY = [
    (npy(shape=(HUGE, 2)), "its header asks for 8,796,093,022,"),
    (npy(shape=(HUGE,) * 40), "asks for"),
    (npy(shape=(-1, 2)), "negative sizes|damaged"),
    (npy(descr="|O", body=b"cos\nsystem\n."), "dtype object; only numbers"),
    (npy(descr="|V8"), "dtype .*; only numbers"),
    (npy(descr="<U4"), "dtype <U4; only numbers"),
    (npy(descr="<c8"), "dtype complex64; only numbers"),
    (npy(body=bytes(23)), "its header asks for 1\\d\\d bytes"),
    (npy(shape="(" * 5000), "damaged"),
    (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "damaged"),
    (b"\x93NUMPY\x03\x00\x10\x00\x00\x00{}", "damaged"),
    (b"", "damaged"),
    (b"PK\x03\x04", "damaged"),
]

for content, message in NPY:

    def borel_header(path, content=content):
        foreign.borel(path, one_task(), GOALS)
        (path / "seed_70_goal_0.0/next_obs.npy").write_bytes(content)

    case("borel", message)(borel_header)

    def npz_header(path, content=content):
        (path / "task-0").mkdir(parents=True)
        with zipfile.ZipFile(path / "task-0/episode-0.npz", "w") as archive:
            archive.writestr("obs.npy", content)

    case("npz", message)(npz_header)


def change_borel(path, name, change):
    foreign.borel(path, one_task(), GOALS)
    file = path / f"seed_70_goal_0.0/{name}.npy"
    np.save(file, change(np.load(file)), allow_pickle=False)


for name, change, message in (
    ("obs", lambda rows: rows[::-1], "row 1: does not go on where row 0 led"),
    ("rewards", lambda rows: rows * np.nan, "reward, row 0.*NaN or infinity"),
    ("actions", lambda rows: rows.astype(np.int16), "action: dtype int16, must be floating-point"),
    ("actions", lambda rows: rows[:7], r"actions.npy: shape \(7, 1\), of obs \(20, 2\)"),
    ("obs", lambda rows: rows[:, 0], r"obs.npy: shape \(20,\)"),
):

    def borel_rows(path, name=name, change=change):
        change_borel(path, name, change)

    case("borel", message)(borel_rows)


@case("borel", "18 rows, must be a multiple of the path length 5")
def borel_of_another_length(path):
    foreign.borel(path, one_task(), GOALS)
    for file in (path / "seed_70_goal_0.0").iterdir():
        np.save(file, np.load(file)[:18])


@case("borel", "cannot read .*rewards.npy: No such file")
def borel_without_rewards(path):
    foreign.borel(path, one_task(), GOALS)
    (path / "seed_70_goal_0.0/rewards.npy").unlink()


def change_npz(path, write):
    foreign.npz(path, one_task())
    file = path / "task-0/episode-1.npz"
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        write(archive, content)


def rewritten(**changed):
    """An archive with these entries instead of its own."""

    def write(archive, content):
        for name, value in (content | {f"{n}.npy": v for n, v in changed.items()}).items():
            archive.writestr(name, value)

    return write


def more(name):
    def write(archive, content):
        rewritten()(archive, content)
        archive.writestr(name, b"")

    return write


BOMB = npy(shape=(2**25, 2), body=bytes(2**28))
for write, message in (
    (rewritten(obs=BOMB), "268,435,584 bytes, an episode of this environment has at most 96"),
    (more("../../made"), r"holds '../../made'; allowed are action.npy"),
    (more("/obs.npy"), "holds '/obs.npy'; allowed are"),
    (more("..\\obs.npy"), "holds .*obs.npy'; allowed are"),
    (more("obs.npy/"), "holds 'obs.npy/'; allowed are"),
    (more("notes.txt"), "holds 'notes.txt'; allowed are"),
    (rewritten(reward=npy(shape=(5,), descr="<i4", body=bytes(20))), "reward: dtype int32"),
    (rewritten(reward=npy(shape=(4,), body=bytes(16))), r"must be \(5, 2\)"),
    (rewritten(reward=npy(shape=(0,))), "no transition; an episode has at least one"),
    (rewritten(obs=npy(shape=(6, 2), body=b"\xff" * 48)), "obs, row 6.*NaN or infinity"),
):

    def npz_archive(path, write=write):
        change_npz(path, write)

    case("npz", message)(npz_archive)


@case("npz", "holds 'obs.npy' twice")
def npz_entry_twice(path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        change_npz(path, more("obs.npy"))


@case("npz", "damaged|bytes")
def npz_whose_directory_lies(path):
    """The directory says 12 bytes less than there are, and the header agrees with the bytes."""
    foreign.npz(path, one_task())
    file = path / "task-0/episode-1.npz"
    content = bytearray(file.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    size = struct.unpack_from("<I", content, entry + 24)[0]
    struct.pack_into("<I", content, entry + 24, size - 12)
    file.write_bytes(content)


@case("npz", "damaged")
def npz_that_is_cut_off(path):
    foreign.npz(path, one_task())
    file = path / "task-0/episode-1.npz"
    file.write_bytes(file.read_bytes()[:300])


@case("npz", "damaged .*encrypted")
def npz_that_is_encrypted(path):
    foreign.npz(path, one_task())
    file = path / "task-0/episode-1.npz"
    content = bytearray(file.read_bytes())
    position = content.index(b"PK\x01\x02")
    content[position + 8] |= 1
    file.write_bytes(content)


@case("npz", "episode-01.npz: episode 1 is|episode 1 is episode-0?1.npz already; remove one")
def npz_episodes_twice(path):
    foreign.npz(path, one_task())
    content = (path / "task-0/episode-1.npz").read_bytes()
    (path / "task-0/episode-01.npz").write_bytes(content)


@case("npz", "task 0 is task-0 already; remove one")
def npz_tasks_twice(path):
    foreign.npz(path, one_task())
    (path / "task_0").mkdir()


@case("npz", "final.npz; name the episodes episode-0.npz")
def npz_without_a_number(path):
    foreign.npz(path, one_task())
    (path / "task-0/final.npz").write_bytes(b"")


@case("npz", "terms are in some episodes only")
def npz_with_terms_in_some(path):
    def write(archive, content):
        del content["terms.npy"]
        rewritten()(archive, content)

    change_npz(path, write)


@pytest.mark.parametrize(("format", "make", "message"), CASES)
def test_it_is_refused(tmp_path, format, make, message):
    assert_refused(tmp_path, format, make, message)
