"""A diagnosis with chosen numbers, for tests of what reads diagnoses."""

from __future__ import annotations

import numpy as np

from fake_results import TARGETS, TASKS, make_result
from omrl.diagnostics.results import SETS, ShiftResult
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
        config=config,
        provenance=make_result(step=step, seeds=seeds).provenance,
        task_indices=np.array(TASKS),
        task_parameters=TARGETS,
        trained_on=np.array([False, False, True]),
        context_size=np.int64(256),
        used=np.full(kl.shape, 256),
        kl=np.stack([kl, 2 * kl]),
        returns=np.stack([returns, returns - 10]),
        exploration=np.stack([returns, returns], 2) - 40,
        decoder_error=np.full((2, seeds, len(TASKS)), 0.25) if full else None,
        xy=xy if full else None,
    )
