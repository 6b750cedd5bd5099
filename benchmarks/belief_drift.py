"""Whether what a run of BOReL believes still tells a task's rewards late in a trajectory.

python benchmarks/belief_drift.py runs/borel > drift.json

Over three episodes of every test task, in blocks of steps: the mean reward, and the root mean
square error of the reward decoded from the belief's mean. Then the same with a belief that takes in
the first N transitions of a trajectory and stays, which shows what later ones do to it.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from omrl.envs.engine import VectorEnv
from omrl.metatrain import Trained, load_trained
from omrl.types import Step

EPISODES = 3
BLOCK = 50
"""Steps."""
UNTIL = (None, 200, 50, 20)
"""Transitions that the belief takes in; None: all."""


class Walk(NamedTuple):
    """Of every task and step of a trajectory."""

    reward: Float[np.ndarray, "task step"]
    decoded: Float[np.ndarray, "task step"]
    """What the belief before the step said of its reward."""


def walk(trained: Trained, seed: int, tasks: Float[np.ndarray, "task p"], until: int) -> Walk:
    """Deterministic actions of one run seed."""
    algorithm, key = trained.algorithm, jax.random.PRNGKey(0)
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), trained.states)
    horizon = trained.env.spec.horizon
    known: Any = jax.vmap(lambda _: algorithm.begin(state, key))(jnp.arange(len(tasks)))
    act = jax.jit(jax.vmap(partial(algorithm.act, state, key=key, deterministic=True)))
    observe = jax.jit(jax.vmap(partial(algorithm.observe, state, key=key)))
    decode = jax.jit(jax.vmap(partial(algorithm.predict_reward, state)))
    rewards, decoded = [], []
    with closing(VectorEnv(trained.env, tasks, seed=0)) as env:
        obs = env.reset()
        for number in range(EPISODES * horizon):
            if number and number % horizon == 0:
                obs = env.reset(number // horizon)
            action = np.asarray(act(known, obs=obs))
            after = env.step(action)
            rewards.append(after.reward)
            decoded.append(np.asarray(decode(known, obs, action, after.obs)))
            seen = Step(*map(jnp.asarray, (obs, action, after.reward, after.obs, after.terminated)))
            known = observe(known, step=seen) if number < until else known
            obs = after.obs
    return Walk(np.stack(rewards, 1), np.stack(decoded, 1))


def blocks(walks: list[Walk]) -> dict[str, Any]:
    """Means over seeds and tasks, by block of steps, and returns per episode."""
    reward = np.stack([each.reward for each in walks])
    error = np.stack([each.decoded for each in walks]) - reward
    steps = (*reward.shape[:2], -1, BLOCK)
    return {
        "returns": reward.reshape(*reward.shape[:2], EPISODES, -1).sum(-1).mean((0, 1)).tolist(),
        "reward": reward.reshape(steps).mean((0, 1, 3)).tolist(),
        "decoded_rms": np.sqrt((error**2).reshape(steps).mean((0, 1, 3))).tolist(),
    }


def main(run: str) -> None:
    trained = load_trained(run)
    tasks = trained.env.tasks[list(trained.env.splits["test"])]
    for until in UNTIL:
        taken = EPISODES * trained.env.spec.horizon if until is None else until
        walks = [walk(trained, seed, tasks, taken) for seed in range(len(trained.seeds))]
        print(json.dumps({"until": until, **blocks(walks)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
