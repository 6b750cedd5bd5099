"""What training reads: derived columns by hand, tasks of unequal length, the byte budget."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.data.device import (
    byte_budget,
    load,
    mc_return,
    obs_index,
    terminal_discount,
    terminal_index,
)
from omrl.data.sample import gather
from omrl.data.slice import Slice
from omrl.data.store import write_slice
from omrl.errors import InputError

STARTS = np.array([0, 3, 4, 6])
"""Episodes of 3, 1 and 2 transitions."""


def test_mc_return_of_three_episodes():
    reward = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    # 1 + (2 + 4 / 2) / 2 = 3; 2 + 4 / 2 = 4; 4 | 8 | 16 + 32 / 2 = 32; 32
    np.testing.assert_array_equal(mc_return(reward, STARTS, 0.5), [3, 4, 4, 8, 32, 32])


def test_mc_return_is_undiscounted_to_the_end_for_discount_one():
    reward = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], np.float32)
    result = mc_return(reward, STARTS, 1.0)
    np.testing.assert_array_equal(result, [7, 6, 4, 8, 48, 32])
    assert result.dtype == np.float64


def test_terminal_discount_is_the_discount_in_the_last_transition():
    expected = [0.125, 0.25, 0.5, 0.5, 0.25, 0.5]
    np.testing.assert_array_equal(terminal_discount(STARTS, 0.5), expected)


def test_indices_into_the_observations():
    # Observations 0 1 2 (3) | 4 (5) | 6 7 (8); in brackets the last of an episode.
    np.testing.assert_array_equal(obs_index(STARTS), [0, 1, 2, 4, 6, 7])
    np.testing.assert_array_equal(terminal_index(STARTS), [3, 3, 3, 5, 8, 8])


def test_the_fields_of_every_task(dataset, columns):
    data = load(dataset, (2, 0), discount=0.9)
    np.testing.assert_array_equal(data.num_rows, [25, 40])
    assert data.obs.shape == (2, 50, 2)
    for position, index in enumerate((2, 0)):
        task, rows = columns[index], data.num_rows[position]
        starts = task["episode_start"]
        reward = np.asarray(data.reward[position, :rows])
        np.testing.assert_array_equal(reward, task["reward"].astype(np.float32))
        np.testing.assert_array_equal(data.action[position, :rows], task["action"])
        np.testing.assert_array_equal(data.terminated[position, :rows], task["terminated"])
        np.testing.assert_array_equal(data.obs[position, : len(task["obs"])], task["obs"])
        expected = mc_return(reward, starts, 0.9).astype(np.float32)
        np.testing.assert_array_equal(data.mc_return[position, :rows], expected)
        np.testing.assert_array_equal(data.obs_index[position, :rows], obs_index(starts))
        np.testing.assert_array_equal(data.terminal_index[position, :rows], terminal_index(starts))
        discounts = terminal_discount(starts, 0.9).astype(np.float32)
        np.testing.assert_array_equal(data.terminal_discount[position, :rows], discounts)


def test_the_dtypes_are_those_of_training(dataset):
    data = load(dataset, (0,), discount=0.9)
    floats = {"obs", "action", "reward", "mc_return", "terminal_discount"}
    for name, field in data._asdict().items():
        expected = jnp.float32 if name in floats else jnp.int32
        assert field.dtype == (jnp.bool_ if name == "terminated" else expected), name
        assert not field.weak_type


def test_observations_in_half_precision_take_half_the_memory(tmp_path, env, dataset):
    half = write_slice(dataset, tmp_path / "half", env, dtype="float16", command="test")
    data = load(half, (1,), discount=0.9)
    assert data.obs.dtype == jnp.float16
    assert byte_budget(half, (1,))["obs"] == byte_budget(dataset, (1,))["obs"] // 2
    np.testing.assert_array_equal(data.obs[0], half.task(1).obs)
    batch = gather(data, 0, jnp.arange(5))
    assert batch.obs.dtype == jnp.float32
    np.testing.assert_array_equal(batch.obs, half.task(1).obs[:5].astype(np.float32))


def test_a_slice_is_loaded_as_if_it_were_the_dataset(tmp_path, env, dataset):
    selection = Slice.parse("every-2")
    copy = write_slice(dataset.view(selection), tmp_path / "copy", env, command="test")
    from_view = load(dataset.view(selection), (0, 1, 2), discount=0.9)
    from_copy = load(copy, (0, 1, 2), discount=0.9)
    jax.tree.map(np.testing.assert_array_equal, from_view, from_copy)


def test_the_byte_budget_is_what_is_allocated(dataset):
    budget = byte_budget(dataset, (0, 1, 2))
    data = load(dataset, (0, 1, 2), discount=0.9)
    assert budget == {name: field.nbytes for name, field in data._asdict().items()} | {
        "total": sum(field.nbytes for field in data)
    }
    # 3 tasks padded to 40 rows and 50 observations of 2 numbers of 4 bytes.
    assert budget["obs"] == 3 * 50 * 2 * 4
    assert budget["reward"] == 3 * 40 * 4
    assert budget["terminated"] == 3 * 40
    # Of task 0 the longest, 24 observations in episodes 6 to 9 of 2, 5, 5, 4 transitions.
    assert byte_budget(dataset.view(Slice.parse("last-4")), (0, 1))["obs"] == 2 * 24 * 2 * 4


def test_the_budget_reads_no_column(dataset, monkeypatch):
    monkeypatch.setattr(jnp, "zeros", None)
    assert byte_budget(dataset, (0,))["total"] > 0


def test_a_flipped_bit_is_found_while_loading(dataset):
    path = dataset.path / "task-001/obs.npy"
    content = bytearray(path.read_bytes())
    content[200] ^= 4
    path.write_bytes(content)
    load(dataset, (0, 2), discount=0.9)
    with pytest.raises(InputError, match=r"task-001/obs.npy \(task 1, obs\): sha256 differs"):
        load(dataset, (0, 1), discount=0.9)


@pytest.mark.parametrize("bit", [0, 3, 20, 40, 62, 63])
@pytest.mark.parametrize("boundary", [0, 1, -1])
@pytest.mark.parametrize(
    "read",
    [
        lambda dataset: load(dataset, (0, 1), discount=0.9),
        lambda dataset: byte_budget(dataset, (0, 1)),
        lambda dataset: load(dataset.view(Slice.parse("return-0.0-0.5")), (1,), discount=0.9),
        lambda dataset: dataset.view(Slice.parse("last-2")).task(1),
    ],
)
def test_a_flipped_boundary_sizes_nothing(dataset, bit, boundary, read):
    path = dataset.path / "task-001/episode_start.npy"
    starts = np.load(path)
    starts.view(np.uint64)[boundary] ^= np.uint64(1) << np.uint64(bit)
    np.save(path, starts)
    with pytest.raises(
        InputError, match=r"episode_start\): sha256 differs; copy the dataset again"
    ):
        read(dataset)


def test_loading_prints_nothing(dataset, capfd):
    load(dataset, (0, 1), discount=0.9)
    assert capfd.readouterr() == ("", "")
