"""Scales of a dataset: what training, and the wrappers of `omrl.envs.wrappers`, normalise with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omrl.data.dataset import TaskView
from omrl.data.device import mc_return
from omrl.data.mixture import DataView
from omrl.errors import InputError
from omrl.scales import measured_divisors
from omrl.types import Spec

STATISTICS_EPISODES = 200
"""Per task, evenly spaced over its lifetime: what observation and return scales are measured on."""


def measure(view: DataView, tasks: Sequence[int], discount: float) -> Spec:
    """Dimensions of the data, and scales of observations and returns over `tasks`.

    Give the training tasks only: scales of the others would tell of the test tasks.
    `InputError` where there is no task, or no data of one.
    """
    if not tasks:
        raise InputError(f"{view.path}: no task to measure scales on; name at least one")
    parts = [_sample(view.task(index)) for index in tasks]
    obs = np.concatenate([part.obs for part in parts]).astype(np.float64)
    returns = np.concatenate(
        [mc_return(part.reward, part.episode_start, discount) for part in parts]
    )
    spec = view.spec
    return Spec(
        obs_dim=spec.obs_dim,
        act_dim=spec.act_dim,
        num_train_tasks=len(tasks),
        horizon=spec.horizon,
        obs_mean=tuple(obs.mean(0).tolist()),
        obs_std=tuple(measured_divisors(obs.mean(0), obs.std(0)).tolist()),
        return_mean=float(returns.mean()),
        return_std=float(returns.std()),
    )


def _sample(task: TaskView) -> TaskView:
    every = max(1, task.num_episodes // STATISTICS_EPISODES)
    return task.only(np.arange(0, task.num_episodes, every))
