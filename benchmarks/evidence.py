"""What was run at scale gpu, and the differences that verdicts are of; `verdicts.py` prints them.

`results/` has the raw returns. Claims that are no difference of returns, as "about the oracle", are
in the sections of docs/ that are named here.
"""

from __future__ import annotations

from collections.abc import Mapping

from evidence_base import Measured
from evidence_diagnoses import DIAGNOSES
from evidence_macaw import MACAW
from evidence_smac import SMAC

_SECTION = "results.md#mdps-of-later-papers"
_LATER: Mapping[str, Measured] = {
    "unicorn-table2-hopper-params": Measured(
        _SECTION,
        (),
        {"SMAC, offline": "unicorn-table2-hopper-params/again/smac-offline"},
        remark="the last row is of another day, on which MACAW ended at 233.4 [219.4, 246.3] on "
        "the same data; its settings were chosen on training tasks of this problem",
    ),
    "unicorn-table2-walker-params": Measured(_SECTION, ()),
    "unicorn-table2-cheetah-vel": Measured(
        _SECTION,
        (),
        remark="SMAC's offline phase ignores its contexts with the settings of hoppers; its own, "
        "chosen on validation tasks of other lifetimes, mend that but for targets of 0.5 to 1 m/s, "
        "at which they are no better (-100.0). The agents that made the data end at -27.1 on these "
        "tasks",
    ),
    "unicorn-table2-ant-dir": Measured(_SECTION, ()),
}
"""Numbers of papers with other MDPs are anchors and give no verdict."""

MEASURED: Mapping[str, Measured] = {**MACAW, **SMAC, **DIAGNOSES, **_LATER}
"""By id."""

DRAWN: Mapping[str, str] = {
    "macaw-fig8-behaviour": "results.md#behaviour-data",
    "macaw-fig9-behaviour-ml45": "environments/meta-world.md#the-papers-figures",
}
"""Figures of data that were drawn at scale gpu, of problems whose episodes are kept. They compare
nothing."""
