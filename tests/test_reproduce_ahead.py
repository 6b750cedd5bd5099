"""Experiments side by side: what a few processes make, and how they end."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from omrl.cli.reproduce_ahead import make_ahead


def make(folder: Path, name: str) -> None:
    (folder / name).write_text(str(os.getpid()))
    if name.startswith("fails"):
        raise ValueError(name)
    if name.startswith("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("waits"):
        time.sleep(600)


def test_all_are_begun_whatever_happens_to_one(tmp_path, capfd):
    names = ["fails", "dies", "a", "b", "c", "d"]
    make_ahead(names, partial(make, tmp_path), 2)
    pids = {name: int((tmp_path / name).read_text()) for name in names}
    assert len(set(pids.values())) == 2
    # Taken after "dies" was, so by the process that is left.
    assert pids["dies"] not in {pids[name] for name in "abcd"}
    told = capfd.readouterr().err
    assert "fails: failed, and is tried again in the end" in told
    assert all(f"{name}: made in 0 s" in told for name in "abcd")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_who_started_them(tmp_path, signum):
    script = (
        "import sys; from functools import partial; from pathlib import Path\n"
        "from omrl.cli.reproduce_ahead import make_ahead\n"
        "from omrl.interrupt import EndOnSignal\n"
        "import test_reproduce_ahead\n"
        "with EndOnSignal():\n"
        "    make = partial(test_reproduce_ahead.make, Path(sys.argv[1]))\n"
        "    make_ahead(['waits-1', 'waits-2', 'next'], make, 2)\n"
    )
    path = tmp_path / "main.py"
    path.write_text(f"if __name__ == '__main__':\n    {script.replace(chr(10), chr(10) + '    ')}")
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, str(path), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.DEVNULL,
    )
    begun = [tmp_path / "waits-1", tmp_path / "waits-2"]
    _until(lambda: all(each.exists() and each.read_text() for each in begun), 120)
    pids = [int(each.read_text()) for each in begun]
    parent.send_signal(signum)
    parent.wait(30)
    _until(lambda: not any(map(_runs, pids)), 30)
    assert not (tmp_path / "next").exists()


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def _until(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
