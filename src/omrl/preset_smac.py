"""Presets of SMAC: the paper's problems with the numbers of its tables, those of its reference
code, and its two ablations.

`docs/algorithms/smac.md` says where paper and code differ. Numbers that depend on the problem are
those of Table 2; Sawyer's environment is not ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omrl.algos.smac_config import SmacConfig
from omrl.data.sample import BatchSpec

if TYPE_CHECKING:
    from omrl.presets import Preset

ENVS = {
    "cheetah-vel": "cheetah-vel/oyster-v1",
    "ant-dir": "ant-dir/smac-v1",
    "walker-params": "walker-params/smac-v1",
    "hopper-params": "hopper-params/smac-v1",
    "humanoid-dir": "humanoid-dir/smac-v1",
}
"""Of every problem of the paper; the list of cheetah-vel is the one that SMAC's code released."""

OURS = SmacConfig(targets="copied")

PAPER = SmacConfig(
    encoder_spread="deviation",
    targets="copied",
    kl_weight=1.0,
    reward_reduction="sum",
    next_z="same",
    weights="exp",
)

CODE = SmacConfig(batch=BatchSpec("batch", 128))

FIRST, LAST = "first-1200-transitions", "last-1200-transitions"
SLICES = {
    # Main and encoder buffer; where there is no second name they are the same transitions.
    "cheetah-vel-paper": (FIRST, "last-400-transitions"),
    "cheetah-vel-code": (FIRST, "last-400-transitions"),
    "ant-dir-paper": (LAST, "last-400-transitions"),
    "ant-dir-code": (LAST, ""),
    "walker-params-paper": (FIRST, ""),
    "hopper-params-paper": (FIRST, ""),
    "humanoid-dir-paper": (FIRST, ""),
}
"""Parts of the dataset and of the one given as --encoder-data."""

_REPARAM_ONLY = {"awac_weight": 0.0, "reparam_weight": 1.0}
ABLATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "actor-ablation": (_REPARAM_ONLY, "SMAC (actor ablation) without entropy"),
    "actor-ablation-entropy": (
        _REPARAM_ONLY | {"entropy_weight": 1.0},
        "SMAC (actor ablation) with PEARL's entropy",
    ),
    "meta-bc": (
        {"weights": "uniform", "self_supervised_reparam_weight": 0.0},
        "meta behavior cloning",
    ),
}
"""What changes in a preset of ours, by what its name gets appended, and what the paper calls it."""

ABLATED = ("cheetah-vel", "ant-dir")

_PAPER_LEAVES_OPEN = (
    "two Qs, V of s where Eq. 2 prints s', and initial values are the code's; Eq. 3 is taken over "
    "h', as Algorithm 1 has it"
)
_DATA = "the paper's data are the buffers of one PEARL run, here whatever dataset is given"
_NOT_TOLD = "which 1,200 transitions of a lifetime are used is not told: here the first"
_DISTINCT = "sampled tasks are distinct, the code's need not be"


def presets(base: Preset, evals: dict[str, Any]) -> dict[str, Preset]:
    """All of them, made of `base`; `evals` are evaluations of some problems, by their names."""

    def make(problem: str, kind: str, algo: SmacConfig, source: str, deviates: str) -> Preset:
        main, encoder = SLICES.get(f"{problem}-{kind}", ("all", ""))
        config = replace(
            base.config,
            env=ENVS[problem],
            algo=algo,
            slice=main,
            encoder_slice=encoder,
            eval=evals.get(problem, base.config.eval),
        )
        return replace(base, config=config, source=source, deviates=deviates)

    made: dict[str, Preset] = {}
    for problem in ENVS:
        name = f"smac-{problem}"
        made[name] = make(
            problem,
            "ours",
            OURS,
            "ours: the reference code's settings with the batches of Table 1 and targets that "
            "start as the Qs, not tuned",
            "",
        )
        open_ = "" if f"{problem}-code" in SLICES else _NOT_TOLD
        made[f"{name}-paper"] = make(
            problem,
            "paper",
            PAPER,
            "arXiv:2107.03974, Tables 1 and 2, Eqs. 1 to 3 and appendix C",
            "; ".join(filter(None, (_PAPER_LEAVES_OPEN, _DATA, open_))),
        )
        if f"{problem}-code" in SLICES:
            made[f"{name}-code"] = make(
                problem,
                "code",
                CODE,
                "rail-berkeley/rlkit@ac45a9d, examples/smac and its default configuration",
                "; ".join((_DATA, _DISTINCT)),
            )
    for problem in ABLATED:
        for suffix, (changes, called) in ABLATIONS.items():
            what = ", ".join(f"{field} = {value}" for field, value in changes.items())
            made[f"smac-{problem}-{suffix}"] = make(
                problem,
                "ours",
                replace(OURS, **changes),
                f"ours: smac-{problem} but for {what}; in arXiv:2107.03974, section 6, {called}",
                "the reference code configures no ablation",
            )
    return made
