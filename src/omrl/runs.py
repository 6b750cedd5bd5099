"""A run folder: what was run, with what, on what; and the devices it may use.

config.json     everything that decides the result, complete
command.txt     the command line, one line for the start and one for every resume
versions.json   a list, likewise: libraries, commit, devices, threads
log.jsonl, events.out.*, checkpoints/, eval/, report.html: written by others
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from omrl.config import Config, Json, differences, from_json, read_json, to_json
from omrl.errors import InputError
from omrl.files import atomic_write, check_room
from omrl.versions import version

PACKAGES = (
    "omrl", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "orbax-checkpoint", "mujoco",
    "gymnasium",
)  # fmt: skip
INSTALL_GPU = "pip install 'omrl[cuda]'"
SAME_BITS = ("jaxlib", "devices", "xla_threads")
"""Entries of a session without which a resumed run repeats the numbers only to rounding."""


@dataclass(frozen=True)
class Run:
    """An existing run folder."""

    path: Path
    config: Json
    """Contents of `config.json`."""

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def has_log(self) -> bool:
        """Whether anything was logged."""
        log = self.path / "log.jsonl"
        return log.exists() and log.stat().st_size > 0

    def evaluation_file(self, step: int) -> Path:
        """The evaluation after `step` updates, as the config has it."""
        return self.path / "eval" / f"step-{step:08d}.npz"

    def parse(self, kind: type[Config]) -> Config:
        """The config as the dataclass it was written from."""
        return from_json(kind, self.config, str(self.path / "config.json"))


def create(path: Path, config: Any, *, command: str, devices: Sequence[Any], room: int = 0) -> Run:
    """Makes the folder of a new run.

    Args:
        config: a frozen dataclass with everything that decides the result.
        devices: the JAX devices it runs on, from `resolve_devices`.
        room: bytes that the run will write; checked before anything is.

    Raises:
        InputError: the folder exists, or its disk has less room.
    """
    from omrl import hosts

    check_new(path)
    if hosts.is_main():
        check_room(path, room)
        path.mkdir(parents=True)
        _write_json(path / "config.json", to_json(config))
        _record_session(path, command, devices)
    hosts.wait_for_all("run folder")
    return open_run(path)


def check_new(path: Path) -> None:
    """Raises `InputError` if there is a folder in the way of a new run; told by process 0 alone."""
    from omrl import hosts

    if hosts.is_main() and path.exists():
        go_on = ", or go on with it: --resume" if (path / "config.json").exists() else ""
        raise InputError(f"{path}: exists; choose another folder{go_on}")


def resume(path: Path, config: Any, *, command: str, devices: Sequence[Any]) -> Run:
    """Opens the folder of a run to go on with it.

    Raises:
        InputError: no run there, one with another config (names the fields that differ), or one
            that another process trains.
    """
    from omrl import hosts

    run = open_run(path)
    found = list(differences(run.config, to_json(config)))
    if found:
        raise InputError(
            f"{path / 'config.json'}: a run goes on with its own config, this one differs: "
            f"{'; '.join(found)}"
        )
    if hosts.is_main():
        with claimed(path):
            _record_session(path, command, devices)
    return run


def open_run(path: Path) -> Run:
    """An existing run, to read it. Raises `InputError` if there is none."""
    file = path / "config.json"
    if not file.is_file():
        raise InputError(f"{path}: not a run folder, it has no config.json")
    return Run(path, read_json(file))


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keeps other processes from training the run in `path` at the same time; `InputError` where
    one does. The system lets go of it however this one ends."""
    with (path / "config.json").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{path}: another process trains it; wait until it has ended, then go on"
            ) from None
        yield


def read_sessions(path: Path) -> list[dict[str, Json]]:
    """The sessions of a run, on record in its `versions.json`; none where it was deleted. Raises
    `InputError`."""
    file = path / "versions.json"
    if not file.exists():
        return []
    fix = "it only records libraries and devices: delete it to go on"
    sessions = read_json(file, fix)
    is_list = isinstance(sessions, list) and len(sessions) > 0
    if not is_list or not all(isinstance(entry, dict) for entry in sessions):
        raise InputError(f"{file}: not a list of sessions; {fix}")
    return sessions


def resolve_devices(kind: Literal["auto", "cpu", "gpu"], count: int | None = None) -> list[Any]:
    """The first `count` devices of a kind, over all processes.

    Args:
        kind: `auto` takes what JAX prefers: a GPU if it finds one.
        count: if None one device; all of them when the run has several processes.

    Raises:
        InputError: a GPU was asked for and there is none, or fewer than `count` devices.
    """
    import jax

    try:
        found = jax.devices() if kind == "auto" else jax.devices(kind)
    except RuntimeError:
        raise InputError(
            f"device: {kind} was asked for and JAX finds none; install support for it with "
            f"{INSTALL_GPU}, or use --device cpu"
        ) from None
    processes = jax.process_count()
    count = count or (len(found) if processes > 1 else 1)
    if not 0 < count <= len(found):
        raise InputError(f"devices: {count} were asked for, there are {len(found)} ({kind})")
    if processes > 1 and count != len(found):
        raise InputError(f"devices: a run over {processes} processes uses all {len(found)} devices")
    return found[:count]


def session(devices: Sequence[Any]) -> dict[str, Json]:
    """What a run's numbers depend on beside its config and data."""
    import jax

    threads = os.environ.get("NPROC", "")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "commit": _commit(),
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "processes": jax.process_count(),
        "xla_threads": int(threads) if threads.isdigit() else _num_cpus(),
        "platform": platform.platform(),
    }


def _record_session(path: Path, command: str, devices: Sequence[Any]) -> None:
    file = path / "versions.json"
    sessions = [*(read_sessions(path) if file.exists() else []), session(devices)]
    first, last = sessions[0], sessions[-1]
    changed = [
        f"{name} {first.get(name)} -> {last[name]}"
        for name in SAME_BITS
        if first.get(name) != last[name]
    ]
    if changed:
        print(
            f"omrl: note: resumed with {', '.join(changed)}: the numbers are repeated to rounding, "
            "not bit for bit",
            file=sys.stderr,
        )
    _write_json(file, sessions)
    with (path / "command.txt").open("a", encoding="utf-8") as commands:
        commands.write(command + "\n")


def _write_json(path: Path, value: Json) -> None:
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def _num_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _commit() -> str | None:
    """The commit that this very file belongs to, `+` appended if the checkout has changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
