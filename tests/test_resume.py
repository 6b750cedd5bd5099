"""Runs that are killed, stopped and resumed, in processes of their own: no update is lost."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from omrl import runs
from omrl.chunk import Layout, init_states, place, train_chunk
from omrl.config import to_json
from omrl.logs import read_log
from omrl.train import TrainConfig, load_states
from toy import Toy, ToyConfig, make_data
from toy_run import ToyRun, run_toy

PROGRAM = Path(__file__).with_name("toy_run.py")
SHORT = ToyRun(
    ToyConfig(steps=4500), TrainConfig(seeds=2, log_every=70, eval_every=500, checkpoint_every=500)
)
ENDLESS = ToyRun(ToyConfig(steps=10**7), TrainConfig(seeds=2, checkpoint_every=100_000))
"""Has no checkpoint of its own accord in the time of a test."""


def start(path: Path, config: ToyRun, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(path), json.dumps(to_json(config)), *options]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str]:
    """Exit code and standard error; a process that does not end is killed."""
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, errors


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def load(path: Path, config: ToyRun):
    algorithm = Toy(config.algo)
    layout = Layout.of(jax.devices("cpu")[:1], config.train.seeds)
    return load_states(runs.open_run(path), algorithm, config.train, layout)


def assert_same_bits(left, right) -> None:
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def untimed(path: Path) -> list[dict]:
    """The rows of the log without what no two runs share."""
    rows = read_log(path)
    return [{n: v for n, v in row.items() if n not in ("seconds", "steps_per_s")} for row in rows]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    run_toy(path, SHORT)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.25])
def test_killed_at_a_random_step(tmp_path, uninterrupted, delay):
    path = tmp_path / "run"
    process = start(path, SHORT)
    wait_for((path / "checkpoints" / "500").exists, process)
    time.sleep(delay)
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    run_toy(path, SHORT, resume=True)
    assert_same_bits(load(path, SHORT), load(uninterrupted, SHORT))
    assert untimed(path) == untimed(uninterrupted)


@pytest.mark.slow
def test_killed_in_the_middle_of_a_save(tmp_path, uninterrupted):
    path = tmp_path / "run"
    process = start(path, SHORT, "--kill-in-save", "2500")
    assert finish(process)[0] == -signal.SIGKILL
    assert load(path, SHORT)[1] in (2000, 2500)  # whole, whichever it is
    run_toy(path, SHORT, resume=True)
    assert_same_bits(load(path, SHORT), load(uninterrupted, SHORT))
    assert untimed(path) == untimed(uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_a_signal_saves_exactly_what_was_done(tmp_path, signum, code):
    path = tmp_path / "run"
    process = start(path, ENDLESS)
    wait_for(lambda: (path / "log.jsonl").exists() and len(read_log(path)) > 5, process)
    process.send_signal(signum)
    exit_code, errors = finish(process)
    assert exit_code == code
    states, step = load(path, ENDLESS)
    assert f"stopped by SIG{'TERM' if code == 143 else 'INT'} after {step} updates" in errors
    assert step > 100
    assert_same_bits(states, updates_in_one_go(step))


def updates_in_one_go(step: int):
    """The states of `ENDLESS` after `step` updates, without the trainer's loop."""
    algorithm = Toy(ENDLESS.algo)
    layout = Layout.of(jax.devices("cpu")[:1], ENDLESS.train.seeds)
    seeds, task_ids, data = np.arange(2), np.arange(6), place(make_data(), layout.replicated)
    states = init_states(algorithm, layout, seeds)
    for stage in algorithm.stages():
        left = min(stage.steps, step - int(states.step[0]))
        while left:
            length = min(left, 4000)
            states = train_chunk(stage, layout, states, data, seeds, task_ids, length)[0]
            left -= length
    return states


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(tmp_path):
    process = start(tmp_path / "run", SHORT, "--slow-evaluation")
    assert process.stdout is not None
    assert process.stdout.readline() == "evaluating\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    assert finish(process, seconds=10)[0] == -signal.SIGINT


@pytest.mark.slow
def test_two_processes_equal_one_and_stop_together(tmp_path):
    pair = start_pair(tmp_path / "run", SHORT)
    assert [finish(process)[0] for process in pair] == [0, 0]
    run_toy(tmp_path / "alone", SHORT)
    assert_same_bits(load(tmp_path / "run", SHORT), load(tmp_path / "alone", SHORT))
    assert untimed(tmp_path / "run") == untimed(tmp_path / "alone")

    path = tmp_path / "endless"
    pair = start_pair(path, ENDLESS)
    wait_for(lambda: (path / "log.jsonl").exists() and len(read_log(path)) > 5, pair[0])
    pair[1].send_signal(signal.SIGTERM)  # only one of them is told
    assert [finish(process)[0] for process in pair] == [143, 143]
    states, step = load(path, ENDLESS)
    assert_same_bits(states, updates_in_one_go(step))


def start_pair(path: Path, config: ToyRun) -> list[subprocess.Popen[str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    options = ("--coordinator", coordinator, "--process-id")
    return [start(path, config, *options, str(number)) for number in range(2)]
