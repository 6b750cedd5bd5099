"""`omrl reproduce ALL`: the experiments one after another; one that fails stops no other."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.cli.reproduce import RayOptions, ReproduceOptions, carry_out, order, show
from omrl.errors import InputError, NonFiniteError, PartlyFailed, Stopped, system_error
from omrl.experiments import registry
from omrl.experiments.declare import Experiment, Scale
from omrl.ranges import Count

if TYPE_CHECKING:
    from omrl.experiments.crew import Crew


@dataclass(frozen=True)
class AllOptions:
    """Run all experiments that need nothing but the package, each in a folder of its own within
    the given one: docs/reproduce.md."""

    scale: Scale
    """smoke takes minutes on two cores for each, gpu pieces of ten minutes on one GPU, paper what
    it takes."""
    out: Path
    """Folder of the folders. The same folder again: goes on."""
    cache: Path | None = None
    """Folder of runs and collected data, which the experiments share; without it DIR."""
    seeds: Count | None = None
    """Of every run but those that collect data; without it what the scale says."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    tasks: Annotated[RayOptions, tyro.conf.arg(name="")] = field(default_factory=RayOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print one JSON object: what results.json holds, by experiment."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(AllOptions, f"reproduce {registry.ALL}", arguments)
    if options.out.is_file():
        raise InputError(f"{options.out}: is a file; give a folder for the results")
    chosen = [e for e in registry.EXPERIMENTS.values() if options.scale in e.scales]
    own = [_of(experiment, options) for experiment in chosen]
    with options.tasks.crew(options.compute, command, own[0].say, options.quiet) as crew:
        if crew is not None:
            for experiment, each in zip(chosen, own, strict=True):
                with suppress(Exception):  # Told when it is this one's turn.
                    order(experiment, each, command, crew)
        found = _make(chosen, own, options, command, crew)
    if options.json:
        print_json(found)
    failed = [experiment.id for experiment in chosen if experiment.id not in found]
    if failed:
        raise PartlyFailed(
            f"{len(failed)} of {len(chosen)} experiments failed: {', '.join(failed)}; the same "
            "command tries them again"
        )


def _of(experiment: Experiment, options: AllOptions) -> ReproduceOptions:
    return ReproduceOptions(
        options.scale,
        options.out / experiment.id,
        cache=options.cache or options.out,
        seeds=options.seeds,
        compute=options.compute,
        tasks=options.tasks,
        quiet=options.quiet,
    )


def _make(
    chosen: Sequence[Experiment],
    own: Sequence[ReproduceOptions],
    options: AllOptions,
    command: str,
    crew: Crew | None,
) -> dict[str, Any]:
    """What results.json holds, by experiment, of those that did not fail."""
    found: dict[str, Any] = {}
    for experiment, each in zip(chosen, own, strict=True):
        try:
            done = carry_out(experiment, each, command, crew)
        except Stopped:
            raise
        except Exception as error:
            print(f"omrl: {experiment.id} failed: {_told(error)}", file=sys.stderr, flush=True)
            continue
        found[experiment.id] = done.found
        if not options.json:
            print(f"# {experiment.id}: {experiment.title}\n")
            show(experiment, options.scale, done.rows)
            print(f"\npage: {each.out / 'page.html'}\n", flush=True)
    return found


def _told(error: Exception) -> str:
    """One line of what is foreseen, a traceback of what is not."""
    if isinstance(error, InputError | NonFiniteError | PartlyFailed):
        return str(error)
    if isinstance(error, OSError):
        return system_error(error)
    return "".join(traceback.format_exception(error)).rstrip()
