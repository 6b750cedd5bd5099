"""Random datasets: what is derived from columns, and what a slice selects, against plain loops."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from points import HORIZON, PointEnv, lifetime

from omrl.data.device import load
from omrl.data.host import open_host
from omrl.data.mixture import MixedTask, open_view
from omrl.data.sample import BatchSpec, gather, sample_all_rows
from omrl.data.slice import Slice
from omrl.data.store import create

read_rows = jax.jit(gather)
"""One program for the sizes of an example, instead of one for every operation in it."""
ENV = PointEnv()
LENGTHS = st.lists(st.integers(1, HORIZON), min_size=1, max_size=12)
SLICES = ("all", "start", "middle", "end", "first-1", "last-1", "every-3", "return-0.0-0.5")
COUNTED = ("first", "middle", "last", "spread")


def written(folder: str, lengths: list[list[int]], seed: int):
    writer = create(Path(folder) / "points", ENV, command="test")
    for task, of_task in enumerate(lengths):
        writer.write_task(task, behaviour={}, **lifetime(ENV, task, of_task, seed))
    return writer.finish()


def spans(task) -> list[tuple]:
    """The columns of every episode's dataset, its number, first row and the row behind its last."""
    if isinstance(task, MixedTask):
        of_parts = [span for part in task.parts for span in spans(part)]
        return [of_parts[episode] for episode in task.order]
    return [(task.columns, *span) for span in zip(task.episodes, *task.rows("reward"), strict=True)]


def by_hand(task, discount: float) -> dict[str, list]:
    """Every transition of the selected episodes, one after the other, none across a border."""
    rows = {name: [] for name in ("obs", "next_obs", "terminal_obs", "mc_return", "discount")}
    for columns, episode, first, stop in spans(task):
        starts = columns["episode_start"]
        assert starts[episode] <= first < stop <= starts[episode + 1]
        obs = columns["obs"][first + episode : stop + episode + 1]
        for row in range(first, stop):
            left = stop - row
            rewards = columns["reward"][row:stop].astype(np.float64)
            rows["obs"].append(obs[row - first])
            rows["next_obs"].append(obs[row - first + 1])
            rows["terminal_obs"].append(obs[-1])
            rows["mc_return"].append(sum(r * discount**k for k, r in enumerate(rewards)))
            rows["discount"].append(discount**left)
    return rows


def assert_is(batch, expected: dict[str, list]) -> None:
    np.testing.assert_array_equal(batch.obs, expected["obs"])
    np.testing.assert_array_equal(batch.next_obs, expected["next_obs"])
    np.testing.assert_array_equal(batch.terminal_obs, expected["terminal_obs"])
    np.testing.assert_allclose(batch.mc_return, expected["mc_return"], 1e-5, 1e-6)
    np.testing.assert_allclose(batch.terminal_discount, expected["discount"], 1e-6, 1e-30)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.tuples(LENGTHS, LENGTHS, LENGTHS),
    st.sampled_from(SLICES),
    st.floats(0.0, 1.0),
    st.integers(0, 2**31),
)
def test_every_row_of_every_slice(lengths, name, discount, seed):
    with tempfile.TemporaryDirectory() as folder:
        dataset = written(folder, list(lengths), seed)
        if min(map(len, lengths)) < 3 and name in ("start", "middle", "end", "return-0.0-0.5"):
            name = "all"  # A third, or half, of so few episodes may be none, which is refused.
        view = dataset.view(Slice.parse(name))
        device = load(view, (0, 1, 2), discount=discount)
        disk = open_host(view, (0, 1, 2), discount=discount, cache=False)
        for index in range(3):
            task = view.task(index)
            expected = by_hand(task, discount)
            rows = np.arange(task.num_rows)
            on_device = read_rows(device, index, jnp.asarray(rows))
            for batch in (on_device, disk.tasks[index].gather(rows)):
                assert_is(batch, expected)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(LENGTHS, st.sampled_from((*COUNTED, "mixture")), st.floats(0, 1), st.integers(0, 2**31))
