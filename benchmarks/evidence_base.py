"""What a section of docs/verdicts.md is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from difference import Difference, Side


@dataclass(frozen=True)
class Measured:
    """An experiment that was run at scale gpu."""

    section: str
    """Where table, command, hardware and deviations are, in docs/."""
    differences: tuple[Difference, ...]
    """None where the numbers of the paper are anchors alone."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Files of rows of its figure, by their labels, without .npz; that of others is ID/ROW, where
    there is one."""
    diagnosis: str = ""
    """What its pictures are of, if not of returns."""
    checkpoints: tuple[str, ...] = ()
    """Files of that, at growing numbers of updates."""
    remark: str = ""
    """What the lines do not tell."""


def pairs(folder: str, *names: tuple[str, str, str]) -> tuple[Difference, ...]:
    """Differences of files of one folder: name, above, below."""
    return tuple(
        Difference(name, Side(f"{folder}/{above}.npz"), Side(f"{folder}/{below}.npz"))
        for name, above, below in names
    )
