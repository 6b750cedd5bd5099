"""Meta-training of several learners side by side, evaluated on its way, and resumable.

The key of a meta-step is a function of (seed, step), and a checkpoint holds all that changes, the
accuracies so far included. So a training that was killed goes on with the same bits.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32

from omrl import runs
from omrl.arrays import check_array, read_npz
from omrl.checkpoint import Checkpoints
from omrl.config import json_hash, to_json
from omrl.errors import InputError, NonFiniteError, Stopped
from omrl.files import atomic_write
from omrl.interrupt import Interrupt
from omrl.layout import Layout, each_seed, place, place_seeds
from omrl.omniglot import learner as maml
from omrl.omniglot.learner import Data, State
from omrl.omniglot.settings import Learner, Training
from omrl.omniglot.split import SIDES
from omrl.pace import Pace
from omrl.progress import TrainProgress

RESULT = "result.npz"
_INIT = 2**32 - 1
"""Folded into a seed's key for its initial state: never a step, which is an int32."""


@dataclass(frozen=True)
class Result:
    """A training that is done."""

    training: Training
    folder: Path
    accuracy: Float32[np.ndarray, "start point side episode"]
    """Shares of correct answers."""
    seconds: float
    """That it took, compilation and evaluations included."""

    def at_end(self, side: str) -> Float[np.ndarray, "start episode"]:
        """After the last meta-step."""
        return self.accuracy[:, -1, SIDES.index(side)]


def train(
    training: Training,
    label: str,
    data: Data,
    folder: Path,
    devices: Sequence[Any],
    *,
    command: str,
    may_diverge: bool = False,
    quiet: bool = False,
) -> Result:
    """Trains to the end what in a folder below `folder` is not, and reads what is.

    Args:
        label: what progress is shown of.
        data: on the host or any device.
        may_diverge: for a search: learners whose loss is not finite answer as by chance, and the
            others go on.

    Raises:
        InputError: a file of the run is damaged, or no room to write one.
        NonFiniteError: a loss is; names the seed and the meta-step.
        Stopped: by SIGTERM or SIGINT, after a checkpoint.
    """
    path = folder / f"{slug(label)}-{json_hash(to_json(training))[:12]}"
    result = path / RESULT
    if not result.exists():
        layout = Layout.of(devices, len(training.starts))
        run = _open(path, training, layout, command, devices)
        with runs.claimed(path):
            data = place(data, layout.replicated)
            trainer = _Trainer(training, label, run, layout, data, may_diverge, quiet)
            trainer.run_to_end()
            with atomic_write(result) as file:
                accuracy = np.asarray(trainer.states.accuracy)
                np.savez(file, accuracy=accuracy, seconds=np.float64(trainer.seconds))
    return _read(training, path)


def slug(label: str) -> str:
    """A label as the name of a file."""
    return label.replace(" ", "-").replace(",", "")


def _open(
    path: Path, training: Training, layout: Layout, command: str, devices: Sequence[Any]
) -> runs.Run:
    if (path / "config.json").is_file():
        return runs.resume(path, training, command=command, devices=devices)
    like = _abstract(training, layout)
    room = 2 * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
    if path.is_dir() and all(each.name.startswith(".") for each in path.iterdir()):
        for each in path.iterdir():  # A kill left it before anything was in it.
            each.unlink()
        path.rmdir()
    return runs.create(path, training, command=command, devices=devices, room=room)


def _read(training: Training, path: Path) -> Result:
    fix = f"remove {path} and repeat the command"
    arrays = read_npz(path / RESULT, fix)
    if arrays.keys() != {"accuracy", "seconds"}:
        raise InputError(f"{path / RESULT}: holds {', '.join(sorted(arrays)) or 'nothing'}; {fix}")
    points, episodes = len(training.eval_steps), training.learner.eval_episodes
    shape = (len(training.starts), points, len(SIDES), episodes)
    check_array(path / RESULT, "accuracy", arrays["accuracy"], np.float32, shape, fix)
    check_array(path / RESULT, "seconds", arrays["seconds"], np.float64, (), fix)
    accuracy = arrays["accuracy"]
    if not (np.all(accuracy >= 0) and np.all(accuracy <= 1)):
        raise InputError(f"{path / RESULT}: accuracy is not between 0 and 1 everywhere; {fix}")
    return Result(training, path, accuracy, float(arrays["seconds"]))


