"""Adaptation of every run seed to every task, by rounds on the same context.

A round whose outcome is not finite is not taken: what there was before it is kept, of that seed and
task alone, and how many rounds were taken is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int64, UInt32

from omrl.algorithm import Algorithm
from omrl.compiling import jit_briefly
from omrl.context import seed_task_keys
from omrl.errors import NonFiniteError
from omrl.types import Batch


class Adapted(NamedTuple):
    """Tasks, and how far each was adapted."""

    tasks: Any
    """Leaves [seed, task, shot, ...]."""
    rounds: Int64[np.ndarray, "seed task"]
    """That were taken. Fewer than were asked for where the next one diverged; what there was before
    it then stands for it and for all later ones."""


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

    Raises `NonFiniteError` if none of them has a finite outcome of a round.
    """
    keys = seed_task_keys("adapt", context_seed, seeds, tasks)
    task = _begin(algorithm, states, keys)
    signature = _signature(task)
    kept = [task] if 0 in shots else []
    going_on = np.ones((len(seeds), len(tasks)), bool)
    rounds = np.zeros(going_on.shape, np.int64)
    for number in range(1, shots[-1] + 1):
        assert support is not None
        outcome = _adapt_once(algorithm, states, task, support, keys, number)
        if _signature(outcome) != signature:
            raise TypeError(
                f"{type(algorithm).__name__}.adapt changed the Task: {signature} became "
                f"{_signature(outcome)}"
            )
        going_on &= np.asarray(_stays_finite(task, outcome))
        if not going_on.any():
            raise NonFiniteError(
                f"adaptation round {number} has no finite outcome for any seed and task: it "
                "diverged, or the algorithm is configured for fewer rounds"
            )
        task = outcome if going_on.all() else _where(jnp.asarray(going_on), outcome, task)
        rounds += going_on
        if number in shots:
            kept.append(task)
    return Adapted(jax.tree.map(lambda *leaves: jnp.stack(leaves, 2), *kept), rounds)


@jit_briefly(static_argnames="algorithm")
def _begin(algorithm: Algorithm, states: Any, keys: UInt32[Array, "seed task 2"]) -> Any:
    return jax.vmap(jax.vmap(algorithm.begin, (None, 0)))(states, keys)


@jit_briefly(static_argnames="algorithm")
def _adapt_once(
    algorithm: Algorithm,
    states: Any,
    tasks: Any,
    support: Batch,
    keys: UInt32[Array, "seed task 2"],
    number: int | Int[Array, ""],
) -> Any:
    """One round for every seed and task; `support` leaves are [seed, task, sample, ...]."""

    def one(state: Any, task: Any, batch: Batch, key: Array) -> Any:
        return algorithm.adapt(state, task, batch, jax.random.fold_in(key, number))

    return jax.vmap(jax.vmap(one, (None, 0, 0, 0)))(states, tasks, support, keys)


@jit_briefly()
def _stays_finite(before: Any, after: Any) -> Bool[Array, "seed task"]:
    """Where nothing that was finite has become anything else; leaves are [seed, task, ...]."""

    def of_leaf(old: Array, new: Array) -> Bool[Array, "seed task"]:
        kept = jnp.isfinite(new) | ~jnp.isfinite(old)
        return kept.all(tuple(range(2, kept.ndim)))

    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return jnp.stack([of_leaf(old, new) for old, new in pairs]).all(0)


def _where(condition: Bool[Array, "seed task"], chosen: Any, other: Any) -> Any:
    """Leaves [seed, task, ...] of one of two trees."""

    def of_leaf(left: Array, right: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (left.ndim - 2)), left, right)

    return jax.tree.map(of_leaf, chosen, other)


def _signature(tree: Any) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
