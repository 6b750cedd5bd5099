"""SMAC's offline phase on whole lifetimes, for the MDPs of later papers' tables.

Those MDPs come with logs of a task's own, so that nothing is explored and nobody goes online.
docs/results.md, "MDPs of later papers", has all that was tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omrl.data.sample import BatchSpec
from omrl.preset_smac import OURS
from omrl.protocol import EvalConfig
from omrl.train import TrainConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

OFFLINE = replace(
    OURS,
    normalize_obs=True,
    adapted_z="mean",
    weights="whitened",
    temperature=1.0,
    largest_score=3.0,
    context=BatchSpec("context", 256, buffer="encoder"),
    batch=BatchSpec("batch", 256, start=0.8),
    online_steps=0,
)
"""Contexts are of a whole lifetime, as in evaluation; actions of its last fifth, as MACAW's."""


def presets(base: Preset) -> dict[str, Preset]:
    """All of them, made of `base`."""
    config = replace(
        base.config,
        env="hopper-params/corro-v1",
        algo=OFFLINE,
        train=TrainConfig(log_every=1000, eval_every=10_000, checkpoint_every=10_000),
        eval=EvalConfig(),
    )
    source = (
        "ours; the best of five settings on the validation tasks 32 to 39, by the mean return "
        "after adaptation"
    )
    return {"smac-offline-hopper-params": replace(base, config=config, source=source)}
