"""Why an experiment has no verdict at scale gpu; `verdicts.py` prints it.

What remains is time on a GPU. Seconds are of collections that were made, on one NVIDIA H200 and 12
to 24 CPU cores; neither data nor checkpoints are kept in the repository, `results/` has returns.
"""

from __future__ import annotations

from collections.abc import Mapping

WHY: Mapping[str, str] = {
    "smac-fig5-humanoid-dir": "begun: of the PEARL run whose data all others are trained on, "
    "353,000 of 480,000 updates were made in 1,089 s beside five other processes",
    "smac-fig2-shift-humanoid-dir": "as Figure 5 of humanoid-dir",
}
"""By id."""
