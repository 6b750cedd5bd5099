"""Many updates of many seeds in one call: the jitted program of a training stage.

The program loops over a *traced* number of updates and writes its metrics to a buffer of fixed
length, so that one compilation serves every chunk length and the length cannot change a bit. The
data is an argument, sampled on the device inside the loop; of data that stays on the disk
(`HostData`) a thread gathers the same batches while the device computes. What a run collected
itself is an argument too, of which every seed has its own.

Updates see no seed axis: here states are [seed, ...], metrics [seed, update, ...].
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int, Int32, Num, UInt32

from omrl import compiling, hosts
from omrl.algorithm import Algorithm, Stage
from omrl.data.buffers import (
    Buffers,
    TrainingData,
    buffers_of,
    gather_batch,
    is_on_disk,
    joined,
    num_rows,
    with_columns,
)
from omrl.data.device import DeviceData
from omrl.data.sample import sample_all_rows
from omrl.data.trajectories import TrajectorySpec, read_trajectories
from omrl.layout import Layout, each_seed, place, place_seeds
from omrl.types import Batch, Metrics, Trajectory

__all__ = [
    "BLOCK",
    "MAX_UPDATES",
    "Layout",
    "abstract_states",
    "init_states",
    "place",
    "prepare",
    "program",
    "train_chunk",
]

MAX_UPDATES = 4096
"""Length of the metrics buffer, so the most updates that one call can make."""

BLOCK = 16
"""Updates whose batches are drawn together: on a GPU drawing costs launches, not work. It cannot
change a result."""

_INIT = 2**32 - 1
"""Folded into a seed's key for its initial state: never an update number, which is an int32."""


def init_states(algorithm: Algorithm, layout: Layout, seeds: Int[np.ndarray, " seed"]) -> Any:
    """The initial state of every seed, leaves [seed, ...], on the devices of `layout`."""
    return _init_once(algorithm, layout, place_seeds(layout, seeds))


def abstract_states(algorithm: Algorithm, layout: Layout, num_seeds: int) -> Any:
    """Shapes, dtypes and sharding of `init_states`, without making them."""
    seeds = jax.ShapeDtypeStruct((num_seeds,), jnp.int32)
    shapes = jax.eval_shape(partial(_init, algorithm, layout), seeds)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout.by_seed), shapes
    )


def prepare(stage: Stage, layout: Layout, states: Any, data: TrainingData | None) -> Any:
    """The columns [seed, ...] that `stage` draws in place of the data's; None if it prepares none.

    They are a function of the states at the start of the stage, and still the same in its middle.
    """
    if stage.prepare is None:
        return None
    assert isinstance(data, DeviceData)
    return _prepare(stage, layout, states, data)


def train_chunk(
    stage: Stage,
    layout: Layout,
    states: Any,
    data: TrainingData | None,
    seeds: Int[np.ndarray, " seed"],
    task_ids: Int[np.ndarray, " task"],
    num_updates: int,
    collected: Buffers | None = None,
    prepared: dict[str, Array] | None = None,
) -> tuple[Any, Metrics, Bool[Array, "seed leaf"]]:
    """`num_updates` updates of every seed.

    Args:
        stage: what an update reads and does. Static: pass the same object for the same program.
        states: leaves [seed, ...], placed by `init_states` or restored with `layout.by_seed`.
        data: of the training tasks; on the device placed with `layout.replicated`. None where all
            was collected.
        task_ids: the number of each task along the data's first axis, to name it in the metrics.
        num_updates: at most `MAX_UPDATES`; 0 only compiles.
        collected: what a stage that explores draws from too, leaves [seed, task, ...], placed with
            `layout.by_seed`.
        prepared: of a stage that prepares its data, by `prepare`.

    Returns:
        The new states; the metrics [seed, MAX_UPDATES, ...], of which the first `num_updates` are
        filled, with the sampled tasks' ids as `task`; whether each leaf of the new states, in
        tree order, is finite.
    """
    if not 0 <= num_updates <= MAX_UPDATES:
        raise ValueError(f"num_updates: {num_updates} is not in 0 … {MAX_UPDATES}")
    if data is not None and is_on_disk(data):
        return _stream(stage, layout, states, data, seeds, task_ids, num_updates)
    return program(stage, layout)(
        states,
        data,
        (collected, prepared),
        place_seeds(layout, seeds),
        place(np.asarray(task_ids, np.int32), layout.replicated),
        np.int32(num_updates),
    )


@cache
def program(stage: Stage, layout: Layout) -> Callable[..., tuple[Any, Metrics, Array]]:
    """The compiled function behind `train_chunk`, one per stage and layout."""
    # Said, not left to the compiler: outputs placed otherwise than inputs compile a second time.
    # Metrics go to every process, since all of them judge the same numbers.
    placed = (layout.by_seed, layout.replicated, layout.replicated)
    return jax.jit(
        partial(_train_chunk, stage, layout),
        out_shardings=placed,
        compiler_options=_compiler_options(stage, layout),
    )


def _compiler_options(stage: Stage, layout: Layout) -> dict[str, Any]:
    return compiling.of_training(layout.mesh.devices.flat[0].platform, stage.steps)


