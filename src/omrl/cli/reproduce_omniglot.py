"""`omrl reproduce macaw-fig6-omniglot`: the study of weight transforms on images."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.errors import InputError
from omrl.experiments.declare import Scale
from omrl.omniglot.settings import ID
from omrl.ranges import Count, Fraction, Positive, Size
from omrl.tables import markdown, print_lines, print_table


@dataclass(frozen=True)
class OmniglotOptions:
    """Compare weight-transform layers with plain ones on Omniglot: docs/omniglot.md."""

    scale: Scale
    """smoke takes minutes on two cores, with small networks; gpu has the paper's networks."""
    data: Path
    """Folder with Omniglot's images_*.zip, as they are downloaded."""
    out: Path
    """Folder of the results. The same folder again: goes on."""
    seeds: Size | None = None
    """Of every network; without it what the scale says, as of all numbers below."""
    only: tuple[str, ...] = ()
    """Networks, as the table names them ('plain, equal width')."""
    steps: Count | None = None
    """Meta-steps."""
    search_steps: Count | None = None
    """Meta-steps of every pair of rates that is tried on validation classes."""
    meta_batch: Size | None = None
    """Episodes per meta-step."""
    inner_steps: Size | None = None
    """Gradient steps of one adaptation."""
    queries: Size | None = None
    """Drawings of every class that an adapted network is judged on."""
    inner_lr: Positive | None = None
    """Initial inner rate; with outer_lr nothing is searched for."""
    outer_lr: Positive | None = None
    """Adam rate of the meta-parameters."""
    target: tuple[Fraction, ...] | None = None
    """Validation accuracies, from 0 to 1, the meta-steps to which are in the table."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print what results.json holds instead of the table."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(OmniglotOptions, f"reproduce {ID}", arguments)
    from omrl.experiments.page import check_out
    from omrl.omniglot import results, study

    asked = {field: getattr(options, field) for field in study.Choices.__dataclass_fields__}
    plan = study.planned(options.scale, study.Choices(**asked))
    if options.out.is_file():
        raise InputError(f"{options.out}: is a file; give a folder for the results")
    problem = study.open_problem(options.data, plan.networks[0].learner)
    devices = options.compute.resolve()
    check_out(options.out, ID, options.scale, seeds=plan.seeds)

    def say(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr, flush=True)

    runs = options.out / "runs"
    found = study.carry_out(
        plan, problem, runs, devices, command=command, say=say, quiet=options.quiet
    )
    written = results.write(options.out, options.scale, plan, problem, found, command)
    if options.json:
        print_json(written.found)
        return
    if sys.stdout.isatty():
        print_table(written.header, written.cells)
    else:
        print(markdown(written.header, written.cells))
    print()
    print_lines("", written.notes)
    print(f"\npage: {options.out / 'page.html'}")
