"""What runs on the device: the agents of all tasks, their replay buffers, one program per use.

Everything is written for one task and mapped over tasks. Random numbers are a function of (seed,
task, step), so a task's data do not depend on the tasks beside it. Per step of the environments one
packed array goes to the device and one of actions comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from omrl.data.collect.moments import Moments, add_rows, empty_moments, normalise
from omrl.nets.mlp import Mlp
from omrl.types import Key, Step


@runtime_checkable
class Agent(Protocol):
    """An off-policy learner of one task: static and hashable, all that changes is its state."""

    @property
    def obs_dim(self) -> int: ...

    @property
    def act_dim(self) -> int: ...

    @property
    def config(self) -> Any: ...

    @property
    def batches_per_update(self) -> int: ...

    def init(self, key: Key) -> Any: ...

    def update(self, state: Any, batches: Step, key: Key) -> Any: ...

    def act(
        self, state: Any, obs: Float[Array, " obs"], key: Key, deterministic: bool
    ) -> Float[Array, " act"]: ...

    def actor(self, state: Any) -> Mlp: ...


class Brain(NamedTuple):
    """What one task has learned. Mapped over tasks every leaf has a leading axis, the task."""

    agent: Any
    moments: Moments


class Replay(NamedTuple):
    """All transitions so far, oldest first: obs, action, reward, terminated, next_obs per row."""

    rows: Float[Array, "task capacity width"]
    size: Int[Array, " task"]


class Streams(NamedTuple):
    """Keys of one task (or, with a leading axis, of each)."""

    init: Key
    act: Key
    learn: Key


def task_streams(seed: int, tasks: Int[Array, " task"]) -> Streams:
    """The keys of each task, functions of (seed, task)."""
    keys = jax.vmap(partial(jax.random.fold_in, jax.random.PRNGKey(seed)))(tasks)
    return Streams(*jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0))


def env_keys(key: Key, step: Int[Array, ""], num_envs: int) -> UInt[Array, "env 2"]:
    """Keys of a task's environments at `step` of its lifetime; `key` is `Streams.act`."""
    return jax.random.split(jax.random.fold_in(key, step), num_envs)


def random_action(key: Key, act_dim: int) -> Float[Array, " act"]:
    """Uniform over the box."""
    return jax.random.uniform(key, (act_dim,), minval=-1, maxval=1)


