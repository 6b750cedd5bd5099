"""Buffers on the device that grow, alone and joined with logged data."""

from __future__ import annotations

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.data.buffers import Both, Buffers, gather_rows, joined
from omrl.data.collected import empty, fill, num_bytes, shapes
from omrl.data.explored import Explored, ExploredFiles, blocks
from omrl.data.sample import BatchSpec, gather, sample_rows
from omrl.errors import InputError
from omrl.exploration import Exploration, Room
from omrl.layout import Layout
from toy import SPEC, make_data

LAYOUT = Layout.of(jax.devices("cpu")[:1], 1)


def trajectories(tasks: list[int], length: int = 4, reward: float = -1.0) -> Explored:
    count = len(tasks)
    rows = count * length
    obs = np.arange(count * (length + 1) * 3, dtype=np.float32).reshape(-1, 3)
    flags = np.zeros(count, bool)
    return Explored(
        seed=np.zeros(count, np.int64),
        task=np.array(tasks),
        length=np.full(count, length),
        terminated=flags,
        posterior=flags,
        clears=flags,
        in_encoder=flags,
        obs=obs,
        action=np.zeros((rows, 2), np.float32),
        reward=np.full(rows, reward, np.float32),
        terms=np.zeros((rows, 1), np.float32),
        returned=np.full(count, reward * length, np.float32),
    )


def filled(explored: Explored) -> Buffers:
    """Of one seed."""
    of_one = Buffers(shapes(6, Room(40, 10), 3, 2), shapes(6, Room(1, 1), 3, 2))
    buffers = empty(LAYOUT, 1, of_one)
    for block in blocks(explored, 1, SPEC.horizon, 0.9):
        buffers = fill(LAYOUT, buffers, block)
    return jax.tree.map(lambda leaf: leaf[0], buffers)


def test_bytes():
    (one,) = (Buffers(shapes(6, Room(40, 10), 3, 2), shapes(6, Room(1, 1), 3, 2)),)
    per_row, per_task = 4 * (2 + 1 + 1 + 1 + 1 + 1) + 1, 4
    assert num_bytes(one) == 6 * (41 * per_row + (50 + 2) * 12 + 2 * per_task)


def test_the_union_is_uniform_over_all_transitions():
    """Task 2 has 40 logged transitions and 24 collected ones."""
    both = Both(make_data(), filled(trajectories([2] * 6 + [5])).main)
    np.testing.assert_array_equal(both.num_rows, [40, 40, 64, 40, 40, 44])
    keys = jax.random.split(jax.random.PRNGKey(0), 1000)
    rows = jax.vmap(lambda key: sample_rows(BatchSpec("b", 8), both.num_rows[2], key))(keys)
    counts = np.bincount(np.asarray(rows).ravel(), minlength=64)
    # 8,000 draws of 64 rows: 125 each, standard deviation 11.
    assert counts.shape == (64,)
    assert np.all(np.abs(counts - 125) < 5 * 11)
    batch = gather_rows(both, 2, jnp.arange(64))
    np.testing.assert_array_equal(batch.reward[40:], -1.0)
    for name, column in gather(both.logged, 2, jnp.arange(40))._asdict().items():
        np.testing.assert_array_equal(getattr(batch, name)[:40], column)
    for name, column in gather(both.collected, 2, jnp.arange(24))._asdict().items():
        np.testing.assert_array_equal(getattr(batch, name)[40:], column)


def test_what_a_stage_draws_from():
    data, collected = make_data(), filled(trajectories([0]))
    assert joined(data, collected, None) is data
    assert joined(data, collected, Exploration()) is collected
    union = joined(data, collected, Exploration(draw="union"))
    assert union.main.logged is data
    assert union.encoder.logged is data
    assert union.encoder.collected is collected.encoder


def test_a_second_trajectory_lies_behind_the_first():
    main = filled(trajectories([3, 3])).main
    batch = gather(main, 3, jnp.arange(8))
    np.testing.assert_array_equal(batch.obs[:, 0], [0, 3, 6, 9, 15, 18, 21, 24])
    np.testing.assert_array_equal(batch.terminal_obs[:, 0], [12] * 4 + [27] * 4)
    np.testing.assert_allclose(batch.mc_return[4:], [-3.439, -2.71, -1.9, -1.0], rtol=1e-6)


def test_files(tmp_path):
    files = ExploredFiles(tmp_path)
    parts = [trajectories([0, 1]), trajectories([2], length=7, reward=3.0)]
    for part in parts:
        files.add(part)
    for read, part in zip(files.read(), parts, strict=True):
        for one, other in zip(read, part, strict=True):
            np.testing.assert_array_equal(one, other)
    swapped = ExploredFiles(tmp_path / "swapped")
    for part in reversed(parts):
        swapped.add(part)
    assert swapped.sha256 != files.sha256
    # An older checkpoint reads the files that it knows of.
    first = ExploredFiles(tmp_path / "first")
    first.add(parts[0])
    assert len(list(ExploredFiles(tmp_path, first.sha256).read())) == 1


def test_files_of_wrong_sizes(tmp_path):
    """Nothing of one is used before it was compared with its hash."""
    files, other = ExploredFiles(tmp_path), ExploredFiles(tmp_path / "other")
    part = trajectories([0, 1])
    files.add(part)
    other.add(part._replace(reward=part.reward[:-1]))
    shutil.copy(other.path(0), files.path(0))
    with pytest.raises(InputError, match=r"000000.npz: not what the checkpoint was made with"):
        list(files.read())
