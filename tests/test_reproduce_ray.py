"""`omrl reproduce --ray`: its graph and locks, and tasks of Ray where that is installed."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ray_study
import tiny_smac_study
from omrl.cli import main
from omrl.envs.optional import is_installed
from omrl.errors import InputError, Stopped
from omrl.experiments import crew, holding, ray_stages, sources
from omrl.experiments.declare import plan
from omrl.experiments.stages import Workshop
from omrl.results import EvalResult
from tiny_study import STUDY

needs_ray = pytest.mark.skipif(not is_installed("ray"), reason=crew.INSTALL)
TIMEOUT = 150.0
"""Seconds within which a stage compiles, on a busy machine."""


# --- The lock of a stage ---

HOLD = """
import sys, time
from pathlib import Path
from omrl.experiments import holding
holding.WATCH = 0.05
with holding.holding(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(100)
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_attempt_waits_until_the_first_process_is_gone(monkeypatch, tmp_path):
    monkeypatch.setattr(holding, "PAUSE", 0.01)
    path, said = tmp_path / "locks" / "stage", []
    with holder(path) as process:

        def say(text: str) -> None:
            said.append(text)
            process.kill()

        with holding.holding(path, say):
            assert process.wait() == -signal.SIGKILL
            assert holding._take(path) is None
    assert said == [f"waiting for process {process.pid} on {os.uname().nodename}, which is at it; "
                    f"{path}"]  # fmt: skip
    file = holding._take(path)
    assert file is not None
    file.close()


@pytest.mark.parametrize("removed", [True, False])
def test_a_process_whose_lock_was_given_away_ends(tmp_path, removed):
    """By a file system that had lost its machine, or by somebody who removed the file."""
    path = tmp_path / "stage"
    with holder(path) as process:
        if removed:
            path.unlink()
        else:
            path.write_text("process 1 on elsewhere, 0")
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None
        lost = "another process" if removed else "process 1 on elsewhere"
        assert process.stderr.read() == f"omrl: error: lost {path} to {lost}\n"


# --- The graph ---


class Listing(crew.Crew):
    """In place of a crew: what is ordered, and behind what."""

    def __init__(self):
        super().__init__(None, "tests", "auto", None, None, print)
        self.after: dict[str, set[str]] = {}
        self.gpus: set[str] = set()

    def order(self, key, name, stage, *inputs, shared, computes=True):
        if key in self.tasks:
            return self.tasks[key]
        task = f"{len(self.tasks)} {name}"
        self.tasks[key] = task
        known = set(self.after)
        self.after[task] = {each for each in inputs if isinstance(each, str) and each in known}
        if computes:
            self.gpus.add(task)
        return task


def ordered(listing: Listing, study, out: Path, data: str = "", collect=None) -> list[str]:
    planned = plan(study, "smoke")
    shop = Workshop(sources.named(data, planned), out / "runs", [], "tests", print)
    return ray_stages.order(listing, shop, study, "smoke", planned, out, collect)


def test_a_training_that_rows_share_is_one_task(cheetah_data, tmp_path):
    listing = Listing()
    tasks = ordered(listing, STUDY, tmp_path / "out", str(cheetah_data))
    assert listing.after == {
        "0 MACAW: training": set(),
        "1 MACAW: evaluation": {"0 MACAW: training"},
        "2 MACAW, one trajectory: evaluation": {"0 MACAW: training"},
        "3 BC: training": set(),
        "4 BC: evaluation": {"3 BC: training"},
    }
    assert tasks == [task for task in listing.after if "evaluation" in task]
    # Another experiment with the same runs.
    other = replace(STUDY, id="other", arms=STUDY.arms[::-1])
    assert ordered(listing, other, tmp_path / "other", str(cheetah_data)) == tasks[::-1]
    assert len(listing.after) == 5


def test_what_is_collected_first_is_waited_for(tmp_path):
    listing = Listing()
    ordered(listing, STUDY, tmp_path / "out", collect=lambda say: "data")
    first = "0 collecting bundled:cheetah-vel"
    assert listing.after["1 MACAW: training"] == {first}
    assert listing.after["4 BC: training"] == {first}


def test_the_chain_of_smac_is_in_its_order(tmp_path):
    """The run that collects is trained once, its datasets need no GPU, whoever reads waits."""
    listing = Listing()
    ordered(listing, tiny_smac_study.STUDY, tmp_path / "out")
    run, datasets, *_ = listing.after
    assert (run, datasets) == ("0 data: training", "1 datasets")
    assert listing.after[datasets] == {run}
    assert set(listing.after) - listing.gpus == {datasets}
    trainings = {task for task in listing.after if task.endswith("training")} - {run}
    assert len(trainings) == 2
    assert all(listing.after[task] == {datasets} for task in trainings)
    (pearl,) = [task for task in listing.after if "PEARL" in task]
    assert listing.after[pearl] == {run}


# --- Refusals ---


def refused(capsys, *options: str) -> str:
    arguments = ["reproduce", "macaw-fig3-cheetah-vel", "--scale", "smoke", "--out", "x"]
    assert main([*arguments, *options]) == 2
    return capsys.readouterr().err


def test_without_ray_it_says_how_to_install_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    expected = "omrl: error: --ray: Ray is not installed; pip install 'omrl[ray]'\n"
    assert refused(capsys, "--ray", "local") == expected
    assert main(["reproduce", "ALL", "--scale", "smoke", "--out", "x", "--ray", "local"]) == 2
    # Experiments that lack a package of theirs are named before.
    assert capsys.readouterr().err.splitlines(keepends=True)[-1] == expected


def test_options_that_do_not_go_together_are_told(capsys):
    assert "ray_cpus: needs --ray" in refused(capsys, "--ray-cpus", "2")
    error = refused(capsys, "--ray", "local", "--coordinator", "host:1")
    assert "coordinator: a stage of --ray is on one node" in error


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999"])
def test_an_address_where_nobody_is_is_told_at_once(address):
    with pytest.raises(InputError, match="no cluster is there"):
        crew._check_address(address)


@pytest.mark.parametrize("address", ["here", "ray://127.0.0.1:10001", ":1", "a:b"])
def test_an_address_that_is_none_is_told(address):
    with pytest.raises(InputError, match="give local, auto or HOST:PORT"):
        crew._check_address(address)


def test_a_node_has_the_same_folders_and_code(tmp_path):
    order = crew._Order(print, "cpu", None, None, tmp_path, tmp_path, "omrl reproduce", "other")
    with pytest.raises(InputError, match="a-host: has another version of omrl"):
        crew._settle_in(order, "a-host")
    with pytest.raises(InputError, match="/there: is not there on a-host; all nodes"):
        crew._settle_in(replace(order, shared=tmp_path / "there"), "a-host")


def test_being_stopped_goes_from_process_to_process():
    again = copy.copy(Stopped(143, "stopped; go on"))  # Is made anew as where Ray sends it.
    assert (again.code, str(again)) == (143, "stopped; go on")


# --- Tasks of Ray ---


def environment(**more: str) -> dict[str, str]:
    here = Path(ray_study.__file__).parent
    path = [str(here), str(here / "data"), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **more}


def start(out: Path, data: Path, *options: str, **more: str) -> subprocess.Popen[bytes]:
    """The study as a process, which prints into OUT.log."""
    program = [sys.executable, ray_study.__file__, "--data", str(data), "--out", str(out)]
    command, env = [*program, *options], environment(**more)
    with out.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=env)


