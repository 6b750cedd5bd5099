"""Why a row has no returns of its end in `results/` at scale gpu; `verdicts.py` prints it.

What was stopped, or not run for want of time on a GPU, could be, one command each.
"""

from __future__ import annotations

from collections.abc import Mapping

_TIME = "no time on a GPU"
_REACHED = "what it had reached"
_ABLATIONS = f"[{_REACHED}](results.md#macaw-with-one-part-less)"
_MILLION = f"{_TIME}: a million updates, 990 s of an H200 alone on cheetah-vel"
_MACAW, _MACAW_ORIGINAL, _BOREL, _BOREL_ORIGINAL, _RELABELLED = (
    f"{method}, after offline training"
    for method in (
        "MACAW (matched)",
        "MACAW (original)",
        "BOReL (matched)",
        "BOReL (original)",
        "BOReL (matched), relabelled",
    )
)
_ABLATION, _ORACLE = (
    f"{method}, after the online phase"
    for method in ("SMAC (actor ablation)", "Online Oracle (ii)")
)


def _not_finite(when: str) -> str:
    return f"run, and not finite {when}, which ends the run of all seeds"


WHY: Mapping[str, Mapping[str, str]] = {
    "macaw-ablations-cheetah-vel": {
        "no WT, equal parameters": f"stopped after 34,300 of 60,000 updates: {_ABLATIONS}",
        "bias transform, equal parameters": f"stopped after 30,500 of 60,000 updates: {_ABLATIONS}",
        **dict.fromkeys(("5 inner steps", "10 inner steps"), _TIME),
    },
    "smac-fig5-cheetah-vel": {
        _ABLATION: "stopped within that phase",
        _MACAW: f"{_TIME}; with inner rates of 1e-3 for 3e-4 not finite after two updates",
        _ORACLE: f"stopped after 18 of 20 iterations: [{_REACHED}](results.md#smac)",
    },
    "smac-fig5-ant-dir": {
        _MACAW: _not_finite("after 14,801 of 50,000 updates in one of four"),
        _BOREL_ORIGINAL: _MILLION,
        _RELABELLED: _TIME,
        _ORACLE: f"{_TIME} on this draw of the data; run [on the first](results.md#ant-dir)",
    },
    "smac-fig5-walker-params": {
        _MACAW: _not_finite("after 6,470 of 50,000 updates"),
        _BOREL_ORIGINAL: _MILLION,
    },
    "smac-fig5-hopper-params": {
        _MACAW: _not_finite("after 7,561 of 50,000 updates in one of four"),
        _BOREL_ORIGINAL: _MILLION,
    },
    "smac-fig5-humanoid-dir": {
        **dict.fromkeys((_MACAW_ORIGINAL, _MACAW), _not_finite("at its first update")),
        _BOREL_ORIGINAL: _MILLION,
        **dict.fromkeys((_BOREL, _RELABELLED), _TIME),
    },
    "smac-fig5-sawyer": {_MACAW: _not_finite("at its fifth update")},
    "unicorn-table2-walker-params": dict.fromkeys(
        ("offline PEARL", "meta-BC", "SMAC, offline"), _TIME
    ),
}
"""By id, and by label of the row."""
