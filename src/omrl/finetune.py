"""Protocol `finetune`: adapt to the offline context, then go on learning online.

For every run seed and test task at once: collect one trajectory with the stochastic policy, put it
into the task's buffer, take gradient steps on the buffer, and again (MACAW, arXiv:2008.06043, C.2
and D.4; `omrl.tuning` has the choices). What a step is belongs to the algorithm: its `tune`.

Storing a trajectory and all gradient steps on it are one compiled program for all seeds and tasks;
the host steps the physics. Initial states, noise and batches are functions of (run seed, task
index, trajectory, step). So tasks can be worked on in groups, one after the other, where the device
has no room for all of them, and an evaluation that was interrupted goes on with the next group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int32, Int64, UInt32

from omrl.algorithm import Algorithm
from omrl.context import Contexts, seed_task_keys
from omrl.curve import Curve
from omrl.data.device import free_memory
from omrl.data.online import Buffer, append, draw, empty, transitions
from omrl.data.sample import BatchSpec
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.progress import clock
from omrl.protocol import EvalConfig
from omrl.simulate import Labels, Outcome, Policies, collect, fold_numbers, measure, measured_keys
from omrl.tuning import FinetuneConfig
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
    """File of what was measured so far, written at every point. If it is there at the start, its
    finished tasks are not done again."""
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


class Learner(NamedTuple):
    """What one seed knows of one task."""

    tuning: Any
    """The algorithm's own."""
    buffer: Buffer


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
    waiting = np.flatnonzero(~curve.finished)
    if not len(waiting):
        return curve
    of_axes = config.episode_seed, labels.seeds, labels.tasks
    tune, noise = seed_task_keys("tune", *of_axes), seed_task_keys("collect", *of_axes)
    starts = jax.tree.map(lambda leaf: leaf[:, :, 0], adapted)
    assert contexts.batch is not None
    rows = Rows(starts, contexts.batch, tune, noise, measured_keys(config, labels))
    size = how.tasks_at_once or _tasks_with_room(setting, rows, labels)
    groups = np.array_split(waiting, -(-len(waiting) // size))
    for number, group in enumerate(groups):
        of_group = jax.tree.map(lambda leaf, group=group: leaf[:, group], rows)
        part = replace(labels, tasks=tuple(labels.tasks[position] for position in group))
        line = _Line(how.report, part, f"group {number + 1} of {len(groups)}", config.shots)
        for point, outcome, env_steps in _learn_online(setting, of_group, part):
            curve.put(group, labels.shots.index(point), outcome, env_steps)
            if how.unfinished is not None:
                curve.save(how.unfinished, identity)
            line.tell(point, float(outcome.returns.mean()))
    return curve


def _learn_online(
    setting: Setting, rows: Rows, labels: Labels
) -> Iterator[tuple[int, Outcome, Int64[np.ndarray, "seed task"]]]:
    """At every point of the curve: the number of trajectories, what the policies reach after them,
    and how many environment steps they had."""
    env, config, settings = setting.env, setting.config, setting.config.finetune
    last = labels.shots[-1]
    capacity = _capacity(setting, rows, last)
    learners, tasks = _begin(setting.algorithm, settings, capacity, setting.states, *rows[:3])
    env_steps = np.zeros(labels.shape[:2], np.int64)
    with closing(
        env.physics(min(setting.num_threads, env_steps.size * config.episodes))
    ) as physics:
        for number in range(last + 1):
            at = replace(labels, shots=(number,))
            if number in labels.shots:
                policies = _policies(setting, tasks, rows.measure, at, config.deterministic)
                outcome = measure(policies, env, config, physics, baselines=number == 0)
                yield number, outcome, env_steps.copy()
            if number == last:
                return
            noise = fold_numbers(rows.collect, jnp.array([number]))
            policies = _policies(setting, tasks, noise, at, deterministic=False)
            trajectories = collect(policies, env, config, physics, number)
            env_steps += trajectories.length
            learners, tasks = _learn(
                setting.algorithm,
                settings,
                _side_by_side(setting.states),
                learners,
                setting.states,
                transitions(trajectories, setting.discount),
                trajectories.length.astype(np.int32),
                rows.tune,
                np.int32(number + 1),
            )


def _policies(
    setting: Setting, tasks: Any, keys: Array, labels: Labels, deterministic: bool
) -> Policies:
    """Of `tasks` with leaves [seed, task, ...], in as many episodes as there are keys."""
    with_shot = jax.tree.map(lambda leaf: leaf[:, :, None], tasks)
    labels = replace(labels, num_episodes=keys.shape[2])
    return Policies(
        setting.algorithm, setting.states, with_shot, keys, labels, deterministic=deterministic
    )


# --- Learning ---


@partial(jax.jit, static_argnums=(0, 1, 2))
def _begin(
    algorithm: Algorithm,
    settings: FinetuneConfig,
    capacity: int,
    states: Any,
    adapted: Any,
    context: Batch,
    keys: UInt32[Array, "seed task 2"],
) -> tuple[Learner, Any]:
    """Learners before anything was collected, and their tasks."""

    def one(state: Any, task: Any, context: Batch, key: Key) -> tuple[Learner, Any]:
        tuning = algorithm.begin_tuning(state, task, jax.random.fold_in(key, 0))
        buffer = empty(capacity, context.obs.shape[-1], context.action.shape[-1])
        if settings.keep_context:
            buffer = append(buffer, context, context.reward.shape[0])
        return Learner(tuning, buffer), algorithm.tuned(state, tuning)

    return jax.vmap(jax.vmap(one, (None, 0, 0, 0)))(states, adapted, context, keys)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _learn(
    algorithm: Algorithm,
    settings: FinetuneConfig,
    side_by_side: bool,
    learners: Learner,
    states: Any,
    trajectory: Batch,
    length: Int32[Array, "seed task"],
    keys: UInt32[Array, "seed task 2"],
    number: Int32[Array, ""],
) -> tuple[Learner, Any]:
    """Learners after the gradient steps with trajectory `number`, from 1, in the buffer, and their
    tasks. Leaves of `trajectory` are [seed, task, time, ...]."""

    def one(
        state: Any, learner: Learner, rows: Batch, count: Int[Array, ""], key: Key
    ) -> tuple[Learner, Any]:
        buffer = append(learner.buffer, rows, count)
        enough = settings.batch_size if settings.sampling == "without_replacement" else 1
        ready = (number >= settings.burn_in) & (buffer.stored >= enough)
        now = jax.random.fold_in(key, number)
        tuning = _gradient_steps(algorithm, settings, state, learner.tuning, buffer, now, ready)
        return Learner(tuning, buffer), algorithm.tuned(state, tuning)

    def one_seed(state: Any, *of_tasks: Any) -> tuple[Learner, Any]:
        return _each(side_by_side, partial(one, state), of_tasks)

    return _each(side_by_side, one_seed, (states, learners, trajectory, length, keys))


def _each(side_by_side: bool, function: Callable[..., Any], rows: tuple[Any, ...]) -> Any:
    if side_by_side:
        return jax.vmap(function)(*rows)
    return jax.lax.map(lambda row: function(*row), rows)


def _gradient_steps(
    algorithm: Algorithm,
    settings: FinetuneConfig,
    state: Any,
    tuning: Any,
    buffer: Buffer,
    key: Key,
    ready: Bool[Array, ""],
) -> Any:
    """`tuning` after the steps on one trajectory, or as it is unless `ready`."""
    spec = BatchSpec("online", settings.batch_size, settings.sampling)

    def phase(step: Callable[..., Any], first: int, count: int, tuning: Any) -> Any:
        def body(number: Int[Array, ""], tuning: Any) -> Any:
            draw_key, step_key = jax.random.split(jax.random.fold_in(key, number))
            return step(state, tuning, draw(buffer, spec, draw_key), step_key)

        if not count:
            return tuning
        return jax.lax.fori_loop(first, first + jnp.where(ready, count, 0), body, tuning)

    both, value, policy = settings.together, settings.value_steps, settings.policy_steps
    tuning = phase(algorithm.tune, 0, both, tuning)
    tuning = phase(algorithm.tune_value, both, value - both, tuning)
    return phase(algorithm.tune_policy, value, policy - both, tuning)


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
        partial(_begin, setting.algorithm, setting.config.finetune, capacity),
        setting.states,
        *rows[:3],
    )
    num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    room = MEMORY_SHARE * free_memory(_device(setting.states))
    return max(1, min(len(labels.tasks), int(room * len(labels.tasks) / num_bytes)))


def _device(states: Any) -> Any:
    leaf = jax.tree.leaves(states)[0]
    return next(iter(leaf.devices())) if isinstance(leaf, jax.Array) else jax.devices()[0]


def _side_by_side(states: Any) -> bool:
    """Learners by `vmap`; on a CPU by `lax.map`, which is faster there and gives the same bits
    whatever else is learned beside it."""
    return _device(states).platform != "cpu"


class _Line:
    """Tells how far a group of tasks is."""

    def __init__(
        self, report: Callable[[str], None], labels: Labels, group: str, shots: tuple[int, ...]
    ):
        self._report = report
        self._what = f"finetune, {group}, tasks {', '.join(map(str, labels.tasks))}"
        self._shots = shots
        self._last = labels.shots[-1]
        self._start = self._told = time.monotonic()

    def tell(self, number: int, mean: float) -> None:
        """After `number` trajectories, with the mean return that is reached."""
        now = time.monotonic()
        if number not in self._shots and now - self._told < LINE_EVERY:
            return
        self._told = now
        passed = now - self._start
        left = f", ETA {clock(passed / number * (self._last - number))}" if number else ""
        self._report(
            f"{self._what}: {number:,} of {self._last:,} trajectories{left}, mean return {mean:.1f}"
        )
