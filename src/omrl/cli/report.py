"""`omrl report RUN…`: the HTML report of a run folder, or a comparison of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from omrl.cli.options import parse, print_json
from omrl.errors import InputError, nearest
from omrl.studies.plan import StudyName


@dataclass(frozen=True)
class ReportOptions:
    """Write RUN/report.html from what is in the run folder, or a page that compares several."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, or of studies."""
    out: Path | None = None
    """The page, FILE.html; of one study also FILE.png or FILE.svg. Without it the report of one
    run goes into its folder."""
    study: StudyName | None = None
    """Only this study."""
    statistic: str = "mean"
    """Of the studies and comparisons: mean or iqm with their intervals, standard-error,
    standard-deviation (over seeds; -tasks: over tasks), or median with quartiles (of all seeds on
    all tasks; -seeds, -tasks)."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(ReportOptions, "report", arguments)
    from omrl.stats import STATISTICS
    from omrl.studies.results import is_study

    if options.statistic not in STATISTICS:
        hint = nearest(options.statistic, STATISTICS)
        raise InputError(f"statistic: no {options.statistic!r}; {hint}")
    if not options.runs:
        raise InputError("runs: name the folder of a run: omrl report RUN")
    (first, *others) = options.runs
    alone = not others and options.study is None and not is_study(first)
    if alone:
        from omrl.report import write_report

        path = write_report(first, options.out, statistic=options.statistic)
    else:
        from omrl.compare import write_comparison

        if options.out is None:
            raise InputError("out: say where the page or picture goes: --out compare.html")
        path = write_comparison(
            options.runs, options.out, study=options.study, statistic=options.statistic
        )
    if options.json:
        runs = {"runs": list(map(str, options.runs))} if others else {"run": str(first)}
        print_json(runs | {"report": str(path)})
    else:
        print(path)
