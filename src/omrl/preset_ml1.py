"""Presets of ours on ML1 of Meta-World: reach and push, whose tasks are hidden goals.

Data are those of `omrl collect ml1-reach` and `ml1-push`. Start vectors are part of the task, so an
episode of a deterministic policy is the same every time: evaluations play one per seed and task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omrl.algos.macaw_config import MacawConfig
from omrl.algos.smac_config import SmacConfig
from omrl.data.sample import BatchSpec
from omrl.preset_smac import OURS
from omrl.protocol import EvalConfig
from omrl.train import TrainConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

STEPS = 60_000
EVAL = EvalConfig(episodes=1, traces=("success",))
TRAIN = TrainConfig(log_every=1000, checkpoint_every=10_000)

SMAC = replace(
    OURS,
    normalize_obs=True,
    # Goals are three numbers, to the centimetre. With a KL weight of 0.02, rates of 3e-4 and a
    # narrower decoder z told one of them.
    kl_weight=0.001,
    encoder_lr=1e-3,
    decoder_lr=1e-3,
    decoder_hidden=(128, 128),
    # Rewards reach 10 per step: Qs of up to 20, and weights that do not depend on their scale.
    reward_scale=0.1,
    discount=0.95,
    weights="whitened",
    temperature=1.0,
    adapted_z="mean",
    steps=STEPS,
    online_steps=0,
    task_batch=8,
    # As at test time.
    context=BatchSpec("context", 256, buffer="encoder"),
)


SMAC_ON: Mapping[str, tuple[SmacConfig, str]] = {
    "reach": (
        SMAC,
        "ours: the offline phase of smac-cheetah-vel with standardised observations, contexts of "
        "the test contexts' size, weights and scales for the rewards of Meta-World, and more of "
        "the goal in z, chosen by success on validation goals, 40 to 45 of ml1-reach, in small "
        "runs on goals 0 to 23; --algo.online-steps 100000 goes on online",
    ),
    "push": (
        # Without a bound single transitions have weights that diverge.
        replace(SMAC, temperature=0.3, largest_score=3.0),
        "ours: smac-ml1-reach with a lower temperature and bounded weights, of five candidates the "
        "one with the most success on validation goals, 40 to 49 of ml1-push",
    ),
}


def presets(base: Preset, tuned: MacawConfig) -> dict[str, Preset]:
    """All of them, made of `base`; `tuned`: the settings of macaw-cheetah-vel."""
    macaw = (
        replace(tuned, steps=STEPS, temperature=0.3),
        "ours: the settings of macaw-cheetah-vel with a lower temperature, of five candidates "
        "the one with the most success on validation goals, 40 to 49 of ml1-reach",
    )
    return {
        f"{name}-ml1-{problem}": replace(
            base,
            config=replace(
                base.config,
                env=f"ml1-{problem}/continuous-v2-h150-v1",
                algo=algo,
                train=TRAIN,
                eval=EVAL,
            ),
            source=source,
        )
        for problem, smac in SMAC_ON.items()
        for name, (algo, source) in {"macaw": macaw, "smac": smac}.items()
    }
