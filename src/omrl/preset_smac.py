"""Presets of SMAC, offline and then online: the paper's problems with the numbers of its tables,
those of its reference code, its ablations and its oracle.

`docs/algorithms/smac.md` says where paper and code differ. Numbers that depend on the problem are
those of Table 2; those of Sawyer Manipulation are in `omrl.preset_sawyer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from omrl.algos.smac_config import ONLINE, SmacConfig
from omrl.data.sample import BatchSpec
from omrl.protocol import EvalConfig, exploring
from omrl.train import TrainConfig

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

ITERATIONS = {"cheetah-vel": 51}
"""Of the online phase, in the reference code; the paper does not tell them."""
DEFAULT_ITERATIONS = 501
OUR_ITERATIONS = 50

_FOUR_STEPS = replace(ONLINE, every=20_000)
"""4 gradient steps per environment step (Table 1): 5 tasks x 1,000 are collected at a time."""

OURS = SmacConfig(
    targets="copied",
    kl_weight=0.02,
    online_steps=OUR_ITERATIONS * _FOUR_STEPS.every,
    exploration=_FOUR_STEPS,
)

_BY_RETURNS = "by returns on validation tasks"
OUR_LAMBDA_PEARL = {
    "ant-dir": (0.05, _BY_RETURNS),
    "walker-params": (0.05, _BY_RETURNS),
    "hopper-params": (0.05, _BY_RETURNS),
    "humanoid-dir": (0.05, "as on ant-dir, walker-params and hopper-params"),
}
"""And how it was chosen, where the tables' weight of 1 makes Qs diverge or may; else it is 1."""

PAPER = SmacConfig(
    encoder_spread="deviation",
    targets="copied",
    kl_weight=1.0,
    reward_reduction="sum",
    next_z="same",
    weights="exp",
    self_supervised_entropy_weight=1.0,
    entropy_in_target=False,
    exploration=replace(_FOUR_STEPS, prior_steps=1000, posterior_steps=0),
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

INTO_ENCODER = {
    # Frozen, in the paper for cheetah-vel alone; or the main buffer itself.
    "cheetah-vel-paper": "none",
    "ant-dir-code": "all",
}
"""Which phases of exploration become contexts where it is not that on the prior."""

_REPARAM_ONLY = {"awac_weight": 0.0, "reparam_weight": 1.0, "self_supervised_reparam_weight": 1.0}
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
    "h', as Algorithm 1 has it; how much is collected at a time, how often, and how large the "
    "context of a label is, are not told: here 5 x 1,000 transitions, 256, and {iterations} times, "
    "as in the code"
)
_BATCHES = (
    "of 4 updates on one task batch each has its own; trajectories of the prior phase are labelled "
    "from a context each, in the code from one"
)
_DATA = "the paper's data are the buffers of one PEARL run, here whatever dataset is given"
_NOT_TOLD = "which 1,200 transitions of a lifetime are used is not told: here the first"
_DISTINCT = "sampled tasks are distinct, the code's need not be"


def presets(base: Preset, evals: dict[str, EvalConfig]) -> dict[str, Preset]:
    """All of them, made of `base`; `evals` are evaluations of some problems, by their names."""
    made: dict[str, Preset] = {}
    for problem in ENVS:
        make = partial(_preset, base, evals.get(problem, base.config.eval), problem)
        made |= _of_problem(make, problem)
    for problem in ABLATED:
        make = partial(_preset, base, evals.get(problem, base.config.eval), problem)
        made |= _variants(make, problem)
    return made


def _preset(
    base: Preset,
    own: EvalConfig,
    problem: str,
    kind: str,
    algo: SmacConfig,
    source: str,
    deviates: str,
) -> Preset:
    main, encoder = SLICES.get(f"{problem}-{kind}", ("all", ""))
    every = 5 * algo.exploration.every
    config = replace(
        base.config,
        env=ENVS[problem],
        algo=algo,
        slice=main,
        encoder_slice=encoder,
        separate_encoder=bool(encoder),
        train=TrainConfig(log_every=1000, eval_every=every, checkpoint_every=10_000),
        eval=exploring("explore-paper" if kind == "paper" else "explore-code", own),
    )
    return replace(base, config=config, source=source, deviates=deviates)


def _of_problem(make: Callable[..., Preset], problem: str) -> dict[str, Preset]:
    """Ours, that of the paper, and that of the code if it has one."""
    name, has_code = f"smac-{problem}", f"{problem}-code" in SLICES
    open_ = _PAPER_LEAVES_OPEN.format(iterations=_iterations(problem))
    weight, how = OUR_LAMBDA_PEARL.get(problem, (None, ""))
    weighted = f"; lambda_pearl {weight}, {how}" if how else ""
    made = {
        name: make(
            "ours",
            _ours(problem),
            "ours: the reference code's settings with the batches and gradient steps of Table 1, "
            f"targets that start as the Qs, {OUR_ITERATIONS} online iterations, and a KL weight "
            f"chosen by the decoder's error on validation tasks of cheetah-vel{weighted}; "
            "else not tuned",
            "",
        ),
        f"{name}-paper": make(
            "paper",
            _online(PAPER, problem, "paper"),
            "arXiv:2107.03974, Tables 1 and 2, Eqs. 1 to 4, Algorithm 1 and appendix C",
            "; ".join(filter(None, (open_, _DATA, "" if has_code else _NOT_TOLD))),
        ),
    }
    if has_code:
        made[f"{name}-code"] = make(
            "code",
            _online(CODE, problem, "code"),
            "rail-berkeley/rlkit@ac45a9d, examples/smac and its default configuration",
            "; ".join((_DATA, _DISTINCT, _BATCHES)),
        )
    return made


def _variants(make: Callable[..., Preset], problem: str) -> dict[str, Preset]:
    """Ablations and oracle."""
    ours = _ours(problem)
    made: dict[str, Preset] = {}
    for suffix, (changes, called) in ABLATIONS.items():
        what = ", ".join(f"{field} = {value}" for field, value in changes.items())
        made[f"smac-{problem}-{suffix}"] = make(
            "ours",
            replace(ours, **changes),
            f"ours: smac-{problem} but for {what}; in arXiv:2107.03974, section 6, {called}",
            "the reference code configures no ablation",
        )
    made[f"smac-{problem}-oracle"] = make(
        "ours",
        replace(ours, oracle=True, exploration=replace(ours.exploration, label_context=0)),
        f"ours: smac-{problem} with the environment's rewards online, from which encoder and "
        "decoder go on learning; in arXiv:2107.03974, section 6, Online Oracle",
        "the paper's oracle is PEARL with online training, which may as well be that from scratch: "
        f"smac-data-{problem}",
    )
    return made


def _ours(problem: str) -> SmacConfig:
    weight, _ = OUR_LAMBDA_PEARL.get(problem, (OURS.self_supervised_reparam_weight, ""))
    return replace(OURS, self_supervised_reparam_weight=weight)


def _online(algo: SmacConfig, problem: str, kind: str) -> SmacConfig:
    """With the online phase of a problem."""
    into = INTO_ENCODER.get(f"{problem}-{kind}", "prior")
    exploration = replace(algo.exploration, into_encoder=into)
    steps = _iterations(problem) * exploration.every
    return replace(algo, exploration=exploration, online_steps=steps)


def _iterations(problem: str) -> int:
    return ITERATIONS.get(problem, DEFAULT_ITERATIONS)
