"""The log: means, rows however updates are cut, resume, TensorBoard, W&B, plain progress lines."""

from __future__ import annotations

import builtins
import io
import itertools
import json
import struct
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event

from omrl import progress
from omrl.errors import InputError
from omrl.logs import Averages, RunLog, read_log
from omrl.progress import TrainProgress


def metrics(first: int, last: int) -> dict[str, np.ndarray]:
    """Of updates first + 1 … last and two seeds: a scalar, and one value per task."""
    update = np.arange(first + 1, last + 1, dtype=np.float32)
    loss = np.stack([0.1 * update, -0.1 * update])
    return {"loss": loss, "by_task": loss[..., None] * np.array([1.0, 3.0], np.float32)}


def write(log: RunLog, *cuts: int, stage_end: int = 25) -> None:
    """The updates from cuts[0] to cuts[-1], in chunks that end at the others."""
    for first, last in itertools.pairwise(cuts):
        log.add(
            metrics(first, last),
            stage="meta",
            first=first,
            last_of_stage=stage_end,
            seconds=1.5,
            steps_per_s=20.0,
        )


def test_a_row_per_interval_and_at_the_end_of_a_stage(tmp_path):
    with RunLog(tmp_path, every=10) as log:
        write(log, 0, 25)
        log.evaluation(25, 2.0, {"return": -41.5, "bad": float("nan")})
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20, 25, 25]
    # Updates 1 … 10: 0.1 * 5.5; the tasks' mean is twice that.
    assert rows[0]["metrics"]["loss"] == pytest.approx([0.55, -0.55], rel=1e-6)
    assert rows[0]["metrics"]["by_task"] == pytest.approx([1.1, -1.1], rel=1e-6)
    # Updates 21 … 25: 0.1 * 23.
    assert rows[2]["metrics"]["loss"] == pytest.approx([2.3, -2.3], rel=1e-6)
    assert (rows[0]["stage"], rows[0]["seconds"], rows[0]["steps_per_s"]) == ("meta", 1.5, 20.0)
    assert rows[3]["evaluation"] == {"return": -41.5, "bad": None}


def test_rows_do_not_depend_on_the_chunks(tmp_path):
    for name, cuts in (("whole", (0, 25)), ("cut", (0, 1, 7, 10, 24, 25))):
        (tmp_path / name).mkdir()
        with RunLog(tmp_path / name, every=10) as log:
            write(log, *cuts)
    assert read_log(tmp_path / "whole") == read_log(tmp_path / "cut")


def test_shown_are_the_means_of_the_last_row_of_the_stage(tmp_path):
    def shown(log, first, last, stage, stage_end):
        timing = {"seconds": 1.5, "steps_per_s": 20.0}
        means = log.add(
            metrics(first, last), stage=stage, first=first, last_of_stage=stage_end, **timing
        )
        return means["loss"][0]

    with RunLog(tmp_path, every=10) as log:
        chunks = [(0, 5), (5, 9), (9, 14), (14, 19), (19, 35), (35, 38)]
        by_chunk = [shown(log, *cut, "meta", 38) for cut in chunks]
        of_next_stage = shown(log, 38, 39, "next", 50)
    rows = [row["metrics"]["loss"][0] for row in read_log(tmp_path)]
    # Before there is a row, the means of updates 1 … 5 and 1 … 9: 0.1 * 3 and 0.1 * 5.
    assert by_chunk == pytest.approx([0.3, 0.5, rows[0], rows[0], rows[2], rows[3]])
    assert of_next_stage == pytest.approx(3.9)


def test_resume_loses_no_row_and_repeats_none(tmp_path):
    with RunLog(tmp_path, every=10) as log:
        write(log, 0, 13)
        log.evaluation(13, 1.0, {"return": 1.0})
        pending = json.loads(json.dumps(log.pending()))  # as a checkpoint of update 13 has it
        write(log, 13, 21)
        log.evaluation(21, 1.0, {"return": 2.0})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 21, "cut off by a k')
    with RunLog(tmp_path, every=10, step=13, evaluated=13, averages=Averages(**pending)) as log:
        write(log, 13, 25)
    resumed = read_log(tmp_path)
    assert [row["step"] for row in resumed] == [10, 13, 20, 25]

    (tmp_path / "whole").mkdir()
    with RunLog(tmp_path / "whole", every=10) as log:
        write(log, 0, 25)
    assert [row for row in resumed if "metrics" in row] == read_log(tmp_path / "whole")


def test_an_evaluation_that_is_not_in_the_checkpoint_is_dropped(tmp_path):
    with RunLog(tmp_path, every=10) as log:
        log.evaluation(20, 1.0, {"return": 1.0})
    RunLog(tmp_path, every=10, step=20, evaluated=10).close()
    assert read_log(tmp_path) == []