def test_every_row_of_counted_transitions_and_mixtures(lengths, name, discount, seed):
    with tempfile.TemporaryDirectory() as folder:
        dataset, count = written(folder, [lengths], seed), 1 + seed % sum(lengths)
        view = open_view(
            f"0.375:first-{count}-transitions+0.625:last-{count}-transitions"
            if name == "mixture"
            else f"{name}-{count}-transitions",
            dataset,
        )
        task = view.task(0)
        assert name == "mixture" or task.num_rows == count
        disk = open_host(view, (0,), discount=discount, cache=False)
        assert_is(disk.tasks[0].gather(np.arange(task.num_rows)), by_hand(task, discount))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(3, 500))
def test_thirds_part_a_lifetime(episodes):
    returns = np.zeros(episodes)
    ones = np.ones(episodes, np.int64)
    names = ("start", "middle", "end")
    thirds = [Slice.parse(name).select(ones, returns).episodes for name in names]
    np.testing.assert_array_equal(np.concatenate(thirds), np.arange(episodes))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.floats(0, 1))
def test_counts_of_transitions_are_met(lengths, part):
    lengths, total = np.array(lengths), sum(lengths)
    count = 1 + int(part * (total - 1))
    for kind in COUNTED:
        selected = Slice(kind, count, unit="transitions").select(lengths, np.zeros(len(lengths)))
        sizes = lengths[selected.episodes]
        assert sizes.sum() - selected.head - selected.tail == count
        assert 0 <= selected.head < sizes[0]
        assert 0 <= selected.tail < sizes[-1]
    # Evenly: up to any episode it has the share of what lies before, within one episode.
    kept = np.isin(np.arange(len(lengths)), selected.episodes) * lengths
    excess = np.cumsum(kept) - count / total * np.cumsum(lengths)
    assert (excess > -1e-6).all()
    assert (excess < lengths.max()).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=60), st.floats(0, 1))
def test_first_and_last_transitions_part_a_lifetime(lengths, part):
    lengths, total = np.array(lengths), sum(lengths)
    count = 1 + int(part * (total - 2))
    first, last = (
        Slice(kind, number, unit="transitions").select(lengths, np.zeros(len(lengths)))
        for kind, number in (("first", count), ("last", total - count))
    )
    np.testing.assert_array_equal(np.union1d(first.episodes, last.episodes), range(len(lengths)))
    shared = np.intersect1d(first.episodes, last.episodes)
    assert first.tail + last.head == lengths[shared].sum()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=200), st.floats(0.01, 0.99))
def test_ranks_part_a_lifetime(returns, quantile):
    returns = np.array(returns)
    # A quantile that parts nothing off is refused.
    cut = min(max(quantile, 1 / len(returns)), 1 - 1 / len(returns))
    low, high = (
        Slice("return", 0, bounds).select(np.ones(len(returns), np.int64), returns).episodes
        for bounds in ((0.0, cut), (cut, 1.0))
    )
    np.testing.assert_array_equal(np.sort(np.concatenate([low, high])), np.arange(len(returns)))
    assert returns[low].max() <= returns[high].min()
    assert (np.diff(low) > 0).all()
    assert (np.diff(high) > 0).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(60, 400),
    st.sampled_from(["iid", "without_replacement", "contiguous"]),
    st.integers(1, 3),
    st.floats(0.0, 0.4),
    st.floats(0.6, 1.0),
    st.integers(0, 2**31 - 1),
)
def test_rows_lie_in_their_part_and_apart_from_the_chunk(rows, mode, stride, start, stop, seed):
    stride = stride if mode == "contiguous" else 1
    specs = (
        BatchSpec("chunk", 4, "contiguous"),
        BatchSpec("batch", 3, mode, start=start, stop=stop, stride=stride, disjoint_from="chunk"),
    )
    drawn = jax.tree.map(np.asarray, sample_all_rows(specs, rows, jax.random.PRNGKey(seed)))
    chunk, batch = drawn["chunk"], drawn["batch"]
    np.testing.assert_array_equal(np.diff(chunk), 1)
    first, end = (np.ceil(np.float32(part) * np.float32(rows)) for part in (start, stop))
    assert batch.min() >= first
    assert batch.max() < end
    assert not set(batch) & set(range(chunk[0], chunk[-1] + 1))
    if mode == "contiguous":
        np.testing.assert_array_equal(np.diff(batch), stride)
    if mode == "without_replacement":
        assert len(set(batch)) == 3
