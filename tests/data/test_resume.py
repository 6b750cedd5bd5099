"""Writing in rounds and after interruptions: at whatever point, nothing is lost."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from points import BEHAVIOUR, assert_holds, episodes_of, files_of

from omrl.data.store import create
from omrl.errors import InputError

# --- Rounds ---


def test_appending_in_rounds_writes_the_same_bytes(tmp_path, env, columns, dataset):
    writer = create(tmp_path / "rounds", env, command="test")
    for index, task in columns.items():
        count = len(task["episode_start"]) - 1
        for first in range(0, count, 3):
            writer.append(index, **episodes_of(task, first, min(first + 3, count)))
            assert writer.episodes(index) == min(first + 3, count)
        writer.complete(index, BEHAVIOUR)
    assert files_of(writer.finish().path) == files_of(dataset.path)


def test_a_torn_append_is_cut_off_by_the_next_one(tmp_path, env, columns, dataset):
    writer = create(tmp_path / "torn", env, command="test")
    for index, task in columns.items():
        count = len(task["episode_start"]) - 1
        writer.append(index, **episodes_of(task, 0, 2))
        for path in (writer.partial / f"task-00{index}").glob("*.npy"):
            with path.open("ab") as file:  # 5 bytes: no whole row of any floating-point column
                file.write(b"\x01" * 5)
        writer = create(tmp_path / "torn", env, command="test")
        assert writer.episodes(index) == 2
        writer.append(index, **episodes_of(task, 2, count))
        writer.complete(index, BEHAVIOUR)
    assert files_of(writer.finish().path) == files_of(dataset.path)


def test_an_episode_counts_only_when_all_its_columns_are_there(tmp_path, env, columns):
    writer = create(tmp_path / "lost", env, command="test")
    writer.append(0, **episodes_of(columns[0], 0, 6))
    path = writer.partial / "task-000/obs.npy"
    os.truncate(path, path.stat().st_size - 1)
    assert writer.episodes(0) == 5


@pytest.mark.parametrize("bit", [3, 40, 62, 63])
def test_a_flipped_boundary_ends_what_counts(tmp_path, env, columns, bit):
    writer = create(tmp_path / "flipped", env, command="test")
    writer.append(0, **episodes_of(columns[0], 0, 6))
    path = writer.partial / "task-000/episode_start.npy"
    content = np.frombuffer(path.read_bytes(), np.uint64).copy()
    content[-3] ^= np.uint64(1) << np.uint64(bit)  # the end of the fourth of six episodes
    path.write_bytes(content.tobytes())
    assert writer.episodes(0) == 3
    writer.append(0, **episodes_of(columns[0], 3, 10))
    writer.complete(0, BEHAVIOUR)
    assert_holds(writer.finish(), {0: columns[0]})


def test_a_first_boundary_that_is_there_in_part_counts_nothing(tmp_path, env, columns):
    writer = create(tmp_path / "begun", env, command="test")
    writer.append(1, **columns[1])
    os.truncate(writer.partial / "task-001/episode_start.npy", 128 + 3)
    assert writer.episodes(1) == 0
    writer.write_task(1, behaviour=BEHAVIOUR, **columns[1])
    assert_holds(writer.finish(), {1: columns[1]})


def test_truncating_to_a_recorded_cursor(tmp_path, env, columns):
    writer = create(tmp_path / "cut", env, command="test")
    writer.append(0, **episodes_of(columns[0], 0, 7))
    writer.complete(0, BEHAVIOUR)
    with pytest.raises(InputError, match="task 0 is complete"):
        writer.append(0, **episodes_of(columns[0], 7, 10))
    writer.truncate(0, 4)
    assert not writer.is_complete(0)
    assert writer.episodes(0) == 4
    with pytest.raises(ValueError, match="cannot keep 5 of 4 episodes"):
        writer.truncate(0, 5)
    writer.append(0, **episodes_of(columns[0], 4, 10))
    writer.sync(0)
    writer.complete(0, BEHAVIOUR)
    assert_holds(writer.finish(), {0: columns[0]})


# --- Interruptions ---


class Killed(BaseException):
    """Not an Exception, so that no handler of errors can intervene."""


def write_in_rounds(path, env, columns):
    """As a collector does: to the cursor that it recorded, and on from there."""
    writer = create(path, env, command="test", overwrite=True)
    for index, task in columns.items():
        if not writer.is_complete(index):
            writer.truncate(index, min(writer.episodes(index), 2))
            if writer.episodes(index) < 2:
                writer.truncate(index, 0)
                writer.append(index, **episodes_of(task, 0, 2))
            writer.append(index, **episodes_of(task, 2, len(task["episode_start"]) - 1))
            writer.complete(index, BEHAVIOUR)
    return writer.finish()


class Guillotine:
    """Counts changes to files and raises `Killed` instead of one of them, when armed."""

    def __init__(self, monkeypatch):
        self.remaining = 0
        opened = Path.open
        changing = self._guarded(opened)
        monkeypatch.setattr(
            Path,
            "open",
            lambda path, mode="r", *args, **kwargs: (opened if mode in ("r", "rb") else changing)(
                path, mode, *args, **kwargs
            ),
        )
        for name in ("rename", "replace", "mkdir"):
            monkeypatch.setattr(Path, name, self._guarded(getattr(Path, name)))
        monkeypatch.setattr(os, "truncate", self._guarded(os.truncate))
        monkeypatch.setattr(shutil, "rmtree", self._guarded(shutil.rmtree))

    def _guarded(self, function):
        def call(*args, **kwargs):
            self.remaining -= 1
            if self.remaining == 0:
                raise Killed
            return function(*args, **kwargs)

        return call


@pytest.mark.slow
def test_an_interruption_at_any_point_loses_nothing(tmp_path, env, columns, dataset, monkeypatch):
    columns = {index: columns[index] for index in (1, 2)}
    path, replaced = tmp_path / "killed", tmp_path / "killed.replaced"
    old = files_of(dataset.path)
    new = files_of(write_in_rounds(tmp_path / "new", env, columns).path)
    guillotine, point, killed = Guillotine(monkeypatch), 0, True
    while killed:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(dataset.path, path)
        point += 1
        guillotine.remaining = point
        try:
            write_in_rounds(path, env, columns)
            killed = guillotine.remaining <= 0
            guillotine.remaining = 0
        except Killed:
            # Before and after it is published there is a whole dataset, and at most between two
            # renames it is the old one under its second name.
            assert files_of(path) in (old, new) or files_of(replaced) == old
            write_in_rounds(path, env, columns)
        assert files_of(path) == new
        assert not replaced.exists()
        assert not path.with_name("killed.partial").exists()
    assert point > 80


def test_complete_tasks_are_not_written_again(tmp_path, env, columns, monkeypatch):
    writer = create(tmp_path / "points", env, command="test")
    writer.write_task(0, behaviour=BEHAVIOUR, **columns[0])
    resumed = create(tmp_path / "points", env, command="test")
    assert [resumed.is_complete(index) for index in range(3)] == [True, False, False]


def test_a_damaged_task_of_an_interrupted_writer_is_not_complete(tmp_path, env, columns):
    writer = create(tmp_path / "points", env, command="test")
    writer.write_task(0, behaviour=BEHAVIOUR, **columns[0])
    os.truncate(writer.partial / "task-000/reward.npy", 150)
    assert not create(tmp_path / "points", env, command="test").is_complete(0)


def test_another_command_does_not_continue_it(tmp_path, env, columns):
    create(tmp_path / "points", env, command="one").write_task(0, behaviour={}, **columns[0])
    with pytest.raises(InputError, match=r"begun by another command.*'one'; repeat that"):
        create(tmp_path / "points", env, command="two")
    assert not create(tmp_path / "points", env, command="two", overwrite=True).is_complete(0)


def test_a_foreign_partial_folder_is_left_alone(tmp_path, env):
    (tmp_path / "points.partial").mkdir()
    (tmp_path / "points.partial/thesis.txt").touch()
    with pytest.raises(InputError, match="in the way and not an interrupted dataset"):
        create(tmp_path / "points", env, command="test", overwrite=True)


def test_what_was_begun_with_other_tasks_is_not_continued(tmp_path, env, columns):
    create(tmp_path / "points", env, command="test").write_task(1, behaviour={}, **columns[1])
    shifted = env.with_tasks(env.tasks + 1.0, env.splits)
    with pytest.raises(InputError, match="or with other tasks, 'test'; repeat that one"):
        create(tmp_path / "points", shifted, command="test")


def test_the_splits_are_those_of_the_last_writer(tmp_path, env, columns):
    create(tmp_path / "points", env, command="test").write_task(1, behaviour={}, **columns[1])
    only_train = env.with_tasks(env.tasks, {"train": (1, 2)})
    writer = create(tmp_path / "points", only_train, command="test")
    assert writer.is_complete(1)
    assert writer.finish().splits == {"train": (1,)}
