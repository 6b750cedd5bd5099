"""Stages as tasks of Ray, on this machine or a cluster whose nodes share a file system.

Every stage is made by a process of its own, since JAX keeps its devices until a process ends. When
that process or its node is lost, Ray begins the stage again elsewhere. What a stage makes is in
files; it returns no more than where.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jax

import omrl
from omrl.errors import (
    InputError,
    NonFiniteError,
    PartlyFailed,
    Stopped,
    WorkerLost,
    out_of_memory,
    reason,
)
from omrl.interrupt import Interrupt

INSTALL = "pip install 'omrl[ray]'"
LOCAL = "local"
RETRIES = 3
"""Times that a stage is begun again after its process was lost."""
POLL = 0.5
"""Seconds between looks for a signal."""
GRACE = 120.0
"""Seconds that stages have to end by themselves, after a checkpoint."""
Stage = Callable[..., Any]
"""Called with the devices, `say`, and its arguments."""


@dataclass(frozen=True)
class _Order:
    """How a stage is made where it is made."""

    stage: Stage
    device: Literal["auto", "cpu", "gpu"]
    devices: int | None
    threads: int | None
    """Of JAX on a CPU; None: as many as it likes."""
    folder: Path
    """That relative paths begin at."""
    shared: Path
    """A folder that has to be there."""
    command: str
    code: str
    """Of this machine, to be the same."""


@dataclass
class Crew:
    """Whoever makes stages; from `connect`."""

    ray: Any
    command: str
    device: Literal["auto", "cpu", "gpu"]
    devices: int | None
    cpus: int | None
    """Of each stage; None: all of a node, or the share of its GPUs."""
    say: Callable[[str], None]
    tasks: dict[Hashable, Any] = field(default_factory=dict)
    """What was ordered, by what it is of: nothing is ordered twice."""
    names: dict[Any, str] = field(default_factory=dict)
    needs: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    """Those before a task."""
    made: dict[Any, Any] = field(default_factory=dict)
    """Results, and errors in their place, of what has ended."""

    def order(
        self,
        key: Hashable,
        name: str,
        stage: Stage,
        *inputs: Any,
        shared: Path,
        computes: bool = True,
    ) -> Any:
        """The task that makes a stage, begun as soon as the tasks among `inputs` have ended; it is
        given their results. One that `computes` gets a GPU if there are any."""
        if key in self.tasks:
            return self.tasks[key]
        gpus, cpus = self._resources(computes)
        order = _Order(
            stage,
            self.device if computes else "cpu",
            self.devices if computes else None,
            self.cpus,
            Path.cwd(),
            shared.absolute(),
            self.command,
            code(),
        )
        task = self._remote.options(
            name=name,
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=RETRIES,
            retry_exceptions=[Stopped],  # Somebody told its process to end, not us.
            scheduling_strategy="SPREAD",
        ).remote(order, *inputs)
        self.tasks[key], self.names[task] = task, name
        self.needs[task] = tuple(each for each in inputs if isinstance(each, self.ray.ObjectRef))
        return task

    def wait(self, tasks: list[Any]) -> list[Any]:
        """The results of `tasks`, when all of them have ended; others go on.

        Raises the error of the first that failed, as the stage raised it; `Stopped` by SIGTERM or
        SIGINT, when all stages are.
        """
        with Interrupt() as interrupt:
            while not self.made.keys() >= set(tasks):
                self._settle(POLL)
                if interrupt.signum:
                    self.cancel()
                    raise Stopped(
                        128 + interrupt.signum,
                        f"stopped by {signal.Signals(interrupt.signum).name}, what was made is "
                        "kept; repeat the command to go on",
                    )
        for task in tasks:
            if isinstance(self.made[task], Exception):
                raise self.made[task]
        return [self.made[task] for task in tasks]

    def cancel(self) -> None:
        """Ends all stages; those that train do it after a checkpoint."""
        running = self._running()
        if running:
            self.say(f"stopping {len(running)} stages")
        for force in (False, True):
            for task in running:
                self.ray.cancel(task, force=force)
            _, running = self.ray.wait(running, num_returns=len(running) or 1, timeout=GRACE)
            if not running:
                return

    def _running(self) -> list[Any]:
        return [task for task in self.names if task not in self.made]

    def _settle(self, seconds: float) -> None:
        """Takes in what ends within some seconds."""
        for task in self.ray.wait(self._running(), timeout=seconds)[0]:
            name = self.names[task]
            try:
                host, self.made[task] = self.ray.get(task)
            except self.ray.exceptions.RayError as error:
                self.made[task] = _of_stage(error, name)
                if not any(isinstance(self.made.get(each), Exception) for each in self.needs[task]):
                    self.say(f"{name}: failed, what does not need it goes on: {self.made[task]}")
            else:
                self.say(f"{name}: done on {host} ({len(self.made)} of {len(self.names)})")

    def _resources(self, computes: bool) -> tuple[int, int]:
        """GPUs and CPUs of a stage."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        nodes = [node for node in nodes if node.get("CPU", 0) >= 1]
        with_gpus = [node for node in nodes if node.get("GPU", 0) >= (self.devices or 1)]
        if self.device == "gpu" and not with_gpus:
            raise InputError(
                f"device: {self.devices or 1} GPUs were asked for and no node of Ray has them; use "
                "--device cpu"
            )
        gpus = (self.devices or 1) if with_gpus and self.device != "cpu" else 0
        if self.cpus is not None or not nodes:
            return (gpus if computes else 0), self.cpus or 1
        shares = [
            node["CPU"] // max(1, node.get("GPU", 0) // gpus if gpus else 1)
            for node in (with_gpus if gpus else nodes)
        ]
        return (gpus if computes else 0), max(1, int(min(shares)))

    @property
    def _remote(self) -> Any:
        return self.ray.remote(max_calls=1)(_make)


