"""Meta-training of any algorithm: chunks of updates, with all that happens between them.

At every step count the loop does, in this order: evaluate if due, checkpoint if due or told to
stop, explore if due, then the next chunk. A checkpoint therefore holds everything up to its step
and nothing after, and a resumed run equals an uninterrupted one bit for bit, its log included.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from omrl import guard, hosts
from omrl.algorithm import Algorithm, Stage
from omrl.checkpoint import Checkpoints
from omrl.chunk import Layout, abstract_states, init_states, place, prepare, train_chunk
from omrl.collector import Collector
from omrl.data.buffers import Buffers, TrainingData, is_on_disk
from omrl.errors import InputError, NonFiniteError, Stopped
from omrl.interrupt import Interrupt
from omrl.logs import Averages, RunLog
from omrl.pace import Pace
from omrl.progress import TrainProgress
from omrl.ranges import INT32_MAX, Count, Natural, Size, check_ranges
from omrl.runs import Run, claimed
from omrl.stages import check_data, num_updates, stage_ends, stages_of

__all__ = [
    "TrainConfig",
    "check_data",
    "disk_bytes",
    "load_states",
    "num_updates",
    "train",
]

Evaluate = Callable[[Any, int], Mapping[str, float]]
"""`(states, step) -> values`: states [seed, ...] after `step` updates."""


@dataclass(frozen=True)
class TrainConfig:
    """What decides a meta-training beside the algorithm and the data."""

    seeds: Size = 1
    """Number of seeds, trained in one program: first_seed, first_seed + 1, …"""
    first_seed: Natural = 0
    log_every: Count = 100
    """Updates per row of log.jsonl."""
    eval_every: Natural = 0
    """Updates between two evaluations, besides which every stage ends with one; 0: only after the
    last update."""
    checkpoint_every: Count = 1000
    """Updates between two checkpoints; the last update of every stage has one too."""
    keep: Size = 3
    """Checkpoints that stay, the newest; those at the end of a stage stay besides."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.first_seed > INT32_MAX - self.seeds + 1:
            raise InputError(
                f"first_seed: {self.first_seed} leaves no room for {self.seeds} seeds; use at most "
                f"{INT32_MAX - self.seeds + 1}"
            )

    @property
    def seed_numbers(self) -> Int[np.ndarray, " seed"]:
        return np.arange(self.first_seed, self.first_seed + self.seeds)


def disk_bytes(algorithm: Algorithm, layout: Layout, config: TrainConfig) -> int:
    """Bytes that the checkpoints of a run take, the one being written included."""
    states = abstract_states(algorithm, layout, config.seeds)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(states))
    return size * (config.keep + len(stage_ends(algorithm)))


def load_states(
    run: Run,
    algorithm: Algorithm,
    config: TrainConfig,
    layout: Layout,
    step: int | None = None,
) -> tuple[Any, int]:
    """The states [seed, ...] of a checkpoint of `run` (None: the newest), and its step."""
    checkpoints = Checkpoints(run.checkpoints, read_only=True)
    like = abstract_states(algorithm, layout, config.seeds)
    states, meta = checkpoints.restore(like, run.config, step)
    checkpoints.close()
    return states, meta["step"]


def train(
    run: Run,
    algorithm: Algorithm,
    config: TrainConfig,
    layout: Layout,
    data: TrainingData | None,
    task_ids: Int[np.ndarray, " task"],
    *,
    collector: Collector | None = None,
    evaluate: Evaluate | None = None,
    wandb: bool = False,
    quiet: bool = False,
) -> Any:
    """Trains to the end of the last stage, from the newest checkpoint of `run` if there is one.

    Args:
        data: of the training tasks, on the device or on the disk; None if no stage reads any.
        task_ids: their numbers, in the data's order.
        collector: for stages that explore.
        evaluate: called in the first process alone.

    Returns:
        The final states, leaves [seed, ...].

    Raises:
        InputError: a checkpoint of another config, damaged, or no room to write one.
        NonFiniteError: names the update, seed, task and tensor.
        Stopped: by SIGTERM or SIGINT, after a checkpoint.
    """
    check_data(algorithm, data, task_ids)
    ends, total = stage_ends(algorithm), num_updates(algorithm)
    # Opening its checkpoints and its log drops what another process is just writing there.
    with claimed(run.path) if hosts.is_main() else nullcontext():
        checkpoints = Checkpoints(run.checkpoints, keep=config.keep, always=ends)
        begun = run.has_log
        position, states, averages = _start(run, algorithm, config, layout, checkpoints, collector)
        log = RunLog(
            run.path,
            every=config.log_every,
            step=position.step,
            evaluated=position.evaluated,
            averages=averages,
            wandb_config=run.config if wandb else None,
            write=hosts.is_main(),
        )
        progress = TrainProgress(total, show=hosts.is_main() and not quiet)
        if begun and not position.step:
            progress.message(f"{checkpoints.folder}: no checkpoint; begins again at update 0")
        with log, progress, Interrupt() as interrupt:
            trainer = _Trainer(
                run=run,
                config=config,
                stages=stages_of(algorithm),
                stage_ends=ends,
                layout=layout,
                data=data if data is None or is_on_disk(data) else place(data, layout.replicated),
                task_ids=task_ids,
                collector=collector,
                evaluate=evaluate,
                checkpoints=checkpoints,
                log=log,
                progress=progress,
                interrupt=interrupt,
                position=position,
                states=states,
            )
            try:
                trainer.run_to(total)
            finally:
                checkpoints.wait()
                checkpoints.close()
    return trainer.states


