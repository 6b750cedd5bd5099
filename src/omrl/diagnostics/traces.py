"""Trajectories after contexts of data and after explored ones, to be drawn.

SMAC (arXiv:2107.03974, Figures 6 and 7) shows by them what a shift of contexts does: before the
online phase the policy goes wherever the tasks are with contexts of data, and one way alone with
those that it explored itself; after it, everywhere with both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from omrl.diagnostics.contexts import batches_of, offline_contexts, open_case, play
from omrl.diagnostics.traces_results import TracesResult
from omrl.diagnostics.watching import Watchers
from omrl.envs.positions import shown_quantities
from omrl.errors import InputError
from omrl.metatrain import Trained
from omrl.protocol import EvalConfig


def diagnose_traces(
    trained: Trained, config: EvalConfig, data: str | Path | None = None
) -> TracesResult:
    """Records the trajectories of one checkpoint; arguments and errors are those of `open_case`,
    and `InputError` for an environment that tells nothing that could be drawn."""
    names = shown_quantities(trained.env.spec)
    if not names:
        raise InputError(
            f"diagnose: {trained.env.spec.id} tells neither positions nor a velocity, so there is "
            "no trace to draw; --diagnose shift measures the same contexts by KL and return"
        )
    case = open_case(trained, config, data)
    contexts = offline_contexts(case, case.labels.tasks)
    watchers = Watchers(case)
    played = play(case, batches_of(contexts), watchers)
    return TracesResult(
        **case.head(contexts[0]),
        context_size=np.int64(played.there.shape[-1]),
        used=played.there.sum(-1),
        quantities=np.array(names),
        states=watchers.states(),
    )
