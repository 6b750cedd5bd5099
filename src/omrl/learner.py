"""What a run seed knows of a task that it learns on online, and the compiled programs over all of
them: seeds and tasks side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, Bool, Int, Int32, UInt32

from omrl.algorithm import Algorithm
from omrl.data.online import Buffer, append, draw, empty
from omrl.data.sample import BatchSpec
from omrl.tuning import FinetuneConfig
from omrl.types import Batch, Key


class Learner(NamedTuple):
    """What one seed knows of one task."""

    tuning: Any
    """The algorithm's own."""
    buffer: Buffer


@partial(jax.jit, static_argnums=(0, 1, 2))
def begin(
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
def learn(
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


# --- Devices ---


def placed_as(states: Any, shapes: Any) -> Any:
    """`shapes` on the devices of `states`, by seed as these are."""
    first = jax.tree.leaves(states)[0]
    placed = isinstance(first, jax.Array)
    sharding = first.sharding if placed else SingleDeviceSharding(device_of(states))
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding), shapes
    )


def device_of(states: Any) -> Any:
    leaf = jax.tree.leaves(states)[0]
    return next(iter(leaf.devices())) if isinstance(leaf, jax.Array) else jax.devices()[0]


def side_by_side(states: Any) -> bool:
    """Learners by `vmap`; on a CPU by `lax.map`, which is faster there and gives the same bits
    whatever else is learned beside it."""
    return device_of(states).platform != "cpu"
