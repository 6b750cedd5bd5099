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
from omrl.omniglot.settings import ID, Choices
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
    choices: Annotated[Choices, tyro.conf.arg(name="")] = field(default_factory=Choices)
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print what results.json holds instead of the table."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(OmniglotOptions, f"reproduce {ID}", arguments)
    from omrl.experiments.folder import check_out
    from omrl.omniglot import results, study

    plan = study.planned(options.scale, options.choices)
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