def test_a_damaged_line_is_named(tmp_path):
    row = '{"step": 1, "seconds": 1.0, "evaluation": {"return": null}}\n'
    (tmp_path / "log.jsonl").write_text(row + '{"st\n')
    with pytest.raises(InputError, match=r"log\.jsonl: line 2: not JSON .*; remove that line"):
        read_log(tmp_path)


TRAINING = {"step": 1, "stage": "meta", "seconds": 1.0, "steps_per_s": 9.0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (7, r"line 2: 7 is not an object"),
        ({"step": 1}, r"line 2\.stage: missing; every field has to be there; remove that line"),
        (TRAINING | {"metrics": [1.0]}, r"line 2\.metrics: \[1\.0\] is not an object"),
        (TRAINING | {"metrics": {"a": 1.0}}, r"line 2\.metrics\.a: 1\.0 is not a list"),
        (TRAINING | {"metrics": {"a": [1.0]}}, r"log\.jsonl: its rows are of different numbers"),
        ({"step": "1", "seconds": 1, "evaluation": {}}, r"line 2\.step: '1' is not of type int"),
        ({"step": 1, "seconds": 1, "evaluation": {"a": []}}, r"line 2\.evaluation\.a: \[\] is not"),
    ],
)
def test_a_row_of_another_shape_is_named(tmp_path, row, message):
    rows = (TRAINING | {"metrics": {"a": [1.0, None]}}, row)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=message):
        RunLog(tmp_path, every=10)


def read_events(content: bytes) -> Iterator[Event]:
    """A record: its length in 8 bytes, 4 of checksum, the event, 4 of checksum."""
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def test_tensorboard_has_the_means_over_seeds(tmp_path):
    with RunLog(tmp_path, every=10) as log:
        log.add(
            {"loss": np.array([[1.0], [3.0]])},
            stage="meta",
            first=9,
            last_of_stage=99,
            seconds=1.0,
            steps_per_s=20.0,
        )
        log.evaluation(10, 1.0, {"return": -5.0})
    (events,) = tmp_path.glob("events.out.tfevents.*")
    found = {
        value.tag: (event.step, value.simple_value)
        for event in read_events(events.read_bytes())
        for value in event.summary.value
    }
    expected = {
        "train/loss": (10, 2.0),
        "speed/steps_per_s": (10, 20.0),
        "evaluation/return": (10, -5.0),
    }
    assert found == expected


def test_wandb_that_is_not_installed(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def without_wandb(name, *arguments):
        if name == "wandb":
            raise ImportError(name)
        return real_import(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_wandb)
    with pytest.raises(InputError, match=r"wandb: .*pip install 'omrl\[wandb\]'"):
        RunLog(tmp_path, every=10, wandb_config={})


def test_wandb_gets_the_same_run_again_after_resume(tmp_path, monkeypatch):
    started, logged = [], []
    run = types.SimpleNamespace(
        log=lambda scalars, step: logged.append((step, scalars)), finish=lambda: None
    )

    def init(**arguments):
        started.append(arguments)
        return run

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))  # type: ignore
    for _ in range(2):
        with RunLog(tmp_path, every=10, wandb_config={"lr": 0.1}) as log:
            log.evaluation(10, 1.0, {"return": -5.0})
    assert started[0]["id"] == started[1]["id"]
    assert started[0]["config"] == {"lr": 0.1}
    assert logged == [(10, {"evaluation/return": -5.0})] * 2


def test_without_a_terminal_progress_is_a_line_every_ten_seconds(monkeypatch):
    clock = iter([0.0, 0.0, 9.0, 10.5, 10.5, 12.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    text = io.StringIO()
    shown = TrainProgress(1000, console=Console(file=text, soft_wrap=True))
    with shown:
        shown.update("meta", 100, 50.0, 0.25)  # at 0 s
        shown.update("meta", 200, 50.0, 0.25)  # at 9 s: silent
        shown.evaluation(200, {"return": -41.25})
        shown.update("meta", 300, 50.0, 0.125)  # at 10.5 s
    assert text.getvalue().splitlines() == [
        "100/1000 meta  50.0 steps/s  ETA 0:18  loss 0.25",
        "evaluation after 200 updates:  return -41.25",
        "300/1000 meta  50.0 steps/s  ETA 0:14  loss 0.125  return -41.25",
    ]


def test_on_a_terminal_progress_is_a_bar():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with TrainProgress(1000, console=console) as shown:
        shown.update("meta", 1000, 50.0, 0.25)
    assert "━" in text.getvalue()
    assert "1000/1000 meta  50.0 steps/s" in text.getvalue()
