"""The experiments of SMAC (Pong et al. 2022, arXiv:2107.03974), whose figures are curves without
printed numbers.

All of them begin with a PEARL run that collects (`smac_scales`). Methods that have an online phase
are evaluated at the end of both, which is one training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omrl.experiments.declare import (
    NOT_SMOKE,
    SCALES,
    Arm,
    Claim,
    Experiment,
    Overrides,
    Scale,
    Setting,
)
from omrl.experiments.smac_scales import settings, slices
from omrl.preset_smac import ABLATIONS, ENVS

_PAPER = "arXiv:2107.03974"
_SMAC = "SMAC"
OFFLINE, ONLINE = "after offline training", "after the online phase"


PHYSICS = ("walker-params", "hopper-params")
"""Problems whose tasks differ in their physics: no task can take over episodes of another."""


def _changes(ablation: str) -> Overrides:
    """What an ablation changes, as paths of a run's config."""
    fields, _ = ABLATIONS[ablation]
    return {f"algo.{name}": value for name, value in fields.items()}


def _smac(problem: str, method: str, changes: Overrides | None = None) -> tuple[Arm, Arm]:
    """SMAC or a variant of it after both phases."""
    online = Arm(
        method,
        f"smac-{problem}",
        ONLINE,
        presets={"paper": f"smac-{problem}-paper"},
        overrides=changes or {},
    )
    return replace(online, group=OFFLINE, after="offline"), online


_COMPARED_AT_SMOKE = ("cheetah-vel", "walker-params")
"""A problem of different rewards and one of different physics: each run compiles for seconds."""


def _compared(problem: str, method: str, kind: str) -> Arm:
    """MACAW or BOReL with one of the two kinds of hyper-parameters; at scale smoke, where sizes are
    alike, with one of them."""
    smoke = kind == "matched" and problem in _COMPARED_AT_SMOKE
    return Arm(
        f"{method} ({kind})",
        f"{method.lower()}-smac-{problem}-{kind}",
        OFFLINE,
        scales=SCALES if smoke else NOT_SMOKE,
    )


_ORACLE: Overrides = {"algo.oracle": True, "algo.exploration.label_context": 0}
_RELABELLED = "BOReL (matched), relabelled"


def _figure_5(problem: str) -> Experiment:
    _, oracle = _smac(problem, "Online Oracle (ii)", _ORACLE)
    relabelled = replace(
        _compared(problem, "BOReL", "matched"),
        method=_RELABELLED,
        reads="relabelled",
        overrides={"slice": "all"},
        scales=NOT_SMOKE,
    )
    return Experiment(
        id=f"smac-fig5-{problem}",
        title=f"SMAC, Figure 5, {problem}: all methods",
        claim=Claim(
            words="On all six problems SMAC improves steadily without rewards online, often to "
            "about the oracle that is given them; MACAW and BOReL are near its offline phase at "
            "best and cannot improve; the actor ablation learns little offline on the harder "
            "problems. The curves are means and standard deviations of four seeds.",
            source=f"{_PAPER}, Figure 5 and section 6",
        ),
        arms=(
            *_smac(problem, _SMAC),
            *_smac(problem, "SMAC (actor ablation)", _changes("actor-ablation")),
            Arm(
                "meta-BC",
                f"smac-{problem}",
                OFFLINE,
                presets={"paper": f"smac-{problem}-paper"},
                overrides={**_changes("meta-bc"), "algo.online_steps": 0},
                at={"smoke": {"algo.online_steps": 0}},
            ),
            _compared(problem, "MACAW", "original"),
            _compared(problem, "MACAW", "matched"),
            _compared(problem, "BOReL", "original"),
            _compared(problem, "BOReL", "matched"),
            *(() if problem in PHYSICS else (relabelled,)),
            Arm("Online Oracle (i)", f"smac-data-{problem}", ONLINE, collects=True),
            oracle,
        ),
        scales=settings(problem, relabel=problem not in PHYSICS),
        reference=_SMAC,
        better_of={
            "MACAW": ("MACAW (original)", "MACAW (matched)"),
            "BOReL": ("BOReL (original)", "BOReL (matched)"),
        },
        deviates="Online Oracle (i) is PEARL from scratch with rewards, the run that made the "
        "data, one seed of it; (ii) is SMAC's own online phase with rewards; which of the two the "
        "paper draws is not told. Meta-BC is after its offline phase"
        + ("" if problem in PHYSICS else "; BOReL on relabelled data is ours"),
    )


def _figure_2(problem: str) -> Experiment:
    return Experiment(
        id=f"smac-fig2-shift-{problem}",
        title=f"SMAC, Figure 2, {problem}: shift of contexts",
        claim=Claim(
            words="Over offline training posteriors of explored contexts come to lie much farther "
            "from the prior than those of logged ones, and with them the same policy returns less. "
            "After the online phase it does about as well with either (Figures 6 and 7).",
            source=f"{_PAPER}, Figures 2, 6 and 7, section 4 and appendix B",
        ),
        arms=_smac(problem, _SMAC),
        scales=settings(problem, shift=True),
        reference=_SMAC,
        deviates="training tasks, at the checkpoints that are kept: the ends of both phases and "
        "the newest; the paper does not tell which tasks, and has curves over offline training",
    )


# --- Figure 8: self-supervision in the physics of test tasks ---