def _train_chunk(
    stage: Stage,
    layout: Layout,
    states: Any,
    data: TrainingData | None,
    own: _Own,
    seeds: Int32[Array, " seed"],
    task_ids: Int32[Array, " task"],
    num_updates: Int32[Array, ""],
) -> tuple[Any, Metrics, Bool[Array, "seed leaf"]]:
    update = _jitted_update(stage)
    loop = partial(_loop, partial(_draw, stage), update)
    shared = (data, task_ids, num_updates)
    states, metrics = each_seed(loop, layout, (states, seeds, own), shared)
    return states, metrics, jax.vmap(_finite_leaves)(states)


@cache
def _jitted_update(stage: Stage) -> Callable[..., tuple[Any, Metrics]]:
    """Jitted only so that it is traced once: for the shapes of its metrics, inside the loop, and
    for every number of seeds."""
    return jax.jit(partial(_update, stage))


def _metrics_row(
    update: Callable[..., tuple[Any, Metrics]], state: Any, drawn: Any
) -> tuple[Array, Callable[[Array], Metrics]]:
    """Zeros for the metrics of one update, and how to read them.

    To be called where the update is: elsewhere it would be traced for another mesh.
    """
    shapes = jax.eval_shape(update, state, drawn)[1]
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))


_Own = tuple[Buffers | None, dict[str, Array] | None]
"""What a seed has for itself: what it collected, and the columns that the stage prepared."""


class _Rows(NamedTuple):
    """What an update draws."""

    tasks: Int32[Array, "*update task"]
    """Positions along the data's first axis."""
    rows: dict[str, Array]
    """Of each batch, [*update, task, sample]."""
    key: UInt32[Array, "*update 2"]
    """Of the update itself."""


class _Drawn(NamedTuple):
    """All that an update reads beside the state."""

    tasks: Int32[Array, "*update task"]
    """Positions along the data's first axis."""
    task_ids: Int32[Array, "*update task"]
    batches: dict[str, Batch | Trajectory]
    key: UInt32[Array, "*update 2"]


def _loop(
    draw: Callable[..., _Drawn],
    update: Callable[..., tuple[Any, Metrics]],
    state: Any,
    seed: Int32[Array, ""],
    own: _Own,
    data: TrainingData | None,
    task_ids: Int32[Array, " task"],
    num_updates: Int32[Array, ""],
) -> tuple[Any, Metrics]:
    """`num_updates` updates of one seed, and their metrics [update, ...]."""
    draw_one = partial(draw, data, own, task_ids, seed)
    row, unravel = _metrics_row(update, state, jax.eval_shape(draw_one, state.step))

    def block(number, carry):
        done = number * BLOCK
        steps = carry[0].step + jnp.arange(BLOCK)
        drawn = jax.vmap(draw_one)(steps)
        return _updates(update, drawn, done, num_updates - done, carry)

    rows = jnp.zeros((MAX_UPDATES, *row.shape), row.dtype)
    num_blocks = (num_updates + BLOCK - 1) // BLOCK
    state, rows = jax.lax.fori_loop(0, num_blocks, block, (state, rows))
    return state, jax.vmap(unravel)(rows)


def _updates(
    update: Callable[..., tuple[Any, Metrics]],
    drawn: _Drawn,
    done: Int32[Array, ""],
    num_updates: Int32[Array, ""],
    carry: tuple[Any, Num[Array, "update metric"]],
) -> tuple[Any, Num[Array, "update metric"]]:
    """At most `BLOCK` updates with what was drawn for them; `carry` has state and metrics."""

    def step(i, carry):
        state, rows = carry
        state, metrics = update(state, jax.tree.map(lambda leaf: leaf[i], drawn))
        # One row per update: a single write, where one per metric would be a kernel each.
        return state, rows.at[done + i].set(ravel_pytree(metrics)[0])

    return jax.lax.fori_loop(0, jnp.minimum(BLOCK, num_updates), step, carry)


def _draw(
    stage: Stage,
    data: TrainingData | None,
    own: _Own,
    task_ids: Int32[Array, " task"],
    seed: Int32[Array, ""],
    step: Int32[Array, ""],
) -> _Drawn:
    """The tasks and batches of one update."""
    collected, prepared = own
    available = joined(with_columns(data, prepared), collected, stage.exploration)
    drawn = _draw_rows(stage, num_rows(available, stage.batches), seed, step)
    buffers = buffers_of(available, stage.batches)
    batches = {
        spec.name: jax.vmap(partial(gather_batch, buffers[spec.name], spec))(
            drawn.tasks, drawn.rows[spec.name]
        )
        for spec in stage.batches
    }
    return _Drawn(drawn.tasks, task_ids[drawn.tasks], batches, drawn.key)


