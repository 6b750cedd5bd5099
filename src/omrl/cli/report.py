"""`omrl report RUN`: the HTML report of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from omrl.cli.options import parse


@dataclass(frozen=True)
class ReportOptions:
    """Write RUN/report.html from what is in the run folder."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(ReportOptions, "report", arguments)
    from omrl.report import write_report

    print(write_report(options.run))