def printed(out: Path) -> str:
    return out.with_suffix(".log").read_text()


def until(found, process: subprocess.Popen[bytes], out: Path):
    """What `found()` returns once that is something."""
    end = time.monotonic() + TIMEOUT
    while not (what := found()):
        assert process.poll() is None, printed(out)
        assert time.monotonic() < end, printed(out)
        time.sleep(0.1)
    return what


@pytest.fixture
def pauses(tmp_path) -> Path:
    folder = tmp_path / "pauses"
    folder.mkdir()
    return folder


@pytest.fixture
def cluster(pauses) -> Iterator[tuple[str, str, int]]:
    """Address of two nodes of one CPU each; id and raylet's process of the second."""
    env = environment(**{ray_study.PAUSES: str(pauses), "RAY_USAGE_STATS_ENABLED": "0"})
    program = [sys.executable, ray_study.__file__, "cluster"]
    pipe, no = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=no, env=env) as process:
        assert process.stdout is not None
        address, node, raylet = json.loads(process.stdout.readline())
        yield address, node, raylet
        process.communicate()  # ends its input


def paused(pauses: Path) -> dict[str, tuple[int, str]]:
    """Processes and nodes of the two trainings once both are held up; else nothing."""
    found = [path for path in pauses.iterdir() if not path.suffix]
    held = {path.name: path.read_text().split() for path in found}
    return {n: (int(pid), node) for n, (pid, node) in held.items()} if len(held) == 2 else {}


def let_go(pauses: Path, *names: str) -> None:
    for name in names:
        (pauses / f"{name}.go").touch()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_end(pids: Iterable[int]) -> None:
    """Waits for processes to end: Ray lets one whose task is over go a second later."""
    end = time.monotonic() + 30
    for pid in pids:
        while is_alive(pid):
            assert time.monotonic() < end, pid
            time.sleep(0.1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, cheetah_data) -> Path:
    """The study without Ray."""
    out = tmp_path_factory.mktemp("plain") / "out"
    assert start(out, cheetah_data).wait() == 0, printed(out)
    return out


