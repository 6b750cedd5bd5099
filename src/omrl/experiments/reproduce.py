"""An experiment from its declaration to its page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omrl.experiments import page, rows, sources, stages
from omrl.experiments.declare import Experiment, Planned, Scale
from omrl.experiments.folder import check_out
from omrl.experiments.rows import Row
from omrl.experiments.stages import Workshop


@dataclass(frozen=True)
class Reproduction:
    """What came out."""

    rows: list[Row]
    found: dict[str, Any]
    """Contents of results.json."""


def reproduce(
    experiment: Experiment,
    scale: Scale,
    planned: Sequence[Planned],
    out: Path,
    data: str,
    *,
    cache: Path | None = None,
    devices: Sequence[Any],
    command: str,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    quiet: bool = False,
) -> Reproduction:
    """Trains and evaluates what of `planned` is not yet, and writes all into the folder `out`.

    Args:
        planned: from `declare.plan`.
        data: dataset of all runs: a folder, or bundled:NAME. Where the setting's is from a run it
            may be empty: then that is made first.
        cache: where run folders are looked for and made; by default `out`.
        say: is told what happens next.
        quiet: no progress of the trainings.

    Raises:
        InputError: data that does not fit a run, or a folder that cannot take the results or has
            those of something else; told before any is trained.
        Stopped: by SIGTERM or SIGINT; the same call goes on.
    """
    home = cache or out
    shop = Workshop(sources.named(data, planned), home / "runs", devices, command, say, quiet)
    seeds = num_seeds(planned)
    if not data:
        check_out(out, experiment.id, scale, seeds=seeds)
    shop = sources.provide(shop, experiment, scale, planned, home / "data")
    problems = [stages.check(shop, each) for each in planned]
    of_rows = {
        each.arm.label: problem.data_hash for each, problem in zip(planned, problems, strict=True)
    }
    check_out(out, experiment.id, scale, seeds=seeds, data=of_rows)
    outcomes = [
        stages.carry_out(shop, each, problem)
        for each, problem in zip(planned, problems, strict=True)
    ]
    made = rows.make_rows(experiment, outcomes)
    return Reproduction(made, page.write(out, experiment, scale, made, command))


def num_seeds(planned: Sequence[Planned]) -> int | None:
    """Of every run but the one that collects; None where there is no other."""
    own = [each.config.train.seeds for each in planned if not each.arm.collects]
    return own[0] if own else None
