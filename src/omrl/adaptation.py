"""Adaptation of every run seed to every task, by rounds on the same context.

Where a round diverges, so that its outcome is not finite or gives no finite action in a state of
the context, it is not taken: the outcome of the round before stands for it and for those after it,
of that seed and task alone, and how many rounds were taken is told.
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
from omrl.types import Batch


class Adapted(NamedTuple):
    """Tasks, and how far each was adapted."""

    tasks: Any
    """Leaves [seed, task, shot, ...]."""
    rounds: Int64[np.ndarray, "seed task"]
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
    task = _begin(algorithm, states, keys)
    kept = [task] if 0 in shots else []
    going_on = np.ones((len(seeds), len(tasks)), bool)
    rounds = np.zeros(going_on.shape, np.int64)
    for number in range(1, shots[-1] + 1):
        assert support is not None
        outcome = _adapt_once(algorithm, states, task, support, keys, number)
        going_on &= np.asarray(_is_usable(algorithm, states, task, outcome, support.obs, keys))
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
        outcome = algorithm.adapt(state, task, batch, jax.random.fold_in(key, number))
        if (given := _signature(task)) != (made := _signature(outcome)):
            name = type(algorithm).__name__
            raise TypeError(f"{name}.adapt changed the Task: {given} became {made}")
        return outcome

    return jax.vmap(jax.vmap(one, (None, 0, 0, 0)))(states, tasks, support, keys)


# A program of its own, so that to be tried changes no bit of what was adapted.
@jit_briefly(static_argnames="algorithm")
def _is_usable(
    algorithm: Algorithm,
    states: Any,
    before: Any,
    after: Any,
    obs: Any,
    keys: UInt32[Array, "seed task 2"],
) -> Bool[Array, "seed task"]:
    """Where nothing that was finite has become anything else, and actions in states `obs` [seed,
    task, sample, obs] are finite: finite parameters can be too large to act on."""

    def one(state: Any, old: Any, new: Any, obs: Array, key: Array) -> Bool[Array, ""]:
        pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        kept = [(jnp.isfinite(b) | ~jnp.isfinite(a)).all() for a, b in pairs]
        actions = jax.vmap(lambda each: algorithm.act(state, new, each, key, True))(obs)
        return jnp.stack([*kept, jnp.isfinite(actions).all()]).all()

    return jax.vmap(jax.vmap(one, (None, 0, 0, 0, 0)))(states, before, after, obs, keys)


def _where(condition: Bool[Array, "seed task"], chosen: Any, other: Any) -> Any:
    """Leaves [seed, task, ...] of one of two trees."""

    def of_leaf(left: Array, right: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (left.ndim - 2)), left, right)

    return jax.tree.map(of_leaf, chosen, other)


def _signature(tree: Any) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
