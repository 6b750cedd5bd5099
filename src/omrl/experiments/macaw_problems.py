"""MACAW's figures on other problems than cheetah velocity, and those of its workshop version.

No preset was tuned on these problems: settings are those of cheetah velocity, ours at scale gpu and
the paper's tables at scale paper, which has one for all problems. Scale smoke has a few episodes of
random actions, in which nothing is to be learned: it shows that the chain works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omrl.experiments.declare import Arm, Claim, Experiment, Overrides, Scale, Setting

MACAW, MT_AWR, PEARL, META_BC = "MACAW", "MT-AWR + FT", "offline PEARL", "meta-BC"
EXTENDED = "arXiv:2008.06043"
WORKSHOP = "MACAW's workshop version"
_NO_TUNING = (
    "no settings of a single problem are told; at scale gpu they are those that were tuned on "
    "cheetah velocity"
)

PAPER_PRESETS: Mapping[str, Mapping[Scale, str]] = {
    MACAW: {"paper": "macaw-cheetah-vel-paper"},
    MT_AWR: {"paper": "mt-awr-cheetah-vel-paper"},
    PEARL: {"paper": "pearl-cheetah-vel-paper"},
    META_BC: {"paper": "meta-bc-cheetah-vel-code"},
}
PRESETS: Mapping[str, str] = {
    MACAW: "macaw-cheetah-vel",
    MT_AWR: "mt-awr-cheetah-vel",
    PEARL: "pearl-cheetah-vel",
    META_BC: "meta-bc-cheetah-vel",
}

SMOKE_NOTE = "scale smoke shows the mechanism, not the result: a hundred updates of small networks"
_WIDTHS = [32, 32]
_LOOP: Overrides = {"algo.steps": 100, "algo.latent": 8, "algo.hidden": _WIDTHS}
TINY: Mapping[str, Overrides] = {
    "macaw": _LOOP,
    "meta-bc": _LOOP,
    "mt-awr": {"algo.steps": 100, "algo.hidden": _WIDTHS},
    "pearl": {"algo.steps": 100, "algo.hidden": _WIDTHS, "algo.encoder_hidden": _WIDTHS},
}
"""By algorithm, of runs that show the mechanism."""
BRIEF: Overrides = {
    "train.checkpoint_every": 100,
    "train.keep": 1,
    "eval.episodes": 2,
    "eval.traces": [],
}
LONG: Overrides = {
    "train.checkpoint_every": 5000,
    "train.keep": 1,
    "train.eval_every": 12_000,
    "eval.traces": [],
}


@dataclass(frozen=True)
class _Problem:
    """What differs from cheetah velocity."""

    name: str
    env: str
    data: Mapping[Scale, str]
    """Presets of `omrl collect`."""
    of_all: Overrides = field(default_factory=dict)
    """Of every run."""
    presets: Mapping[str, str] = field(default_factory=dict)
    """Of methods that have one of their own."""

    def arm(self, method: str) -> Arm:
        """A method on this problem."""
        return Arm(
            method,
            self.presets.get(method, PRESETS[method]),
            presets=PAPER_PRESETS[method],
            overrides={"env": self.env, **self.of_all},
        )

    @property
    def scales(self) -> Mapping[Scale, Setting]:
        random = self.data["smoke"].endswith("-smoke")
        note = f"{SMOKE_NOTE} on random actions" if random else SMOKE_NOTE
        return {
            "smoke": Setting(self.data["smoke"], 2, BRIEF, TINY, note=note),
            "gpu": Setting(self.data["gpu"], 4, LONG),
            "paper": Setting(self.data["paper"], 4, LONG),
        }


def _data(name: str, paper: str = "paper") -> Mapping[Scale, str]:
    return {"smoke": f"{name}-smoke", "gpu": f"{name}-10min", "paper": f"{name}-{paper}"}


_DIRECTION = _Problem(
    "cheetah-dir",
    "cheetah-dir/macaw-v1",
    _data("cheetah-dir"),
    {"algo.task_batch": 2},
    {MACAW: "macaw-cheetah-dir"},
)
_WALKER = _Problem(
    "walker-params",
    "walker-params/macaw-v1",
    _data("walker-params"),
)
_OF_EXTENDED = (
    _DIRECTION,
    _Problem("ant-dir", "ant-dir/macaw-v1", _data("ant-dir")),
    _WALKER,
)
_OF_WORKSHOP = (
    replace(_DIRECTION, data=_data("cheetah-dir", "workshop")),
    _Problem(
        "cheetah-vel",
        "cheetah-vel/macaw-v1",
        {**_data("cheetah-vel", "workshop"), "smoke": "bundled:cheetah-vel"},
    ),
    replace(
        _WALKER,
        env="walker-params/workshop-v1",
        data={
            **_data("walker-params-workshop"),
            "paper": "walker-params-workshop",
        },
    ),
)


def _figure_3(problem: _Problem) -> Experiment:
    return Experiment(
        id=f"macaw-fig3-{problem.name}",
        title=f"MACAW, Figure 3, {problem.name}: all methods",
        claim=Claim(
            words="MACAW alone is above meta behaviour cloning on every problem, and needs the "
            "fewest updates; multi-task AWR with 20 steps of fine-tuning gets somewhere on the "
            "cheetahs. Four seeds.",
            source=f"{EXTENDED}, Figure 3 and section 5",
        ),
        arms=tuple(map(problem.arm, PRESETS)),
        scales=problem.scales,
        reference=MACAW,
        deviates=_NO_TUNING,
    )


def _figure_5(problem: _Problem) -> Experiment:
    with_it = problem.arm(MACAW)
    changes: Overrides = {**with_it.overrides, "algo.layer": "linear"}
    return Experiment(
        id=f"macaw-fig5-wt-{problem.name}",
        title=f"MACAW, Figure 5, {problem.name}: no weight transforms",
        claim=Claim(
            words="With weight transforms MACAW trains faster and more stably on every problem, "
            "and ends better on all but cheetah direction. All networks are equally wide.",
            source=f"{EXTENDED}, Figure 5 (6 in the ICML version) and appendix C.1",
        ),
        arms=(with_it, replace(with_it, method="no WT, equal width", overrides=changes)),
        scales=problem.scales,
        reference=MACAW,
        deviates=_NO_TUNING,
    )


def _workshop_figure_1(problem: _Problem) -> Experiment:
    same = problem.env.endswith("/macaw-v1")
    shared = "; at scale gpu the data is that submission's, too" if same else ""
    return Experiment(
        id=f"macaw-workshop-fig1-{problem.name}",
        title=f"MACAW's workshop version, Figure 1, {problem.name}",
        claim=Claim(
            words="MACAW learns from offline data and is above multi-task training with 20 steps "
            "of fine-tuning throughout; offline PEARL does well, too, and sometimes ends better, "
            "but MACAW needs fewer updates.",
            source=f"{WORKSHOP}, Figure 1 and appendix A",
        ),
        arms=tuple(problem.arm(method) for method in (MACAW, MT_AWR, PEARL)),
        scales=problem.scales,
        reference=MACAW,
        deviates="the workshop version tells no settings: they are those of the extended "
        f"submission{shared}",
    )


EXPERIMENTS = (
    *map(_figure_3, _OF_EXTENDED),
    *map(_figure_5, _OF_EXTENDED),
    *map(_workshop_figure_1, _OF_WORKSHOP),
)
