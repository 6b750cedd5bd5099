"""SMAC's offline phase on whole lifetimes, for the MDPs of later papers' tables.

Those MDPs come with logs of a task's own, so that nothing is explored and nobody goes online. Where
tasks differ in their physics, rewards say nothing of them: here the encoder is shown next states,
and learns from the Qs, as PEARL's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omrl.data.sample import BatchSpec
from omrl.preset_smac import OURS
from omrl.protocol import EvalConfig
from omrl.train import TrainConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

_TOLD = replace(
    OURS,
    normalize_obs=True,
    next_obs_in_context=True,
    q_trains_encoder=True,
    adapted_z="mean",
    context=BatchSpec("context", 256, buffer="encoder"),
    batch=BatchSpec("batch", 256, start=0.8),
    online_steps=0,
)
"""Contexts are of a whole lifetime, as in evaluation, and actions of its last fifth, as MACAW's."""

_WHITENED = {"weights": "whitened", "temperature": 1.0, "largest_score": 3.0}
CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    "softmax": {},
    "whitened": _WHITENED,
    "whitened-all": {**_WHITENED, "temperature": 0.5, "batch": BatchSpec("batch", 256)},
    "whitened-reparam": {**_WHITENED, "reparam_weight": 0.05},
    "whitened-not-told": {**_WHITENED, "next_obs_in_context": False, "q_trains_encoder": False},
}
"""What is tried on validation tasks of hopper-params/corro-v1."""
CHOSEN = "whitened"


def presets(base: Preset) -> dict[str, Preset]:
    """All of them, made of `base`."""
    made = {
        f"smac-offline-hopper-params-{name}": replace(
            base,
            config=replace(
                base.config,
                env="hopper-params/corro-v1",
                algo=replace(_TOLD, **changes),
                train=TrainConfig(log_every=1000, eval_every=10_000, checkpoint_every=10_000),
                eval=EvalConfig(),
            ),
            source="ours: a candidate",
        )
        for name, changes in CANDIDATES.items()
    }
    return made | {"smac-offline-hopper-params": made[f"smac-offline-hopper-params-{CHOSEN}"]}
