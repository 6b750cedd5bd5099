"""Policies that explore, on the device: what a trajectory acts with, its actions, its labels.

Axes are [seed, slot, trajectory]: a slot is a task that a seed explores, and its trajectories are
played side by side. What a policy does depends neither on the other seeds nor on which of the other
trajectories are really played.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int32, UInt32

from omrl.algorithm import Algorithm
from omrl.compiling import jit_briefly
from omrl.data.buffers import Buffers, TrainingData, gather_rows, joined
from omrl.data.sample import BatchSpec, sample_rows
from omrl.exploration import Exploration
from omrl.layout import Layout, each_seed
from omrl.types import Batch, Key, Spec

_EXPLORE = 2**32 - 2
"""Folded into a seed's key for all that explores: never an update number, which is an int32."""


class Wave(NamedTuple):
    """Trajectories that are played together."""

    task: Int[np.ndarray, "seed slot"]
    """Positions among the training tasks."""
    number: Int[np.ndarray, "seed slot trajectory"]
    """Of the trajectory among those of its task in this exploration."""
    posterior: Bool[np.ndarray, "seed slot trajectory"]
    """It acts on the posterior of a context."""


class Acting(NamedTuple):
    """What every trajectory acts with, leaves [seed, slot, trajectory, ...]."""

    own: tuple[Array, ...]
    """The leaves of its task that are not leaves of the state."""
    act_key: UInt32[Array, "*lead 2"]
    label_key: UInt32[Array, "*lead 2"]


class Given(NamedTuple):
    """What a policy may know. Leaves of the first two are [seed, ...]."""

    states: Any
    collected: Buffers
    data: TrainingData | None
    """Logged."""


def guessed(algorithm: Algorithm, state: Any, context: Batch | None, key: Key) -> Any:
    """The task that one trajectory acts with: of the prior, or after adapting to a `context` of
    transitions, leaves [sample, ...]; its guess drawn."""
    begin_key, adapt_key, guess_key = jax.random.split(key, 3)
    task = algorithm.begin(state, begin_key)
    if context is not None:
        task = algorithm.adapt(state, task, context, adapt_key)
    return algorithm.resample(state, task, guess_key)


def trajectory_key(
    seed: Int32[Array, ""], step: Int[Array, ""], task_id: Int[Array, ""], number: Int[Array, ""]
) -> Key:
    """Of all that is random on the device in one trajectory."""
    key = jax.random.fold_in(jax.random.PRNGKey(seed), _EXPLORE)
    for part in (step, task_id, number):
        key = jax.random.fold_in(key, part)
    return key


@jit_briefly(static_argnums=(0, 1, 2, 3))
def begin(
    algorithm: Algorithm,
    exploration: Exploration,
    layout: Layout,
    adapting: bool,
    given: Given,
    seeds: Int32[Array, " seed"],
    wave: Wave,
    task_ids: Int32[Array, " task"],
    step: Int32[Array, ""],
) -> Acting:
    """What the trajectories of `wave` act with; none of them adapts unless `adapting`."""

    def one_seed(state, collected, seed, wave, data, task_ids, step):
        available = joined(data, collected, exploration)

        def one(task, number, posterior):
            key = trajectory_key(seed, step, task_ids[task], number)
            explore_key, context_key, act_key, label_key = jax.random.split(key, 4)
            acting = guessed(algorithm, state, None, explore_key)
            if adapting:
                context = _context(available, exploration.context_size, task, context_key)
                adapted = guessed(algorithm, state, context, explore_key)
                acting = jax.tree.map(partial(jnp.where, posterior), adapted, acting)
            own = zip(_own(algorithm), jax.tree.leaves(acting), strict=True)
            return Acting(tuple(leaf for is_own, leaf in own if is_own), act_key, label_key)

        return jax.vmap(jax.vmap(one, (None, 0, 0)))(*wave)

    by_seed = (given.states, given.collected, seeds, wave)
    return each_seed(one_seed, layout, by_seed, (given.data, task_ids, step))


