"""`omrl reproduce ID`: an experiment of the papers, from data to figure; ALL of them; `--list`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from omrl import bundled
from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.config import json_hash
from omrl.errors import InputError
from omrl.experiments.declare import Experiment, FromRun, Scale, plan
from omrl.experiments.registry import ALL, EXPERIMENTS, OUTSIDE_RL, experiment
from omrl.omniglot.settings import ID as OMNIGLOT
from omrl.ranges import Count
from omrl.tables import markdown, print_lines, print_table

if TYPE_CHECKING:
    from omrl.experiments.reproduce import Reproduction
    from omrl.experiments.rows import Row

USAGE = "omrl reproduce ID --scale smoke|gpu|paper --out DIR"
HELP = """\
usage: omrl reproduce ID --scale smoke|gpu|paper --out DIR [OPTIONS]
       omrl reproduce ALL --scale smoke|gpu|paper --out DIR [OPTIONS]
       omrl reproduce --list [--json]

Meta-train and evaluate every run of an experiment and print one table. Stopped or killed, the same
command goes on where it was; runs that are done are not made again. ALL makes one experiment after
another, each in DIR/ID; --list tells of how many pieces each consists.

ID is one of
{experiments}

--scale smoke   minutes on two cores, with what is bundled: shows that all works, and the direction
--scale gpu     complete lifetimes on one GPU, in pieces of ten minutes (--only)
--scale paper   the paper's settings, lengths and number of seeds

{omniglot} is of images that you give, and has options of its own: ID --help
"""


@dataclass(frozen=True)
class ListOptions:
    """List the experiments, with the number of pieces that each consists of at every scale: data
    that is collected, and trainings. Every piece is made once, however often it is asked for."""

    list: bool = False
    """Do so."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ReproduceOptions:
    """Run an experiment of the papers: docs/reproduce.md."""

    scale: Scale
    """smoke takes minutes on two cores, gpu pieces of ten minutes on one GPU, paper what it
    takes."""
    out: Path
    """Folder of the results. The same folder again: goes on."""
    data: Path | None = None
    """Dataset of all runs, or bundled:NAME; contexts of SMAC are of the one beside it, DIR-encoder.
    Without it the one of the scale, which is collected first unless it is bundled."""
    cache: Path | None = None
    """Folder of runs and collected data that several experiments share; without it DIR."""
    seeds: Count | None = None
    """Of every run but one that collects data; without it what the scale says."""
    only: tuple[str, ...] = ()
    """Methods, or single rows as the table names them ('MACAW, 20 tasks')."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print what results.json holds instead of the table."""


def main(arguments: Sequence[str], command: str) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        if not arguments:
            raise InputError(f"name an experiment: {USAGE}")
        return
    if "--list" in arguments:
        _list(parse(ListOptions, "reproduce --list", arguments))
        return
    name, *rest = arguments
    if name.startswith("-"):
        raise InputError(f"{name}: name an experiment before all options: {USAGE}")
    if name in OUTSIDE_RL:
        from omrl.cli import reproduce_omniglot

        reproduce_omniglot.main(rest, command)
        return
    if name == ALL:
        from omrl.cli import reproduce_all

        reproduce_all.main(rest, command)
        return
    chosen = experiment(name)
    options = parse(ReproduceOptions, "reproduce ID", rest)
    done = carry_out(chosen, options, command)
    if options.json:
        print_json(done.found)
        return
    show(chosen, options.scale, done.rows)
    print(f"\npage: {options.out / 'page.html'}")


def _help() -> str:
    titles = {name: each.title for name, each in EXPERIMENTS.items()}
    titles |= OUTSIDE_RL
    width = max(map(len, titles))
    lines = [f"  {name:<{width}}  {title}" for name, title in titles.items()]
    return HELP.format(experiments="\n".join(lines), omniglot=OMNIGLOT).rstrip()


def _list(options: ListOptions) -> None:
    from omrl.experiments import listing

    if options.json:
        print_json(listing.objects())
    elif sys.stdout.isatty():
        print_table(listing.HEADER, listing.table())
    else:
        print(markdown(listing.HEADER, listing.table()))


def carry_out(chosen: Experiment, options: ReproduceOptions, command: str) -> Reproduction:
    """Makes what is not there yet, and writes all results."""
    from omrl.experiments.reproduce import reproduce

    planned = plan(chosen, options.scale, seeds=options.seeds, only=options.only)
    if options.out.is_file():
        raise InputError(f"{options.out}: is a file; give a folder for the results")

    def say(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr, flush=True)

    devices = options.compute.resolve()
    data = str(options.data or _data(chosen, options, say))
    return reproduce(
        chosen,
        options.scale,
        planned,
        options.out,
        data,
        cache=options.cache,
        devices=devices,
        command=command,
        say=say,
        quiet=options.quiet,
    )


def _data(chosen: Experiment, options: ReproduceOptions, say: Callable[[str], None]) -> str:
    """The dataset of the scale, which is collected unless it was before; empty if it is from a
    run."""
    name = chosen.scales[options.scale].data
    if isinstance(name, FromRun):
        return ""
    if name.startswith(bundled.PREFIX):
        return name
    from omrl.cli import collect
    from omrl.experiments.stages import ADDRESS, told_to_repeat

    config = collect.named_config(name)
    command = collect.canonical_command(config)
    digits = json_hash(command)[:ADDRESS]
    folder = (options.cache or options.out) / "data" / f"{name}-{digits}"
    if not folder.exists():
        begun = folder.with_name(folder.name + ".partial").exists()
        say(f"{'going on with' if begun else 'collecting'} {folder}")
        with told_to_repeat():
            device = options.compute.device
            collect.run(config, folder, command=command, resume=begun, device=device)
    return str(folder)


def show(chosen: Experiment, scale: Scale, rows: Sequence[Row]) -> None:
    """Prints table and notes; Markdown where the output is no terminal."""
    from omrl.diagnostics.results import print_shift
    from omrl.experiments.rows import notes, table

    header, cells = table(chosen, rows)
    if sys.stdout.isatty():
        print_table(header, cells)
    else:
        print(markdown(header, cells))
    print()
    print_lines("", notes(chosen, scale, rows))
    for row in rows:
        if row.outcome.shift:
            print(f"\n{row.outcome.planned.arm.method}:")
            print_shift(row.outcome.shift)
