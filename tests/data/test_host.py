"""Data that stays on the disk gives what data on the device gives, bit for bit."""

from __future__ import annotations

import os
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.data import host
from omrl.data.device import load
from omrl.data.host import CACHE, open_host
from omrl.data.sample import gather
from omrl.data.slice import Slice
from omrl.data.store import write_slice
from omrl.errors import InputError

read_rows = jax.jit(gather)
TASKS = (2, 0)
SLICES = ("all", "last-4", "every-3", "return-0.3-0.9", "middle-17-transitions")


def assert_same(found, expected):
    for name, one, other in zip(expected._fields, found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert one.dtype == other.dtype, name


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("cache", [True, False])
def test_every_row_of_a_slice(dataset, name, cache):
    view = dataset.view(Slice.parse(name))
    data, device = (
        open_host(view, TASKS, discount=0.9, cache=cache),
        load(view, TASKS, discount=0.9),
    )
    np.testing.assert_array_equal(data.num_rows, device.num_rows)
    for position, num_rows in enumerate(data.num_rows):
        rows = np.arange(num_rows, dtype=np.int32)
        expected = read_rows(device, position, jnp.asarray(rows))
        assert_same(
            data.gather(np.array([position]), rows[None]), jax.tree.map(lambda x: x[None], expected)
        )


def test_tasks_and_updates_together(dataset):
    data, device = open_host(dataset, TASKS, discount=0.9), load(dataset, TASKS, discount=0.9)
    tasks = np.array([[0, 1], [1, 1], [0, 0]])
    rows = np.random.default_rng(0).integers(0, 20, (3, 2, 7))
    read_all = jax.jit(jax.vmap(jax.vmap(partial(gather, device))))
    expected = read_all(jnp.asarray(tasks), jnp.asarray(rows))
    assert_same(data.gather(tasks, rows), expected)


def test_half_precision_is_widened_alike(tmp_path, env, dataset):
    small = write_slice(dataset, tmp_path / "small", env, dtype="float16", command="test")
    data, device = open_host(small, TASKS, discount=0.9), load(small, TASKS, discount=0.9)
    assert device.obs.dtype == jnp.float16
    rows = np.arange(20)
    expected = jax.tree.map(lambda x: x[None], read_rows(device, 0, jnp.asarray(rows)))
    assert_same(data.gather(np.array([0]), rows[None]), expected)


def test_returns_are_cached_once(dataset, monkeypatch):
    monkeypatch.setattr(host, "BLOCK_ROWS", 7)
    whole = open_host(dataset, TASKS, discount=0.9)
    files = sorted((dataset.path / CACHE).iterdir())
    assert len(files) == 2
    monkeypatch.delattr(host, "mc_return")
    again = open_host(dataset, TASKS, discount=0.9)
    for one, other in zip(whole.tasks, again.tasks, strict=True):
        np.testing.assert_array_equal(one.mc_return, other.mc_return)
    with pytest.raises(NameError):
        open_host(dataset, TASKS, discount=0.8)


def flipped(content: bytes) -> bytes:
    return content[:150] + bytes([content[150] ^ 1]) + content[151:]


@pytest.mark.parametrize(
    "damage", [lambda c: b"", lambda c: b"nonsense", lambda c: c[:-4], flipped, lambda c: c + b"x"]
)
def test_a_damaged_cache_is_made_again(dataset, damage):
    expected = [np.array(task.mc_return) for task in open_host(dataset, TASKS, discount=0.9).tasks]
    for path in (dataset.path / CACHE).iterdir():
        path.write_bytes(damage(path.read_bytes()))
    found = open_host(dataset, TASKS, discount=0.9).tasks
    for task, returns in zip(found, expected, strict=True):
        np.testing.assert_array_equal(task.mc_return, returns)


def test_a_folder_that_cannot_be_written(dataset):
    (dataset.path / CACHE).write_text("a file in the way")
    data, device = open_host(dataset, TASKS, discount=0.9), load(dataset, TASKS, discount=0.9)
    np.testing.assert_array_equal(data.tasks[1].mc_return, device.mc_return[1])


def test_a_flipped_bit_is_named(dataset):
    path = dataset.path / "task-002/action.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"task-002/action.npy .*sha256 differs"):
        open_host(dataset, TASKS, discount=0.9)


@pytest.mark.parametrize("column", ["obs", "action", "reward", "terminated", "mc-return"])
def test_a_file_cut_off_while_it_is_read_is_named(dataset, column):
    """The system would end the process where whole pages are missing."""
    data = open_host(dataset, TASKS, discount=0.9)
    [path] = [p for p in dataset.path.rglob("*.npy") if re.search(rf"task-002.*{column}", str(p))]
    position, rows, content = np.array([0]), np.array([[0]]), path.read_bytes()
    os.truncate(path, len(content) - 1)
    with pytest.raises(InputError, match=f"{path}: cut off from {len(content)} to .*--resume"):
        data.gather(position, rows)
    data.gather(np.array([1]), rows)
    path.write_bytes(content)
    expected = data.gather(position, rows)
    path.unlink()  # What is mapped stays, whatever takes its name.
    assert_same(data.gather(position, rows), expected)
    path.write_bytes(b"")
    assert_same(data.gather(position, rows), expected)
