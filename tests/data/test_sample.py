"""Sampling: distributions against closed forms, exact disjointness, no influence of padding."""

import itertools
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from omrl.data.device import DeviceData, load
from omrl.data.sample import (
    BatchSpec,
    check_sizes,
    check_specs,
    gather,
    sample_batches,
    sample_rows,
)
from omrl.errors import InputError

UNLIKELY = 1e-4
"""Keys are fixed, so a test that passes once always passes."""


@partial(jax.jit, static_argnums=(0, 2))
def draws(spec, num_rows, count, excluded=None):
    """`count` batches of `spec`, [count, size]; `excluded` is one span for all of them."""
    keys = jax.random.split(jax.random.PRNGKey(0), count)
    return jax.vmap(lambda key: sample_rows(spec, num_rows, key, excluded))(keys)


def assert_frequencies(outcomes, probabilities):
    """Chi-squared test of outcomes 0, 1, ... against their probabilities, none of them 0."""
    counts = np.bincount(outcomes, minlength=len(probabilities))
    assert len(counts) == len(probabilities)
    expected = np.asarray(probabilities) * len(outcomes)
    assert stats.chisquare(counts, expected).pvalue > UNLIKELY


# --- Contiguous ---


def test_chunks_have_their_stride_and_all_starts_are_equally_likely():
    rows = np.asarray(draws(BatchSpec("b", 4, "contiguous", stride=3), 20, 20_000))
    np.testing.assert_array_equal(np.diff(rows, axis=1), 3)
    # 10 rows from first to last: starts 0 to 10, the last included.
    assert_frequencies(rows[:, 0], np.full(11, 1 / 11))


def test_a_chunk_as_long_as_the_task_has_one_start():
    rows = draws(BatchSpec("b", 7, "contiguous"), 7, 3)
    np.testing.assert_array_equal(rows, np.tile(np.arange(7), (3, 1)))


def test_chunks_stay_in_their_slice():
    rows = np.asarray(draws(BatchSpec("b", 3, "contiguous", start=0.5, stop=0.8), 20, 10_000))
    # Rows 10 to 15.
    assert_frequencies(rows[:, 0] - 10, np.full(4, 1 / 4))


# --- Independent rows ---


def test_independent_rows_are_uniform():
    rows = np.asarray(draws(BatchSpec("b", 8), 13, 5_000)).ravel()
    assert rows.dtype == np.int32
    assert_frequencies(rows, np.full(13, 1 / 13))


@pytest.mark.parametrize(
    ("start", "stop", "num_rows", "first", "last"),
    [
        (0.6, 1.0, 10, 6, 9),
        (0.0, 0.25, 10, 0, 2),  # row 2 lies at 0.2
        (0.25, 1.0, 10, 3, 9),  # row 3 is the first at 0.25 or later
        (0.1, 0.7, 1000, 100, 699),
    ],
)
def test_slices_by_fraction(start, stop, num_rows, first, last):
    rows = draws(BatchSpec("b", 50, start=start, stop=stop), num_rows, 500)
    assert (rows.min(), rows.max()) == (first, last)


def test_slices_that_meet_share_no_row_and_lose_none():
    for num_rows, cut in itertools.product((7, 10, 33), (0.3, 0.61)):
        parts = [
            set(np.unique(draws(BatchSpec("b", 100, start=start, stop=stop), num_rows, 20)))
            for start, stop in ((0.0, cut), (cut, 1.0))
        ]
        assert parts[0] & parts[1] == set()
        assert parts[0] | parts[1] == set(range(num_rows))


def test_long_lifetimes_are_reached_to_their_last_row():
    # float32 cannot count these rows.
    rows = draws(BatchSpec("b", 1000, start=0.999), 200_000_000, 100)
    assert rows.min() >= 199_800_000
    assert 199_990_000 < rows.max() < 200_000_000


