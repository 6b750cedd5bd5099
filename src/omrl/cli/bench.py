"""`omrl bench macaw`: speed of meta-training on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json


@dataclass(frozen=True)
class BenchOptions:
    """Measure the speed of meta-training."""

    what: tyro.conf.Positional[Literal["macaw"]]
    """Algorithm."""
    seeds: int = 1
    """Trained in one program."""
    seconds: float = 2.0
    """Length of one repeat."""
    repeats: int = 5
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(BenchOptions, "bench", arguments)
    from omrl.bench import bench_macaw

    result = bench_macaw(
        options.compute.resolve(),
        seeds=options.seeds,
        seconds=options.seconds,
        repeats=options.repeats,
    )
    if options.json:
        print_json(dataclasses.asdict(result))
        return
    print(
        f"macaw on {result.device}, {result.seeds} seed(s), {result.parameters:,} parameters: "
        f"{result.meta_steps_per_s:,.1f} meta-steps/s (compiled in {result.compile_s:.1f} s; "
        f"differs from the plain form by {result.plain_form_difference:.1e} of its movement)"
    )
