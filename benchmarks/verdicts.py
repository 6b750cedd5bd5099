"""What of the papers' claims holds here, by one rule, from the raw returns in results/.

    python benchmarks/verdicts.py docs/verdicts.md

Every claim that one method is above another is a paired difference: of returns of the same seed,
task and episode, with the 95 % stratified bootstrap interval. Its verdict is "reproduced" where the
whole interval is above 0, "not" where it is below, else "partly"; that of a figure is what all of
its differences have, else "partly".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from not_run import WHY
from omrl import stats
from omrl.experiments.registry import EXPERIMENTS
from omrl.files import atomic_write
from omrl.omniglot import settings as omniglot

Verdict = Literal["reproduced", "partly", "not"]
RESULTS = Path(__file__).resolve().parents[1] / "results"
TEST = 2
"""Side of Omniglot's classes."""


@dataclass(frozen=True)
class Side:
    """One method of a difference."""

    file: str
    """In results/."""
    shot: int = -1
    """Index of the adaptation in its returns, of which the last is the adapted one; of a diagnosis,
    of the contexts: logged and explored."""
    quantity: Literal["returns", "kl", "success"] = "returns"
    """success: of episodes [percent]; kl: of a diagnosis, of posteriors to the prior [nats]."""

    def returns(self) -> Float[np.ndarray, "seed task episode"]:
        with np.load(RESULTS / self.file) as arrays:
            if "accuracy" in arrays:  # [seed, evaluation, side, episode], as if of one task
                return 100.0 * arrays["accuracy"][:, -1, TEST, None].astype(np.float64)
            if "kl" in arrays:  # A diagnosis: [context, seed, task, episode]
                return arrays[self.quantity][self.shot]
            if self.quantity == "success":
                return 100.0 * arrays["success"][:, :, self.shot].astype(np.float64)
            return arrays["returns"][:, :, self.shot]


@dataclass(frozen=True)
class Difference:
    """What the paper has above 0."""

    name: str
    above: Side
    below: Side

    def estimate(self) -> stats.Estimate:
        return stats.improvement(self.above.returns(), self.below.returns())


@dataclass(frozen=True)
class Measured:
    """An experiment that was run at scale gpu."""

    section: str
    """Where table, command, hardware and deviations are, in docs/."""
    differences: tuple[Difference, ...]
    picture: str = ""


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
    return Measured(_OTHERS, _pairs(folder, *_AGAINST), f"../results/{folder}/figure.png")


def _workshop(problem: str, section: str) -> Measured:
    """Figure 1 of the workshop version: at scale gpu its runs are those of Figure 3."""
    _, of_tasks, _ = _AGAINST
    return Measured(section, _pairs(f"macaw-fig3-{problem}", of_tasks))


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
_OTHERS = "results.md#the-same-on-cheetah-dir-and-walker-params"
_FIG_3, _ABLATIONS = "macaw-fig3-cheetah-vel", "macaw-ablations-cheetah-vel"
_ML45, _SAWYER = "macaw-fig7-ml45", "smac-sawyer"
_SHIFT = "smac-ant-dir/smac/diagnose-shift/d0a49df4-00050000"

MEASURED: Mapping[str, Measured] = {
    _FIG_3: Measured(
        _ALL_METHODS,
        _pairs(_FIG_3, *_AGAINST),
        "../results/macaw-fig3-cheetah-vel/figure.png",
    ),
    "macaw-fig3-cheetah-dir": _fig_3("cheetah-dir"),
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
        "../results/macaw-fig5-wt-cheetah-dir/figure.png",
    ),
    "macaw-workshop-fig1-cheetah-dir": _workshop("cheetah-dir", _OTHERS),
    "macaw-workshop-fig1-cheetah-vel": _workshop("cheetah-vel", _ALL_METHODS),
    _ML45: Measured("environments/meta-world.md#the-papers-figures", tuple(_ml45())),
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
        "../results/macaw-fig4-quality/figure.png",
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
        "../results/macaw-fig4-sparsity/figure.png",
    ),
    _ABLATIONS: Measured(
        "results.md#macaw-with-one-part-less",
        _pairs(_ABLATIONS, ("MACAW - plain layers, equal width", "macaw", "no-wt-equal-width")),
        "../results/macaw-ablations-cheetah-vel/figure.png",
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
        "img/macaw-fig6-omniglot.svg",
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
    ),
    "smac-fig5-ant-dir": Measured(
        "results.md#ant-dir", (_phases("smac-ant-dir", "smac", 350_000),)
    ),
    "smac-fig5-walker-params": Measured(
        "results.md#walker-params",
        (_phases("smac-walker-params", "smac", 350_000, "; both far below standing still"),),
    ),
    "smac-fig2-shift-ant-dir": Measured(
        "results.md#ant-dir",
        (
            Difference(
                "SMAC before its online phase, logged - explored contexts",
                Side(f"{_SHIFT}.npz", 0),
                Side(f"{_SHIFT}.npz", 1),
            ),
            Difference(
                "KL to the prior of its posteriors [nats], explored - logged contexts",
                Side(f"{_SHIFT}.npz", 1, "kl"),
                Side(f"{_SHIFT}.npz", 0, "kl"),
            ),
        ),
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
    ),
}
"""By id; claims that are no difference of returns, as "about the oracle", are in the section."""


