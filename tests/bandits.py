"""Probes with known answers: two one-step tasks that nothing but their data tells apart.

In `opposite` actions are uniform and the reward is the action in one task, minus it in the other.
In `demonstrated` rewards are zero and the actions of the tasks lie around plus and minus 0.6.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from omrl.algorithm import Algorithm
from omrl.types import Batch, Spec
from quick import quick_jit

SPEC = Spec(obs_dim=1, act_dim=1, num_train_tasks=2, horizon=1)
SIGNS = np.array([1, -1])
TEMPERATURE = 0.5
BEST = 0.713
"""Of `opposite`. Rewards are uniform with deviation .577, so weights are exp(k a) with
k = 1 / (.577 * .5): the weighted mean action is coth(k) - 1 / k."""
OBS = jnp.ones(1)


def opposite(key: jax.Array) -> Batch:
    """Leaves [task, sample, ...]."""
    action = jax.random.uniform(key, (2, 32, 1), minval=-1.0)
    return _batch(action, SIGNS[:, None] * action[..., 0])


def demonstrated(key: jax.Array) -> Batch:
    noise = jax.random.uniform(key, (2, 32, 1), minval=-0.3, maxval=0.3)
    return _batch(0.6 * SIGNS[:, None, None] + noise, jnp.zeros((2, 32)))


def _batch(action: jax.Array, reward: jax.Array) -> Batch:
    obs = jnp.ones((2, 32, 1))
    return Batch(
        obs=obs,
        action=action,
        reward=reward,
        next_obs=obs,
        terminated=jnp.ones((2, 32), bool),
        mc_return=reward,
        terminal_obs=obs,
        terminal_discount=jnp.full((2, 32), 0.99),
    )


def solve(
    algorithm: Algorithm, data: Any, *, updates: int = 500
) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """First and last state, the actions before any context, and those after one round of
    adaptation to 20 contexts [context, task]."""
    (stage,) = algorithm.stages()
    tasks = (jnp.arange(2),) if stage.with_tasks else ()

    def step(state: Any, key: jax.Array) -> Any:
        keys = jax.random.split(key, len(stage.batches))
        batches = {spec.name: data(k) for spec, k in zip(stage.batches, keys, strict=True)}
        return stage.update(state, batches, key, *tasks)

    def adapted(state: Any, key: jax.Array) -> jax.Array:
        def act(support: Batch) -> jax.Array:
            task = algorithm.adapt(state, algorithm.begin(state, key), support, key)
            return algorithm.act(state, task, OBS, key, True)[0]

        return jax.vmap(act)(data(key))

    @quick_jit
    def run(key: jax.Array) -> Any:
        first = algorithm.init(key)
        last, _ = jax.lax.scan(step, first, jax.random.split(key, updates))
        before = algorithm.act(last, algorithm.begin(last, key), OBS, key, True)
        contexts = jax.random.split(jax.random.fold_in(key, 1), 20)
        return first, last, before, jax.vmap(partial(adapted, last))(contexts)

    first, last, before, actions = run(jax.random.PRNGKey(0))
    return first, last, np.asarray(before), np.asarray(actions)
