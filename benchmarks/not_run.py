"""Why an experiment has no verdict at scale gpu; `verdicts.py` prints it.

What remains is time on a GPU. Seconds are of collections that were made, on one NVIDIA H200 and 12
to 24 CPU cores; neither data nor checkpoints are kept in the repository, `results/` has returns.
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_CHECKPOINTS = "needs the checkpoints of SMAC's run of Figure 5, which are not kept"
_IN_TEST_TASKS = "needs SMAC's run of Figure 5 once more, one in the test tasks and an oracle"
_TABLE = "declared; neither its collection nor its four trainings are made"
_AGAIN = "needs the collection of Figure 3 once more ({} s) and two trainings of MACAW"

WHY: Mapping[str, str] = {
    "macaw-fig5-wt-ant-dir": _AGAIN.format(424) + "; the one without weight transforms was stopped "
    "after 33,000 of 60,000 updates",
    "macaw-fig5-wt-walker-params": _AGAIN.format(346),
    "macaw-workshop-fig1-walker-params": "needs a collection of its own, of the other physics of "
    "the workshop version, and three trainings",
    "macaw-workshop-fig2": "needs seven trainings on slices of cheetah velocity",
    "smac-fig5-humanoid-dir": "not begun",
    "smac-fig2-shift-cheetah-vel": f"{_NO_CHECKPOINTS}; a run of it was stopped after 150,000 "
    "of 450,000 updates",
    "smac-fig2-shift-walker-params": _NO_CHECKPOINTS,
    "smac-fig2-shift-hopper-params": _NO_CHECKPOINTS,
    "smac-fig2-shift-humanoid-dir": "as Figure 5 of humanoid-dir",
    "smac-fig8-walker-params": _IN_TEST_TASKS,
    "smac-fig8-hopper-params": _IN_TEST_TASKS,
    "smac-reward-accuracy": _NO_CHECKPOINTS,
    "unicorn-table2-cheetah-vel": _TABLE,
    "unicorn-table2-ant-dir": _TABLE,
    "unicorn-table2-walker-params": _TABLE,
    "unicorn-table2-hopper-params": _TABLE,
}
"""By id."""