def _figure_8(
    name: str,
    arms: tuple[Arm, ...],
    oracle: Arm,
    scales: Mapping[Scale, Setting],
    deviates: str,
) -> Experiment:
    """Of the arms of SMAC; those on test tasks are the same with other physics."""
    on_test = tuple(
        replace(arm, method=_ON_TEST, overrides={"algo.exploration.physics": "test"})
        for arm in arms
        if not arm.after
    )
    return Experiment(
        id=f"smac-fig8-{name}",
        title=f"SMAC, Figure 8, {name}: in the physics of test tasks",
        claim=Claim(
            words="Going into the test tasks without their rewards improves the returns there "
            "steadily, to about those of an oracle that is given the rewards; self-supervision on "
            "the training tasks does not.",
            source=f"{_PAPER}, Figure 8 and appendix B",
        ),
        arms=(*arms, *on_test, oracle),
        scales=scales,
        reference=_ON_TRAIN,
        deviates=f"{deviates}; the oracle is PEARL from scratch on the test tasks with rewards",
    )


_ON_TRAIN, _ON_TEST = "SMAC on training tasks", "SMAC on test tasks"
_TEST_TASKS: Overrides = {"train_split": "test", "algo.exploration.test_tasks": True}


def _of_physics(problem: str) -> Experiment:
    oracle = Arm(
        "oracle on test tasks",
        f"smac-data-{problem}",
        ONLINE,
        reads="nothing",
        overrides=_TEST_TASKS,
        at={"smoke": {"train_tasks": [50, 51, 52, 53]}},
    )
    deviates = "the paper shows it on Sawyer Manipulation with eight behaviours alone"
    arms = _smac(problem, _ON_TRAIN)
    return _figure_8(problem, arms, oracle, settings(problem), deviates)


_SAWYER_8 = "sawyer-manip/8-v1"


# --- Sawyer: data is scripted, and contexts are of the same transitions ---


def _scripted(name: str, online_updates: int, **of_algorithm: Overrides) -> Mapping[Scale, Setting]:
    """Scales gpu and paper on a collection of the script."""
    every: Overrides = {"train.checkpoint_every": 10_000}
    of_smac: Overrides = {
        **slices("all", ""),
        "algo.online_steps": online_updates,
        "train.eval_every": online_updates,
    }
    return {
        "gpu": Setting(name, 4, every, {"smac": of_smac, **of_algorithm}),
        "paper": Setting(name, 4, every),
    }


_SAWYER_8 = "sawyer-manip/8-v1"


def _figure_8_sawyer() -> Experiment:
    online = Arm(
        _ON_TRAIN,
        "smac-sawyer8",
        ONLINE,
        presets={"paper": "smac-sawyer-paper"},
        at={"paper": {"env": _SAWYER_8}},
    )
    oracle = Arm(
        "oracle on test tasks",
        "smac-data-walker-params",
        ONLINE,
        reads="nothing",
        overrides={"env": _SAWYER_8, "algo.reward_scale": 1.0, **_TEST_TASKS},
    )
    of_pearl: Overrides = {"algo.steps": 240_000, "train.eval_every": 240_000}
    return _figure_8(
        "sawyer8",
        (replace(online, group=OFFLINE, after="offline"), online),
        oracle,
        _scripted("sawyer-manip-8", 120_000, pearl=of_pearl),
        "the eight behaviours are ours, on MuJoCo",
    )


def _of_75_steps(kind: str) -> Arm:
    """BOReL: its model is of trajectories as long as those of the data."""
    arm = _compared("sawyer", "BOReL", kind)
    return replace(arm, method=f"{arm.method}, 75 steps")


def _figure_5_sawyer() -> Experiment:
    offline, _ = _smac("sawyer", "meta-BC", {**_changes("meta-bc"), "algo.online_steps": 0})
    _, oracle = _smac("sawyer", "Online Oracle (ii)", _ORACLE)
    return Experiment(
        id="smac-fig5-sawyer",
        title="SMAC, Figure 5, Sawyer Manipulation: all methods",
        claim=Claim(
            words="The self-supervised phase improves SMAC, to about the oracle with rewards; here "
            "the AWAC actor makes the largest difference: the actor ablation hardly learns.",
            source=f"{_PAPER}, Figure 5 and section 6",
        ),
        arms=(
            *_smac("sawyer", _SMAC),
            *_smac("sawyer", "SMAC (actor ablation)", _changes("actor-ablation")),
            replace(offline, after=""),
            _compared("sawyer", "MACAW", "original"),
            _compared("sawyer", "MACAW", "matched"),
            _of_75_steps("original"),
            _of_75_steps("matched"),
            oracle,
        ),
        scales=_scripted("sawyer-manip-smac-paper", 200_000),
        reference=_SMAC,
        better_of={
            "MACAW": ("MACAW (original)", "MACAW (matched)"),
            "BOReL, 75 steps": ("BOReL (original), 75 steps", "BOReL (matched), 75 steps"),
        },
        deviates="the environment is an equivalent on MuJoCo; the data has trajectories of 75 "
        "steps, and 50 are evaluated, of BOReL, which models whole trajectories, 75",
    )


EXPERIMENTS = (
    *map(_figure_5, ENVS),
    *map(_figure_2, ENVS),
    *map(_of_physics, PHYSICS),
    _figure_5_sawyer(),
    _figure_8_sawyer(),
)
