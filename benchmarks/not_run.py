"""Why an experiment has no verdict at scale gpu; `verdicts.py` prints it.

Seconds are wall time on one NVIDIA H200 and 16 CPU cores. Neither data nor checkpoints are kept in
the repository; `results/` has returns.
"""

from __future__ import annotations

from collections.abc import Mapping

WHY: Mapping[str, str] = {
    "smac-fig2-shift-humanoid-dir": "run once, on the runs of Figure 5 there, in 357 s beside "
    "others: its table is in results.md#humanoid-dir, its raw returns were not kept, and a verdict "
    "is of raw returns alone",
}
"""By id."""
