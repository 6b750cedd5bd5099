"""How often the logged episodes of a task succeeded, recomputed from the recorded terms."""

from __future__ import annotations

import numpy as np

from omrl.data.dataset import TaskData
from omrl.data.validate import episode_blocks
from omrl.envs.base import TaskEnv

_BLOCK_ENTRIES = 2**22


def success_rate(task: TaskData, env: TaskEnv) -> float | None:
    """Share of the episodes that did at some step what their task asks for, by
    `TaskEnv.achieved`.

    None where that cannot be told: tasks of `env` are not done or left undone, or the terms of
    rewards were not recorded.
    """
    if "terms" not in task.names or not env.succeeds:
        return None
    starts, terms = task.episode_start, task.terms
    succeeded = 0
    for first, stop in episode_blocks(starts, _BLOCK_ENTRIES // max(1, terms.shape[1])):
        bounds = starts[first : stop + 1]
        block = np.asarray(terms[bounds[0] : bounds[-1]], np.float64)
        achieved = env.achieved(block, task.parameters)
        assert achieved is not None
        succeeded += int(np.logical_or.reduceat(achieved, bounds[:-1] - bounds[0]).sum())
    return succeeded / task.num_episodes