@pytest.mark.parametrize("recency", [0.5, 1.0, 3.0])
def test_recency_is_the_exponent_of_the_density(recency):
    rows = np.asarray(draws(BatchSpec("b", 8, recency=recency, start=0.5), 20, 10_000)).ravel()
    edges = (np.arange(11) / 10) ** (1 + recency)
    assert_frequencies(rows - 10, np.diff(edges))


# --- Without replacement ---


@pytest.mark.parametrize(("num_rows", "size"), [(5, 3), (4, 4), (2, 2), (9, 1)])
def test_every_ordered_choice_is_equally_likely(num_rows, size):
    rows = np.asarray(draws(BatchSpec("b", size, "without_replacement"), num_rows, 30_000))
    choices = {c: i for i, c in enumerate(itertools.permutations(range(num_rows), size))}
    outcomes = np.array([choices[tuple(row)] for row in rows.tolist()])
    assert_frequencies(outcomes, np.full(len(choices), 1 / len(choices)))


@pytest.mark.parametrize("num_rows", [256, 257, 300, 5_000])
def test_no_row_is_drawn_twice(num_rows):
    rows = np.asarray(draws(BatchSpec("b", 256, "without_replacement"), num_rows, 50))
    assert all(len(set(row)) == 256 for row in rows.tolist())
    assert rows.min() >= 0
    assert rows.max() < num_rows


def test_it_is_the_shuffle_that_it_stands_for():
    """Against Fisher-Yates in its usual form, with the same targets."""
    size, num_rows, key = 40, 60, jax.random.PRNGKey(3)
    rows = sample_rows(BatchSpec("b", size, "without_replacement"), num_rows, key)
    places = list(range(num_rows))
    for i, j in enumerate(jax.random.randint(key, (size,), jnp.arange(size), num_rows).tolist()):
        places[i], places[j] = places[j], places[i]
    np.testing.assert_array_equal(rows, places[:size])


# --- Disjoint batches ---

CHUNK = BatchSpec("inner", 4, "contiguous", stride=2)
OUTER = [
    BatchSpec("outer", 30, disjoint_from="inner"),
    BatchSpec("outer", 30, recency=1.0, disjoint_from="inner"),
    BatchSpec("outer", 12, "without_replacement", disjoint_from="inner"),
    BatchSpec("outer", 3, "contiguous", stride=3, disjoint_from="inner"),
    BatchSpec("outer", 30, start=0.6, disjoint_from="inner"),
    BatchSpec("outer", 30, stop=0.4, disjoint_from="inner"),
]


def row_number_data(num_rows):
    """One task in which every field says the number of its row."""
    numbers = jnp.arange(num_rows, dtype=jnp.float32)[None]
    obs = jnp.arange(num_rows + 1, dtype=jnp.float32)[None, :, None]
    index = jnp.arange(num_rows, dtype=jnp.int32)[None]
    return DeviceData(
        obs=obs,
        action=numbers[..., None],
        reward=numbers,
        terminated=jnp.zeros((1, num_rows), bool),
        mc_return=numbers,
        terminal_discount=numbers,
        obs_index=index,
        terminal_index=jnp.full((1, num_rows), num_rows, jnp.int32),
        num_rows=jnp.array([num_rows], jnp.int32),
    )


@pytest.mark.parametrize(
    "outer", OUTER, ids=lambda spec: f"{spec.mode}-{spec.recency}-{spec.start}"
)
def test_a_disjoint_batch_never_meets_the_span_of_the_chunk(outer):
    data, specs = row_number_data(24), (CHUNK, outer)
    check_sizes(specs, [24])
    keys = jax.random.split(jax.random.PRNGKey(1), 4000)
    batches = jax.jit(jax.vmap(lambda key: sample_batches(data, specs, 0, key)))(keys)
    inner, rows = (np.asarray(batches[name].reward) for name in ("inner", "outer"))
    # All 7 rows from the first of the chunk to its last are left out, not only its 4.
    inside = (rows >= inner[:, :1]) & (rows <= inner[:, -1:])
    assert not inside.any()
    low, high = np.ceil(outer.start * 24), np.ceil(outer.stop * 24)
    assert (rows >= low).all()
    assert (rows < high).all()
    assert set(np.unique(rows)) == set(np.arange(low, high))


