"""`omrl reproduce ID`: an experiment of the papers, from data to figure; ALL of them; `--list`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from omrl import bundled
from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.cli.reproduce_data import collected, collection
from omrl.errors import InputError
from omrl.experiments.declare import Experiment, FromRun, Planned, Scale, plan
from omrl.experiments.registry import ALL, BEHAVIOUR, EXPERIMENTS, OUTSIDE_RL, experiment
from omrl.omniglot.settings import ID as OMNIGLOT
from omrl.ranges import Count, check_ranges
from omrl.tables import markdown, print_lines, print_table

if TYPE_CHECKING:
    from omrl.experiments.crew import Crew
    from omrl.experiments.reproduce import Reproduction
    from omrl.experiments.rows import Row

USAGE = "omrl reproduce ID --scale smoke|gpu|paper --out DIR"
HELP = """\
usage: omrl reproduce ID --scale smoke|gpu|paper --out DIR [OPTIONS]
       omrl reproduce ALL --scale smoke|gpu|paper --out DIR [OPTIONS]
       omrl reproduce --list [--json]

Meta-train and evaluate every run of an experiment and print one table. Stopped or killed, the same
command goes on where it was; runs that are done are not made again. ALL makes every experiment,
each in DIR/ID, --jobs of them at a time; --list tells of how many pieces each consists.

ID is one of
{experiments}

--scale smoke   minutes on two cores, with what is bundled: shows that all works, and the direction
--scale gpu     complete lifetimes on one GPU, in pieces of ten minutes (--only)
--scale paper   the paper's settings, lengths and number of seeds

--ray local     data, trainings and evaluations side by side, as tasks of Ray on this machine
--ray HOST:PORT on a cluster, whose nodes share DIR and the cache (docs/reproduce.md)

{omniglot} is of images that you give, -behaviour train nothing: their options are
in ID --help
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
class RayOptions:
    """Whether stages are made side by side."""

    ray: str = ""
    """local, or HOST:PORT of a cluster whose nodes share the folders: stages are tasks of Ray."""
    ray_cpus: Count | None = None
    """Of each stage, and JAX's threads on them. Without it all of a node, or a GPU's share."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.ray_cpus is not None and not self.ray:
            raise InputError("ray_cpus: needs --ray local or --ray HOST:PORT")

    def crew(
        self, compute: DeviceOptions, command: str, say: Callable[[str], None], quiet: bool
    ) -> AbstractContextManager[Crew | None]:
        """Whoever makes the stages; None: this process does."""
        if not self.ray:
            return nullcontext()
        if compute.coordinator:
            raise InputError("coordinator: a stage of --ray is on one node; leave out one of them")
        from omrl.experiments.crew import connect

        return connect(
            self.ray,
            command=command,
            device=compute.device,
            devices=compute.devices,
            cpus=self.ray_cpus,
            say=say,
            quiet=quiet,
        )


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
    tasks: Annotated[RayOptions, tyro.conf.arg(name="")] = field(default_factory=RayOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print what results.json holds instead of the table."""

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


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
    from omrl.compiling import programs_kept

    with programs_kept():
        _reproduce(name, rest, command)


def _reproduce(name: str, arguments: Sequence[str], command: str) -> None:
    if name in OUTSIDE_RL:
        from omrl.cli import reproduce_omniglot

        reproduce_omniglot.main(arguments, command)
        return
    if name in BEHAVIOUR:
        from omrl.cli import reproduce_behaviour

        reproduce_behaviour.main(BEHAVIOUR[name], arguments, command)
        return
    if name == ALL:
        from omrl.cli import reproduce_all

        reproduce_all.main(arguments, command)
        return
    chosen = experiment(name)
    options = parse(ReproduceOptions, "reproduce ID", arguments)
    with options.tasks.crew(options.compute, command, options.say, options.quiet) as crew:
        done = carry_out(chosen, options, command, crew)
    if options.json:
        print_json(done.found)
        return
    show(chosen, options.scale, done.rows)
    print(f"\npage: {options.out / 'page.html'}")


def _help() -> str:
    titles = {name: each.title for name, each in [*EXPERIMENTS.items(), *BEHAVIOUR.items()]}
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


def carry_out(
    chosen: Experiment, options: ReproduceOptions, command: str, crew: Crew | None = None
) -> Reproduction:
    """Makes what is not there yet, and writes all results."""
    from omrl.experiments.folder import check_out
    from omrl.experiments.reproduce import num_seeds, reproduce

    planned = _planned(chosen, options)
    if crew is not None:
        crew.wait(order(chosen, options, command, crew))
    devices = [] if crew is not None else options.compute.resolve()
    if options.data is None:  # Told before anything is collected.
        check_out(options.out, chosen.id, options.scale, seeds=num_seeds(planned))
    data = str(options.data or _data(chosen, options, options.say))
    return reproduce(
        chosen,
        options.scale,
        planned,
        options.out,
        data,
        cache=options.cache,
        devices=devices,
        command=command,
        say=options.say,
        quiet=options.quiet,
    )


def order(chosen: Experiment, options: ReproduceOptions, command: str, crew: Crew) -> list[Any]:
    """The tasks that make what is not there yet."""
    from omrl.experiments import ray_stages, sources
    from omrl.experiments.stages import Workshop

    planned, collect, data = _planned(chosen, options), None, str(options.data or "")
    name = chosen.scales[options.scale].data
    if not data and not isinstance(name, FromRun):
        data = name
        if not name.startswith(bundled.PREFIX):
            _, _, folder = collection(name, options.cache or options.out)
            data = str(folder) if folder.exists() else ""
            collect = None if data else partial(_data, chosen, options)
    home, held = options.cache or options.out, sources.named(data, planned)
    shop = Workshop(held, home / "runs", [], command, crew.say, options.quiet)
    return ray_stages.order(crew, shop, chosen, options.scale, planned, options.out, collect)


def _planned(chosen: Experiment, options: ReproduceOptions) -> tuple[Planned, ...]:
    planned = plan(chosen, options.scale, seeds=options.seeds, only=options.only)
    if options.out.is_file():
        raise InputError(f"{options.out}: is a file; give a folder for the results")
    return planned


def _data(chosen: Experiment, options: ReproduceOptions, say: Callable[[str], None]) -> str:
    """The dataset of the scale, which is collected unless it was before; empty if it is from a
    run."""
    name = chosen.scales[options.scale].data
    if isinstance(name, FromRun):
        return ""
    home, device = options.cache or options.out, options.compute.device
    return collected(name, home, device, say, quiet=options.quiet)


def show(chosen: Experiment, scale: Scale, rows: Sequence[Row]) -> None:
    """Prints table and notes; Markdown where the output is no terminal."""
    from omrl.diagnostics.kinds import print_diagnosis
    from omrl.experiments.rows import notes, table

    header, cells = table(chosen, rows)
    if sys.stdout.isatty():
        print_table(header, cells)
    else:
        print(markdown(header, cells))
    print()
    print_lines("", notes(chosen, scale, rows))
    for row in rows:
        for name, results in row.outcome.diagnoses.items():
            print(f"\n{row.outcome.planned.arm.method}:")
            print_diagnosis(name, results)
