"""SMAC's offline phase on whole lifetimes, for the MDPs of later papers' tables.

Those MDPs come with logs of a task's own, so that nothing is explored and nobody goes online.
docs/results.md, "MDPs of later papers", has all that was tried.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from omrl.algos.smac_config import SmacConfig
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


INFORMED = replace(OFFLINE, decoder_batch="context", kl_weight=0.001)
"""Where rewards alone tell tasks apart: the decoder is trained on whole lifetimes, too. In the last
fifth a velocity tells its own reward, whichever was asked for, and posteriors become the prior."""


def presets(base: Preset) -> dict[str, Preset]:
    """All of them, made of `base`."""
    make = partial(_preset, base)
    return {
        "smac-offline-hopper-params": make(
            "hopper-params/corro-v1", OFFLINE, "five settings on the validation tasks 32 to 39"
        ),
        "smac-offline-cheetah-vel": make(
            "cheetah-vel/oyster-v1",
            INFORMED,
            "eight settings on the validation tasks of the bundled lifetimes of "
            "cheetah-vel/macaw-v1",
        ),
    }


def _preset(base: Preset, env: str, algo: SmacConfig, chosen: str) -> Preset:
    config = replace(
        base.config,
        env=env,
        algo=algo,
        train=TrainConfig(log_every=1000, eval_every=10_000, checkpoint_every=10_000),
        eval=EvalConfig(),
    )
    source = f"ours; the best of {chosen}, by the mean return after adaptation"
    return replace(base, config=config, source=source)