@dataclass
class _Position:
    """How far a run is."""

    step: int = 0
    seconds: float = 0.0
    """That the run took up to its last checkpoint, resumed parts added up."""
    evaluated: int = 0
    """Step of the last evaluation."""
    saved: int = -1
    """Step of the last checkpoint."""


def _start(
    run: Run,
    algorithm: Algorithm,
    config: TrainConfig,
    layout: Layout,
    checkpoints: Checkpoints,
    collector: Collector | None,
) -> tuple[_Position, Any, Averages]:
    if not checkpoints.steps:
        states = init_states(algorithm, layout, config.seed_numbers)
        position, averages = _Position(), Averages()
    else:
        like = abstract_states(algorithm, layout, config.seeds)
        states, meta = checkpoints.restore(like, run.config)
        step = meta["step"]
        position = _Position(step, meta["seconds"], meta["evaluated"], saved=step)
        averages = Averages(**meta["averages"])
        if collector is not None:
            collector.restore(meta["collected"])
    # Fresh and restored alike, or the second call of the program compiles it again.
    return position, jax.device_put(states, layout.by_seed), averages


@dataclass
class _Trainer:
    run: Run
    config: TrainConfig
    stages: tuple[Stage, ...]
    stage_ends: tuple[int, ...]
    layout: Layout
    data: TrainingData | None
    task_ids: Int[np.ndarray, " task"]
    collector: Collector | None
    evaluate: Evaluate | None
    checkpoints: Checkpoints
    log: RunLog
    progress: TrainProgress
    interrupt: Interrupt
    position: _Position
    states: Any

    def __post_init__(self) -> None:
        self.started = time.monotonic() - self.position.seconds
        self.pace = Pace()
        self.prepared: Any = None

    def run_to(self, total: int) -> None:
        """Runs up to `total` updates, the sum of all stages."""
        stage_end = 0
        for stage in self.stages:
            stage_end += stage.steps
            if self.position.step < stage_end:
                self.prepared = None  # Its memory is the next one's.
                self.prepared = prepare(stage, self.layout, self.states, self.data)
                self._compile(stage)
            while self.position.step < stage_end:
                self._between_chunks(final=False)
                self._explore(stage, stage_end - stage.steps)
                self._chunk(stage, stage_end)
        self._between_chunks(final=True)

    def _compile(self, stage: Stage) -> None:
        """Compiles before the clock of the pace runs; a chunk of no updates does it."""
        begin = time.monotonic()
        self._train_chunk(stage, 0)
        seconds = time.monotonic() - begin
        self.progress.message(f"{stage.name}: compiled in {seconds:.1f} s")

    def _between_chunks(self, final: bool) -> None:
        at, config = self.position, self.config
        signum = self._signal()
        ended = at.step in self.stage_ends
        eval_due = final or _is_due(at.step, config.eval_every, ended)
        if eval_due and at.evaluated < at.step and not signum:
            try:
                self._evaluate()
            except Exception:
                # The updates are good, whatever is wrong with their evaluation.
                if at.saved < at.step:
                    self._save()
                raise
        save_due = final or _is_due(at.step, config.checkpoint_every, ended) or signum
        if save_due and at.saved < at.step:
            self._save()
        kept = "which are saved; go on with --resume"
        if final and not signum:
            # Whoever trains this run may go on to others.
            signum, kept = self._signal(), "which are all, and evaluated"
        if signum:
            self.checkpoints.wait()
            name = signal.Signals(signum).name
            raise Stopped(128 + signum, f"stopped by {name} after {at.step} updates, {kept}")

    def _signal(self) -> int:
        """That some process received; 0 while none did."""
        return int(hosts.agree_on_max(np.array([float(self.interrupt.signum)]))[0])

    def _explore(self, stage: Stage, stage_start: int) -> None:
        at, exploration = self.position, stage.exploration
        if exploration is None or not exploration.is_due(at.step - stage_start):
            return
        assert self.collector is not None
        values = self.collector.explore(
            exploration, self.states, self.data, step=at.step, first=at.step == stage_start
        )
        self.log.exploration(at.step, self._seconds(), values)

    def _chunk(self, stage: Stage, stage_end: int) -> None:
        at = self.position
        events = self._to_next_event(stage, at.step - stage_end + stage.steps)
        length = min(self.pace.length, stage_end - at.step, *events)
        begin = time.monotonic()
        initial, first = self.states, at.step
        states, metrics, finite = self._train_chunk(stage, length)
        metrics = {name: np.asarray(rows)[:, :length] for name, rows in metrics.items()}
        seconds = time.monotonic() - begin
        if not guard.is_finite(metrics, np.asarray(finite)):
            raise self._non_finite(stage, initial, length)
        seconds = float(hosts.agree_on_max(np.array([seconds]))[0])
        self.pace.measured(length, seconds)
        self.states, at.step = states, first + length
        del metrics["task"]
        speed = length / seconds
        means = self.log.add(
            metrics,
            stage=stage.name,
            first=first,
            last_of_stage=stage_end,
            seconds=self._seconds(),
            steps_per_s=speed,
        )
        losses = [name for name in ("policy_loss", *means) if name in means and "loss" in name]
        loss = (losses or list(means))[0]
        self.progress.update(stage.name, at.step, speed, float(np.mean(means[loss])))

    def _train_chunk(self, stage: Stage, length: int) -> tuple[Any, Any, Any]:
        seeds = self.config.seed_numbers
        outputs = train_chunk(
            stage,
            self.layout,
            self.states,
            self.data if stage.needs_data else None,
            seeds,
            self.task_ids,
            length,
            self._collected(stage),
            self.prepared,
        )
        return jax.block_until_ready(outputs)

    def _collected(self, stage: Stage) -> Buffers | None:
        if stage.exploration is None:
            return None
        assert self.collector is not None
        return self.collector.buffers

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    def _to_next_event(self, stage: Stage, of_stage: int) -> list[int]:
        """Updates to each, after `of_stage` updates of the stage."""
        intervals = (self.config.eval_every, self.config.checkpoint_every)
        updates = [every - self.position.step % every for every in intervals if every]
        exploration = stage.exploration
        return updates if exploration is None else [*updates, exploration.until_next(of_stage)]

    def _evaluate(self) -> None:
        at = self.position
        if self.evaluate is not None:
            states = hosts.gather(self.states)
            if hosts.is_main():
                values = self.evaluate(states, at.step)
                self.log.evaluation(at.step, self._seconds(), values)
                self.progress.evaluation(at.step, values)
        at.evaluated = at.step

    def _save(self) -> None:
        at = self.position
        # What a checkpoint says is done must be on the disk before it.
        self.log.flush()
        extra = {
            "seconds": self._seconds(),
            "evaluated": at.evaluated,
            "averages": self.log.pending(),
        }
        if self.collector is not None:
            extra["collected"] = self.collector.files.to_json()
        self.checkpoints.save(at.step, self.states, self.run.config, extra)
        at.saved = at.step

    def _non_finite(self, stage: Stage, initial: Any, length: int) -> NonFiniteError:
        error = guard.locate(
            stage,
            self.layout,
            initial,
            self.data,
            self.config.seed_numbers,
            self.task_ids,
            first=self.position.step,
            num_updates=length,
            collected=self._collected(stage),
            prepared=self.prepared,
        )
        saved = self.position.saved
        good = f"the checkpoint of update {saved} is good" if saved >= 0 else "no checkpoint yet"
        return NonFiniteError(f"{error}; {good}")


def _is_due(step: int, every: int, ended: bool) -> bool:
    """What is done `every` updates and where a stage `ended`, after `step` of them."""
    return every > 0 and step > 0 and (ended or step % every == 0)
