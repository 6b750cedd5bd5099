"""Why an experiment has no verdict at scale gpu; `verdicts.py` prints it.

What remains is time on a GPU. Seconds are of collections that were made, on one NVIDIA H200 and 12
to 24 CPU cores; neither data nor checkpoints are kept in the repository, `results/` has returns.
"""

from __future__ import annotations

from collections.abc import Mapping

_IN_TEST_TASKS = "needs SMAC's run of Figure 5 once more, one in the test tasks and an oracle"
_TABLE = "declared; neither its collection nor its four trainings are made"
_AGAIN = "needs the collection of Figure 3 once more ({} s) and two trainings of MACAW"

WHY: Mapping[str, str] = {
    "macaw-fig5-wt-walker-params": _AGAIN.format(346),
    "macaw-workshop-fig1-walker-params": "needs a collection of its own, of the other physics of "
    "the workshop version, and three trainings",
    "macaw-workshop-fig2": "needs the collection of Figure 3 once more (445 s) and three "
    "trainings; in a run of it one of 108 adaptations of MACAW diverged within five steps (seed 0, "
    "task 24), which ended the evaluation then",
    "smac-fig5-humanoid-dir": "not begun",
    "smac-fig2-shift-humanoid-dir": "as Figure 5 of humanoid-dir",
    "smac-fig8-walker-params": _IN_TEST_TASKS,
    "smac-fig8-hopper-params": _IN_TEST_TASKS,
    "unicorn-table2-cheetah-vel": _TABLE,
    "unicorn-table2-ant-dir": _TABLE,
    "unicorn-table2-walker-params": _TABLE,
}
"""By id."""
