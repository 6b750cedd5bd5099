"""Protocol `finetune`: adapt to the offline context, then go on learning online.

For every run seed and test task at once: collect one trajectory with the stochastic policy, put it
into the task's buffer, take gradient steps on the buffer, and again (MACAW, arXiv:2008.06043, C.2
and D.4; `omrl.tuning` has the choices). What a step is belongs to the algorithm: its `tune`.

Storing a trajectory and all gradient steps on it are one compiled program for all seeds and tasks;
the host steps the physics. Initial states, noise and batches are functions of (run seed, task
index, trajectory, step). So tasks can be worked on in groups, one after the other, where the device
has no room for all of them, and an evaluation that was interrupted goes on where its learners were
saved (`omrl.saved_learners`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int64, UInt32

from omrl import learner
from omrl.algorithm import Algorithm
from omrl.context import Contexts, seed_task_keys
from omrl.curve import Curve
from omrl.data.device import free_memory
from omrl.data.online import transitions
from omrl.envs.base import TaskEnv
from omrl.errors import InputError, Stopped
from omrl.interrupt import Interrupt
from omrl.progress import clock
from omrl.protocol import EvalConfig
from omrl.saved_learners import Moment, SavedLearners, starting_moments
from omrl.simulate import Labels, Outcome, Policies, collect, fold_numbers, measure, measured_keys
from omrl.types import Batch, Key

MEMORY_SHARE = 0.4
"""Of the device's free memory, what learners may take by default: a loop holds them twice."""

LINE_EVERY = 10.0
"""Seconds between two lines of progress; the points in `shots` always have one."""


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class How:
    """How an evaluation is carried out. No result depends on it, but for rounding."""

    tasks_at_once: int | None = None
    """Tasks that learn side by side, all run seeds each; None: as many as the device has room
    for."""
    unfinished: Path | None = None
    """File of what was measured so far, written at every point; beside it learners are saved. If it
    is there at the start, its finished tasks are not done again, and others go on from there. With
    it SIGTERM and SIGINT end the evaluation after a trajectory."""
    report: Callable[[str], None] = _silent
    """Is told how far it is, a line each time."""


@dataclass(frozen=True)
class Setting:
    """What all groups of tasks have in common."""

    algorithm: Algorithm
    states: Any
    """Leaves [seed, ...]."""
    env: TaskEnv
    config: EvalConfig
    discount: float
    num_threads: int


class Rows(NamedTuple):
    """Where every seed and task begins, leaves [seed, task, ...]."""

    adapted: Any
    """The tasks, adapted to the contexts."""
    context: Batch
    tune: UInt32[Array, "seed task 2"]
    """Keys of everything random but noise."""
    collect: UInt32[Array, "seed task 2"]
    """Keys of the noise in trajectories to learn from."""
    measure: UInt32[Array, "seed task episode 2"]
    """Keys of the noise in episodes that are measured."""


def check_tuning(
    algorithm: Algorithm, states: Any, env: TaskEnv, contexts: Contexts, config: EvalConfig
) -> None:
    """Raises `InputError` for an algorithm that cannot learn online, or not so, and for a buffer
    that is too small."""
    settings = config.finetune
    tunable = algorithm.for_tuning(settings)
    assert contexts.batch is not None
    context_size = contexts.batch.reward.shape[-1] if settings.keep_context else 0
    least = max(env.spec.horizon, context_size)
    if 0 < settings.buffer_size < least:
        raise InputError(
            f"finetune.buffer_size: {settings.buffer_size} does not hold a trajectory of "
            f"{env.spec.horizon} or the context of {context_size} that it begins with; take "
            f"{least} or more, or 0 for all"
        )

    most = context_size + config.shots[-1] * env.spec.horizon
    capacity = min(settings.buffer_size or most, most)
    if settings.sampling == "without_replacement" and settings.batch_size > capacity:
        raise InputError(
            f"finetune.batch_size: {settings.batch_size} transitions without replacement, and the "
            f"buffer never holds more than {capacity}; take fewer, or --finetune.sampling iid"
        )

    def one_step(state: Any, batch: Batch, key: Key) -> Any:
        tuning = tunable.begin_tuning(state, algorithm.begin(state, key), key)
        if settings.together:
            tuning = tunable.tune(state, tuning, batch, key)
        if settings.alone:
            tuning = tunable.tune_value(state, tuning, batch, key)
            tuning = tunable.tune_policy(state, tuning, batch, key)
        return tunable.tuned(state, tuning)

    state = jax.tree.map(lambda leaf: leaf[0], states)
    batch = jax.tree.map(lambda leaf: leaf[0, 0], contexts.batch)
    jax.eval_shape(one_step, state, batch, jax.random.PRNGKey(0))


