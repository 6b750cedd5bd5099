"""`omrl reproduce macaw-fig8-behaviour` and `-fig9-`: figures of the data, which train nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.cli.reproduce import RayOptions
from omrl.cli.reproduce_data import collected, collection
from omrl.errors import InputError
from omrl.experiments.declare import Scale
from omrl.experiments.lifetimes import Lifetimes, Problem
from omrl.tables import markdown, print_lines, print_table

if TYPE_CHECKING:
    from omrl.experiments.crew import Crew
    from omrl.experiments.lifetimes_page import Written


@dataclass(frozen=True)
class BehaviourOptions:
    """Draw what the policies that collected the data returned, and collect what is not there:
    docs/reproduce.md."""

    scale: Scale
    """smoke takes minutes on two cores, gpu a collection of ten minutes per problem, paper what it
    takes."""
    out: Path
    """Folder of the results. The same folder again: goes on."""
    data: Path | None = None
    """Dataset of the one problem that --only names, or bundled:NAME; nothing is collected."""
    cache: Path | None = None
    """Folder of collected data that several experiments share; without it DIR."""
    only: tuple[str, ...] = ()
    """Problems, as the table names them."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    tasks: Annotated[RayOptions, tyro.conf.arg(name="")] = field(default_factory=RayOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print what results.json holds instead of the table."""

    @property
    def home(self) -> Path:
        """The cache."""
        return self.cache or self.out

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


def main(chosen: Lifetimes, arguments: Sequence[str], command: str) -> None:
    options = parse(BehaviourOptions, f"reproduce {chosen.id}", arguments)
    with options.tasks.crew(options.compute, command, options.say, options.quiet) as crew:
        done = carry_out(chosen, options, command, crew)
    if options.json:
        print_json(done.found)
        return
    show(done)
    print(f"\npage: {options.out / 'page.html'}")


def carry_out(
    chosen: Lifetimes, options: BehaviourOptions, command: str, crew: Crew | None = None
) -> Written:
    """Collects what is not there yet, reads all, and writes the results."""
    from omrl.experiments import lifetimes, lifetimes_page
    from omrl.experiments.folder import check_out

    problems = _problems(chosen, options)
    if options.out.is_file():
        raise InputError(f"{options.out}: is a file; give a folder for the results")
    check_out(options.out, chosen.id, options.scale, seeds=None)
    if crew is not None:
        crew.wait(order(chosen, options, crew))
    found = []
    for problem in problems:
        given = options.data and str(options.data)
        name, device = problem.data[options.scale], options.compute.device
        data = given or collected(name, options.home, device, options.say, quiet=options.quiet)
        options.say(f"{problem.name}: reading {data}")
        found.append(lifetimes.read(problem, data))
    return lifetimes_page.write(options.out, chosen, options.scale, found, command)


def order(chosen: Lifetimes, options: BehaviourOptions, crew: Crew) -> list[Any]:
    """The tasks that collect what is not there yet."""
    from omrl import bundled
    from omrl.experiments import ray_stages
    from omrl.experiments.stages import Sources, Workshop

    shop = Workshop(Sources(), options.home / "runs", [], crew.command, crew.say, options.quiet)
    tasks = []
    for problem in _problems(chosen, options) if options.data is None else ():
        name = problem.data[options.scale]
        if name.startswith(bundled.PREFIX) or collection(name, options.home)[2].exists():
            continue
        collect = partial(collected, name, options.home, options.compute.device)
        tasks.append(ray_stages.order_collection(crew, shop, name, collect))
    return tasks


def _problems(chosen: Lifetimes, options: BehaviourOptions) -> tuple[Problem, ...]:
    problems = chosen.chosen(options.only)
    if options.data is not None and len(problems) > 1:
        names = ", ".join(problem.name for problem in problems)
        raise InputError(f"data: is of one problem; say which with --only: {names}")
    return problems


def show(done: Written) -> None:
    """Prints table and notes; Markdown where the output is no terminal."""
    if sys.stdout.isatty():
        print_table(done.header, done.cells)
    else:
        print(markdown(done.header, done.cells))
    print()
    print_lines("", done.notes)
