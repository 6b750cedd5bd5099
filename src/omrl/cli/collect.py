"""`omrl collect`: behaviour data, one agent per task, all tasks at once."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console

from omrl.cli.options import as_options, parse, print_json
from omrl.config import to_json
from omrl.data.collect.config import ALGORITHMS, CollectConfig, KeptConfig
from omrl.data.collect.presets import PRESETS, default_config, named_config
from omrl.data.collect.results import KeptPolicies
from omrl.data.collect.run import collect
from omrl.envs import registry
from omrl.errors import InputError, nearest
from omrl.runs import resolve_devices

__all__ = ["CollectConfig", "describe", "run"]

USAGE = "omrl collect PRESET | ENV"
CHOICES = "as in omrl collect cheetah-vel-10min --out DIR; `omrl presets` and `omrl envs` list them"
HELP = """\
usage: omrl collect PRESET --out DIR [OPTIONS]
       omrl collect ENV --out DIR [OPTIONS]

Train one agent per task and keep its whole lifetime as the task's data.

PRESET is a set of settings that has a name; transitions are those of each task:
{presets}
`omrl presets` tells where their numbers are from. ENV is the id of an environment, see `omrl envs`:
alone it stands for 500,000 transitions per task of a TD3 agent in cheetah-vel, of a SAC agent
elsewhere, in sawyer-manip for 50 episodes of its script, in Meta-World (ml1-NAME, ml10, ml45) for
100,000 transitions of its scripts that begin at random. Every setting is an option as well, as in
--steps 100000 --agent.learning-rate 1e-3; `omrl collect PRESET --help` lists them all with their
values.

--agent td3|sac|random|oracle|scripted
                        another agent, with its own settings; random ones, oracles, which are the
                        best policies of tasks where these are known, and scripts, which an
                        environment may come with, learn nothing
--keep-agents K         keep K policies of every lifetime, evenly spaced over it
--from-agents DATASET   nobody learns: the policies that a collection kept collect. --agent.policies
                        1 4 takes the first and the fourth, --agent.shares 1 3 a quarter of the data
                        from the one and the rest from the other, --agent.noise 0 their best actions
"""
AGENTS = ("td3", "sac", "random", "oracle", "scripted")


@dataclass(frozen=True)
class CollectOptions:
    """Train one agent per task and keep its whole lifetime as the task's data.

    Two options decide what further ones there are: --agent td3|sac|random|oracle|scripted and
    --from-agents DATASET; see `omrl collect --help`.
    """

    config: Annotated[CollectConfig, tyro.conf.arg(name="")]
    out: Path
    """Folder of the new dataset."""
    resume: bool = False
    """Go on with an interrupted collection of the same config."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """auto takes a GPU if JAX finds one."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str], command: str) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        if not arguments:
            raise InputError(f"name a preset or an environment: {USAGE}, {CHOICES}")
        return
    options, kept = read_options(arguments)
    summary = run(
        options.config,
        options.out,
        command=canonical_command(options.config),
        resume=options.resume,
        device=options.device,
        kept=kept,
    )
    if options.json:
        print_json(summary)
    else:
        print(describe(summary))


def read_options(arguments: Sequence[str]) -> tuple[CollectOptions, KeptPolicies | None]:
    """What was asked for, and the policies of `--from-agents`."""
    first, *rest = arguments
    if first.startswith("-"):
        raise InputError(
            f"{first}: name a preset or an environment before all options: {USAGE}, {CHOICES}"
        )
    config = named_config(first)
    algorithm, rest = _take("--agent", rest)
    folder, rest = _take("--from-agents", rest)
    kept = None
    if folder is not None:
        if algorithm is not None:
            raise InputError("--agent, --from-agents: give one of them")
        if not folder:
            raise InputError("from_agents: an empty path; name a file or folder")
        kept = KeptPolicies.load(folder, registry.make(config.env))
        config = dataclasses.replace(config, agent=KeptConfig(source=kept.hash))
    elif algorithm is not None:
        if algorithm not in AGENTS:
            raise InputError(f"--agent: no agent {algorithm!r}; {nearest(algorithm, AGENTS)}")
        if algorithm != config.algorithm:
            config = dataclasses.replace(config, agent=ALGORITHMS[algorithm]())
    options = parse(CollectOptions, "collect PRESET", rest, config=config)
    if options.config.env != config.env:
        raise InputError(f"env: its learner depends on it; say omrl collect {options.config.env} …")
    return options, kept