@pytest.mark.parametrize(
    ("spec", "before", "behind"),
    [
        (BatchSpec("b", 1), 5, 8),
        (BatchSpec("b", 1, "without_replacement"), 5, 8),
        (BatchSpec("b", 3, "contiguous"), 3, 6),  # starts 0 to 2 and 12 to 17
    ],
)
def test_what_is_left_is_uniform(spec, before, behind):
    # Rows 5 to 11 of 20 are excluded.
    first = np.asarray(draws(spec, 20, 20_000, (jnp.int32(5), jnp.int32(11))))[:, 0]
    outcomes = np.where(first < 5, first, first - 12 + before)
    assert not ((first >= 5) & (first <= 11)).any()
    assert_frequencies(outcomes, np.full(before + behind, 1 / (before + behind)))


def test_recency_counts_the_rows_that_are_left():
    spec = BatchSpec("b", 8, recency=1.0)
    rows = np.asarray(draws(spec, 20, 5_000, (jnp.int32(5), jnp.int32(14)))).ravel()
    positions = np.where(rows < 5, rows, rows - 10)
    assert_frequencies(positions, (2 * np.arange(10) + 1) / 100)


def test_a_span_outside_of_the_slice_excludes_nothing():
    spec = BatchSpec("b", 20, start=0.5)
    free = draws(spec, 20, 50)
    for span in ((0, 9), (2, 5)):
        np.testing.assert_array_equal(free, draws(spec, 20, 50, tuple(map(jnp.int32, span))))


# --- Batches ---


def test_gathered_transitions(dataset, columns):
    data = load(dataset, (0, 2), discount=0.9)
    # Task 2: episodes of 2, 5, 3, ... transitions; row 6 is the last of the second, row 7 the next.
    batch = gather(data, 1, jnp.array([6, 7, 0], jnp.int32))
    task = columns[2]
    np.testing.assert_array_equal(batch.obs, task["obs"][[7, 9, 0]])
    np.testing.assert_array_equal(batch.next_obs, task["obs"][[8, 10, 1]])
    np.testing.assert_array_equal(batch.terminal_obs, task["obs"][[8, 12, 2]])
    np.testing.assert_array_equal(batch.action, task["action"][[6, 7, 0]])
    np.testing.assert_array_equal(batch.reward, task["reward"][[6, 7, 0]].astype(np.float32))
    np.testing.assert_array_equal(batch.terminated, task["terminated"][[6, 7, 0]])
    np.testing.assert_allclose(batch.terminal_discount, [0.9, 0.9**3, 0.9**2], rtol=1e-6)
    first, second = task["reward"][:2]
    np.testing.assert_allclose(batch.mc_return[2], first + 0.9 * second, rtol=1e-6)


SPECS = (
    BatchSpec("chunk", 4, "contiguous", stride=2),
    BatchSpec("other", 6, disjoint_from="chunk"),
    BatchSpec("distinct", 5, "without_replacement"),
    BatchSpec("recent", 5, start=0.4, recency=2.0),
)


def test_padding_does_not_change_a_draw(dataset):
    # Task 1 alone, and beside a task twice as long.
    alone, padded = (load(dataset, tasks, discount=0.9) for tasks in ((1,), (0, 1)))
    assert padded.reward.shape[1] == 2 * alone.reward.shape[1]
    keys = jax.random.split(jax.random.PRNGKey(0), 20)
    batches = [
        jax.jit(jax.vmap(partial(sample_batches, data, SPECS, task)))(keys)
        for data, task in ((alone, 0), (padded, 1))
    ]
    jax.tree.map(np.testing.assert_array_equal, *batches)


