"""Datasets whose tasks share their episodes: which, where, with whose rewards, and interrupted."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from points import BEHAVIOUR, LENGTHS, PointEnv, episodes_of, files_of, lifetime

from omrl.data.borrow import Borrowing
from omrl.data.relabel import relabel
from omrl.data.slice import Slice
from omrl.data.store import Writer, create, open_dataset
from omrl.errors import InputError


@pytest.fixture
def three(tmp_path):
    """Three tasks for training, one for testing, of 10 episodes each."""
    env = PointEnv().with_tasks([[0.0], [0.5], [1.0], [0.2]], {"train": (0, 1, 2), "test": (3,)})
    writer = create(tmp_path / "three", env, command="test")
    for index in range(4):
        behaviour = BEHAVIOUR | {"final_return": -1.0 - index}
        writer.write_task(index, behaviour=behaviour, **lifetime(env, index, LENGTHS[0]))
    return env, writer.finish()


def sources(dataset, index, num_own):
    """(task, episode) of every episode, as the behaviour of a relabelled task tells."""
    record = dataset.manifest.record(index)
    places = [None] * record.episodes
    for giver, given in record.behaviour["relabelled"]["episodes_from"].items():
        for at, episode in zip(given["at"], given["episodes"], strict=True):
            places[at] = (int(giver), episode)
    return places


def columns_of(task):
    names = [name for name in task.columns if name != "episode_start"]
    return {name: np.asarray(task.column(name)) for name in names} | {
        "episode_start": task.episode_start
    }


def assert_right(source, relabelled, env, index, mode):
    """Every column is that of the episode's source; the reward is that of the taker's goal."""
    new, own = columns_of(relabelled.task(index)), iter(range(10))
    places = sources(relabelled, index, 10)
    for at, place in enumerate(places):
        kept = at if mode == "replace" else next(own) if place is None else -1
        giver, episode = place or (index, kept)
        expected = episodes_of(columns_of(source.task(giver)), episode, episode + 1)
        actual = episodes_of(new, at, at + 1)
        for name in ("obs", "action", "terms", "terminated", "truncated", "episode_start"):
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
        goal = env.tasks[index]
        np.testing.assert_array_equal(
            actual["reward"], -np.abs(expected["terms"][:, 0] - np.float32(goal[0]))
        )
    return places


def test_tasks_take_over_episodes_with_their_own_rewards(three, tmp_path):
    env, source = three
    new = relabel(source, tmp_path / "new", env, borrowing=Borrowing(per_task=3), command="test")
    assert new.manifest.validation["reward"] == "checked"
    assert new.manifest.source["hash"] == source.manifest.hash
    assert json.loads(new.manifest.source["borrowing"])["per_task"] == 3
    for index in (0, 1, 2):
        places = assert_right(source, new, env, index, "extend")
        taken = [place for place in places if place is not None]
        givers = [giver for giver, _ in taken]
        assert len(places) == 16
        assert sorted(givers) == sorted(3 * [giver for giver in (0, 1, 2) if giver != index])
        assert len(set(taken)) == 6
        # Neither early nor late episodes move: all stand in the order of their first lifetimes.
        own = iter(range(10))
        when = [next(own) if place is None else place[1] for place in places]
        assert when == sorted(when)
        record = new.manifest.record(index)
        assert record.behaviour["final_return"] == -1.0 - index  # It is the oracle of evaluations.
        assert record.behaviour["relabelled"]["rounded_at_a_border"] == 0
    # Data of test tasks is neither given nor changed.
    assert new.manifest.record(3) == source.manifest.record(3)
    assert files_of(new.path / "task-003") == files_of(source.path / "task-003")


@pytest.mark.parametrize(("trajectory", "places"), [(1, 10), (2, 5), (4, 6)])
def test_replaced_episodes_keep_their_places(three, tmp_path, trajectory, places):
    env, source = three
    borrowing = Borrowing(share=1.0, mode="replace", trajectory=trajectory)
    new = relabel(source, tmp_path / "new", env, borrowing=borrowing, command="test")
    for index in (0, 1, 2):
        found = assert_right(source, new, env, index, "replace")
        at = [place for place, giver in enumerate(found) if giver is not None]
        first_halves = [e for e in range(10) if e % trajectory < max(1, trajectory // 2)]
        assert at == first_halves
        assert len(at) == places
        assert all(found[place][1] in first_halves for place in at)


def test_who_gives_and_what_is_a_function_of_the_seed(three, tmp_path):
    env, source = three

    def hashes(name, **options):
        borrowing = Borrowing(share=0.5, **options)
        new = relabel(source, tmp_path / name, env, borrowing=borrowing, command="test")
        return [task.columns["obs"].sha256 for task in new.manifest.tasks]

    first = hashes("first")
    assert hashes("again") == first
    assert hashes("other", seed=1)[:3] != first[:3]
    view = source.view(Slice.parse("end"))
    new = relabel(view, tmp_path / "end", env, borrowing=Borrowing(per_task=1), command="test")
    assert new.task(0).num_episodes == 4 + 2
    givers = new.manifest.record(0).behaviour["relabelled"]["episodes_from"]
    assert all(given["episodes"][0] >= 6 for given in givers.values())


def test_tasks_held_out_neither_give_nor_take(three, tmp_path):
    env, _ = three
    split = env.with_tasks(env.tasks, {"train": (0, 1, 2), "validation": (1,), "test": (3,)})
    writer = create(tmp_path / "split", split, command="test")
    for index in range(4):
        writer.write_task(index, behaviour={}, **lifetime(env, index, LENGTHS[0]))
    source, borrowing = writer.finish(), Borrowing(per_task=10, holdout="validation")
    new = relabel(source, tmp_path / "new", split, borrowing=borrowing, command="test")
    assert new.manifest.record(1) == source.manifest.record(1)
    assert set(sources(new, 0, 10)) - {None} == {(2, episode) for episode in range(10)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "share: give either it or per_task"),
        ({"share": 0.5, "per_task": 1}, "share: give either it or per_task"),
        ({"share": -0.5}, "share: -0.5 is not a number"),
        ({"share": float("nan")}, "share: nan is not a number"),
        ({"per_task": 0}, "per_task: 0 is not a whole number"),
        ({"per_task": 1, "trajectory": 2}, "trajectory: .* needs mode replace"),
    ],
)
def test_borrowing_of_no_meaning(options, message):
    with pytest.raises(InputError, match=message):
        Borrowing(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_task": 11}, "11 episodes of task 1, which has 10 to give; take over fewer"),
        ({"share": 1.5, "mode": "replace"}, "15 episodes cannot replace 10"),
        ({"per_task": 1, "split": "trian"}, "split: no split 'trian'; the dataset has train, test"),
        ({"per_task": 1, "holdout": "val"}, "holdout: no split 'val'; the dataset has train, test"),
        ({"per_task": 1, "split": "test"}, "split 'test' has 1 tasks that may give"),
    ],
)
def test_borrowing_that_the_data_does_not_allow(three, tmp_path, options, message):
    env, source = three
    with pytest.raises(InputError, match=message):
        relabel(source, tmp_path / "new", env, borrowing=Borrowing(**options), command="test")
    assert not list(tmp_path.glob("new*"))


def test_what_has_nothing_to_relabel_by(three, tmp_path, monkeypatch):
    env, source = three
    with pytest.raises(InputError, match="nothing to relabel with; say how many episodes"):
        relabel(source, tmp_path / "new", env, command="test")
    monkeypatch.setattr(PointEnv, "task_changes_physics", True)
    with pytest.raises(InputError, match="a transition of one task is not one of another"):
        relabel(source, tmp_path / "new", env, borrowing=Borrowing(per_task=1), command="test")


# --- Interruptions ---


def test_an_interrupted_relabelling_goes_on_and_another_is_refused(three, tmp_path, monkeypatch):
    env, source = three
    options = {"borrowing": Borrowing(per_task=2), "command": "test"}
    whole = relabel(source, tmp_path / "whole", env, **options)
    complete, written = Writer.complete, []

    def interrupted(self, index, behaviour):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(index)
        complete(self, index, behaviour)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "complete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            relabel(source, tmp_path / "new", env, **options)
    assert (tmp_path / "new.partial").is_dir()
    with pytest.raises(InputError, match="begun by another command"):
        relabel(
            source, tmp_path / "new", env, borrowing=Borrowing(per_task=2, seed=1), command="test"
        )
    resumed = relabel(source, tmp_path / "new", env, **options)
    assert resumed.hash == whole.hash
    assert not (tmp_path / "new.partial").exists()


@pytest.mark.parametrize("room", [100, 10**9])
def test_a_full_disk_leaves_nothing(three, tmp_path, monkeypatch, room):
    env, source = three
    free = iter([room, 0])  # Full from the start, or while it is written.
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=next(free)))
    with pytest.raises(InputError, match="bytes on this disk"):
        relabel(source, tmp_path / "new", env, borrowing=Borrowing(per_task=1), command="test")
    assert not list(tmp_path.glob("new*"))


def test_damage_of_the_source_is_not_vouched_for(three, tmp_path):
    env, source = three
    path = source.path / "task-001/terms.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"task-001/terms.npy .*sha256 differs"):
        relabel(source, tmp_path / "new", env, borrowing=Borrowing(per_task=1), command="test")
    assert not list(tmp_path.glob("new*"))


def test_relabelled_data_can_be_relabelled(three, tmp_path):
    env, source = three
    once = relabel(source, tmp_path / "once", env, borrowing=Borrowing(per_task=1), command="test")
    other = dataclasses.replace(env, spec=dataclasses.replace(env.spec, dt=0.5))
    with pytest.raises(InputError, match=r"has other transitions \(dt\)"):
        relabel(once, tmp_path / "twice", other, borrowing=Borrowing(per_task=1), command="test")
    twice = relabel(once, tmp_path / "twice", env, borrowing=Borrowing(per_task=1), command="test")
    done = [open_dataset(d.path).manifest.record(0).behaviour["relabelled"] for d in (once, twice)]
    assert done[1]["before"] == done[0]
