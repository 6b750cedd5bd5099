"""A tiny algorithm and data for tests of the trainer: second-order MAML on a linear policy.

Two stages, behaviour cloning of all tasks and then meta-learning, so that the passage from one to
the next is tested too. One update takes microseconds and compiles in about a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from omrl.algorithm import Algorithm, Stage
from omrl.data.device import DeviceData
from omrl.data.sample import BatchSpec
from omrl.nets.mlp import Dense
from omrl.types import Batch, Spec

SPEC = Spec(obs_dim=3, act_dim=2, num_train_tasks=6, horizon=10)


class Linear(NamedTuple):
    kernel: jax.Array
    bias: jax.Array


class ToyState(NamedTuple):
    policy: Linear
    optimiser: Any
    step: jax.Array


@dataclass(frozen=True)
class ToyConfig:
    normalize_obs: bool = False
    lr: float = 0.01
    inner_lr: float = 0.1
    warmup: int = 7
    """Updates of the first stage."""
    steps: int = 33
    """Updates of the second stage."""


def loss(policy: Linear, batch: Batch) -> jax.Array:
    """Mean squared distance of the policy's to the recorded actions of one task."""
    action = jax.vmap(partial(mean_action, policy))(batch.obs)
    return jnp.mean(jnp.sum(jnp.square(action - batch.action), axis=-1))


def mean_action(policy: Linear, obs: jax.Array) -> jax.Array:
    return jnp.tanh(policy.kernel @ obs + policy.bias)


@dataclass(frozen=True)
class Toy(Algorithm[ToyState, Linear]):
    config: ToyConfig
    spec: Spec = SPEC

    def init(self, key):
        kernel = 0.1 * jax.random.normal(key, (self.spec.act_dim, self.spec.obs_dim))
        policy = Linear(kernel, jnp.zeros(self.spec.act_dim))
        return ToyState(policy, self._optimiser().init(policy), jnp.zeros((), jnp.int32))

    def stages(self):
        outer = BatchSpec("outer", 8)
        return (
            Stage("warmup", self.config.warmup, 4, (outer,), self._warmup),
            Stage("meta", self.config.steps, 3, (BatchSpec("inner", 8), outer), self._meta),
        )

    def begin(self, state, key):
        return state.policy

    def adapt(self, state, task, support, key):
        gradient = jax.grad(loss)(task, support)
        return jax.tree.map(lambda p, g: p - self.config.inner_lr * g, task, gradient)

    def observe(self, state, task, step, key):
        return task

    def act(self, state, task, obs, key, deterministic):
        action = mean_action(task, obs)
        if deterministic:
            return action
        return jnp.clip(action + 0.1 * jax.random.normal(key, action.shape), -1.0, 1.0)

    def policy_layers(self, state, task):
        return (Dense.of(task.kernel.T, task.bias),)

    def _optimiser(self):
        return optax.adam(self.config.lr)

    def _warmup(self, state, batches, key):
        def task_losses(policy):
            return jax.vmap(partial(loss, policy))(batches["outer"])

        return self._step(state, task_losses)

    def _meta(self, state, batches, key):
        def task_losses(policy):
            adapt = partial(self.adapt, state, policy, key=key)
            adapted = jax.vmap(lambda inner: adapt(support=inner))(batches["inner"])
            return jax.vmap(loss)(adapted, batches["outer"])

        return self._step(state, task_losses)

    def _step(self, state, task_losses):
        def total(policy):
            losses = task_losses(policy)
            return jnp.mean(losses), losses

        gradient, losses = jax.grad(total, has_aux=True)(state.policy)
        updates, optimiser = self._optimiser().update(gradient, state.optimiser, state.policy)
        policy = optax.apply_updates(state.policy, updates)
        metrics = {"outer_loss": losses, "gradient_norm": optax.tree.norm(gradient)}
        return ToyState(policy, optimiser, state.step + 1), metrics


def make_data(spec: Spec = SPEC, *, num_tasks: int = 6, num_rows: int = 40) -> DeviceData:
    """Random episodes of which task number t recorded the actions of its own linear policy."""
    random = np.random.Generator(np.random.Philox(key=[0, num_tasks]))
    episodes = num_rows // spec.horizon
    obs = random.normal(size=(num_tasks, num_rows + episodes, spec.obs_dim))
    kernel = random.normal(size=(num_tasks, spec.obs_dim, spec.act_dim))
    row = np.arange(num_rows)
    obs_index = row + row // spec.horizon
    terminal_index = (row // spec.horizon + 1) * (spec.horizon + 1) - 1
    steps_left = spec.horizon - row % spec.horizon

    def by_task(values, dtype):
        return jnp.asarray(np.broadcast_to(values, (num_tasks, num_rows)), dtype)

    return DeviceData(
        obs=jnp.asarray(obs, jnp.float32),
        action=jnp.asarray(np.tanh(obs[:, obs_index] @ kernel), jnp.float32),
        reward=jnp.asarray(random.normal(size=(num_tasks, num_rows)), jnp.float32),
        terminated=jnp.zeros((num_tasks, num_rows), bool),
        mc_return=by_task(np.zeros(num_rows), jnp.float32),
        terminal_discount=by_task(0.99**steps_left, jnp.float32),
        obs_index=by_task(obs_index, jnp.int32),
        terminal_index=by_task(terminal_index, jnp.int32),
        num_rows=jnp.full(num_tasks, num_rows, jnp.int32),
    )
