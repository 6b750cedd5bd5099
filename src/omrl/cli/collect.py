"""`omrl collect`: behaviour data, one agent per task, all tasks at once."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from omrl.algos.sac import SacConfig
from omrl.algos.td3 import Td3Config
from omrl.cli.options import as_options, parse, print_json
from omrl.config import to_json
from omrl.data.collect.config import IRRELEVANT, CollectConfig
from omrl.data.collect.run import collect
from omrl.envs import registry
from omrl.errors import InputError
from omrl.runs import resolve_devices

__all__ = ["CollectConfig", "describe", "run"]


@dataclass(frozen=True)
class CollectOptions:
    """Train one agent per task and keep its whole lifetime as the task's data."""

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
    """`omrl collect [ENV] --out DIR …`; the learner is td3 for cheetah-vel, else sac."""
    arguments = list(arguments)
    env_id = "cheetah-vel/macaw-v1"
    if arguments and not arguments[0].startswith("-"):
        env_id = arguments.pop(0)
    registry.make(env_id)
    config = default_config(env_id)
    options = parse(CollectOptions, "collect ENV", arguments, config=config)
    if options.config.env != env_id:
        raise InputError(f"env: its learner depends on it; say omrl collect {options.config.env} …")
    summary = run(
        options.config,
        options.out,
        command=canonical_command(options.config),
        resume=options.resume,
        device=options.device,
    )
    if options.json:
        print_json(summary)
    else:
        print(describe(summary))


def default_config(env_id: str) -> CollectConfig:
    """What `omrl collect ENV` does without further options."""
    agent = Td3Config() if env_id.startswith("cheetah-vel/") else SacConfig()
    return CollectConfig(env=env_id, agent=agent)


def canonical_command(config: CollectConfig) -> str:
    """The command that makes this data, in its one spelling.

    It is part of the dataset's hash and what a resumed collection is compared by, so it holds what
    decides the data and no more: neither folder nor device, nor in which order options were given.
    """
    values, defaults = to_json(config), to_json(default_config(config.env))
    for name in IRRELEVANT:
        del values[name]
    values["tasks"].sort()
    return shlex.join(["omrl", "collect", config.env, *as_options(values, defaults)])


def run(
    config: CollectConfig,
    out: Path,
    *,
    command: str,
    resume: bool = False,
    device: Literal["auto", "cpu", "gpu"] = "auto",
) -> dict[str, Any]:
    """Collect the dataset `out`; see `collect`. Returns what `--json` prints."""
    started = time.monotonic()
    (chosen,) = resolve_devices(device, 1)
    dataset = collect(config, out, command=command, device=chosen, resume=resume)
    seconds = time.monotonic() - started
    tasks = [
        {
            "task": task.index,
            "parameters": list(task.parameters),
            "episodes": task.episodes,
            "transitions": task.transitions,
            "return_mean": task.return_mean,
            "final_return": task.behaviour["final_return"],
        }
        for task in dataset.manifest.tasks
    ]
    return {
        "dataset": str(out),
        "env": dataset.env_id,
        "spec_hash": dataset.spec.hash,
        "device": chosen.device_kind,
        "seconds": seconds,
        "transitions": sum(task["transitions"] for task in tasks),
        "return_mean": float(np.mean([task["return_mean"] for task in tasks])),
        "final_return": float(np.mean([task["final_return"] for task in tasks])),
        "tasks": tasks,
    }


def describe(summary: dict[str, Any]) -> str:
    """The summary of `run` for a person: one line."""
    finals = [task["final_return"] for task in summary["tasks"]]
    return (
        f"{summary['dataset']}: {summary['env']}, {len(finals)} tasks, "
        f"{summary['transitions']:,} transitions in {summary['seconds']:.0f} s on "
        f"{summary['device']}; mean return of the data {summary['return_mean']:.1f}, of the final "
        f"agents {np.mean(finals):.1f} (worst {min(finals):.1f}, best {max(finals):.1f})"
    )