@contextmanager
def connect(
    address: str,
    *,
    command: str,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    devices: int | None = None,
    cpus: int | None = None,
    say: Callable[[str], None],
    quiet: bool = False,
) -> Iterator[Crew]:
    """The nodes of the cluster at `address`, or with `LOCAL` this machine, as long as entered.

    Raises `InputError` where Ray is not installed or there is no cluster.
    """
    for name, value in (("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_DEDUP_LOGS", "0")):
        os.environ.setdefault(name, value)
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(f"--ray: Ray is not installed; {INSTALL}") from None
    _check_address(address)
    own = {"include_dashboard": False} if address == LOCAL else {}
    with Interrupt() as interrupt:  # Also puts back handlers of signals that Ray replaces.
        try:
            ray.init(address, log_to_driver=not quiet, logging_level="ERROR", **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(_nobody(address, error)) from None
    try:
        if interrupt.signum:
            raise Stopped(128 + interrupt.signum, "stopped before any stage was begun")
        jax.config.update("jax_platforms", "cpu")  # The GPUs are those of the stages.
        yield Crew(ray, command, device, devices, cpus, say)
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """`InputError` where nothing answers; Ray would try for minutes."""
    if address in (LOCAL, "auto"):
        return
    host, _, port = address.rpartition(":")
    if "/" in host or not (host and port.isascii() and port.isdigit()):
        raise InputError(f"--ray {address}: give local, auto or HOST:PORT, run on one of its nodes")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise InputError(_nobody(address, error)) from None


def _nobody(address: str, error: Exception) -> str:
    return (
        f"--ray {address}: no cluster is there ({reason(error)}); give the HOST:PORT that ray "
        "start --head prints, or local"
    )


@cache
def code() -> str:
    """Hash of all of omrl's source files."""
    home = Path(omrl.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


_FORESEEN = (InputError, NonFiniteError, PartlyFailed, WorkerLost, OSError, MemoryError)
"""What is told in one line."""


def _of_stage(error: Exception, name: str) -> Exception:
    """The error that a stage raised in its process; of its process, where that was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, _FORESEEN):
        return cause
    if cause is not None:
        return error  # Unforeseen: has the traceback of the process.
    return PartlyFailed(
        f"{name}: its process was lost {RETRIES + 1} times ({reason(error)}); the same command "
        "goes on"
    )


# --- In the process of a stage ---


def _make(order: _Order, *inputs: Any) -> tuple[str, Any]:
    """Host and result of a stage."""
    from omrl.runs import resolve_devices

    host = socket.gethostname()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    say(f"begun on {host}, process {os.getpid()}")
    _settle_in(order, host)
    try:
        devices = resolve_devices(order.device, order.devices)
        return host, order.stage(devices, say, *inputs)
    except Exception as error:
        if out_of_memory(error):
            raise MemoryError(reason(error)) from None  # Of a class that goes from here to there.
        raise


def _settle_in(order: _Order, host: str) -> None:
    """Makes this process as the one that gave the order."""
    from omrl import cli

    if not (order.folder.is_dir() and order.shared.is_dir()):
        missing = order.shared if order.folder.is_dir() else order.folder
        raise InputError(
            f"{missing}: is not there on {host}; all nodes of Ray have to share it, under one path"
        )
    if code() != order.code:
        raise InputError(f"{host}: has another version of omrl; install the same one on all nodes")
    os.chdir(order.folder)
    modules, _ = cli.split_imports(shlex.split(order.command)[1:])
    for module in modules:
        cli.import_module(module)
    if order.threads is not None:
        os.environ["NPROC"] = str(order.threads)  # XLA reads it when it first computes.
    if order.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
