"""Why an experiment has no verdict at scale gpu; `verdicts.py` prints it.

What remains is time on a GPU. Seconds are of collections that were made, on one NVIDIA H200 and 12
to 24 CPU cores; neither data nor checkpoints are kept in the repository, `results/` has returns.
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_CHECKPOINTS = "needs the checkpoints of SMAC's run of Figure 5, which are not kept"
_OF_PHYSICS = f"{_NO_CHECKPOINTS}; the part of the data is to be chosen first"
_TABLE = "declared; neither its collection nor its four trainings are made"
_AGAIN = "needs the collection of Figure 3 once more ({} s) and two trainings of MACAW"
_PIECES = "results.md#hopper-params-and-another-part-of-walkers-lifetimes"

WHY: Mapping[str, str] = {
    "macaw-fig3-ant-dir": "meta-BC is missing; the other three methods are "
    "[done](results.md#the-same-on-cheetah-dir-and-walker-params)",
    "macaw-fig5-wt-ant-dir": _AGAIN.format(496),
    "macaw-fig5-wt-walker-params": _AGAIN.format(242),
    "macaw-workshop-fig1-walker-params": "needs a collection of its own, of the other physics of "
    "the workshop version, and three trainings",
    "macaw-workshop-fig2": "needs seven trainings on slices of cheetah velocity",
    "smac-fig5-hopper-params": f"data and one candidate of the settings are [done]({_PIECES}), the "
    "other candidates and the trainings on all tasks are not",
    "smac-fig5-humanoid-dir": "not begun",
    "smac-fig2-shift-cheetah-vel": _NO_CHECKPOINTS,
    "smac-fig2-shift-walker-params": _OF_PHYSICS,
    "smac-fig2-shift-hopper-params": _OF_PHYSICS,
    "smac-fig2-shift-humanoid-dir": "as Figure 5 of humanoid-dir",
    "smac-fig8-walker-params": _OF_PHYSICS,
    "smac-fig8-hopper-params": _OF_PHYSICS,
    "smac-fig6-traces": f"{_NO_CHECKPOINTS}; a [picture](results.md#ant-dir) of the like is there",
    "smac-fig7-traces": "as Figure 6, of the same runs",
    "smac-reward-accuracy": _NO_CHECKPOINTS,
    "unicorn-table2-cheetah-vel": _TABLE,
    "unicorn-table2-ant-dir": _TABLE,
    "unicorn-table2-walker-params": _TABLE,
    "unicorn-table2-hopper-params": _TABLE,
    "macaw-fig8-behaviour": "needs the collections of four problems side by side",
}
"""By id."""