def _draw_rows(
    stage: Stage,
    counts: dict[str, Int32[Array, " task"]],
    seed: Int32[Array, ""],
    step: Int32[Array, ""],
) -> _Rows:
    """The tasks and rows of one update; every random number is a function of (seed, step)."""
    key = jax.random.fold_in(jax.random.PRNGKey(seed), step)
    task_key, sample_key, update_key = jax.random.split(key, 3)
    num_tasks = next(iter(counts.values())).shape[0]
    tasks = jax.random.choice(
        task_key, jnp.arange(num_tasks), (stage.task_batch,), replace=not stage.distinct_tasks
    )
    keys = jax.random.split(sample_key, stage.task_batch)
    counts = {name: count[tasks] for name, count in counts.items()}
    rows = jax.vmap(partial(sample_all_rows, stage.batches))(counts, keys)
    return _Rows(tasks, rows, update_key)


# --- Data that stays on the disk ---


def _stream(
    stage: Stage,
    layout: Layout,
    states: Any,
    data: TrainingData,
    seeds: Int[np.ndarray, " seed"],
    task_ids: Int[np.ndarray, " task"],
    num_updates: int,
) -> tuple[Any, Metrics, Bool[Array, "seed leaf"]]:
    """`train_chunk` in blocks: a thread gathers the next one while the device computes this one."""
    draw, run = _block_programs(stage, layout)
    first = np.asarray(hosts.gather(states.step))
    ids = np.asarray(task_ids, np.int32)
    of, counts = buffers_of(data, stage.batches), num_rows(data, stage.batches)

    def prepare(done: int) -> Any:
        # On the device it would wait for the block that runs there.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            drawn = jax.tree.map(np.asarray, draw(counts, seeds, first + done))
        batches = {
            spec.name: read_trajectories(of[spec.name], spec, drawn.tasks, drawn.rows[spec.name])
            if isinstance(spec, TrajectorySpec)
            else of[spec.name].gather(drawn.tasks, drawn.rows[spec.name])
            for spec in stage.batches
        }
        return place((drawn.tasks, ids[drawn.tasks], batches, drawn.key), layout.by_seed)

    chunk: list[Metrics] = []
    with ThreadPoolExecutor(1, thread_name_prefix="gather") as thread:
        following = thread.submit(prepare, 0)
        # A chunk of no updates compiles too.
        for done in range(0, max(num_updates, 1), BLOCK):
            drawn = following.result()
            if done + BLOCK < num_updates:
                following = thread.submit(prepare, done + BLOCK)
            states, metrics, finite = run(states, drawn, np.int32(num_updates - done))
            chunk.append(metrics)
    return states, jax.tree.map(_join, *chunk), finite


def _join(*blocks: Num[Array, "seed update ..."]) -> Num[Array, "seed all_updates ..."]:
    # By numpy: JAX would compile a program for every number of blocks.
    return jnp.asarray(np.concatenate([np.asarray(block) for block in blocks], axis=1))


@cache
def _block_programs(stage: Stage, layout: Layout) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What draws the rows of a block for every seed, on the host, and what makes its updates."""

    def draw(counts, seeds, steps):
        def one_seed(seed, step):
            one = partial(_draw_rows, stage, counts, seed)
            return jax.vmap(one)(step + jnp.arange(BLOCK))

        return jax.vmap(one_seed)(seeds, steps)

    def run(states, drawn, num_updates):
        drawn = _Drawn(*drawn)
        update = _jitted_update(stage)

        def one_seed(state, drawn, num_updates):
            first = jax.tree.map(lambda leaf: leaf[0], drawn)
            row, unravel = _metrics_row(update, state, first)
            rows = jnp.zeros((BLOCK, *row.shape), row.dtype)
            start = (state, rows)
            state, rows = _updates(update, drawn, jnp.int32(0), num_updates, start)
            return state, jax.vmap(unravel)(rows)

        states, metrics = each_seed(one_seed, layout, (states, drawn), (num_updates,))
        return states, metrics, jax.vmap(_finite_leaves)(states)

    placed = (layout.by_seed, layout.replicated, layout.replicated)
    options = _compiler_options(stage, layout)
    return jax.jit(draw), jax.jit(run, out_shardings=placed, compiler_options=options)


def _update(stage: Stage, state: Any, drawn: _Drawn) -> tuple[Any, Metrics]:
    tasks = (drawn.tasks,) if stage.with_tasks else ()
    state, metrics = stage.update(state, drawn.batches, drawn.key, *tasks)
    return state, {**metrics, "task": drawn.task_ids}


@partial(jax.jit, static_argnames=("stage", "layout"))
def _prepare(stage: Stage, layout: Layout, states: Any, data: DeviceData) -> dict[str, Array]:
    assert stage.prepare is not None
    return each_seed(stage.prepare, layout, (states,), (data,))


@partial(jax.jit, static_argnames=("algorithm", "layout"))
def _init(algorithm: Algorithm, layout: Layout, seeds: Int32[Array, " seed"]) -> Any:
    def one_seed(seed):
        return algorithm.init(jax.random.fold_in(jax.random.PRNGKey(seed), _INIT))

    return each_seed(one_seed, layout, (seeds,), ())


_init_once = compiling.jit_briefly(static_argnames=("algorithm", "layout"))(_init)


def _finite_leaves(state: Any) -> Bool[Array, " leaf"]:
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)])
