"""What a dataset costs that is larger than one would put on a device: opening, checking, training.

The data is synthetic, Cheetah-Velocity's in shape: normal observations, uniform actions, terms of
a made-up speed, and the rewards that follow from them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from omrl import bundled, metatrain
from omrl.chunk import Layout, init_states, place, train_chunk
from omrl.data import store, validate
from omrl.data.device import DeviceData, load
from omrl.data.host import HostData, open_host
from omrl.data.manifest import check_mdp
from omrl.data.slice import Slice
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.presets import preset
from omrl.train import check_data

PRESET = "macaw-cheetah-vel"
EPISODES_AT_ONCE = 1000
"""Written in one piece."""
RESIDENT_EPISODES = 500
"""Of every task, at most, in what training on the device is measured with."""
ROUNDS = 5


@dataclass(frozen=True)
class DataBench:
    """A dataset on the disk beside a part of it on the device."""

    device: str
    transitions: int
    bytes_on_disk: int
    open_s: float
    validate_s: float
    """The full pass."""
    load_s: float
    """Comparing what training reads with its hashes; Monte-Carlo returns, if not cached."""
    disk_updates_per_s: float
    """Meta-steps on data on the disk; the median of rounds that alternate with the next."""
    device_updates_per_s: float
    ratio: float
    """Median over the rounds of the first to the second."""
    anonymous_bytes: int
    """Most memory beside that of files, until data on the disk was trained on."""


def bench_data(
    folder: Path, transitions: int, devices: Sequence[Any], *, seconds: float = 5.0
) -> DataBench:
    """Measures the synthetic dataset in `folder`, which is written if it is not there.

    Every round trains for about `seconds` on each of the two.
    """
    config = preset(PRESET).config
    env = registry.make(config.env)
    folder = bundled.resolve(folder)
    if not folder.exists():
        write_synthetic(folder, env, transitions)
    with _anonymous_memory() as peak:
        open_s, dataset = _timed(lambda: store.open_dataset(folder))
        check_mdp(folder, dataset.manifest, env)
        validate_s, report = _timed(lambda: validate.validate(folder, dataset.manifest, env))
        validate.raise_first(folder, report.findings)
        problem = metatrain.open_problem(config, folder)
        tasks, discount = problem.train_tasks, config.discount
        training = _Training(problem, devices)
        load_s, on_disk = _timed(lambda: open_host(dataset, tasks, discount=discount))
        check_data(training.algorithm, on_disk, training.tasks)
        length = max(1, int(4 / training.measure(on_disk, 4) * seconds))
        training.measure(on_disk, length)
        anonymous = peak()
    episodes = min(RESIDENT_EPISODES, *(task.episodes for task in dataset.manifest.tasks))
    part = dataset.view(Slice.parse(f"last-{episodes}"))
    resident = place(load(part, tasks, discount=discount), training.layout.replicated)
    training.measure(resident, length)
    rounds = np.array(
        [[length / training.measure(data, length) for data in (on_disk, resident)]
         for _ in range(ROUNDS)]
    )  # fmt: skip
    disk, device = np.median(rounds, axis=0)
    columns = [column for task in dataset.manifest.tasks for column in task.columns.values()]
    return DataBench(
        device=f"{len(devices)} x {devices[0].device_kind}",
        transitions=sum(task.transitions for task in dataset.manifest.tasks),
        bytes_on_disk=sum(column.num_bytes for column in columns),
        open_s=open_s,
        validate_s=validate_s,
        load_s=load_s,
        disk_updates_per_s=float(disk),
        device_updates_per_s=float(device),
        ratio=float(np.median(rounds[:, 0] / rounds[:, 1])),
        anonymous_bytes=anonymous,
    )


class _Training:
    """One seed of the preset."""

    def __init__(self, problem: metatrain.Problem, devices: Sequence[Any]):
        self.algorithm = metatrain.build(problem.config, metatrain.measure_spec(problem))
        (self.stage,) = self.algorithm.stages()
        self.layout = Layout.of(devices, 1)
        self.tasks = np.array(problem.train_tasks)
        self.states = init_states(self.algorithm, self.layout, np.zeros(1, np.int32))

    def measure(self, data: DeviceData | HostData, num_updates: int) -> float:
        """Seconds of so many updates; compiled before."""
        for length in (0, num_updates):
            begin = time.perf_counter()
            self.states, _, _ = train_chunk(
                self.stage,
                self.layout,
                self.states,
                data,
                np.zeros(1, np.int32),
                self.tasks,
                length,
            )
            jax.block_until_ready(self.states)
        return time.perf_counter() - begin


def write_synthetic(folder: Path, env: TaskEnv, transitions: int) -> None:
    """A dataset of all tasks of `env` with `transitions` in all, rounded to whole episodes."""
    horizon, spec = env.spec.horizon, env.spec
    total = max(1, round(transitions / len(env.tasks) / horizon))
    writer = store.create(folder, env, command=f"omrl bench data --transitions {transitions}")
    for task, parameters in enumerate(env.tasks):
        if writer.is_complete(task):
            continue
        writer.truncate(task, 0)
        for first in range(0, total, EPISODES_AT_ONCE):
            episodes = min(EPISODES_AT_ONCE, total - first)
            rng = np.random.Generator(np.random.Philox(key=[task, first]))
            rows = episodes * horizon
            starts = np.arange(0, rows + 1, horizon)
            action = rng.uniform(-1, 1, (rows, spec.act_dim)).astype(np.float32)
            terms = rng.uniform(0, 3, (rows, len(spec.term_names))).astype(np.float32)
            writer.append(
                task,
                obs=rng.standard_normal((rows + episodes, spec.obs_dim), np.float32),
                action=action,
                reward=env.reward(terms.astype(np.float64), action, parameters),
                terms=terms,
                terminated=np.zeros(rows, bool),
                truncated=np.isin(np.arange(rows), starts[1:] - 1),
                episode_start=starts,
            )
        writer.complete(task, {"policy": "none: synthetic"})
    writer.finish()


def _timed(function: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


@contextmanager
def _anonymous_memory() -> Iterator[Any]:
    """Gives a function that tells the most anonymous memory so far, in bytes."""
    peak, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], _rss_anon())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: peak[0]
    finally:
        done.set()
        thread.join()


def _rss_anon() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024