@partial(jax.jit, static_argnums=(0, 1, 2))
def act(
    algorithm: Algorithm,
    exploration: Exploration,
    layout: Layout,
    states: Any,
    acting: Acting,
    obs: Float32[Array, "seed slot trajectory obs"],
    time: Int32[Array, ""],
) -> Float32[Array, "seed slot trajectory act"]:
    """An action of each."""

    def one_seed(state, acting, obs, time):
        # Of its leaves stay those that all tasks share: no trajectory needs its own copy of them.
        common = guessed(algorithm, state, None, jax.random.PRNGKey(0))

        def one(own, key, obs):
            task = _with_own(algorithm, common, own)
            key = jax.random.fold_in(key, time)
            if exploration.resample_every == "step":
                guess_key, key = jax.random.split(key)
                task = algorithm.resample(state, task, guess_key)
            return algorithm.act(state, task, obs, key, False)

        return jax.vmap(jax.vmap(one))(acting.own, acting.act_key, obs)

    return each_seed(one_seed, layout, (states, acting, obs), (time,))


@jit_briefly(static_argnums=(0, 1, 2))
def label(
    algorithm: Algorithm,
    exploration: Exploration,
    layout: Layout,
    given: Given,
    task: Int32[Array, "seed slot"],
    acting: Acting,
    obs: Float32[Array, "seed slot trajectory time_and_one obs"],
    action: Float32[Array, "seed slot trajectory time act"],
) -> Float32[Array, "seed slot trajectory time"]:
    """Rewards that the algorithm predicts in place of the environment's, which it is not shown: for
    each trajectory by one guess from a logged context of its own."""

    def one_seed(state, task, label_key, obs, action, data):
        def one(task, key, obs, action):
            context_key, guess_key = jax.random.split(key)
            context = _context(data, exploration.label_context, task, context_key)
            known = guessed(algorithm, state, context, guess_key)
            predict = partial(algorithm.predict_reward, state, known)
            return jax.vmap(predict)(obs[:-1], action, obs[1:])

        return jax.vmap(jax.vmap(one, (None, 0, 0, 0)))(task, label_key, obs, action)

    by_seed = (given.states, task, acting.label_key, obs, action)
    return each_seed(one_seed, layout, by_seed, (given.data,))


def _context(data: TrainingData | None, size: int, task: Int32[Array, ""], key: Key) -> Batch:
    """Transitions of the encoder buffer of one task, drawn with replacement."""
    buffer: Any = data.encoder if isinstance(data, Buffers) else data
    return gather_rows(
        buffer, task, sample_rows(BatchSpec("context", size), buffer.num_rows[task], key)
    )


# --- Leaves that all tasks share ---


@cache
def _own(algorithm: Algorithm) -> tuple[bool, ...]:
    """Of each leaf of a task that explores: whether it is its own. Others are leaves of the state
    as they are, such as the policy that is told z."""
    key = jax.random.PRNGKey(0)
    state = jax.eval_shape(algorithm.init, key)
    task = jax.eval_shape(algorithm.begin, state, key)
    context = abstract_batch(algorithm.spec, 2)
    prior = _passed_on(lambda state, key: guessed(algorithm, state, None, key), state, key)
    adapted = _passed_on(partial(guessed, algorithm), state, context, key)
    resampled = _passed_on(algorithm.resample, state, task, key)
    first = len(jax.tree.leaves(state))
    return tuple(
        one is None or one >= first or other != one or kept != first + number
        for number, (one, other, kept) in enumerate(zip(prior, adapted, resampled, strict=True))
    )


def _passed_on(function: Callable[..., Any], *arguments: Any) -> list[int | None]:
    """Of each leaf of the result: which leaf of the arguments it is, if it is one."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    number = {id(variable): n for n, variable in enumerate(jaxpr.invars)}
    return [number.get(id(variable)) for variable in jaxpr.outvars]


def _with_own(algorithm: Algorithm, common: Any, own: tuple[Array, ...]) -> Any:
    leaves, structure = jax.tree.flatten(common)
    own_leaves = iter(own)
    flags = zip(_own(algorithm), leaves, strict=True)
    return jax.tree.unflatten(structure, [next(own_leaves) if is_own else x for is_own, x in flags])


def abstract_batch(spec: Spec, *lead: int) -> Batch:
    """Shapes of a batch, as `jax.ShapeDtypeStruct`."""

    def floats(*feature: int) -> Any:
        return jax.ShapeDtypeStruct((*lead, *feature), jnp.float32)

    terminated: Any = jax.ShapeDtypeStruct(lead, bool)
    return Batch(
        obs=floats(spec.obs_dim),
        action=floats(spec.act_dim),
        reward=floats(),
        next_obs=floats(spec.obs_dim),
        terminated=terminated,
        mc_return=floats(),
        terminal_obs=floats(spec.obs_dim),
        terminal_discount=floats(),
    )
