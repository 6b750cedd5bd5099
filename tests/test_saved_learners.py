"""Learners that an interrupted evaluation by `finetune` goes on with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omrl.data.store import Dataset
from omrl.errors import InputError, Stopped
from omrl.evaluate import EvalResult
from omrl.saved_learners import learners_of
from test_evaluate import SPEC, TASKS, write_walks
from test_finetune import CONFIG, BreakError, Drifter, changed, run

LAST = CONFIG.shots[-1]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write_walks(tmp_path_factory.mktemp("data") / "walks")


@pytest.fixture(scope="module")
def whole(dataset) -> EvalResult:
    """Never interrupted."""
    return run(dataset, learner=Drifter(SPEC))


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """Of the curve; learners are saved after every trajectory."""
    monkeypatch.setattr("omrl.saved_learners.EVERY", 0.0)
    return tmp_path / "result.npz.unfinished"


@pytest.fixture
def collected(monkeypatch) -> list[int]:
    """The numbers of the trajectories that are collected, of all tasks of a group together."""
    from omrl import finetune

    numbers, collect = [], finetune.collect

    def counted(policies: Any, env: Any, config: Any, physics: Any, number: int) -> Any:
        numbers.append(number)
        return collect(policies, env, config, physics, number)

    monkeypatch.setattr(finetune, "collect", counted)
    return numbers


def when(*words: str, then: Callable[[], None]) -> Callable[[str], None]:
    """Tells nothing, and does something at a line with these words."""

    def report(line: str) -> None:
        if all(word in line for word in words):
            then()

    return report


def breaks() -> None:
    raise BreakError


def interrupted(dataset: Dataset, file: Path, *words: str, **how: Any) -> None:
    with pytest.raises(BreakError):
        run(
            dataset,
            learner=Drifter(SPEC),
            unfinished=file,
            report=when(*words, then=breaks),
            **how,
        )


def same(one: EvalResult, other: EvalResult) -> bool:
    """Bit for bit."""
    fields = ("returns", "env_steps", "random", "zero")
    traces = all((one.traces[name] == other.traces[name]).all() for name in other.traces)
    return traces and all((getattr(one, f) == getattr(other, f)).all() for f in fields)


def test_tasks_go_on_where_their_learners_were_saved(dataset, whole, file, collected):
    interrupted(dataset, file, "3 of 6")
    assert collected == [0, 1, 2]
    assert learners_of(file).is_dir()
    collected.clear()
    assert same(run(dataset, learner=Drifter(SPEC), unfinished=file), whole)
    assert collected == [2, 3, 4, 5]
    assert not learners_of(file).exists()


def test_and_in_groups_of_tasks(dataset, whole, file, collected):
    interrupted(dataset, file, "group 2 of 3", "3 of 6", tasks_at_once=1)
    collected.clear()
    lines: list[str] = []
    how = {"tasks_at_once": 2, "unfinished": file, "report": lines.append}
    result = run(dataset, learner=Drifter(SPEC), **how)
    assert result.returns == pytest.approx(whole.returns, abs=1e-4)
    assert (result.env_steps == whole.env_steps).all()
    assert collected == [2, 3, 4, 5, *range(LAST)]
    assert lines[0].startswith(f"finetune, group 1 of 2, tasks {TASKS[1]}: 3 of 6 trajectories")


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_a_trajectory_and_nothing_is_lost(dataset, whole, tmp_path, kind):
    file = tmp_path / "result.npz.unfinished"
    handler = signal.getsignal(kind)
    stop = when("2 of 6", then=lambda: os.kill(os.getpid(), kind))
    said = rf"stopped by {kind.name} after 2 online trajectories, which are saved; repeat the"
    with pytest.raises(Stopped, match=said) as stopped:
        run(dataset, learner=Drifter(SPEC), unfinished=file, report=stop)
    assert stopped.value.code == 128 + kind
    assert signal.getsignal(kind) is handler
    assert same(run(dataset, learner=Drifter(SPEC), unfinished=file), whole)


def test_without_a_file_a_signal_is_not_held_back(dataset):
    def raises(*_: Any) -> None:
        raise BreakError

    previous = signal.signal(signal.SIGTERM, raises)
    try:
        with pytest.raises(BreakError):
            run(dataset, report=when("2 of 6", then=lambda: os.kill(os.getpid(), signal.SIGTERM)))
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_saved_no_more_often_than_it_is_time(dataset, tmp_path):
    file = tmp_path / "result.npz.unfinished"
    interrupted(dataset, file, "6 of 6")
    assert file.exists()
    assert not learners_of(file).exists()


def test_without_their_curve_they_begin_anew(dataset, whole, file, collected):
    interrupted(dataset, file, "3 of 6")
    file.unlink()
    collected.clear()
    assert same(run(dataset, learner=Drifter(SPEC), unfinished=file), whole)
    assert collected == list(range(LAST))


def test_of_finished_tasks_none_stay(dataset, whole, file):
    interrupted(dataset, file, "6 of 6")
    assert learners_of(file).is_dir()
    assert same(run(dataset, learner=Drifter(SPEC), unfinished=file), whole)
    assert not learners_of(file).exists()


def test_with_fewer_tasks_at_once_they_begin_anew(dataset, whole, file, collected):
    interrupted(dataset, file, "3 of 6", tasks_at_once=2)
    collected.clear()
    result = run(dataset, learner=Drifter(SPEC), unfinished=file, tasks_at_once=1)
    assert result.returns == pytest.approx(whole.returns, abs=1e-4)
    assert collected == 3 * list(range(LAST))


def test_learners_of_something_else_and_damaged_ones_are_refused(dataset, whole, file):
    interrupted(dataset, file, "3 of 6")
    curve, folder = file.read_bytes(), learners_of(file)
    file.unlink()
    with pytest.raises(InputError, match=rf"another config.*; delete {folder} to begin these"):
        run(dataset, changed(burn_in=4), Drifter(SPEC), unfinished=file)
    file.write_bytes(curve)
    data = max(folder.rglob("d/*"), key=lambda path: path.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with pytest.raises(InputError, match=rf"{folder}/2: .*; delete {folder} to begin these tasks"):
        run(dataset, learner=Drifter(SPEC), unfinished=file)
    assert (np.load(file, allow_pickle=False)["returns"][:, :, 0] == whole.returns[:, :, 0]).all()


def test_a_folder_that_cannot_be_written_ends_nothing(dataset, whole, file):
    learners_of(file).write_text("in the way")
    lines: list[str] = []
    result = run(dataset, learner=Drifter(SPEC), unfinished=file, report=lines.append)
    assert same(result, whole)
    told = [line for line in lines if line.startswith("learners cannot be saved on the way: ")]
    assert len(told) == 1
    assert learners_of(file).read_text() == "in the way"
