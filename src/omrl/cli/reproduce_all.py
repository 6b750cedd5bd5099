"""`omrl reproduce ALL`: each experiment in a folder of its own; one that fails stops no other."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import jax
import tyro

from omrl.cli import reproduce_behaviour
from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.cli.reproduce import RayOptions, ReproduceOptions, carry_out, order, show
from omrl.cli.reproduce_ahead import make_ahead
from omrl.cli.reproduce_behaviour import BehaviourOptions
from omrl.envs.engine import available_cpus
from omrl.envs.optional import check_installed
from omrl.errors import InputError, NonFiniteError, PartlyFailed, Stopped, WorkerLost, system_error
from omrl.experiments import declare, lifetimes, registry
from omrl.experiments.declare import Experiment, Scale
from omrl.experiments.lifetimes import Lifetimes
from omrl.ranges import Count, check_ranges

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
    jobs: Count | None = None
    """Processes that make experiments side by side. Without it one; at scale smoke on CPUs one for
    each of them, four at most."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    tasks: Annotated[RayOptions, tyro.conf.arg(name="")] = field(default_factory=RayOptions)
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print one JSON object: what results.json holds, by experiment."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.jobs is not None and self.tasks.ray:
            raise InputError("jobs: --ray has stages side by side already; leave out one of them")
        if self.jobs is not None and self.compute.coordinator:
            raise InputError("jobs: a run on several hosts is one process on each; leave out one")

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def num_jobs(self) -> int:
        if self.jobs is not None or self.scale != "smoke" or self.compute.coordinator:
            return self.jobs or 1
        on_cpus = self.compute.resolve()[0].platform == "cpu"
        return min(available_cpus(), MOST_JOBS) if on_cpus else 1


MOST_JOBS = 4
"""Where their number is not given: each takes about 2 GB."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(AllOptions, f"reproduce {registry.ALL}", arguments)
    if options.out.is_file():
        raise InputError(f"{options.out}: is a file; give a folder for the results")
    chosen = _installed(options.scale)
    with options.tasks.crew(options.compute, command, options.say, options.quiet) as crew:
        if crew is not None:
            for each in chosen:
                with suppress(Exception):  # Told when it is this one's turn.
                    _order(each, options, command, crew)
        elif (jobs := options.num_jobs()) > 1:
            names = [each.id for each in chosen]
            make_ahead(names, partial(_make_one, tuple(arguments), command), jobs)
        found = _make(chosen, options, command, crew)
    if options.json:
        print_json(found)
    failed = [each.id for each in chosen if each.id not in found]
    if failed:
        raise PartlyFailed(
            f"{len(failed)} of {len(chosen)} experiments failed: {', '.join(failed)}; the same "
            "command tries them again"
        )


def _installed(scale: Scale) -> list[Experiment | Lifetimes]:
    """What has that scale and all packages that it needs; of the others is told what they lack."""
    all_of_it = [
        *(
            (e, declare.extras(declare.plan(e, scale)))
            for e in registry.EXPERIMENTS.values()
            if scale in e.scales
        ),
        *((each, lifetimes.extras(each, scale)) for each in registry.BEHAVIOUR.values()),
    ]
    chosen = []
    for each, needed in all_of_it:
        try:
            for extra in needed:
                check_installed(extra, "it")
        except InputError as error:
            print(f"omrl: {each.id} is left out: {error}", file=sys.stderr, flush=True)
        else:
            chosen.append(each)
    return chosen


def _make_one(arguments: tuple[str, ...], command: str, name: str) -> None:
    """In a process of its own, to which options are sent as they were given."""
    options = replace(parse(AllOptions, f"reproduce {registry.ALL}", arguments), quiet=True)
    try:
        _one({**registry.EXPERIMENTS, **registry.BEHAVIOUR}[name], options, command, None)
    finally:
        jax.clear_caches()  # As in `_make`.


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


def _of_data(figure: Lifetimes, options: AllOptions) -> BehaviourOptions:
    return BehaviourOptions(
        options.scale,
        options.out / figure.id,
        cache=options.cache or options.out,
        compute=options.compute,
        tasks=options.tasks,
        quiet=options.quiet,
    )


def _order(each: Experiment | Lifetimes, options: AllOptions, command: str, crew: Crew) -> None:
    if isinstance(each, Lifetimes):
        reproduce_behaviour.order(each, _of_data(each, options), crew)
    else:
        order(each, _of(each, options), command, crew)


def _make(
    chosen: Sequence[Experiment | Lifetimes],
    options: AllOptions,
    command: str,
    crew: Crew | None,
) -> dict[str, Any]:
    """What results.json holds, by experiment, of those that did not fail."""
    found: dict[str, Any] = {}
    for each in chosen:
        try:
            found[each.id], tell = _one(each, options, command, crew)
        except Stopped:
            raise
        except Exception as error:
            print(f"omrl: {each.id} failed: {_told(error)}", file=sys.stderr, flush=True)
            continue
        finally:
            # On a CPU every program holds memory maps, of which Linux gives a process 65,530.
            jax.clear_caches()
        if not options.json:
            print(f"# {each.id}: {each.title}\n")
            tell()
            print(f"\npage: {options.out / each.id / 'page.html'}\n", flush=True)
    return found


def _one(
    each: Experiment | Lifetimes, options: AllOptions, command: str, crew: Crew | None
) -> tuple[dict[str, Any], Callable[[], None]]:
    """What results.json holds, and what prints the table."""
    if isinstance(each, Lifetimes):
        drawn = reproduce_behaviour.carry_out(each, _of_data(each, options), command, crew)
        return drawn.found, partial(reproduce_behaviour.show, drawn)
    done = carry_out(each, _of(each, options), command, crew)
    return done.found, partial(show, each, options.scale, done.rows)


def _told(error: Exception) -> str:
    """One line of what is foreseen, a traceback of what is not."""
    if isinstance(error, InputError | NonFiniteError | PartlyFailed | WorkerLost):
        return str(error)
    if isinstance(error, OSError):
        return system_error(error)
    return "".join(traceback.format_exception(error)).rstrip()