class _Trainer:
    def __init__(
        self,
        training: Training,
        label: str,
        run: runs.Run,
        layout: Layout,
        data: Data,
        may_diverge: bool,
        quiet: bool,
    ):
        self.training, self.label, self.run = training, label, run
        self.layout, self.data, self.may_diverge = layout, data, may_diverge
        self.seeds = place_seeds(layout, np.array([start.seed for start in training.starts]))
        self.checkpoints = Checkpoints(run.checkpoints, keep=1)
        self.progress = TrainProgress(training.steps, show=not quiet)
        self.pace = Pace()
        self.step, self.saved, spent = 0, -1, 0.0
        if self.checkpoints.steps:
            like = _abstract(training, layout)
            self.states, meta = self.checkpoints.restore(like, run.config)
            self.step = self.saved = meta["step"]
            spent = meta["seconds"]
        else:
            self.states = _init(training, layout)
        self.states = jax.device_put(self.states, layout.by_seed)
        self.started = time.monotonic() - spent

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def run_to_end(self) -> None:
        training = self.training
        try:
            with self.progress, Interrupt() as interrupt:
                while True:
                    self._evaluate()
                    done = self.step == training.steps
                    self._save(due=done or self.step % training.checkpoint_every == 0)
                    if interrupt.signum:
                        self._stop(interrupt.signum)
                    if done:
                        return
                    self._advance()
        finally:
            self.checkpoints.wait()
            self.checkpoints.close()

    def _evaluate(self) -> None:
        """A checkpoint at a step that is evaluated is from behind the evaluation."""
        steps = self.training.eval_steps
        if self.step not in steps or self.step == self.saved:
            return
        point = steps.index(self.step)
        self.states = _evaluate(
            self.training.learner, self.layout, self.states, self.data, np.int32(point)
        )
        means = np.asarray(self.states.accuracy[:, point]).mean((0, 2))
        values = dict(zip(SIDES, means.tolist(), strict=True))
        self.progress.message(
            f"{self.label}: accuracy after {self.step:,} meta-steps: "
            + ", ".join(f"{side} {100 * value:.1f} %" for side, value in values.items())
        )

    def _save(self, *, due: bool) -> None:
        if due and self.saved < self.step:
            extra = {"seconds": self.seconds}
            self.checkpoints.save(self.step, self.states, self.run.config, extra)
            self.saved = self.step

    def _stop(self, signum: int) -> None:
        self._save(due=True)
        name = signal.Signals(signum).name
        raise Stopped(
            128 + signum,
            f"{self.label}: stopped by {name} after {self.step} meta-steps, which are saved; "
            "repeat the command to go on",
        )

    def _advance(self) -> None:
        training = self.training
        next_eval = min(step for step in training.eval_steps if step > self.step)
        to_checkpoint = training.checkpoint_every - self.step % training.checkpoint_every
        length = min(self.pace.length, next_eval - self.step, to_checkpoint)
        begin = time.monotonic()
        self.states, losses = _advance(
            training.learner, self.layout, self.states, self.seeds, self.data, np.int32(length)
        )
        losses = np.asarray(losses)
        seconds = time.monotonic() - begin
        self.pace.measured(length, seconds)
        self.step += length
        self._check(losses)
        self.progress.update(self.label, self.step, length / seconds, float(losses.mean()))

    def _check(self, losses: Float32[np.ndarray, " start"]) -> None:
        if self.may_diverge or np.all(np.isfinite(losses)):
            return
        start = self.training.starts[int(np.argmin(np.isfinite(losses)))]
        raise NonFiniteError(
            f"{self.label}, seed {start.seed}: the loss of meta-step {self.step} is not finite "
            f"with rates {start.inner_lr:g} and {start.outer_lr:g}; take smaller ones, --inner-lr "
            "and --outer-lr"
        )


# --- Programs: of one learner and number of starts, whatever the rates and lengths ---


def _init(training: Training, layout: Layout) -> State:
    starts = training.starts
    seeds = place_seeds(layout, np.array([start.seed for start in starts]))
    rates = np.array([(start.inner_lr, start.outer_lr) for start in starts], np.float32)
    points = len(training.eval_steps)
    return _initial(training.learner, points, layout, seeds, place(rates, layout.by_seed))


def _abstract(training: Training, layout: Layout) -> State:
    """Shapes, dtypes and sharding of the states."""
    count = len(training.starts)
    shapes = jax.eval_shape(
        partial(_initial, training.learner, len(training.eval_steps), layout),
        jax.ShapeDtypeStruct((count,), jnp.int32),
        jax.ShapeDtypeStruct((count, 2), jnp.float32),
    )
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout.by_seed), shapes
    )


@partial(jax.jit, static_argnames=("learner", "num_points", "layout"))
def _initial(
    learner: Learner,
    num_points: int,
    layout: Layout,
    seeds: Int32[Array, " start"],
    rates: Float32[Array, "start 2"],
) -> Any:
    def one(seed, rates):
        key = jax.random.fold_in(jax.random.PRNGKey(seed), _INIT)
        return maml.init(learner, num_points, key, *rates)

    return each_seed(one, layout, (seeds, rates), ())


@partial(jax.jit, static_argnames=("learner", "layout"))
def _advance(
    learner: Learner,
    layout: Layout,
    states: Any,
    seeds: Int32[Array, " start"],
    data: Data,
    num_steps: Int32[Array, ""],
) -> tuple[Any, Float32[Array, " start"]]:
    """The states after `num_steps` meta-steps, and the loss of each in the last one."""

    def one(state, seed, data, num_steps):
        def body(_, carry):
            key = jax.random.fold_in(jax.random.PRNGKey(seed), carry[0].step)
            return maml.update(learner, carry[0], data, key)

        return jax.lax.fori_loop(0, num_steps, body, (state, jnp.zeros(())))

    return each_seed(one, layout, (states, seeds), (data, num_steps))


@partial(jax.jit, static_argnames=("learner", "layout"))
def _evaluate(
    learner: Learner, layout: Layout, states: Any, data: Data, point: Int32[Array, ""]
) -> Any:
    one = partial(maml.evaluate, learner)
    return each_seed(one, layout, (states,), (data, point))