def check_same(out: Path, plain: Path) -> None:
    """The same files, and the same in them but for times and folders."""
    files = [
        {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if not {"d", ray_stages.LOCKS} & set(path.relative_to(folder).parts)
            and "tfevents" not in path.name
        }
        for folder in (out, plain)
    ]
    assert files[0] == files[1]
    for path in (plain / "results").iterdir():
        again = EvalResult.load(out / "results" / path.name)
        np.testing.assert_array_equal(again.returns, EvalResult.load(path).returns)
    assert (out / "table.md").read_text() == (plain / "table.md").read_text()
    found, expected = (json.loads((each / "results.json").read_text()) for each in (out, plain))
    for row in (*found["rows"], *expected["rows"]):
        for key in ("seconds", "updates_per_s"):
            row.pop(key)
        row["run"] = Path(row["run"]).name
    assert found["rows"] == expected["rows"]
    assert found["notes"] == expected["notes"]


def sessions(out: Path) -> dict[str, int]:
    """How often each run was begun or gone on with."""
    return {
        path.parent.name: path.read_text().count("\n") for path in out.glob("runs/*/command.txt")
    }


@needs_ray
@pytest.mark.slow
def test_a_stage_whose_node_is_killed_goes_on_elsewhere(
    cluster, pauses, plain, cheetah_data, tmp_path
):
    address, node, raylet = cluster
    out = tmp_path / "out"
    process = start(out, cheetah_data, "--ray", address)
    held = until(lambda: paused(pauses), process, out)
    ((lost, (pid, _)),) = [each for each in held.items() if each[1][1] == node]
    os.kill(raylet, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)  # Ray's workers outlive their raylet.
    let_go(pauses, *held)
    assert process.wait(TIMEOUT) == 0, printed(out)
    check_same(out, plain)
    assert sessions(out) == {name: 2 if name == lost else 1 for name in held}
    assert "going on in" in printed(out)


@needs_ray
@pytest.mark.slow
def test_a_stage_that_outlives_its_node_is_not_made_twice(
    cluster, pauses, plain, cheetah_data, tmp_path
):
    """Where Ray begins it again, the second attempt waits for the first and finds all done."""
    address, node, raylet = cluster
    out = tmp_path / "out"
    process = start(out, cheetah_data, "--ray", address)
    held = until(lambda: paused(pauses), process, out)
    ((lost, (pid, _)),) = [each for each in held.items() if each[1][1] == node]
    os.kill(raylet, signal.SIGKILL)
    let_go(pauses, *held.keys() - {lost})
    end = time.monotonic() + 45
    waiting = f"waiting for process {pid} on"
    until(lambda: waiting in printed(out) or time.monotonic() > end, process, out)
    assert is_alive(pid)
    let_go(pauses, lost)
    assert process.wait(TIMEOUT) == 0, printed(out)
    check_same(out, plain)
    assert sessions(out) == dict.fromkeys(held, 1)


@needs_ray
@pytest.mark.slow
def test_an_interrupted_command_keeps_what_was_made(cluster, pauses, plain, cheetah_data, tmp_path):
    address, _, _ = cluster
    out = tmp_path / "out"
    process = start(out, cheetah_data, "--ray", address)
    held = until(lambda: paused(pauses), process, out)
    process.send_signal(signal.SIGINT)
    until(lambda: "stopping" in printed(out), process, out)
    let_go(pauses, *held)
    assert process.wait(TIMEOUT) == 130, printed(out)
    last = printed(out).splitlines()[-1]
    assert last.startswith("omrl: error: stopped by SIGINT, what was made is kept; repeat the")
    all_end(pid for pid, _ in held.values())
    assert start(out, cheetah_data).wait(TIMEOUT) == 0, printed(out)
    check_same(out, plain)
    assert sessions(out) == dict.fromkeys(held, 2)


@needs_ray
@pytest.mark.slow
def test_an_error_of_a_stage_is_the_same_line_and_stops_no_other(cheetah_data, tmp_path):
    out = tmp_path / "out"
    fails = {ray_study.FAILS: "bc-"}
    options = ("--ray", "local", "--ray-cpus", "1")
    assert start(out, cheetah_data, *options, **fails).wait(TIMEOUT) == 2, printed(out)
    lines = printed(out).splitlines()
    assert lines[-1] == "omrl: error: no luck"
    assert "BC: training: failed, what does not need it goes on: no luck" in lines
    assert "BC: evaluation: failed" not in printed(out)
    (macaw,) = out.glob("runs/macaw-*")
    assert len(list(macaw.glob("eval/*.npz"))) == 2  # also the one that the training does not make
    without = tmp_path / "without"
    assert start(without, cheetah_data, **fails).wait(TIMEOUT) == 2
    assert printed(without).splitlines()[-1] == lines[-1]