def fine_tune(
    setting: Setting, adapted: Any, contexts: Contexts, labels: Labels, how: How, identity: str
) -> Curve:
    """Returns at all points of the curve.

    Args:
        adapted: tasks adapted to the contexts, leaves [seed, task, 1, ...].
        labels: its shots are the points.
        identity: of the evaluation, so that nothing is gone on with that is another one's.
    """
    config = setting.config
    tunable = setting.algorithm.for_tuning(config.finetune)
    setting = replace(setting, algorithm=tunable)
    env = setting.env
    curve = Curve.of(labels, config.traces, env.spec.horizon, succeeds=env.succeeds)
    if how.unfinished is not None:
        curve.take_over(how.unfinished, identity)
    saved, interrupt = SavedLearners(how.unfinished, identity, how.report), Interrupt()
    if curve.finished.all():
        saved.forget()
        return curve
    of_axes = config.episode_seed, labels.seeds, labels.tasks
    tune, noise = seed_task_keys("tune", *of_axes), seed_task_keys("collect", *of_axes)
    starts = jax.tree.map(lambda leaf: leaf[:, :, 0], adapted)
    assert contexts.batch is not None
    rows = Rows(starts, contexts.batch, tune, noise, measured_keys(config, labels))
    size = how.tasks_at_once or _tasks_with_room(setting, rows, labels)
    with closing(saved), interrupt if how.unfinished is not None else nullcontext():
        groups = starting_moments(saved.moment(), curve, labels.shots, size)
        for number, start in enumerate(groups):
            if not start.number:
                saved.forget()
            group = np.array(start.tasks)
            of_group = jax.tree.map(lambda leaf, group=group: leaf[:, group], rows)
            part = replace(labels, tasks=tuple(labels.tasks[position] for position in group))
            line = _Line(how.report, part, f"group {number + 1} of {len(groups)}", start.number)
            online = _learn_online(setting, of_group, part, start, saved, interrupt)
            for point, outcome, env_steps in online:
                curve.put(group, labels.shots.index(point), outcome, env_steps)
                if how.unfinished is not None:
                    curve.save(how.unfinished, identity)
                line.tell(point, float(outcome.returns.mean()), always=point in config.shots)
        saved.forget()
    return curve


