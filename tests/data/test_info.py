"""Each statistic of `omrl data info` against brute force, and where it is kept."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import BEHAVIOUR, HORIZON, LENGTHS, PointEnv, lifetime

from omrl.data import info
from omrl.data.dataset import TaskData
from omrl.data.info_sample import (
    CELLS,
    NEIGHBOURS,
    Sample,
    _rows,
    occupied_cells,
    recomputed_noise,
    sample_size,
    unexplained_noise,
)
from omrl.data.manifest import CACHE, TaskRecord
from omrl.data.slice import Selection
from omrl.data.store import create
from omrl.errors import InputError


def info_of(columns, env=None):
    """What is measured of a task that has these columns."""
    starts = np.asarray(columns["episode_start"])
    episodes, rows = len(starts) - 1, int(starts[-1])
    record = TaskRecord(0, (0.0,), episodes, rows, 0.0, 0.0, 0.0, {}, {})
    task = TaskData(Path(), record, columns, Selection(np.arange(episodes)))
    return info.task_info(task, env, horizon=HORIZON, coverage=1.0, span=(-60.0, 0.0))


@st.composite
def small_lifetimes(draw):
    """Columns of few different numbers, so that much of it occurs again."""
    lengths = np.array(draw(st.lists(st.integers(1, HORIZON), min_size=1, max_size=12)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    rows, dtype = int(lengths.sum()), draw(st.sampled_from([np.float32, np.float16]))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    last = np.isin(np.arange(rows), starts[1:] - 1)
    terminated = last & (rng.random(rows) < 0.5)
    return {
        "obs": rng.integers(0, 2, (rows + len(lengths), 2)).astype(dtype),
        "action": rng.choice([-1, -0.9995, 0.5, 0.9995], (rows, 2)).astype(dtype),
        "reward": -rng.integers(1, 3, rows).astype(dtype),
        "terminated": terminated,
        "truncated": last & ~terminated,
        "episode_start": starts,
    }


@given(small_lifetimes())
@settings(max_examples=60, deadline=None)
def test_what_is_counted_is_what_a_loop_counts(columns):
    starts, found = columns["episode_start"], info_of(columns)
    rows, episodes, ends = [], [], {"time_limit": 0, "cut_off": 0, "terminated": 0, "late": 0}
    for episode, (first, stop) in enumerate(itertools.pairwise(starts.tolist())):
        names = ("action", "reward", "terminated")
        own = [
            b"".join(
                [columns["obs"][row + episode : row + episode + 2].tobytes()]
                + [columns[name][row].tobytes() for name in names]
            )
            for row in range(first, stop)
        ]
        rows += own
        episodes.append(tuple(own))
        if columns["terminated"][stop - 1]:
            ends["terminated"] += 1
            ends["late"] += stop - first == HORIZON
        else:
            ends["time_limit" if stop - first == HORIZON else "cut_off"] += 1
    assert found.duplicates.transitions == pytest.approx(1 - len(set(rows)) / len(rows))
    assert found.duplicates.episodes == pytest.approx(1 - len(set(episodes)) / len(episodes))
    assert tuple(vars(found.ends).values()) == tuple(ends.values())
    returns = [
        columns["reward"][a:b].astype(np.float64).sum() for a, b in itertools.pairwise(starts)
    ]
    expected = (min(returns), np.median(returns), np.mean(returns), max(returns))
    assert tuple(vars(found.returns).values())[:4] == pytest.approx(expected)
    assert found.returns.curve == pytest.approx(returns)
    assert sum(found.returns.histogram) == len(returns)
    np.testing.assert_allclose(found.saturation, (abs(columns["action"]) >= 0.999).mean(0))
    for name in ("obs", "action"):
        wide = columns[name].astype(np.float64)
        assert (found.__dict__[name].low, found.__dict__[name].high) == (
            tuple(wide.min(0)),
            tuple(wide.max(0)),
        )
        assert found.__dict__[name].constant == tuple(np.flatnonzero(np.ptp(wide, axis=0) == 0))
    assert (found.reward_low, found.reward_high) == (
        columns["reward"].min(),
        columns["reward"].max(),
    )


def test_blocks_do_not_matter(env, monkeypatch):
    columns = lifetime(env, 0, LENGTHS[0] * 3)
    whole = info_of(columns)
    monkeypatch.setattr(info, "_BLOCK_ENTRIES", 2 * 6)
    assert info_of(columns) == whole


def test_of_long_lifetimes_some_hashes_tell_the_share(env, monkeypatch):
    monkeypatch.setattr(info, "MOST_HASHES", 500)
    once = lifetime(env, 0, [5] * 400)
    twice = {name: np.concatenate([column, column]) for name, column in once.items()}
    twice["episode_start"] = np.arange(0, 4001, 5)
    found = info_of(twice).duplicates
    assert 350 < found.compared < 650  # 4,000 rows, every eighth hash
    assert (found.transitions, info_of(once).duplicates.transitions) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("low", "high"), [(1e30, 1e30), (1e30, np.nextafter(1e30, 2e30)), (0.0, 9.0)]
)
def test_every_episode_is_in_the_histogram(low, high):
    counts = info._histogram(np.array([low, low, high], float), (low, high))
    assert len(counts) == info.BINS
    middle = info.BINS // 2
    assert (counts[0], counts[-1]) == (2, 1) if high > low else counts[middle] == 3


def test_long_lifetimes_have_a_short_curve(env):
    returns = info_of(lifetime(env, 0, [1] * 250)).returns
    assert len(returns.curve) == 100
    assert np.repeat(returns.curve, np.diff(np.arange(101) * 250 // 100)).mean() == pytest.approx(
        returns.mean
    )


# --- The sample ---


def test_a_sample_is_of_the_whole_lifetime_and_always_the_same():
    rows = _rows(1_000_000, 1_000, 3)
    np.testing.assert_array_equal(rows // 1_000, np.arange(1_000))
    np.testing.assert_array_equal(rows, _rows(1_000_000, 1_000, 3))
    assert len(set(rows % 200)) > 150  # Not at the same steps of the episodes.
    np.testing.assert_array_equal(_rows(5, 10, 3), np.arange(5))


def test_samples_of_many_wide_tasks_stay_small():
    assert sample_size(1, 20) == 10_000
    assert sample_size(1_000, 376) * 1_000 * 376 <= 2**25


# --- State coverage ---


def test_coverage_of_states_on_a_lattice():
    """The whole lattice and a half of it: no principal axis is needed to know the shares."""
    axis = np.linspace(-1, 1, CELLS, dtype=np.float32)
    lattice = np.stack(np.meshgrid(axis, 3 * axis), -1).reshape(-1, 2)
    # An axis that varies more is the first; one that never changes is none.
    lattice = np.column_stack([lattice, lattice[:, 0] + lattice[:, 1], np.ones(len(lattice))])
    lattice = lattice.astype(np.float32)
    half = lattice[lattice[:, 0] > 0]
    occupied = occupied_cells([lattice, half, lattice[:1]])
    assert occupied.shape == (3, CELLS**2)
    assert not (occupied[1:] & ~occupied[0]).any()
    whole, part, one = occupied.sum(1)
    assert one == 1
    assert part / whole == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("width", [1, 2, 7])
def test_coverage_is_what_a_set_of_cells_says(width):
    rng = np.random.default_rng(width)
    samples = [rng.normal(mean, 1, (80, width)).astype(np.float32) for mean in (0, 1, 4)]
    pooled = np.concatenate(samples).astype(np.float64)
    scaled = (pooled - pooled.mean(0)) / pooled.std(0)
    _, _, axes = np.linalg.svd(scaled)
    projected = scaled @ axes[:2].T
    bounds = [np.quantile(column, (0.001, 0.999)) for column in projected.T]
    cells: list[set] = [set(), set(), set()]
    for row, point in enumerate(projected):
        place = [
            min(max(int(CELLS * (x - low) / (high - low)), 0), CELLS - 1)
            for x, (low, high) in zip(point, bounds, strict=True)
        ]
        cells[row // 80].add(tuple(place))
    occupied = occupied_cells(samples)
    # The direction of an axis is arbitrary; a point on the border of two cells may be in either.
    assert occupied.sum(1) == pytest.approx([len(own) for own in cells], abs=1)
    assert occupied.any(0).sum() == pytest.approx(len(set.union(*cells)), abs=1)


def test_states_that_never_change_are_one_cell():
    assert occupied_cells([np.ones((4, 3), np.float32)] * 2).sum() == 2


# --- Reward noise ---


def sample_of(rows, noise, seed=0):
    """Transitions with a reward that is smooth in (s, a, s') up to noise of that deviation."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, rows, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
    reward = np.tanh(next_obs[:, 0]) - np.abs(obs[:, 1]) - 0.1 * (action**2).sum(1)
    return Sample(obs, action, next_obs, reward + noise * rng.normal(size=rows), None)


def linear(sample, noise):
    """The same transitions with a linear reward up to noise."""
    reward = (sample.obs @ [1, 2, 3] + sample.action @ [1, -1]).astype(np.float64)
    rng = np.random.default_rng(1)
    return dataclasses.replace(sample, reward=reward + noise * rng.normal(size=len(reward)))


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_known_noise_of_a_linear_reward_is_found(noise):
    found = unexplained_noise(linear(sample_of(6_000, 0.0), noise))
    assert found == pytest.approx(noise, rel=0.15, abs=1e-3)


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_a_bent_reward_adds_to_the_noise(noise):
    clean = sample_of(6_000, 0.0)
    bend = unexplained_noise(clean)
    assert 0 < bend < 0.4 * clean.reward.std()
    found = unexplained_noise(sample_of(6_000, noise))
    assert found == pytest.approx(np.hypot(noise, bend), rel=0.15)


def test_rewards_of_other_rows_are_noise():
    sample = sample_of(3_000, 0.0)
    shuffled = dataclasses.replace(sample, reward=np.roll(sample.reward, 7))
    assert unexplained_noise(shuffled) > 0.85 * sample.reward.std()


def test_copies_do_not_hide_noise():
    sample = sample_of(3_000, 1.0)
    columns = {name: column for name, column in vars(sample).items() if name != "terms"}
    twice = {name: np.concatenate([column, column]) for name, column in columns.items()}
    assert unexplained_noise(Sample(**twice, terms=None)) == unexplained_noise(sample)


def test_few_rows_and_equal_rows_tell_nothing_or_no_noise():
    assert unexplained_noise(sample_of(NEIGHBOURS, 1.0)) is None
    sample = sample_of(500, 0.0)
    still = {name: 0 * getattr(sample, name) for name in ("obs", "action", "next_obs")}
    coins = np.tile([0.0, 1.0], 250)
    assert unexplained_noise(Sample(**still, reward=coins, terms=None)) is None
    constant = dataclasses.replace(sample, reward=np.ones(500))
    assert unexplained_noise(constant) == pytest.approx(0, abs=1e-9)


def test_recorded_terms_tell_the_noise(env):
    columns = lifetime(env, 1, [5] * 100)
    clean = info_of(columns, env)
    assert (clean.noise_by, info_of(columns).noise_by) == ("recomputed", "neighbours")
    noise = np.random.default_rng(0).normal(0, 0.5, 500)
    sample = Sample(
        *(np.zeros((500, 2), np.float32), columns["action"], np.zeros((500, 2), np.float32)),
        reward=columns["reward"] + noise,
        terms=columns["terms"].astype(np.float64),
    )
    found = recomputed_noise(sample, env, env.tasks[1])
    assert found == pytest.approx(np.sqrt((noise**2).mean()))


# --- A dataset ---


def test_a_dataset_is_measured_task_by_task(dataset, env):
    done = []
    found = info.measure(dataset, env, done.append)
    assert sum(done) == 85
    assert [task.index for task in found.tasks] == [0, 1, 2]
    assert [task.transitions for task in found.tasks] == [40, 20, 25]
    assert max(task.coverage for task in found.tasks) <= 1
    assert all(task.reward_noise < 1e-6 for task in found.tasks)
    assert found == info.measure(dataset, env)
    assert not (dataset.path / CACHE).exists()


@pytest.fixture
def cached(dataset, env, monkeypatch):
    """A dataset whose statistics are kept, and the file that has them."""
    monkeypatch.setattr(info, "CACHE_FROM", 1)
    first = info.measure(dataset, env)
    (file,) = (dataset.path / CACHE).iterdir()
    return dataset, first, file


def test_statistics_are_kept_and_read_again(cached, env, monkeypatch):
    dataset, first, _ = cached
    monkeypatch.setattr(info, "_measure", None)
    assert info.measure(dataset, env) == first
    with pytest.raises(TypeError):  # Measured anew: without the environment the noise differs.
        info.measure(dataset, None)
    monkeypatch.setattr(info, "VERSION", info.VERSION + 1)
    with pytest.raises(TypeError):
        info.measure(dataset, env)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"transitions": 40', '"transitions": 41'),
        lambda text: text.replace('"cells"', '"walls"'),
        lambda text: "[]",
        lambda text: json.dumps({"hash": "a", "info": None}),
    ],
)
def test_damaged_statistics_are_measured_again(cached, env, damage):
    dataset, first, file = cached
    whole = file.read_text()
    file.write_text(damage(whole))
    assert info.measure(dataset, env) == first
    assert file.read_text() == whole


def test_where_nothing_can_be_kept_it_is_measured(dataset, env, monkeypatch):
    monkeypatch.setattr(info, "CACHE_FROM", 1)
    (dataset.path / CACHE).write_text("a file in the way")
    assert info.measure(dataset, env).tasks


@pytest.mark.parametrize("name", ["obs", "reward", "episode_start"])
def test_a_damaged_column_is_named(dataset, env, name):
    path = dataset.path / f"task-001/{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x7F
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"task-001/{name}.npy .*sha256 differs"):
        info.measure(dataset, env)


def test_data_without_terms_is_compared_with_its_neighbours(tmp_path):
    env = PointEnv()
    writer = create(tmp_path / "bare", env, command="test")
    columns = lifetime(env, 0, [5] * 100)
    del columns["terms"]
    writer.write_task(0, behaviour=BEHAVIOUR, **columns)
    (task,) = info.measure(writer.finish(), env).tasks
    assert task.noise_by == "neighbours"
    assert task.reward_noise < 0.4 * task.reward_std
