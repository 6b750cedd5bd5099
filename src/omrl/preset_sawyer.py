"""Presets of SMAC on Sawyer Manipulation: the column Sawyer of the paper's Table 2.

Data are those of `omrl collect sawyer-manip-smac-paper`, trajectories of 75 steps. Exploration
and evaluation have the 50 steps of Table 2, in a twin 75.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omrl.algos.smac_config import SmacConfig
from omrl.preset_smac import DEFAULT_ITERATIONS, OUR_ITERATIONS, OURS, PAPER
from omrl.protocol import exploring
from omrl.train import TrainConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

ENV, ENV_75, ENV_8 = "sawyer-manip/smac3-h50-v1", "sawyer-manip/smac3-v1", "sawyer-manip/8-v1"

TABLE_2 = {"temperature": 0.3, "reward_scale": 1.0, "self_supervised_reparam_weight": 0.0}
"""beta, the scale of the rewards, and lambda_pearl."""

_DEVIATES = (
    "the environment is an equivalent on MuJoCo with tasks of its own; two Qs, V of s where Eq. 2 "
    "prints s', and initial values are the code's; Eq. 3 is taken over h', as Algorithm 1 has it; "
    "how much is collected at a time, how often, and how large the context of a label is, are not "
    f"told: here 5 x 1,000 transitions, 256, and {DEFAULT_ITERATIONS} times, as in the code for "
    "other problems"
)


def presets(base: Preset) -> dict[str, Preset]:
    """All of them, made of `base`."""
    iterations = DEFAULT_ITERATIONS * PAPER.exploration.every
    paper = replace(PAPER, **TABLE_2, online_steps=iterations)
    source = "arXiv:2107.03974, Tables 1 and 2, Eqs. 1 to 4, Algorithm 1 and appendix C"
    ours = replace(OURS, **TABLE_2)
    told = (
        "ours: settings of smac-cheetah-vel with beta, reward scale and lambda_pearl of "
        f"arXiv:2107.03974, Table 2, column Sawyer, {OUR_ITERATIONS} online iterations; not tuned"
    )
    return {
        "smac-sawyer": _preset(base, ENV, ours, told, ""),
        "smac-sawyer-paper": _preset(base, ENV, paper, source, _DEVIATES, "explore-paper"),
        "smac-sawyer75-paper": _preset(
            base,
            ENV_75,
            paper,
            source,
            f"75 steps per trajectory, as its section 6 has the data, not 50; {_DEVIATES}",
            "explore-paper",
        ),
        "smac-sawyer8": _preset(
            base,
            ENV_8,
            ours,
            f"{told}; eight behaviours as in its figure 8",
            "the paper does not say what its eight behaviours are; figure 8 itself explores test "
            "tasks: --algo.exploration.physics test",
        ),
    }


def _preset(
    base: Preset,
    env: str,
    algo: SmacConfig,
    source: str,
    deviates: str,
    explored: str = "explore-code",
) -> Preset:
    config = replace(
        base.config,
        env=env,
        algo=algo,
        slice="all",
        train=TrainConfig(
            log_every=1000, eval_every=5 * algo.exploration.every, checkpoint_every=10_000
        ),
        eval=exploring(explored, base.config.eval),
    )
    return replace(base, config=config, source=source, deviates=deviates)
