"""Mixtures of two datasets: names, shares, order, and what cannot be mixed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import BEHAVIOUR, HORIZON, lifetime

from omrl.context import task_contexts
from omrl.data.dataset import TaskData
from omrl.data.device import load
from omrl.data.host import open_host
from omrl.data.manifest import TaskRecord
from omrl.data.mixture import MixedData, mix_tasks, open_view
from omrl.data.sample import gather
from omrl.data.slice import ALL, Mixture, Selection, parse_view
from omrl.data.store import create, write_slice
from omrl.errors import InputError
from omrl.protocol import EvalConfig

LENGTHS = {0: [5, 5, 4, 5], 1: [5, 2, 3], 2: [1, 5, 5, 5, 5, 5]}


@pytest.fixture
def other(tmp_path, env):
    """Another dataset of the same tasks, in half precision."""
    return write(tmp_path / "other", env, dtype="float16")


def write(path, env, tasks=(0, 1, 2), **options):
    writer = create(path, env, command="other", **options)
    for index in tasks:
        writer.write_task(index, behaviour=BEHAVIOUR, **lifetime(env, index, LENGTHS[index], 7))
    return writer.finish()


@pytest.mark.parametrize(
    "name", ["0.3:all+0.7:end", "0.25:first-10-transitions+0.75:return-0.5-1.0", "0.1:all+0.9:all"]
)
def test_names_parse_and_round_trip(name):
    assert str(Mixture.parse(name)) == name
    assert parse_view(str(parse_view(name))) == parse_view(name)


@pytest.mark.parametrize(
    "name",
    ["0.3:all+0.6:all", "0:all+1:all", "0.3:all+", "0.5+0.5", "+", "0.5:all+0.3:all+0.2:all"],
)
def test_other_names_are_refused(name):
    with pytest.raises(InputError, match=re.escape(f"no mixture {name!r}; a mixture is SHARE:")):
        parse_view(name)


def test_a_name_within_a_name_is_refused_by_its_own():
    with pytest.raises(InputError, match="no slice 'ende'; a slice is all"):
        parse_view("0.3:all+0.7:ende")


def test_the_episodes_of_a_mixture(dataset, other):
    # Of task 1 there are 5, 5, 5, 5 transitions here, and 5, 2, 3 there: all of these 10, and
    # 20 * 1/3 to 1 of here, so 5 and, since 5 is less than its share of 5 then, the third.
    task = open_view("0.5:all+0.5:all", dataset, other).task(1)
    here, there = task.parts
    np.testing.assert_array_equal(here.episodes, [0, 2])
    np.testing.assert_array_equal(there.episodes, [0, 1, 2])
    # Middles: 1/4, 3/4 of here; 2.5/10, 6/10, 8.5/10 of there.
    np.testing.assert_array_equal(task.order, [0, 2, 3, 1, 4])
    np.testing.assert_array_equal(task.lengths, [5, 5, 2, 5, 3])
    expected = [here.reward[:5], there.reward[:7], here.reward[5:], there.reward[7:]]
    np.testing.assert_array_equal(task.reward, np.concatenate(expected))
    expected = [here.obs[:6], there.obs[:9], here.obs[6:], there.obs[9:]]
    np.testing.assert_array_equal(task.obs, np.concatenate(expected))
    np.testing.assert_array_equal(task.only(np.array([1, 2, 4])).reward, there.reward)


def of_lengths(lengths):
    """A task of which only the lengths of its episodes matter."""
    columns = {"episode_start": np.concatenate([[0], np.cumsum(lengths)])}
    record = TaskRecord(0, (), len(lengths), sum(lengths), 0.0, 0.0, 0.0, {}, {})
    return TaskData(Path(), record, columns, Selection(np.arange(len(lengths))))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(*2 * [st.lists(st.integers(1, 9), min_size=1, max_size=60)], st.floats(0.02, 0.98))
def test_shares_are_met_within_one_episode(one, other, share):
    task = mix_tasks([of_lengths(one), of_lengths(other)], (share, 1 - share))
    longest, rows = max(*one, *other), [part.num_rows for part in task.parts]
    assert abs(rows[0] - share * sum(rows)) <= longest
    # As much as there is of one of the two.
    assert any(got == sum(held) for got, held in zip(rows, (one, other), strict=True))
    # The end of the mixture is the ends of both.
    for number, part in enumerate(task.parts):
        first = sum(p.num_episodes for p in task.parts[:number])
        mine = task.order[(task.order >= first) & (task.order < first + part.num_episodes)]
        np.testing.assert_array_equal(mine, first + np.arange(part.num_episodes))


def test_disk_and_device_give_the_same_bits(dataset, other):
    view, tasks = open_view("0.3:all+0.7:last-9-transitions", other, dataset), (2, 0)
    device, disk = (read(view, tasks, discount=0.9) for read in (load, open_host))
    assert device.obs.dtype == jnp.float32
    np.testing.assert_array_equal(disk.num_rows, device.num_rows)
    for position, count in enumerate(disk.num_rows):
        rows = np.arange(count, dtype=np.int32).reshape(1, -1)
        expected = jax.vmap(lambda row, at=position: gather(device, at, row))(jnp.asarray(rows))
        for one, same in zip(disk.gather(np.array([position]), rows), expected, strict=True):
            np.testing.assert_array_equal(one, same)
            assert one.dtype == same.dtype


def test_a_copy_is_what_the_view_is(tmp_path, env, dataset, other):
    view = open_view("0.5:every-2+0.5:all", dataset, other)
    copy = write_slice(view, tmp_path / "copy", env, command="test")
    assert copy.manifest.source == {
        "hash": dataset.manifest.hash,
        "mixed_in": other.manifest.hash,
        "slice": "0.5:every-2+0.5:all, every 1",
    }
    for index in (0, 1, 2):
        assert copy.task(index).behaviour == {"mixed": [BEHAVIOUR, BEHAVIOUR]}
        for name in ("obs", "action", "reward", "terms", "terminated", "truncated"):
            column = view.task(index).column(name).astype(copy.task(index).column(name).dtype)
            np.testing.assert_array_equal(copy.task(index).column(name), column, err_msg=name)


def test_a_context_may_be_of_a_mixture(dataset):
    config = EvalConfig(context_slice="0.5:first-1+0.5:last-1", context_size=7)
    context = task_contexts(dataset, config, 2, (0,), 0.9)
    # The first episode of 2 transitions and the last of 5.
    whole = dataset.task(2).reward
    np.testing.assert_array_equal(
        np.sort(np.asarray(context.reward[0])), np.sort(whole[[0, 1, -5, -4, -3, -2, -1]])
    )


def test_the_hash_names_data_shares_and_slices(dataset, other):
    names = ("0.3:all+0.7:all", "0.7:all+0.3:all", "0.3:all+0.7:end")
    views = [open_view(name, dataset, other) for name in names]
    views += [open_view(names[0], *pair) for pair in ((other, dataset), (dataset,))]
    assert all(isinstance(view, MixedData) for view in views)
    assert len({view.hash for view in (*views, dataset, other)}) == 7
    assert open_view(names[0], dataset, other).hash == views[0].hash
    assert open_view("all", dataset).selection == ALL


def test_a_flipped_bit_of_the_second_is_named(dataset, other):
    path = other.path / "task-002/action.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for read in (load, open_host):
        with pytest.raises(InputError, match=r"task-002/action.npy .*sha256 differs"):
            read(open_view("0.3:all+0.7:all", dataset, other), (0, 2), discount=0.9)


def test_what_cannot_be_mixed(tmp_path, env, other_env, dataset):
    moved = env.with_tasks([[0.0], [0.25], [1.0]], env.splits)
    name = "0.3:all+0.7:all"
    with pytest.raises(InputError, match=r"elsewhere: its task 1 is \(0.25,\), that of .* \(0.5,"):
        open_view(name, dataset, write(tmp_path / "elsewhere", moved)).task(1)
    with pytest.raises(InputError, match="fewer: its task 2 is not there"):
        open_view(name, dataset, write(tmp_path / "fewer", env, tasks=(0, 1))).task(2)
    longer = dataclasses.replace(env, spec=dataclasses.replace(env.spec, horizon=HORIZON + 1))
    for number, another in enumerate((other_env, longer)):
        data = write(tmp_path / f"mdp-{number}", another)
        with pytest.raises(
            InputError, match=rf"mdp-{number}: data of .*: use data of the same MDP"
        ):
            open_view(name, dataset, data)
    with pytest.raises(
        InputError, match=r"mix: .* is given and slice 'end' is no mixture; .*0.3:e"
    ):
        open_view("end", dataset, dataset)
