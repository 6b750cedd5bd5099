"""MACAW as SMAC's paper compares with it (arXiv:2107.03974, section 6 and appendix C.3), and MACAW
with self-supervision, as presets.

The paper ran MACAW on the data of SMAC with "the original hyperparameters" and with those of SMAC
(network size, learning rate, batch size), and drew the better of both in Figure 5. All of them are
evaluated as SMAC is: two trajectories of the unadapted policy, then the adapted one is scored.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from omrl.algos.macaw_config import MacawConfig
from omrl.algos.macaw_self_supervised import (
    INNER_BATCH,
    OUTER_BATCH,
    MacawSelfSupervisedConfig,
    RewardModelConfig,
)
from omrl.preset_sawyer import ENV as SAWYER
from omrl.preset_smac import ENVS, SLICES
from omrl.preset_smac import OURS as SMAC
from omrl.protocol import EvalConfig, exploring
from omrl.train import TrainConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

EXPLORED = exploring("explore-paper", EvalConfig())
"""How SMAC's paper evaluates all methods."""

ORIGINAL = MacawConfig()
MATCHED = replace(
    ORIGINAL,
    hidden=(300, 300, 300),
    policy_lr=3e-4,
    value_lr=3e-4,
    inner_lr=3e-4,
    task_batch=4,
    steps=50_000,
)

CURVE = TrainConfig(eval_every=10_000)
"""Evaluations before, at and after the end of the offline stage."""

PROBLEMS = {**ENVS, "sawyer": SAWYER}
"""The environments of the paper's six problems, by name."""

_ONE_BUFFER = (
    "slices are those of smac-{problem}-paper, but batches are of the main buffer alone, that of "
    "SMAC's Qs and policy; whether MACAW was given that of SMAC's encoder too is not told"
)
_NOT_TOLD = {
    "original": "as macaw-cheetah-vel-paper, on all problems alike; the authors ran MACAW's code "
    "and do not tell which of its configurations: the standard one draws 256 rows at a distance of "
    "7, for which 1,200 transitions are too few",
    "matched": "matched are the widths of hidden layers, the rates of value, policy and inner "
    "steps, 256 transitions of 4 tasks, and 50,000 updates as SMAC's offline phase has; which "
    "batch size and rates are meant, and whether more was matched, is not told: z, the rate of the "
    "inner rates, advantage head and the kinds of batches are as in macaw-cheetah-vel-paper",
}
KINDS = {"original": ORIGINAL, "matched": MATCHED}


def presets(base: Preset, tuned: MacawConfig) -> dict[str, Preset]:
    """`macaw-smac-PROBLEM-KIND` and `macaw-self-supervised-PROBLEM`, made of `base`; `tuned` are
    MACAW's settings in the latter, but for batches and steps."""
    compared = {
        f"macaw-smac-{problem}-{kind}": replace(
            base,
            config=replace(
                base.config,
                env=env,
                algo=algo,
                slice=SLICES.get(f"{problem}-paper", ("all", ""))[0],
                eval=EXPLORED,
            ),
            source=f"arXiv:2107.03974, section 6 and appendix C.3: MACAW, {kind} hyper-parameters",
            deviates="; ".join((_NOT_TOLD[kind], _ONE_BUFFER.format(problem=problem))),
        )
        for problem, env in PROBLEMS.items()
        for kind, algo in KINDS.items()
    }
    of_macaw = {field.name: getattr(tuned, field.name) for field in fields(MacawConfig)}
    other = {"steps": 50_000, "inner_batch": INNER_BATCH, "outer_batch": OUTER_BATCH}
    self_supervised = MacawSelfSupervisedConfig(
        **of_macaw | other, rewards=RewardModelConfig.like(SMAC)
    )
    ours = {
        f"macaw-self-supervised-{problem}": replace(
            base,
            config=replace(
                base.config,
                env=ENVS[problem],
                algo=self_supervised,
                slice=SLICES[f"{problem}-paper"][0],
                encoder_slice=SLICES[f"{problem}-paper"][1],
                separate_encoder=True,
                train=CURVE,
                eval=EXPLORED,
            ),
            source="ours: rates and layers of macaw-cheetah-vel, encoder and decoder of "
            f"smac-{problem}, data of smac-{problem}-paper; not tuned",
        )
        for problem in ("cheetah-vel", "ant-dir")
    }
    return compared | ours