def _take(option: str, arguments: list[str]) -> tuple[str | None, list[str]]:
    """The last value of an option that decides what others there are, and the other arguments."""
    value, others, left = None, [], iter(arguments)
    for argument in left:
        name, equals, given = argument.partition("=")
        if name != option:
            others.append(argument)
            continue
        value = given if equals else next(left, None)
        if value is None or (not equals and value.startswith("--")):
            raise InputError(f"{option}: needs a value; see omrl collect --help")
    return value, others


def _help() -> str:
    width = max(map(len, PRESETS))
    lines = [
        f"  {name:<{width}}  {each.config.env}, {each.config.algorithm}, {each.config.steps:,} "
        "transitions each"
        for name, each in PRESETS.items()
    ]
    return HELP.format(presets="\n".join(lines)).rstrip()


def canonical_command(config: CollectConfig) -> str:
    """The command that makes this data, in its one spelling.

    It is part of the dataset's hash and what a resumed collection is compared by, so it holds what
    decides the data and no more: neither folder nor device, nor in which order options were given,
    nor whether a preset's name stood for them.
    """
    usual, algorithm = default_config(config.env), config.algorithm
    chosen = []
    if algorithm != usual.algorithm:
        usual = dataclasses.replace(usual, agent=ALGORITHMS[algorithm]())
        kept = algorithm == "kept"
        chosen = ["--from-agents", "DATASET"] if kept else ["--agent", algorithm]
    values = config.relevant()
    values["tasks"].sort()
    options = as_options(values, to_json(usual))
    return shlex.join(["omrl", "collect", config.env, *chosen, *options])


def run(
    config: CollectConfig,
    out: Path,
    *,
    command: str,
    resume: bool = False,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    kept: KeptPolicies | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Collect the dataset `out`; see `collect`. Returns what `--json` prints."""
    started = time.monotonic()
    (chosen,) = resolve_devices(device, 1)
    how: dict[str, Any] = {"device": chosen, "resume": resume, "kept": kept}
    console = Console(quiet=True) if quiet else None
    dataset = collect(config, out, command=command, console=console, **how)
    seconds = time.monotonic() - started
    tasks = [
        {
            "task": task.index,
            "parameters": list(task.parameters),
            "episodes": task.episodes,
            "transitions": task.transitions,
            "return_mean": task.return_mean,
            "final_return": task.behaviour.get("final_return"),
        }
        for task in dataset.manifest.tasks
    ]
    finals = [task["final_return"] for task in tasks if task["final_return"] is not None]
    return {
        "dataset": str(out),
        "env": dataset.env_id,
        "spec_hash": dataset.spec.hash,
        "device": chosen.device_kind,
        "seconds": seconds,
        "transitions": sum(task["transitions"] for task in tasks),
        "return_mean": float(np.mean([task["return_mean"] for task in tasks])),
        "final_return": float(np.mean(finals)) if finals else None,
        "tasks": tasks,
    }


def describe(summary: dict[str, Any]) -> str:
    """The summary of `run` for a person: one line."""
    text = (
        f"{summary['dataset']}: {summary['env']}, {len(summary['tasks'])} tasks, "
        f"{summary['transitions']:,} transitions in {summary['seconds']:.0f} s on "
        f"{summary['device']}; mean return of the data {summary['return_mean']:.1f}"
    )
    if summary["final_return"] is None:
        return text
    finals = [task["final_return"] for task in summary["tasks"]]
    return (
        f"{text}, of the final agents {summary['final_return']:.1f} "
        f"(worst {min(finals):.1f}, best {max(finals):.1f})"
    )
