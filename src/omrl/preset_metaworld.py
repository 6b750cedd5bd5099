"""Presets of Meta-World's ML45: the columns Meta-World of MACAW's Tables 3 to 5, and ours.

Data are those of `omrl collect ml45-v1reward`. Those columns were set for rewards that reach 1e5,
so all are on the id of the first version of the rewards; ours are on that of the second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omrl.algos.macaw_config import MacawConfig
from omrl.algos.mt_awr import MtAwrConfig
from omrl.algos.pearl_config import PearlConfig
from omrl.algos.smac_config import SmacConfig
from omrl.data.sample import BatchSpec
from omrl.preset_ml1 import SMAC_ON
from omrl.protocol import EvalConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

ENV = "ml45/continuous-v1reward-h150-v1"
ENV_V2 = "ml45/continuous-v2-h150-v1"
_Algo = MacawConfig | MtAwrConfig | PearlConfig | SmacConfig

WIDTHS = (300, 300, 300)
EVAL = EvalConfig(traces=("success",))
FINE_TUNING = replace(EVAL, shots=(0, 1, 5, 20))
"""Its figure 8 has 20 steps of fine-tuning."""

_ON_VALIDATION = (
    "the one with the most success on validation environments, the training tasks 4, 13, 22, 31 "
    "and 40 of ml45"
)

_DEVIATES = (
    "the paper's Meta-World of 2020, which showed the goal, is lost: here metaworld 3.0.0 with the "
    "goal hidden and the rewards of its version 1; data of scripted policies with fewer and fewer "
    "random actions, there the 5 million transitions of a SAC agent per task"
)


def presets(base: Preset, pearl: PearlConfig) -> dict[str, Preset]:
    """All of them, made of `base`; `pearl`: the standard column of Table 3."""
    return {
        "macaw-ml45-paper": _preset(
            base,
            MacawConfig(
                adv_coef=1e-3,
                value_lr=1e-6,
                inner_lr=1e-2,
                value_inner_lr=1e-4,
                hidden=WIDTHS,
                task_batch=10,
            ),
            EVAL,
            "arXiv:2008.06043, Table 5, column Meta-World, and appendix E",
            "; initial scale of generated weights and how far outer batches lean towards the end "
            "are not in the paper: here as in macaw-cheetah-vel-paper",
        ),
        "mt-awr-ml45-paper": _preset(
            base,
            MtAwrConfig(hidden=WIDTHS, value_lr=1e-6, adapt_value_lr=1e-6),
            FINE_TUNING,
            "arXiv:2008.06043, Table 4, column Meta-World, and appendix E; 20 steps of fine-tuning "
            "as in its figure 8",
            "; number of updates and which part of a lifetime batches are from are not in the "
            "paper: here 100,000, and the whole",
        ),
        "pearl-ml45-paper": _preset(
            base,
            replace(
                pearl,
                hidden=(512, 512, 512),
                latent=8,
                task_batch=16,
                context=BatchSpec("context", 750, buffer="encoder"),
            ),
            EVAL,
            "arXiv:2008.06043, Table 3, column Meta-World, and appendix D.4",
            "; widths of the encoder, number of updates and initial values are not in the paper: "
            "here those of PEARL's code",
        ),
    }


def ours(
    base: Preset, macaw: MacawConfig, mt_awr: MtAwrConfig, pearl: PearlConfig
) -> dict[str, Preset]:
    """Those of other problems with the candidate of the most success on validation tasks, on
    rewards of version 2."""
    chosen = "ours: the settings of {}, of {} candidates " + _ON_VALIDATION
    smac, _ = SMAC_ON["push"]
    wide = replace(macaw, temperature=0.3, steps=20_000, hidden=WIDTHS, task_batch=10)
    late = replace(smac, batch=replace(smac.batch, start=0.5))
    algos: dict[str, tuple[_Algo, EvalConfig, str]] = {
        "macaw": (
            wide,
            EVAL,
            chosen.format("macaw-ml1-reach with wider networks and 10 tasks in an update", "four"),
        ),
        "mt-awr": (
            replace(mt_awr, hidden=WIDTHS, temperature=0.3),
            FINE_TUNING,
            chosen.format(
                "mt-awr-cheetah-vel with wider networks and a lower temperature", "three"
            ),
        ),
        "pearl": (pearl, EVAL, chosen.format("pearl-cheetah-vel", "three")),
        "smac": (
            late,
            EVAL,
            chosen.format("smac-ml1-push with Qs and policy of second halves of lifetimes", "two"),
        ),
    }
    return {
        f"{name}-ml45": replace(
            base,
            config=replace(base.config, env=ENV_V2, algo=algo, eval=evaluation),
            source=source,
        )
        for name, (algo, evaluation, source) in algos.items()
    }


def _preset(
    base: Preset,
    algo: _Algo,
    evaluation: EvalConfig,
    source: str,
    further: str,
) -> Preset:
    config = replace(base.config, env=ENV, algo=algo, eval=evaluation)
    return replace(base, config=config, source=source, deviates=_DEVIATES + further)
