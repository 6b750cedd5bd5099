"""Our methods on the MDPs of later papers' tables: Table 2 of UNICORN (NeurIPS 2024), its columns
with contexts of the test task's own data, where MACAW has a row.

The numbers stand beside ours as anchors: collections, lengths and tasks are others.
"""

from __future__ import annotations

from collections.abc import Mapping

from omrl.experiments.declare import Arm, Claim, Experiment, Number, Setting
from omrl.experiments.macaw_problems import LONG, MACAW, PRESETS

_COLUMNS = {
    "cheetah-vel": (
        "cheetah-vel/oyster-v1",
        "cheetah-vel-oyster-10min",
        Number(-56.0, 2.0),
        "UNICORN-SS -22 ± 1, FOCAL -22 ± 1, CSRO -28 ± 1, CORRO -37 ± 3, Prompt-DT -118 ± 66",
    ),
    "ant-dir": (
        "ant-dir/fwd-v1",
        "ant-dir-fwd-10min",
        Number(26.0, 3.0),
        "CSRO 276 ± 19, UNICORN-SS 267 ± 14, FOCAL 217 ± 29, CORRO 148 ± 13, Prompt-DT 1 ± 0",
    ),
    "walker-params": (
        "walker-params/corro-v1",
        "walker-params-corro-10min",
        Number(141.0, 9.0),
        "UNICORN-SS 419 ± 44, CSRO 310 ± 58, FOCAL 308 ± 98, CORRO 277 ± 38, Prompt-DT 185 ± 9",
    ),
    "hopper-params": (
        "hopper-params/corro-v1",
        "hopper-params-corro-10min",
        Number(218.0, 6.0),
        "UNICORN-SS 316 ± 6, CSRO 310 ± 6, FOCAL 302 ± 4, CORRO 283 ± 8, Prompt-DT 234 ± 5",
    ),
}
"""By problem: environment, collection, the return of MACAW, and those of others."""

_METHODS = {**PRESETS, "SMAC, offline": "smac-offline-hopper-params"}
"""Presets by method, on all problems."""
_OWN: Mapping[str, Mapping[str, str]] = {
    "cheetah-vel": {"SMAC, offline, own settings": "smac-offline-cheetah-vel"}
}
"""Further ones of a problem."""


def _column(problem: str) -> Experiment:
    env, data, number, others = _COLUMNS[problem]
    return Experiment(
        id=f"unicorn-table2-{problem}",
        title=f"UNICORN, Table 2, {problem}: our methods",
        claim=Claim(
            words=f"Contexts of the test task's own behaviour policies: {others}.",
            source="UNICORN (NeurIPS 2024), Table 2",
            numbers={MACAW: number},
            spread="as the table prints it, over 6 seeds",
        ),
        arms=tuple(
            Arm(method, preset, overrides={"env": env})
            for method, preset in {**_METHODS, **_OWN.get(problem, {})}.items()
        ),
        scales={"gpu": Setting(data, 4, LONG)},
        reference=MACAW,
        deviates="tasks are others, and data are whole lifetimes of our own learners: the paper "
        "has 20 test tasks and at most 40 to train on, of about 450,000 transitions each; settings "
        "are those that were chosen on cheetah-vel/macaw-v1, not tuned on this problem, those of "
        "SMAC's offline phase on validation tasks of hopper-params/corro-v1, and its own settings, "
        "where there is such a row, on those of cheetah-vel/macaw-v1",
    )


EXPERIMENTS = tuple(map(_column, _COLUMNS))
