"""An evaluation result with chosen numbers, for tests of what reads results."""

from __future__ import annotations

from typing import Any

import numpy as np

from omrl.evaluate import EvalConfig, EvalResult
from omrl.result_files import Provenance

TASKS = (7, 2, 15)
TARGETS = np.array([[0.6], [0.225], [1.2]])
HORIZON = 5


def make_result(
    *, step: int = 1000, seeds: int = 2, succeeds: bool = False, **config: Any
) -> EvalResult:
    """Returns -100 - task before, -10 - task position after; seeds and episodes differ by 1. Of
    `finetune` a trajectory has 200 steps. If it `succeeds`, then in the last episode of each."""
    settings = {"tasks": TASKS, "episodes": 2, "traces": ("x_velocity",)} | config
    config_ = EvalConfig(**settings)
    shape = (seeds, 3, len(config_.points), config_.episodes)
    seed, task, shot, episode = np.indices(shape)
    rounds = np.array(config_.points)[shot]
    env_steps = 200 * rounds[..., 0] if config_.protocol == "finetune" else None
    returns = np.where(rounds == 0, -100.0 - task, -10.0 - task / np.maximum(rounds, 1))
    speed = np.broadcast_to(TARGETS[None, :, None] * 0.9, (*shape[:3], HORIZON))
    return EvalResult(
        config=config_,
        provenance=Provenance(
            env_id="cheetah-vel/macaw-v1",
            spec_hash="ab" * 32,
            task_names=("target_velocity",),
            dt=0.05,
            algorithm="Macaw",
            step=step,
            seeds=tuple(range(seeds)),
            dataset="data/cheetah-vel",
            dataset_hash="cd" * 32,
            run_hash="ef" * 32,
        ),
        task_indices=np.array(TASKS),
        task_parameters=TARGETS,
        returns=returns + seed + episode,
        random=np.full((3, config_.episodes), -300.0),
        zero=np.full((3, config_.episodes), -200.0),
        behaviour=np.array([-60.0, -50.0, -70.0]),
        oracle=np.array([-20.0, np.nan, -30.0]),
        traces={name: speed.copy() for name in config_.traces},
        env_steps=env_steps,
        success=1.0 * (episode == config_.episodes - 1) if succeeds else None,
        behaviour_success=np.array([0.5, 0.25, 0.15]) if succeeds else None,
    )
