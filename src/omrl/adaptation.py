"""Adaptation of every run seed to every task, by rounds on the same context.

Where a round diverges, so that its outcome is not finite or gives no finite action in a state of
the context, it is not taken: the outcome of the round before stands for it and for those after it,
of that seed and task (and repetition) alone, and how many rounds were taken is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int64, UInt32

from omrl.algorithm import Algorithm
from omrl.compiling import jit_briefly
from omrl.context import seed_task_keys
from omrl.types import Batch, Key


class Adapted(NamedTuple):
    """Tasks, and how far each was adapted; rows are [seed, task] or [seed, task, repetition]."""

    tasks: Any
    """Leaves [*row, shot, ...]."""
    rounds: Int64[np.ndarray, "*row"]
    """That were taken; fewer than were asked for where the next one diverged."""


def adapt(
    algorithm: Algorithm,
    states: Any,
    support: Batch | None,
    *,
    seeds: Sequence[int],
    tasks: Sequence[int],
    shots: Sequence[int],
    context_seed: int,
) -> Adapted:
    """`shots` rounds for every seed and task.

    `seeds` and `tasks` are the labels of these axes of `states` and of `support`, whose leaves are
    [seed, task, sample, ...]; None if `shots` is (0,). `shots` are ascending.
    """
    keys = seed_task_keys("adapt", context_seed, seeds, tasks)
    return adapted(algorithm, states, _begin(algorithm, states, keys), support, keys, shots)


def adapted(
    algorithm: Algorithm,
    states: Any,
    task: Any,
    support: Batch | None,
    keys: UInt32[Array | np.ndarray, "*row 2"],
    shots: Sequence[int],
) -> Adapted:
    """The same from tasks [*row, ...] on; leaves of the support are [*row, sample, ...]."""
    kept = [task] if 0 in shots else []
    going_on = np.ones(keys.shape[:-1], bool)
    rounds = np.zeros(going_on.shape, np.int64)
    for number in range(1, shots[-1] + 1):
        assert support is not None
        outcome = _adapt_once(algorithm, states, task, support, keys, number)
        going_on &= np.asarray(_is_usable(algorithm, states, task, outcome, support.obs, keys))
        task = outcome if going_on.all() else _where(jnp.asarray(going_on), outcome, task)
        rounds += going_on
        if number in shots:
            kept.append(task)
    return Adapted(jax.tree.map(lambda *leaves: jnp.stack(leaves, rounds.ndim), *kept), rounds)


def of_rows(one: Callable[..., Any], states: Any, *rows: Any, axes: int = 2) -> Any:
    """`one(state, *row)` of every row; states have leaves [seed, ...], rows `axes` axes more."""

    def of_seed(state: Any, *of_tasks: Any) -> Any:
        mapped = partial(one, state)
        for _ in range(axes):
            mapped = jax.vmap(mapped)
        return mapped(*of_tasks)

    return jax.vmap(of_seed)(states, *rows)


@jit_briefly(static_argnames="algorithm")
def _begin(algorithm: Algorithm, states: Any, keys: UInt32[Array, "seed task 2"]) -> Any:
    return of_rows(algorithm.begin, states, keys, axes=1)


@jit_briefly(static_argnames="algorithm")
def _adapt_once(
    algorithm: Algorithm,
    states: Any,
    tasks: Any,
    support: Batch,
    keys: UInt32[Array, "*row 2"],
    number: int | Int[Array, ""],
) -> Any:
    """One round."""

    def one(state: Any, task: Any, batch: Batch, key: Key) -> Any:
        outcome = algorithm.adapt(state, task, batch, jax.random.fold_in(key, number))
        if (given := _signature(task)) != (made := _signature(outcome)):
            name = type(algorithm).__name__
            raise TypeError(f"{name}.adapt changed the Task: {given} became {made}")
        return outcome

    return of_rows(one, states, tasks, support, keys, axes=keys.ndim - 2)


# A program of its own, so that to be tried changes no bit of what was adapted.
@jit_briefly(static_argnames="algorithm")
def _is_usable(
    algorithm: Algorithm,
    states: Any,
    before: Any,
    after: Any,
    obs: Any,
    keys: UInt32[Array, "*row 2"],
) -> Bool[Array, "*row"]:
    """Where nothing that was finite has become anything else, and actions in states `obs` [*row,
    sample, obs] are finite: finite parameters can be too large to act on."""

    def one(state: Any, old: Any, new: Any, obs: Array, key: Key) -> Bool[Array, ""]:
        pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        kept = [(jnp.isfinite(b) | ~jnp.isfinite(a)).all() for a, b in pairs]
        actions = jax.vmap(lambda each: algorithm.act(state, new, each, key, True))(obs)
        return jnp.stack([*kept, jnp.isfinite(actions).all()]).all()

    return of_rows(one, states, before, after, obs, keys, axes=keys.ndim - 2)


def _where(condition: Bool[Array, "*row"], chosen: Any, other: Any) -> Any:
    """Leaves [*row, ...] of one of two trees."""

    def of_leaf(left: Array, right: Array) -> Array:
        shape = condition.shape + (1,) * (left.ndim - condition.ndim)
        return jnp.where(condition.reshape(shape), left, right)

    return jax.tree.map(of_leaf, chosen, other)


def _signature(tree: Any) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
