"""`omrl demo`: offline meta-RL in a few minutes, with what is bundled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.ranges import Count, Size


@dataclass(frozen=True)
class DemoOptions:
    """Adapt a bundled meta-policy to unseen tasks, then meta-train one on this machine."""

    out: Path = Path("runs/demo")
    """Run folder with the report; one of an earlier demo is replaced."""
    steps: Count | None = None
    """Meta-steps from scratch; without it `omrl.demo.DEMO_CONFIG` decides."""
    episodes: Size = 10
    """Simulated per task, before and after adaptation."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object instead of tables, no progress."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(DemoOptions, "demo", arguments)
    from omrl import demo
    from omrl.results import EvalResult, print_table

    def say(text: str) -> None:
        if not options.json:
            print(text, file=sys.stderr, flush=True)

    def show(result: EvalResult) -> None:
        if not options.json:
            print()
            print_table(result)
            print(flush=True)

    config = demo.DEMO_CONFIG
    config = replace(config, eval=replace(config.eval, episodes=options.episodes))
    if options.steps is not None:
        config = replace(config, algo=replace(config.algo, steps=options.steps))
    say(demo.introduction(config))
    result = demo.run_demo(
        options.out,
        config,
        command=command,
        devices=options.compute.resolve(),
        say=say,
        show=show,
        quiet=options.json,
    )
    if options.json:
        print_json(
            {
                "bundled": result.bundled.to_json(),
                "from_scratch": result.from_scratch.to_json(),
                "report": str(result.report),
                "seconds": result.seconds,
            }
        )
    else:
        print(f"report: {result.report}")
