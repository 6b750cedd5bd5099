"""How often the logged episodes of a task succeeded, recomputed from the recorded terms."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from omrl.data.dataset import TaskData
from omrl.data.validate import episode_blocks
from omrl.envs.base import TaskEnv

_BLOCK_ENTRIES = 2**22


def success_rate(task: TaskData, env: TaskEnv) -> float | None:
    """Share of the episodes that `succeeded`; None where that cannot be told."""
    found = succeeded(task, env)
    return None if found is None else int(found.sum()) / task.num_episodes


def succeeded(task: TaskData, env: TaskEnv) -> Bool[np.ndarray, " episodes"] | None:
    """Of every episode whether it did at some step what the task asks for, by `TaskEnv.achieved`.

    None where that cannot be told: tasks of `env` are not done or left undone, or the terms of
    rewards were not recorded.
    """
    if "terms" not in task.names or not env.succeeds:
        return None
    starts, terms = task.episode_start, task.terms
    found = []
    for first, stop in episode_blocks(starts, _BLOCK_ENTRIES // max(1, terms.shape[1])):
        bounds = starts[first : stop + 1]
        block = np.asarray(terms[bounds[0] : bounds[-1]], np.float64)
        achieved = env.achieved(block, task.parameters)
        assert achieved is not None
        found.append(np.logical_or.reduceat(achieved, bounds[:-1] - bounds[0]))
    return np.concatenate(found)
