"""Named slices, and the rows that the reference replay buffer loads."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from omrl.data.slice import ALL, Slice, macaw_buffer_rows, parse_view
from omrl.errors import InputError

GOLDEN = Path(__file__).parents[1] / "golden/macaw/golden_macaw_A_replay.npz"
ONES = np.ones(10, np.int64)
NAMES = ["all", "start", "middle", "end", "first-500", "middle-3", "last-1", "every-7", "spread-2"]
NAMES += [f"{kind}-1200-transitions" for kind in ("first", "middle", "last", "spread")]


@pytest.mark.parametrize("name", [*NAMES, "return-0.5-1.0", "part-0.25-0.75"])
def test_names_parse_and_round_trip(name):
    assert str(Slice.parse(name)) == name
    assert Slice.parse(str(Slice.parse(name))) == Slice.parse(name)


def test_a_quantile_has_one_spelling():
    assert str(Slice.parse("return-.5-1")) == "return-0.5-1.0"
    assert str(Slice.parse("return-0.00001-1.0")) == "return-0.00001-1.0"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "first",
        "first-0",
        "first--1",
        "every-0",
        "last-2.5",
        "thirds",
        "All",
        "return-0.5",
        "return-0.5-0.5",
        "return-0.9-0.1",
        "return-0-1.5",
        "return-nan-1",
        "part-0.4-0.2",
        "every-1000000000",
        "first-" + 26 * "9",
        "first-٣",
        "first-3-transition",
        "last-0-transitions",
        "every-3-transitions",
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match=re.escape(f"no slice {name!r}; a slice is all, start")):
        Slice.parse(name)


@pytest.mark.parametrize("name", ["return-{}", "{}+", "0.5:all+{}"])
def test_long_names_are_refused_at_once(name):
    began = time.process_time()
    with pytest.raises(InputError, match=r"^no "):
        parse_view(name.format(50_000 * "9"))
    # A few milliseconds; where digits match in several ways, many seconds.
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("name", "episodes"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("start", [0, 1, 2]),
        ("middle", [3, 4, 5]),
        ("end", [6, 7, 8, 9]),
        ("first-3", [0, 1, 2]),
        ("middle-4", [3, 4, 5, 6]),
        ("middle-3", [3, 4, 5]),
        ("last-2", [8, 9]),
        ("last-10", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("spread-4", [0, 2, 5, 7]),
        ("spread-10", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("every-4", [0, 4, 8]),
        ("every-11", [0]),
        ("return-0.0-0.2", [2, 5]),  # the two lowest returns
        ("return-0.8-1.0", [1, 9]),  # the two highest
        ("return-0.5-1.0", [1, 4, 6, 7, 9]),
        ("part-0.0-0.2", [0, 1]),
        ("part-0.75-1.0", [8, 9]),
    ],
)
def test_the_episodes_of_a_slice(name, episodes):
    returns = np.array([3.0, 9.0, 0.0, 4.0, 6.0, 1.0, 5.0, 7.0, 2.0, 8.0])
    np.testing.assert_array_equal(Slice.parse(name).select(ONES, returns).episodes, episodes)


@pytest.mark.parametrize(
    ("name", "episodes", "head", "tail"),
    [
        ("first-4-transitions", [0], 0, 1),
        ("first-5-transitions", [0], 0, 0),
        ("first-6-transitions", [0, 1], 0, 2),
        ("last-4-transitions", [2, 3], 2, 0),
        ("middle-8-transitions", [0, 1, 2], 3, 1),
        ("middle-1-transitions", [1], 1, 1),
        ("spread-7-transitions", [0, 2], 0, 2),
        ("spread-14-transitions", [0, 1, 2, 3], 0, 0),
    ],
)
def test_where_a_number_of_transitions_cuts(name, episodes, head, tail):
    selected = Slice.parse(name).select(np.array([5, 3, 4, 2]), np.zeros(4))
    np.testing.assert_array_equal(selected.episodes, episodes)
    assert (selected.head, selected.tail) == (head, tail)


def test_equal_returns_do_not_change_the_number_of_episodes():
    selected = Slice.parse("return-0.5-1.0").select(ONES[:6], np.zeros(6))
    np.testing.assert_array_equal(selected.episodes, [3, 4, 5])


@pytest.mark.parametrize(
    ("name", "held", "message"),
    [
        (
            "last-4",
            3,
            "slice last-4: the task has 3 episodes; ask for last-3 or fewer, or for 'end'",
        ),
        ("spread-4", 3, "slice spread-4: the task has 3 episodes; ask for spread-3 or fewer"),
        (
            "last-4-transitions",
            3,
            "the task has 3 transitions; ask for last-3-transitions or fewer",
        ),
        ("start", 2, "slice start: empty for a task of 2 episodes"),
        ("return-0.3-0.4", 2, "slice return-0.3-0.4: empty for a task of 2 episodes"),
        ("part-0.3-0.4", 2, "slice part-0.3-0.4: empty for a task of 2 episodes"),
    ],
)
def test_lifetimes_too_short_for_a_slice(name, held, message):
    with pytest.raises(InputError, match=message):
        Slice.parse(name).select(ONES[:held], np.zeros(held))


# --- Views of a dataset ---


def test_a_view_holds_the_selected_episodes(dataset):
    # Episodes of task 0 have 5, 3, 5, 1, 5, 5, 2, 5, 5, 4 transitions.
    whole, part = dataset.task(0), dataset.view(Slice.parse("every-3")).task(0)
    np.testing.assert_array_equal(part.episodes, [0, 3, 6, 9])
    np.testing.assert_array_equal(part.lengths, [5, 1, 2, 4])
    np.testing.assert_array_equal(part.episode_start, [0, 5, 6, 8, 12])
    assert (part.num_rows, part.num_episodes) == (12, 4)
    rows = [0, 1, 2, 3, 4, 13, 24, 25, 36, 37, 38, 39]
    obs_rows = [0, 1, 2, 3, 4, 5, 16, 17, 30, 31, 32, 45, 46, 47, 48, 49]
    np.testing.assert_array_equal(part.reward, whole.reward[rows])
    np.testing.assert_array_equal(part.terminated, whole.terminated[rows])
    np.testing.assert_array_equal(part.obs, whole.obs[obs_rows])
    np.testing.assert_array_equal(part.returns, whole.returns[[0, 3, 6, 9]])


def test_neighbouring_episodes_are_read_in_place(dataset):
    whole, part = dataset.task(2), dataset.view(Slice.parse("middle-3")).task(2)
    # Episodes 2, 3, 4 of 2, 5, 3, 4, 5, 1, 5 transitions.
    np.testing.assert_array_equal(part.episode_start, [0, 3, 7, 12])
    np.testing.assert_array_equal(part.reward, whole.reward[7:19])
    np.testing.assert_array_equal(part.obs, whole.obs[9:24])
    assert np.shares_memory(part.obs, part.columns["obs"])


def test_a_cut_episode_ends_where_it_is_cut(dataset):
    # Episodes of task 0 have 5, 3, 5, 1, ... transitions.
    whole = dataset.task(0)
    part = dataset.view(Slice.parse("first-10-transitions")).task(0)
    np.testing.assert_array_equal(part.lengths, [5, 3, 2])
    np.testing.assert_array_equal(part.obs, whole.obs[:13])
    np.testing.assert_array_equal(np.flatnonzero(part.terminated | part.truncated), [4, 7, 9])
    assert part.truncated[9]
    assert not whole.truncated[9]
    np.testing.assert_allclose(part.returns[2], whole.reward[8:10].sum(), rtol=1e-6)
    np.testing.assert_array_equal(part.only(np.array([0, 1])).lengths, [5, 3])
    np.testing.assert_array_equal(part.only(np.array([2])).obs, whole.obs[10:13])


def test_the_hash_names_data_and_selection(dataset):
    ends = dataset.view(Slice.parse("end"))
    assert dataset.view(ALL) is dataset
    assert ends.hash == dataset.view(Slice.parse("end")).hash
    assert len({dataset.hash, ends.hash, dataset.view(Slice.parse("start")).hash}) == 3
    assert ends.view(ALL).hash == ends.hash
    with pytest.raises(InputError, match="it is already the slice end"):
        ends.view(Slice.parse("start"))


# --- The reference buffer ---


def test_the_rows_that_the_reference_loads():
    with np.load(GOLDEN, allow_pickle=False) as golden:
        num_rows = int(golden["load/n_rows"])
        names = [name for name in golden.files if name.startswith("load/") and "size" in name]
        assert len(names) == 10
        for name in names:
            mode, size, skip = re.fullmatch(r"load/(\w+)_size(-?\d+)_skip(\d+)", name).groups()
            rows = macaw_buffer_rows(num_rows, int(size), int(skip), mode)
            np.testing.assert_array_equal(rows, golden[name], err_msg=name)


def test_the_middle_lies_around_a_quarter():
    np.testing.assert_array_equal(macaw_buffer_rows(40, 4, 1, "middle"), [8, 9, 10, 11])


def test_a_buffer_larger_than_the_lifetime_holds_all_of_it():
    np.testing.assert_array_equal(macaw_buffer_rows(10, 100, 3, "end"), [1, 4, 7])


def test_the_reference_cannot_load_a_middle_without_a_size():
    with pytest.raises(InputError, match="begin before row 0; give a size of at most 501"):
        macaw_buffer_rows(1003, -1, 1, "middle")