@dataclass(frozen=True)
class Learner:
    """Programs for the agents of all tasks of a group; holds no state."""

    agent: Agent
    updates_per_step: int

    @property
    def row_width(self) -> int:
        return 2 * self.agent.obs_dim + self.agent.act_dim + 2

    @partial(jax.jit, static_argnums=0)
    def init(self, streams: Streams) -> Brain:
        """Fresh agents."""

        def one_task(key: Key) -> Brain:
            return Brain(self.agent.init(key), empty_moments(self.agent.obs_dim))

        return jax.vmap(one_task)(streams.init)

    @partial(jax.jit, static_argnums=(0, 1, 2))
    def empty_replay(self, num_tasks: int, capacity: int) -> Replay:
        rows = jnp.zeros((num_tasks, capacity, self.row_width), jnp.float32)
        return Replay(rows, jnp.zeros(num_tasks, jnp.int32))

    @partial(jax.jit, static_argnums=(0, 5))
    def act(
        self,
        brains: Brain,
        streams: Streams,
        obs: Float[Array, "task env obs"],
        step: Int[Array, ""],
        mode: str,
    ) -> Float[Array, "task env act"]:
        """Actions at `step` of the lifetime; `mode` is random, explore or best."""

        def one_env(brain: Brain, obs: Float[Array, " obs"], key: Key) -> Float[Array, " act"]:
            if mode == "random":
                return random_action(key, self.agent.act_dim)
            return self.agent.act(brain.agent, normalise(brain.moments, obs), key, mode == "best")

        def one_task(
            brain: Brain, key: Key, obs: Float[Array, "env obs"]
        ) -> Float[Array, "env act"]:
            keys = env_keys(key, step, obs.shape[0])
            return jax.vmap(one_env, (None, 0, 0))(brain, obs, keys)

        return jax.vmap(one_task)(brains, streams.act, obs)

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def insert(
        self,
        replay: Replay,
        obs: Float[Array, "task env obs"],
        action: Float[Array, "task env act"],
        packed: Float[Array, "task env packed"],
    ) -> tuple[Replay, Float[Array, "task env obs"]]:
        """Add one transition per living environment; also returns the observations after it.

        `packed` is next_obs, reward, terminated and whether the environment was alive before.
        """

        def one_task(
            rows: Float[Array, "capacity width"],
            size: Int[Array, ""],
            new: Float[Array, "env width"],
            alive: Bool[Array, " env"],
        ) -> tuple[Float[Array, "capacity width"], Int[Array, ""]]:
            count = jnp.cumsum(alive, dtype=jnp.int32)
            # Rows of dead environments go past the end, each to its own place: dropped.
            outside = rows.shape[0] + jnp.arange(alive.shape[0], dtype=jnp.int32)
            target = jnp.where(alive, size + count - 1, outside)
            rows = rows.at[target].set(new, mode="drop", unique_indices=True)
            return rows, size + count[-1]

        next_obs, outcome, alive = jnp.split(packed, (obs.shape[-1], obs.shape[-1] + 2), axis=-1)
        new = jnp.concatenate([obs, action, outcome, next_obs], axis=-1)
        rows, size = jax.vmap(one_task)(*replay, new, alive[..., 0] > 0)
        return Replay(rows, size), next_obs

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def learn(self, brains: Brain, streams: Streams, replay: Replay, step: Int[Array, ""]) -> Brain:
        """`updates_per_step` batches for every agent, uniform over its transitions so far."""
        per_update = self.agent.batches_per_update
        shape = (self.updates_per_step // per_update, per_update, self.agent.config.batch_size)

        def one_task(
            brain: Brain, key: Key, rows: Float[Array, "capacity width"], size: Int[Array, ""]
        ) -> Brain:
            row_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            drawn = rows[jax.random.randint(row_key, shape, 0, size)]
            batches = self._unpack(brain.moments, drawn)
            agent, _ = jax.lax.scan(
                lambda agent, x: (self.agent.update(agent, *x), None),
                brain.agent,
                (batches, jax.random.split(update_key, shape[0])),
            )
            return brain._replace(agent=agent)

        return jax.vmap(one_task)(brains, streams.learn, *replay)

    @partial(jax.jit, static_argnums=(0, 4), donate_argnums=1)
    def end_round(
        self, brains: Brain, replay: Replay, first: Int[Array, " task"], longest: int
    ) -> Brain:
        """Take the round's observations into the statistics.

        Args:
            first: rows there were before the round, of which the round added at most `longest`.
        """

        def one_task(
            brain: Brain,
            rows: Float[Array, "capacity width"],
            size: Int[Array, ""],
            first: Int[Array, ""],
        ) -> Brain:
            obs = jax.lax.dynamic_slice(rows, (first, 0), (longest, self.agent.obs_dim))
            valid = jnp.arange(longest) < size - first
            return brain._replace(moments=add_rows(brain.moments, obs, valid))

        return jax.vmap(one_task)(brains, *replay, first)

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def refill(
        self,
        replay: Replay,
        task: Int[Array, ""],
        rows: Float[Array, "capacity width"],
        size: Int[Array, ""],
    ) -> Replay:
        """Replace the transitions of one task."""
        return Replay(replay.rows.at[task].set(rows), replay.size.at[task].set(size))

    def _unpack(self, moments: Moments, rows: Float[Array, "*n width"]) -> Step:
        """Batches of normalised transitions."""
        obs_dim, act_dim = self.agent.obs_dim, self.agent.act_dim
        edges = (obs_dim, obs_dim + act_dim, obs_dim + act_dim + 1, obs_dim + act_dim + 2)
        obs, action, reward, terminated, next_obs = jnp.split(rows, edges, axis=-1)
        normal = jnp.vectorize(partial(normalise, moments), signature="(n)->(n)")
        return Step(normal(obs), action, reward[..., 0], normal(next_obs), terminated[..., 0] > 0)


@jax.jit
def where_task(keep: Bool[Array, " task"], kept: Brain, other: Brain) -> Brain:
    """`kept` for the tasks of `keep`, `other` for the rest."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(keep.reshape(keep.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, kept, other)
