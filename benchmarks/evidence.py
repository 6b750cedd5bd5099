"""What was run at scale gpu, and the differences that verdicts are of; `verdicts.py` prints them.

`results/` has the raw returns. Claims that are no difference of returns, as "about the oracle", are
in the sections of docs/ that are named here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from difference import Difference, Side
from omrl.diagnostics.base import SETS
from omrl.omniglot import settings as omniglot


@dataclass(frozen=True)
class Measured:
    """An experiment that was run at scale gpu."""

    section: str
    """Where table, command, hardware and deviations are, in docs/."""
    differences: tuple[Difference, ...]
    rows: Mapping[str, str] = field(default_factory=dict)
    """Files of rows of its figure, by their labels, without .npz; that of others is ID/ROW, where
    there is one."""
    diagnosis: str = ""
    """What its pictures are of, if not of returns."""
    checkpoints: tuple[str, ...] = ()
    """Files of that, at growing numbers of updates."""
    remark: str = ""
    """What the lines do not tell."""


def _pairs(folder: str, *names: tuple[str, str, str]) -> tuple[Difference, ...]:
    """Differences of files of one folder: name, above, below."""
    return tuple(
        Difference(name, Side(f"{folder}/{above}.npz"), Side(f"{folder}/{below}.npz"))
        for name, above, below in names
    )


def _phases(folder: str, run: str, end: int, remark: str = "") -> Difference:
    """What a self-supervised phase is worth."""
    name = f"SMAC after its online phase - before{remark}"
    (difference,) = _pairs(folder, (name, f"{run}/step-{end:08d}", f"{run}/step-00050000"))
    return difference


def _sparsity() -> Iterator[tuple[str, str, str]]:
    for tasks in (20, 10, 5, 3):
        for method, file in (("MT-AWR + FT", "mt-awr-ft"), ("offline PEARL", "offline-pearl")):
            name = f"MACAW - {method}, {tasks} tasks"
            yield name, f"macaw-{tasks}-tasks", f"{file}-{tasks}-tasks"


def _fig_3(problem: str) -> Measured:
    """Of one of the other problems than cheetah velocity."""
    folder = f"macaw-fig3-{problem}"
    return Measured(_OTHERS, _pairs(folder, *_AGAINST))


def _workshop(problem: str, section: str) -> Measured:
    """Figure 1 of the workshop version: at scale gpu its runs are those of Figure 3."""
    _, of_tasks, _ = _AGAINST
    folder = f"macaw-fig3-{problem}"
    return Measured(section, _pairs(folder, of_tasks), _methods(folder))


def _methods(folder: str, tasks: str = "") -> dict[str, str]:
    """Rows of experiments whose runs are those of Figure 3."""
    files = {"MACAW": "macaw", "MT-AWR + FT": "mt-awr-ft", "offline PEARL": "offline-pearl"}
    return {f"{label}{tasks}": f"{folder}/{file}" for label, file in files.items()}


def _smac(folder: str, **files: str) -> dict[str, str]:
    """Rows of SMAC's Figure 5; those of a run are named by what they are of, its last phase if
    nothing else is said."""
    return {_ROWS[name]: f"{folder}/{file}" for name, file in files.items()}


_OFFLINE, _ONLINE = "after offline training", "after the online phase"
_ROWS = {
    "offline": f"SMAC, {_OFFLINE}",
    "online": f"SMAC, {_ONLINE}",
    "ablation_offline": f"SMAC (actor ablation), {_OFFLINE}",
    "ablation": f"SMAC (actor ablation), {_ONLINE}",
    "meta_bc": f"meta-BC, {_OFFLINE}",
    "macaw_original": f"MACAW (original), {_OFFLINE}",
    "borel_original": f"BOReL (original), {_OFFLINE}",
    "borel_matched": f"BOReL (matched), {_OFFLINE}",
    "borel_relabelled": f"BOReL (matched), relabelled, {_OFFLINE}",
    "pearl": f"Online Oracle (i), {_ONLINE}",
    "oracle": f"Online Oracle (ii), {_ONLINE}",
}


def _fig_5_physics(problem: str) -> Measured:
    """Of walkers or hoppers. The runs went on; what is kept was evaluated half-way."""
    folder = f"smac-{problem}-params/last-1200"
    return Measured(
        "results.md#hopper-params-and-another-part-of-walkers-lifetimes",
        (_phases(folder, "smac", 200_000, ", 7.5 of 15 iterations"),),
        _smac(
            folder,
            offline="smac/step-00050000",
            online="smac/step-00200000",
            pearl="pearl/step-00640000",
        ),
        remark="the row after the online phase is half-way through it. Lambda_pearl is 0.05, not "
        "the tables' 1, and the slice the last 1,200 transitions, both chosen on validation tasks "
        "after walkers had stayed below standing still on the test tasks with the first 1,200. "
        "Posteriors collapse to the prior (KL below 0.001 nats after 41,000 updates; rewards do "
        "not tell these tasks apart), so that one policy is learned for all physics and nothing is "
        "adapted",
    )


def _traces(*spreads: tuple[str, tuple[str, int], tuple[str, int]]) -> Measured:
    """Figure 6 or 7: how far apart the ends of tasks are, by set of trajectories and checkpoint."""

    def side(name: str, checkpoint: int) -> Side:
        return Side(_TRACES[checkpoint], SETS.index(name), "spread")

    return Measured(
        "results.md#where-trajectories-go",
        tuple(
            Difference(f"spread of ends [m], {name}", side(*above), side(*below))
            for name, above, below in spreads
        ),
        diagnosis="traces",
        checkpoints=_TRACES,
        remark="the picture says less than the lines: 82 to 94 % of the ends more than 2 m off "
        "are in one quadrant, with contexts of either kind and before the online phase as after "
        "it, where ants get farther; and of the logged trajectories, too, most that get anywhere "
        "go there",
    )


def _ml45() -> Iterator[Difference]:
    """At the first and the last evaluation: the paper has both above PEARL soon."""
    for end in (4_000, 20_000):
        of = {
            name: Side(f"{_ML45}/{name}/step-{end:08d}.npz", quantity="success")
            for name in ("macaw", "mt-awr", "pearl")
        }
        for name, title in (("macaw", "MACAW"), ("mt-awr", "MT-AWR + FT")):
            words = f"success [percent], {title} - offline PEARL, after {end:,} updates"
            yield Difference(words, of[name], of["pearl"])


_AGAINST = (
    ("MACAW - meta-BC", "macaw", "meta-bc"),
    ("MACAW - MT-AWR + FT", "macaw", "mt-awr-ft"),
    ("MACAW - offline PEARL", "macaw", "offline-pearl"),
)
_ALL_METHODS = "results.md#all-methods-on-cheetah-vel"
_OTHERS = "results.md#the-same-on-cheetah-dir-walker-params-and-ant-dir"
_FIG_3, _ABLATIONS = "macaw-fig3-cheetah-vel", "macaw-ablations-cheetah-vel"
_ML45, _SAWYER = "macaw-fig7-ml45", "smac-sawyer"
_SHIFT = "smac-ant-dir/smac/diagnose-shift/d0a49df4"
_TRACES = tuple(f"smac-fig6-traces/smac/traces-{step}.npz" for step in ("00050000", "00350000"))

MEASURED: Mapping[str, Measured] = {
    _FIG_3: Measured(
        _ALL_METHODS,
        _pairs(_FIG_3, *_AGAINST),
    ),
    "macaw-fig3-cheetah-dir": _fig_3("cheetah-dir"),
    "macaw-fig3-ant-dir": _fig_3("ant-dir"),
    "macaw-fig3-walker-params": _fig_3("walker-params"),
    "macaw-fig5-wt-cheetah-dir": Measured(
        _OTHERS,
        _pairs(
            "macaw-fig5-wt-cheetah-dir",
            # In the end the paper has them alike on this problem.
            (
                "MACAW - plain layers, equal width, after 12,000 of 20,000 updates",
                "macaw-step-00012000",
                "no-wt-equal-width-step-00012000",
            ),
        ),
        remark="in the end the paper has both alike on this problem, and here plain layers end far "
        "below",
    ),
    "macaw-workshop-fig1-cheetah-dir": _workshop("cheetah-dir", _OTHERS),
    "macaw-workshop-fig1-cheetah-vel": _workshop("cheetah-vel", _ALL_METHODS),
    _ML45: Measured(
        "environments/meta-world.md#the-papers-figures",
        tuple(_ml45()),
        {
            "MACAW": f"{_ML45}/macaw/step-00020000",
            "MT-AWR + FT": f"{_ML45}/mt-awr/step-00020000",
            "offline PEARL": f"{_ML45}/pearl/step-00020000",
        },
    ),
    "macaw-fig4-quality": Measured(
        "results.md#quality-of-the-data-that-is-adapted-to",
        _pairs(
            "macaw-fig4-quality",
            ("MACAW - no advantage head, bad data", "macaw-bad-data", "no-advantage-head-bad-data"),
            (
                "MACAW - no advantage head, medium data",
                "macaw-medium-data",
                "no-advantage-head-medium-data",
            ),
        ),
    ),
    "macaw-fig4-sparsity": Measured(
        "results.md#fewer-training-tasks",
        (
            *_pairs(
                _FIG_3,  # The runs with 35 tasks are those of Figure 3.
                ("MACAW - MT-AWR + FT, 35 tasks", "macaw", "mt-awr-ft"),
                ("MACAW - offline PEARL, 35 tasks", "macaw", "offline-pearl"),
            ),
            *_pairs("macaw-fig4-sparsity", *_sparsity()),
        ),
        _methods(_FIG_3, ", 35 tasks"),
    ),
    _ABLATIONS: Measured(
        "results.md#macaw-with-one-part-less",
        _pairs(_ABLATIONS, ("MACAW - plain layers, equal width", "macaw", "no-wt-equal-width")),
    ),
    "macaw-table1-online": Measured(
        "results.md#fine-tuning-online-out-of-distribution",
        (
            Difference(
                "MACAW - PEARL + FT, before going online",
                Side("finetune-cheetah-vel/macaw.npz", 0),
                Side("finetune-cheetah-vel/pearl.npz", 0),
            ),
            *_pairs(
                "finetune-cheetah-vel",
                ("MACAW - PEARL + FT, after 20,000 steps", "macaw", "pearl"),
            ),
        ),
        {
            "MACAW, 20,000 steps": "finetune-cheetah-vel/macaw",
            "MT-AWR + FT, 20,000 steps": "finetune-cheetah-vel/mt-awr",
            "PEARL + FT, 20,000 steps": "finetune-cheetah-vel/pearl",
        },
    ),
    omniglot.ID: Measured(
        "omniglot.md#measured",
        _pairs(
            omniglot.ID,
            ("weight transform - plain, equal width", "weight-transform", "plain-equal-width"),
            (
                "weight transform - plain, equal parameters",
                "weight-transform",
                "plain-equal-parameters",
            ),
        ),
    ),
    "smac-fig5-cheetah-vel": Measured(
        "results.md#smac",
        (
            _phases("smac-cheetah-vel", "smac-ours", 450_000),
            *_pairs(
                "smac-cheetah-vel",
                (
                    "SMAC - MACAW, original",
                    "smac-ours/step-00450000",
                    "macaw-original/step-00100000",
                ),
            ),
            *(
                Difference(
                    f"SMAC - BOReL, {name}",
                    Side("smac-cheetah-vel/smac-ours/step-00450000.npz"),
                    Side(f"borel-smac-cheetah-vel/{name}/step-{end:08d}.npz"),
                )
                for name, end in (("matched", 52_500), ("original", 1_002_500))
            ),
        ),
        _smac(
            "smac-cheetah-vel",
            offline="smac-ours/step-00050000",
            online="smac-ours/step-00450000",
            ablation_offline="actor-ablation/step-00050000",
            meta_bc="meta-bc/step-00050000",
            macaw_original="macaw-original/step-00100000",
            pearl="pearl/step-00800000",
        )
        | _smac(
            "borel-smac-cheetah-vel",
            borel_original="original/step-01002500",
            borel_matched="matched/step-00052500",
            borel_relabelled="matched-relabelled/step-00052500",
        ),
        remark="BOReL is far above SMAC's offline phase here, where the paper has it near that at "
        "best",
    ),
    "smac-fig5-ant-dir": Measured(
        "results.md#ant-dir",
        (_phases("smac-ant-dir", "smac", 350_000),),
        _smac(
            "smac-ant-dir",
            offline="smac/step-00050000",
            online="smac/step-00350000",
            meta_bc="meta-bc/step-00050000",
            pearl="pearl/step-00640000",
            oracle="oracle/step-00350000",
        ),
    ),
    "smac-fig5-walker-params": _fig_5_physics("walker"),
    "smac-fig5-hopper-params": _fig_5_physics("hopper"),
    "smac-fig2-shift-ant-dir": Measured(
        "results.md#ant-dir",
        (
            Difference(
                "SMAC before its online phase, logged - explored contexts",
                Side(f"{_SHIFT}-00050000.npz", 0),
                Side(f"{_SHIFT}-00050000.npz", 1),
            ),
            Difference(
                "KL to the prior of its posteriors [nats], explored - logged contexts",
                Side(f"{_SHIFT}-00050000.npz", 1, "kl"),
                Side(f"{_SHIFT}-00050000.npz", 0, "kl"),
            ),
        ),
        diagnosis="shift",
        checkpoints=(f"{_SHIFT}-00050000.npz", f"{_SHIFT}-00250000.npz"),
        remark="of the checkpoints only the end of the offline phase and one within the online "
        "phase (250,000 of 350,000 updates) were diagnosed",
    ),
    "smac-fig6-traces": _traces(
        ("offline - online contexts, before the online phase", ("offline", 0), ("online", 0)),
        ("online contexts, after the online phase - before", ("online", 1), ("online", 0)),
    ),
    "smac-fig7-traces": _traces(
        ("logged - explored, before the online phase", ("dataset", 0), ("exploration", 0)),
        ("logged - explored, after the online phase", ("dataset", 1), ("exploration", 1)),
    ),
    "smac-fig5-sawyer": Measured(
        "results.md#sawyer-manipulation",
        (
            _phases(_SAWYER, "smac", 250_000),
            *_pairs(
                _SAWYER,
                (
                    "SMAC - actor ablation, offline",
                    "smac/step-00050000",
                    "actor-ablation/step-00050000",
                ),
            ),
        ),
        _smac(
            _SAWYER,
            offline="smac/step-00050000",
            online="smac/step-00250000",
            ablation_offline="actor-ablation/step-00050000",
            ablation="actor-ablation/step-00250000",
            oracle="oracle/step-00250000",
        ),
    ),
    "smac-fig8-sawyer8": Measured(
        "results.md#eight-behaviours",
        _pairs(
            "smac-sawyer8",
            (
                "in test tasks, after the online phase - before",
                "test/step-00170000",
                "test/step-00050000",
            ),
            ("in test tasks - in training tasks", "test/step-00170000", "train/step-00170000"),
        ),
        {
            f"SMAC on training tasks, {_OFFLINE}": "smac-sawyer8/train/step-00050000",
            f"SMAC on training tasks, {_ONLINE}": "smac-sawyer8/train/step-00170000",
            f"SMAC on test tasks, {_ONLINE}": "smac-sawyer8/test/step-00170000",
            f"oracle on test tasks, {_ONLINE}": "smac-sawyer8/oracle/step-00240000",
        },
    ),
}
"""By id."""


DRAWN: Mapping[str, str] = {
    "macaw-fig8-behaviour": "results.md#behaviour-data",
    "macaw-fig9-behaviour-ml45": "environments/meta-world.md#the-papers-figures",
}
"""Figures of data that were drawn at scale gpu, of problems whose episodes are kept. They compare
nothing."""
