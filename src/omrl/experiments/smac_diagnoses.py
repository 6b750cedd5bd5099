"""What SMAC's paper tells of a trained run beside its returns: where trajectories go, and how well
rewards are predicted. Runs are those of Figure 5, which a shared cache makes once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omrl.config import Json
from omrl.experiments import smac
from omrl.experiments.declare import Arm, Claim, Experiment, Overrides, Scale, Setting
from omrl.experiments.smac_scales import slices

_PAPER = "arXiv:2107.03974"
_FIGURE_5 = {
    problem: next(each for each in smac.EXPERIMENTS if each.id == f"smac-fig5-{problem}")
    for problem in ("ant-dir", "walker-params", "sawyer")
}


def _rows(problem: str) -> tuple[Arm, ...]:
    """Those of SMAC itself."""
    figure = _FIGURE_5[problem]
    return tuple(arm for arm in figure.arms if arm.method == figure.reference)


def _with(scales: Mapping[Scale, Setting], name: str, changes: Overrides) -> dict[Scale, Setting]:
    """The scales, with a diagnosis."""
    return {scale: replace(each, diagnose={name: changes}) for scale, each in scales.items()}


# --- Figures 6 and 7: Ant Direction ---

_NUM_TASKS = 20
"""Training tasks that are drawn; their directions are random."""


def _traced() -> Mapping[Scale, Setting]:
    scales = _FIGURE_5["ant-dir"].scales
    small: Json = scales["smoke"].overrides["train_tasks"]
    whole = _with(scales, "traces", {"split": "train", "tasks": list(range(_NUM_TASKS))})
    return whole | _with({"smoke": scales["smoke"]}, "traces", {"split": "train", "tasks": small})


def _traces(number: int, words: str, source: str, pictures: tuple[str, ...]) -> Experiment:
    return Experiment(
        id=f"smac-fig{number}-traces",
        title=f"SMAC, Figure {number}, ant-dir: where trajectories go",
        claim=Claim(words=words, source=f"{_PAPER}, Figure {number} and {source}"),
        arms=_rows("ant-dir"),
        scales=_traced(),
        reference=_FIGURE_5["ant-dir"].reference,
        pictures=pictures,
        deviates=f"{_NUM_TASKS} training tasks (at scale smoke those that there are), the first "
        "seed in the figures and all in the table; the paper tells neither tasks nor how many "
        "trajectories, and has no numbers: spread and gap are ours",
    )


_FIGURE_6 = _traces(
    6,
    "Right after offline training the policy moves in many directions with contexts of data, and "
    "only one way with contexts that it explored itself. After the self-supervised phase it moves "
    "in many directions with both.",
    "section 6",
    ("traces", "traces-by-task"),
)
_FIGURE_7 = _traces(
    7,
    "Explored trajectories go mainly one way before and after the self-supervised phase, logged "
    "ones in all directions. So what changes is how the policy adapts to explored ones, not how "
    "it explores.",
    "appendix B",
    ("traces-all", "traces-all-by-task"),
)


# --- Reward accuracy: Sawyer Manipulation ---


def _rewards_scales() -> Mapping[Scale, Setting]:
    """Those of Figure 5, and a smoke of its own on a few scripted trajectories."""
    small = _FIGURE_5["walker-params"].scales["smoke"]
    sizes: Overrides = {**small.of_algorithm["smac"], **slices("all", "")}
    small = replace(small, data="sawyer-manip-smoke", of_algorithm={"smac": sizes})
    return _with(_FIGURE_5["sawyer"].scales, "rewards", {}) | _with(
        {"smoke": small}, "rewards", {"tasks": [0, 1, 50, 51]}
    )


_REWARD_ACCURACY = Experiment(
    id="smac-reward-accuracy",
    title="SMAC, appendix B, Sawyer: errors of predicted rewards",
    claim=Claim(
        words="The reward decoder need not be accurate: where rewards are -1 or 0 its loss is "
        "about 0.2 on training tasks and about 0.25 on test tasks, and SMAC works.",
        source=f"{_PAPER}, appendix B, Reward Accuracy Dependence",
    ),
    arms=_rows("sawyer"),
    scales=_rewards_scales(),
    reference=_FIGURE_5["sawyer"].reference,
    deviates="the environment is an equivalent on MuJoCo; the paper tells neither on which "
    "transitions nor with which context the loss was taken: here logged and explored ones "
    "apart, with both kinds of context, beside the error of the best constant",
)

EXPERIMENTS = (_FIGURE_6, _FIGURE_7, _REWARD_ACCURACY)