def _learn_online(
    setting: Setting,
    rows: Rows,
    labels: Labels,
    start: Moment,
    saved: SavedLearners,
    interrupt: Interrupt,
) -> Iterator[tuple[int, Outcome, Int64[np.ndarray, "seed task"]]]:
    """At every point of the curve behind `start`, at 0 itself, too: the number of trajectories,
    what the policies reach after them, and how many environment steps they had."""
    env, config, settings = setting.env, setting.config, setting.config.finetune
    last = labels.shots[-1]
    begin = partial(learner.begin, setting.algorithm, settings, _capacity(setting, rows, last))
    if start.number:
        shapes = jax.eval_shape(begin, setting.states, *rows[:3])
        learners, tasks = saved.restore(learner.placed_as(setting.states, shapes))
    else:
        learners, tasks = begin(setting.states, *rows[:3])
    env_steps = start.env_steps.copy()
    with closing(
        env.physics(min(setting.num_threads, env_steps.size * config.episodes))
    ) as physics:
        for number in range(start.number, last + 1):
            at = replace(labels, shots=(number,))
            if number in labels.shots and (number > start.number or not number):
                policies = _policies(setting, tasks, rows.measure, at, config.deterministic)
                outcome = measure(policies, env, config, physics, baselines=number == 0)
                yield number, outcome, env_steps.copy()
            if number == last:
                return
            if number > start.number:
                moment = Moment(number, start.tasks, env_steps)
                saved.save(moment, (learners, tasks), now=bool(interrupt.signum))
            _stop(interrupt.signum, number)
            noise = fold_numbers(rows.collect, jnp.array([number]))
            policies = _policies(setting, tasks, noise, at, deterministic=False)
            trajectories = collect(policies, env, config, physics, number)
            env_steps += trajectories.length
            learners, tasks = learner.learn(
                setting.algorithm,
                settings,
                learner.side_by_side(setting.states),
                learners,
                setting.states,
                transitions(trajectories, setting.discount),
                trajectories.length.astype(np.int32),
                rows.tune,
                np.int32(number + 1),
            )


def _stop(signum: int, number: int) -> None:
    """Raises `Stopped` after a signal, if there was one."""
    if signum:
        name = signal.Signals(signum).name
        what = f"stopped by {name} after {number:,} online trajectories, which are saved"
        raise Stopped(128 + signum, f"{what}; repeat the command to go on")


def _policies(
    setting: Setting, tasks: Any, keys: Array, labels: Labels, deterministic: bool
) -> Policies:
    """Of `tasks` with leaves [seed, task, ...], in as many episodes as there are keys."""
    with_shot = jax.tree.map(lambda leaf: leaf[:, :, None], tasks)
    labels = replace(labels, num_episodes=keys.shape[2])
    return Policies(
        setting.algorithm, setting.states, with_shot, keys, labels, deterministic=deterministic
    )


# --- Room ---


def _capacity(setting: Setting, rows: Rows, num_trajectories: int) -> int:
    """Transitions that a buffer has room for."""
    settings = setting.config.finetune
    context = rows.context.reward.shape[-1] if settings.keep_context else 0
    most = max(1, context + num_trajectories * setting.env.spec.horizon)
    return min(settings.buffer_size or most, most)


def _tasks_with_room(setting: Setting, rows: Rows, labels: Labels) -> int:
    """How many tasks can learn side by side in the device's memory, one at least."""
    capacity = _capacity(setting, rows, labels.shots[-1])
    shapes = jax.eval_shape(
        partial(learner.begin, setting.algorithm, setting.config.finetune, capacity),
        setting.states,
        *rows[:3],
    )
    num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    room = MEMORY_SHARE * free_memory(learner.device_of(setting.states))
    return max(1, min(len(labels.tasks), int(room * len(labels.tasks) / num_bytes)))


class _Line:
    """Tells how far a group of tasks is, which began after `begun` trajectories."""

    def __init__(self, report: Callable[[str], None], labels: Labels, group: str, begun: int):
        self._report = report
        self._what = f"finetune, {group}, tasks {', '.join(map(str, labels.tasks))}"
        self._begun = begun
        self._last = labels.shots[-1]
        self._start = self._told = time.monotonic()

    def tell(self, number: int, mean: float, *, always: bool) -> None:
        """After `number` trajectories, with the mean return that is reached."""
        now = time.monotonic()
        if not always and now - self._told < LINE_EVERY:
            return
        self._told = now
        learned, left = number - self._begun, self._last - number
        eta = f", ETA {clock((now - self._start) / learned * left)}" if learned else ""
        self._report(
            f"{self._what}: {number:,} of {self._last:,} trajectories{eta}, mean return {mean:.1f}"
        )