DRAWN: Mapping[str, str] = {
    "macaw-fig9-behaviour-ml45": "environments/meta-world.md#the-papers-figures",
}
"""Figures of data that were drawn at scale gpu; they compare nothing."""


def verdict(estimate: stats.Estimate) -> Verdict:
    """Of a difference."""
    if estimate.low is None or estimate.high is None:
        return "partly"
    if estimate.low > 0:
        return "reproduced"
    return "not" if estimate.high < 0 else "partly"


def of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """Of a figure."""
    found = set(verdicts)
    return found.pop() if len(found) == 1 else "partly"


def page() -> str:
    """The Markdown of docs/verdicts.md."""
    names = (*EXPERIMENTS, omniglot.ID)
    rows = [line for name in names if name in MEASURED for line in _rows(name)]
    drawn = ", ".join(f"[`{name}`]({section})" for name, section in DRAWN.items())
    return "\n".join(
        (
            "# What holds of the papers' claims",
            "",
            "<!-- Written by: python benchmarks/verdicts.py docs/verdicts.md -->",
            "",
            *_RULE,
            "",
            "| experiment | what the paper has above 0 | here | by the rule |",
            "| --- | --- | ---: | --- |",
            *rows,
            "",
            "## The claims",
            "",
            *(f"* `{name}`: {_claim(name)}" for name in names if name in MEASURED),
            "",
            "## Not run",
            "",
            "All of it is one command each (`omrl reproduce ID --scale gpu`).",
            "",
            "| without a verdict at scale `gpu` | why |",
            "| --- | --- |",
            *(f"| `{name}` | {why} |" for name, why in WHY.items()),
            "",
            f"Drawn, of data alone: {drawn}.",
            "",
            "## GPU time",
            "",
            f"The trainings whose logs and tables are in `results/` took {_hours():.1f} hours of "
            "wall time together, each on one GPU or on a share of one.",
            "",
        )
    )


_RULE = (
    "One line for every claim of a figure that one method, or one phase, is above another: the",
    "paired difference of returns (of the same seed, task and episode; Omniglot: of test",
    "accuracies in percent; else of what the line says) after adaptation, with the 95 % stratified",
    "bootstrap interval, from the raw returns in [results/](../results/README.md).",
    "",
    "**The rule:** *reproduced* where the whole interval is above 0, *not* where it is below 0,",
    "else *partly*, also where nothing can be told from noise; a figure is what all of its lines",
    "are, else *partly*. A verdict is of the lines alone: what else a claim says, as how near an",
    "oracle is, stands in the section that a line links to. Checkpoints are the last of a run, but",
    "where a line says how many updates.",
    "Data, environments and settings are not the papers': what differs is in that section, too,",
    "with the command and the hardware.",
)


def _rows(name: str) -> Iterator[str]:
    measured = MEASURED[name]
    estimates = [each.estimate() for each in measured.differences]
    whole = of_all(map(verdict, estimates))
    picture = f", [figure]({measured.picture})" if measured.picture else ""
    yield f"| [{name}]({measured.section}){picture} | | | **{whole}** |"
    for difference, found in zip(measured.differences, estimates, strict=True):
        number = f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"
        yield f"| | {difference.name} | {number} | {verdict(found)} |"


def _claim(name: str) -> str:
    claim = omniglot.CLAIM if name == omniglot.ID else EXPERIMENTS[name].claim
    return f"{claim.words} ({claim.source})"


def _hours() -> float:
    """Of the runs and tables that are kept."""
    seconds = 0.0
    for path in RESULTS.rglob("log.jsonl"):
        lines = path.read_text().splitlines()
        seconds += max(json.loads(line).get("seconds", 0.0) for line in lines)
    for path in RESULTS.rglob("results.json"):
        seconds += sum(row.get("seconds", 0.0) for row in json.loads(path.read_text())["rows"])
    return seconds / 3600


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[1])) as file:
        file.write(page().encode())
