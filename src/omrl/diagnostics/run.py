"""Measures diagnoses by their names, at one checkpoint or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omrl import bundle, bundled
from omrl.checkpoint import steps_in
from omrl.diagnostics.base import file_of
from omrl.diagnostics.kinds import KINDS
from omrl.diagnostics.rewards import diagnose_rewards
from omrl.diagnostics.shift import diagnose_shift
from omrl.diagnostics.traces import diagnose_traces
from omrl.errors import InputError
from omrl.files import check_writable
from omrl.metatrain import Trained
from omrl.protocol import EvalConfig
from omrl.runs import open_run

MEASURES: Mapping[str, Callable[[Trained, EvalConfig, Any], Any]] = {
    "shift": diagnose_shift,
    "traces": diagnose_traces,
    "rewards": diagnose_rewards,
}
Report = Callable[[str], None]


def diagnose_checkpoints(
    load: Callable[[int], Trained],
    steps: Sequence[int],
    config: EvalConfig,
    *,
    name: str = "shift",
    data: str | Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    report: Report = lambda line: None,
) -> list[Any]:
    """Makes diagnosis `name` of checkpoints, which `load` loads, and keeps each in the folder
    `out`.

    Of several those that are there are read in place of being measured again, unless `overwrite`.
    Raises `InputError` where these are of other data.
    """
    found = []
    for number, step in enumerate(steps, start=1):
        path = None if out is None else file_of(out, config, step)
        if path is not None and path.exists() and len(steps) > 1 and not overwrite:
            found.append(KINDS[name].result.load(path))
            report(f"diagnosis {name}, {number} of {len(steps)}: {path} is there")
            continue
        report(f"diagnosis {name}, {number} of {len(steps)}: checkpoint {step:,}")
        if path is not None:
            check_writable(path.parent)
        result = MEASURES[name](load(step), config, data)
        if path is not None:
            result.save(path)
        found.append(result)
    sources = [result.provenance for result in found]
    if len({(source.dataset_hash, source.run_hash) for source in sources}) > 1:
        raise InputError(
            f"{out}: holds a diagnosis of another run or with other data; replace it with "
            "--overwrite"
        )
    return found


def kept_checkpoints(path: str | Path) -> list[int]:
    """Numbers of updates of all checkpoints of the run in `path`, or of a bundle, ascending."""
    folder = bundled.resolve(path)
    if bundle.is_bundle(folder):
        return [bundle.read_manifest(folder).step]
    steps = steps_in(open_run(folder).checkpoints)
    if not steps:
        raise InputError(f"{path}: has no checkpoint yet; train first")
    return steps