def test_tasks_at_once_equal_tasks_alone(dataset):
    data = load(dataset, (0, 1, 2), discount=0.9)
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    sample = jax.jit(partial(sample_batches, data, SPECS))
    together = jax.vmap(sample)(jnp.arange(3), keys)
    assert together["other"].obs.shape == (3, 6, 2)
    for task in range(3):
        alone = sample(jnp.int32(task), keys[task])
        jax.tree.map(
            lambda many, one, task=task: np.testing.assert_array_equal(many[task], one),
            together,
            alone,
        )


def test_a_further_batch_does_not_change_the_earlier_ones(dataset):
    data, key = load(dataset, (0,), discount=0.9), jax.random.PRNGKey(0)
    fewer, more = sample_batches(data, SPECS[:2], 0, key), sample_batches(data, SPECS, 0, key)
    for name, batch in fewer.items():
        jax.tree.map(np.testing.assert_array_equal, batch, more[name])


# --- Wrong specs and too few rows ---


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": 0.5, "stop": 0.5}, r"stop: 0.5 must be above start \(0.5\)"),
        ({"stride": 7}, "stride: 7 needs mode contiguous, not iid"),
        ({"recency": 1.0, "mode": "contiguous"}, "recency: 1.0 needs mode iid, not contiguous"),
    ],
)
def test_specs_that_contradict_themselves(fields, message):
    with pytest.raises(InputError, match=message):
        BatchSpec(**{"name": "outer", "size": 4} | fields)


def test_specs_that_contradict_each_other():
    check_specs(SPECS)
    with pytest.raises(InputError, match="batch 'chunk': the name occurs twice"):
        check_specs((SPECS[0], SPECS[0]))
    elsewhere = BatchSpec("chunk", 4, "contiguous", buffer="encoder")
    for earlier in ((), (BatchSpec("chunk", 4),), (elsewhere,)):
        with pytest.raises(InputError, match="batch 'other': disjoint_from must name an earlier"):
            sample_batches(row_number_data(9), (*earlier, SPECS[1]), 0, jax.random.PRNGKey(0))


@pytest.mark.parametrize(
    ("specs", "needed"),
    [
        ((BatchSpec("b", 4, "contiguous", stride=7),), 22),
        ((BatchSpec("b", 256),), 1),
        ((BatchSpec("b", 256, "without_replacement"),), 256),
        ((CHUNK, BatchSpec("b", 4, disjoint_from="inner")), 7 + 1),
        ((CHUNK, BatchSpec("b", 4, "without_replacement", disjoint_from="inner")), 7 + 4),
        # With 6 rows before and 6 after the chunk, 7 in a row fit nowhere.
        ((CHUNK, BatchSpec("b", 4, "contiguous", stride=2, disjoint_from="inner")), 6 + 7 + 7),
    ],
)
def test_as_many_rows_as_the_batches_need(specs, needed):
    check_sizes(specs, [1000, needed])
    if needed > 1:
        message = f"task 1: batch {specs[-1].name!r} needs .* there are {needed - 1}"
        with pytest.raises(InputError, match=message):
            check_sizes(specs, [1000, needed - 1])


def test_the_error_names_the_task_and_the_slice():
    spec = BatchSpec("outer", 8, "without_replacement", start=0.5)
    message = (
        "task 26: batch 'outer' needs 8 rows from 0.5 to 1 of the lifetime, there are 7 (of 14); "
        "take a smaller batch or stride, or more data"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        check_sizes((spec,), [16, 14], task_indices=[7, 26])


def test_slices_that_cannot_meet_need_no_room_for_each_other():
    inner = BatchSpec("inner", 8, "contiguous", stop=0.5)
    check_sizes(
        (inner, BatchSpec("outer", 8, "contiguous", start=0.5, disjoint_from="inner")), [16]
    )
