"""`omrl bench macaw | envs`: the speed of meta-training, or of environments, on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.errors import InputError, nearest
from omrl.ranges import Range, Size

Seconds = Annotated[float, Range(0.001, 3600)]


@dataclass(frozen=True)
class MacawOptions:
    """Measure the speed of meta-training."""

    seeds: Size = 1
    """Trained in one program."""
    seconds: Seconds = 2.0
    """Length of one repeat."""
    repeats: Size = 5
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class EnvsOptions:
    """Measure the speed of environments, beside Gymnasium's and MuJoCo's own."""

    families: tuple[str, ...] = ()
    """All without any."""
    sizes: tuple[Size, ...] = (64, 256, 1024)
    """Environments in a batch."""
    seconds: Seconds = 0.5
    """Length of one of the five rounds, of each of the three batches compared."""
    json: bool = False
    """Print one JSON object per family and size, in a list."""


def main(arguments: Sequence[str], command: str) -> None:
    """`omrl bench macaw|envs …`."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print("usage: omrl bench macaw|envs …; omrl bench NAME --help tells more")
        if not arguments:
            raise InputError("say what to measure: omrl bench macaw|envs")
    elif name == "macaw":
        macaw(parse(MacawOptions, "bench macaw", rest))
    elif name == "envs":
        envs(parse(EnvsOptions, "bench envs", rest))
    else:
        raise InputError(f"nothing to measure named {name!r}; {nearest(name, ('macaw', 'envs'))}")


def envs(options: EnvsOptions) -> None:
    """Print environment steps per second."""
    from omrl.bench_envs import MATCHING, bench_envs

    unknown = sorted(set(options.families) - set(MATCHING))
    if unknown:
        raise InputError(f"unknown family {unknown[0]!r}; {nearest(unknown[0], MATCHING)}")
    if not options.sizes:
        raise InputError("sizes: none; give at least one")
    rows = bench_envs(options.families or tuple(MATCHING), options.sizes, seconds=options.seconds)
    if options.json:
        ratios = ("over_sync", "outside_mujoco")
        print_json(
            [
                dataclasses.asdict(row) | {name: getattr(row, name) for name in ratios}
                for row in rows
            ]
        )
        return
    columns = ("omrl", "rollout alone", "gym sync", "gym async", "x sync", "outside MuJoCo")
    print(f"{'steps/s':<12} {'envs':>5}" + "".join(f"{name:>15}" for name in columns))
    for row in rows:
        speeds = (row.omrl, row.mujoco_rollout, row.gymnasium_sync, row.gymnasium_async)
        print(
            f"{row.family:<12} {row.num_envs:>5}"
            + "".join(f"{speed:>15,.0f}" for speed in speeds)
            + f"{row.over_sync:>15.2f}{row.outside_mujoco:>15.0%}"
        )


def macaw(options: MacawOptions) -> None:
    """Print meta-steps per second."""
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
