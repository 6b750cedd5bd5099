"""A diagnosis with chosen numbers, for tests of what reads diagnoses."""

from __future__ import annotations

from typing import Any

import numpy as np

from fake_results import TARGETS, TASKS, make_result
from omrl.diagnostics.base import SETS
from omrl.diagnostics.results import ShiftResult
from omrl.diagnostics.rewards_results import TRANSITIONS, RewardsResult
from omrl.diagnostics.traces_results import TracesResult
from omrl.protocol import EvalConfig, exploring

HORIZON = 5


def make_shift(*, step: int = 1000, seeds: int = 2, full: bool = True) -> ShiftResult:
    """Online contexts have twice the KL of offline ones and a return that is 10 less; `full`: with
    decoder and positions. The last task was trained on."""
    config = exploring("explore-paper", EvalConfig(tasks=TASKS))
    seed, task, repetition = np.indices((seeds, len(TASKS), config.episodes))
    kl = 1.0 + seed + task + repetition
    returns = -50.0 - seed - task + step / 1000
    turn = np.linspace(0, 1, HORIZON)[:, None] * np.array([1.0, 0.5])
    xy = np.broadcast_to(turn, (len(SETS), len(TASKS), config.episodes, HORIZON, 2)).copy()
    xy[..., -1, :] = np.nan
    return ShiftResult(
        **_head(step, seeds),
        kl=np.stack([kl, 2 * kl]),
        returns=np.stack([returns, returns - 10]),
        exploration=np.stack([returns, returns], 2) - 40,
        decoder_error=np.full((2, seeds, len(TASKS)), 0.25) if full else None,
        xy=xy if full else None,
    )


def make_traces(*, step: int = 1000, seeds: int = 2) -> TracesResult:
    """All go the same way, and stop before the last step."""
    head = _head(step, seeds)
    states = np.ones((len(SETS), *head["used"].shape, HORIZON, 2))
    states[..., -1, :] = np.nan
    return TracesResult(**head, quantities=np.array(["x", "y"]), states=states)


def make_rewards(*, step: int = 1000, seeds: int = 2) -> RewardsResult:
    """Nothing was held out."""
    head = _head(step, seeds)
    rows = (len(TRANSITIONS), *head["used"].shape)
    error = np.full((2, *rows), 0.25)
    error[:, 1] = np.nan
    tried = np.full(rows, 256)
    tried[1] = 0
    return RewardsResult(**head, error=error, constant=error[0], tried=tried)


def _head(step: int, seeds: int) -> dict[str, Any]:
    config = exploring("explore-paper", EvalConfig(tasks=TASKS))
    return {
        "config": config,
        "provenance": make_result(step=step, seeds=seeds).provenance,
        "task_indices": np.array(TASKS),
        "task_parameters": TARGETS,
        "trained_on": np.array([False, False, True]),
        "context_size": np.int64(256),
        "used": np.full((seeds, len(TASKS), config.episodes), 256),
    }
