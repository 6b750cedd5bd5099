"""A made-up dataset of Cheetah-Velocity and the smallest run on it, for tests of whole commands.

Observations are noise, rewards those of the environment: everything is valid and nothing is slow.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np

from omrl.data import store
from omrl.data.sample import BatchSpec
from omrl.data.store import Dataset
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.presets import PRESETS, RunConfig

ENV = registry.make("cheetah-vel/macaw-v1")
EPISODES, LENGTH = 14, 20
"""Of each task; episodes may be cut off before the horizon."""

OPTIONS = shlex.split(
    "--algo.steps 3 --algo.hidden 8 --algo.latent 4 --algo.head-hidden 4 "
    "--algo.inner-batch.size 16 --algo.outer-batch.size 16 --eval.context-size 16 "
    "--eval.episodes 1"
)
"""Of `omrl train macaw-cheetah-vel`, for the run of `config`."""


def config(steps: int = 3) -> RunConfig:
    """The preset at the smallest sizes."""
    preset = PRESETS["macaw-cheetah-vel"].config
    return replace(
        preset,
        algo=replace(
            preset.algo,
            steps=steps,
            hidden=(8,),
            latent=4,
            head_hidden=(4,),
            inner_batch=BatchSpec("inner", 16, "without_replacement"),
            outer_batch=BatchSpec("outer", 16, start=0.8),
        ),
        train=replace(preset.train, seeds=2),
        eval=replace(preset.eval, episodes=1, context_size=16),
    )


def write_data(path: Path, env: TaskEnv = ENV) -> Dataset:
    """A dataset of all tasks of `env`."""
    writer = store.create(path, env, command="tests")
    rows = EPISODES * LENGTH
    start = np.arange(0, rows + 1, LENGTH)
    for task, parameters in enumerate(env.tasks):
        rng = np.random.Generator(np.random.Philox(key=[0, task]))
        action = rng.uniform(-1, 1, (rows, 6)).astype(np.float32)
        terms = np.stack([rng.uniform(0, 3, rows), 0.05 * np.square(action).sum(1)], axis=1)
        terms = terms.astype(np.float32)
        writer.write_task(
            task,
            obs=rng.normal(size=(rows + EPISODES, 20)),
            action=action,
            reward=env.reward(terms.astype(np.float64), action, parameters),
            terms=terms,
            terminated=np.zeros(rows, bool),
            truncated=np.isin(np.arange(rows), start[1:] - 1),
            episode_start=start,
            behaviour={"final_return": -25.0},
        )
    return writer.finish()
