"""`omrl report RUN`: the HTML report of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from omrl.cli.options import parse, print_json


@dataclass(frozen=True)
class ReportOptions:
    """Write RUN/report.html from what is in the run folder."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(ReportOptions, "report", arguments)
    from omrl.report import write_report

    path = write_report(options.run)
    if options.json:
        print_json({"run": str(options.run), "report": str(path)})
    else:
        print(path)
