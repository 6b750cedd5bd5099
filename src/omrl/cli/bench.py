"""`omrl bench NAME`: speed of training, of environments, of large data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.errors import InputError, nearest
from omrl.ranges import Range, Size

Seconds = Annotated[float, Range(0.001, 3600)]


@dataclass(frozen=True)
class UpdatesOptions:
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
class ProductsOptions:
    """Measure the speed of the updates of PEARL or SMAC, beside that of a bare chain of the matrix
    products that they are made of. On one device."""

    seeds: Size = 1
    """Trained in one program; their gradient steps are added up, the chain is that of one."""
    seconds: Seconds = 2.0
    """Length of the updates of one round, and about that of its chain."""
    repeats: Size = 5
    """Rounds."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class EnvsOptions:
    """Measure the speed of environments, beside Gymnasium's and MuJoCo's own."""

    families: tuple[str, ...] = ()
    """By their names here (cheetah) or in ids of environments (cheetah-vel); all without any."""
    sizes: tuple[Size, ...] = (64, 256, 1024)
    """Environments in a batch."""
    seconds: Seconds = 0.5
    """Length of one of the five rounds, of each of the three batches compared."""
    json: bool = False
    """Print one JSON object per family and size, in a list."""


@dataclass(frozen=True)
class DataOptions:
    """Measure training on synthetic data that stays on the disk beside data on the device."""

    folder: Path
    """Where the dataset is; it is written if it is not there, 120 bytes per transition."""
    transitions: Annotated[int, Range(8000, 10**10)] = 1_000_000
    """Of a dataset to write, rounded to whole episodes of every task; one that is there is
    measured as it is."""
    seconds: Seconds = 5.0
    """Length of one of the five rounds, of each of the two compared."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object."""


UPDATES = ("mt_awr", "meta_bc", "borel")
"""What `bench_updates` measures."""
NAMES = ("macaw", *UPDATES, "pearl", "smac", "envs", "data")


def main(arguments: Sequence[str], command: str) -> None:
    """`omrl bench NAME …`."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: omrl bench {'|'.join(NAMES)} …; omrl bench NAME --help tells more")
        if not arguments:
            raise InputError(f"say what to measure: omrl bench {'|'.join(NAMES)}")
    elif name == "macaw":
        macaw(parse(UpdatesOptions, "bench macaw", rest))
    elif name in UPDATES:
        updates(name, parse(UpdatesOptions, f"bench {name}", rest))
    elif name == "pearl":
        pearl(parse(ProductsOptions, "bench pearl", rest))
    elif name == "smac":
        smac(parse(ProductsOptions, "bench smac", rest))
    elif name == "envs":
        envs(parse(EnvsOptions, "bench envs", rest))
    elif name == "data":
        data(parse(DataOptions, "bench data", rest))
    else:
        raise InputError(f"nothing to measure named {name!r}; {nearest(name, NAMES)}")


def data(options: DataOptions) -> None:
    """Print what a dataset on the disk costs."""
    from omrl.bench_data import bench_data

    result = bench_data(
        options.folder, options.transitions, options.compute.resolve(), seconds=options.seconds
    )
    if options.json:
        print_json(dataclasses.asdict(result))
        return
    print(
        f"{result.transitions:,} transitions ({result.bytes_on_disk / 1e9:.1f} GB) on "
        f"{result.device}: opened in {result.open_s:.2f} s, validated in "
        f"{result.validate_s:.1f} s, read for training in {result.load_s:.1f} s; "
        f"{result.disk_updates_per_s:,.1f} updates/s on the disk, "
        f"{result.device_updates_per_s:,.1f} on the device (ratio {result.ratio:.2f}); "
        f"{result.anonymous_bytes / 2**30:.2f} GiB of memory beside that of files"
    )


def envs(options: EnvsOptions) -> None:
    """Print environment steps per second."""
    from omrl.bench_envs import MATCHING, bench_envs

    by_name = {name: name for name in MATCHING}
    by_name |= {env_id.split("/")[0]: name for name, (env_id, *_) in MATCHING.items()}
    for name in options.families:
        if name not in by_name:
            raise InputError(f"families: no {name!r}; there are {', '.join(by_name)}")
    if not options.sizes:
        raise InputError("sizes: none; give at least one")
    families = tuple(dict.fromkeys(by_name[name] for name in options.families or MATCHING))
    rows = bench_envs(families, options.sizes, seconds=options.seconds)
    if options.json:
        ratios = ("over_sync", "over_bare", "outside_mujoco")
        print_json(
            [
                dataclasses.asdict(row) | {name: getattr(row, name) for name in ratios}
                for row in rows
            ]
        )
        return
    columns = (
        "omrl",
        "bare rollout",
        "gym sync",
        "gym async",
        "x sync",
        "x bare",
        "outside MuJoCo",
    )
    print(f"{'steps/s':<12} {'envs':>5}" + "".join(f"{name:>15}" for name in columns))
    for row in rows:
        speeds = (row.omrl, row.bare_rollout, row.gymnasium_sync, row.gymnasium_async)
        print(
            f"{row.family:<12} {row.num_envs:>5}"
            + "".join(f"{speed:>15,.0f}" for speed in speeds)
            + f"{row.over_sync:>15.2f}{row.over_bare:>15.2f}{row.outside_mujoco:>15.0%}"
        )


def macaw(options: UpdatesOptions) -> None:
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


def pearl(options: ProductsOptions) -> None:
    """Print updates per second, and how many a chain of their products would allow."""
    from omrl.bench_pearl import bench_pearl

    result = bench_pearl(
        options.compute.resolve(),
        seeds=options.seeds,
        seconds=options.seconds,
        repeats=options.repeats,
    )
    if options.json:
        print_json(dataclasses.asdict(result))
        return
    print(
        f"pearl on {result.device}, {result.seeds} seed(s), {result.parameters:,} parameters: "
        f"{result.gradient_steps_per_s:,.2f} gradient steps/s, {result.ratio:.0%} of what a chain "
        f"of their {result.products:.1f} matrix products would reach "
        f"({result.ratio_square:.0%} of one of the {result.square_products} large ones alone; "
        f"compiled in {result.compile_s:.1f} s)"
    )


def smac(options: ProductsOptions) -> None:
    """Print updates per second of both phases, and how many a chain of their products would
    allow."""
    from omrl.bench_smac import bench_smac

    result = bench_smac(
        options.compute.resolve(),
        seeds=options.seeds,
        seconds=options.seconds,
        repeats=options.repeats,
    )
    if options.json:
        print_json(dataclasses.asdict(result))
        return
    print(f"smac on {result.device}, {result.seeds} seed(s), {result.parameters:,} parameters:")
    for name, phase in (("offline", result.offline), ("self-supervised", result.self_supervised)):
        print(
            f"{name}: {phase.gradient_steps_per_s:,.2f} gradient steps/s, {phase.ratio:.0%} of "
            f"what a chain of their {phase.products:.1f} matrix products would reach "
            f"({phase.ratio_square:.0%} of one of the {phase.square_products} large ones alone; "
            f"compiled in {phase.compile_s:.1f} s)"
        )


def updates(name: str, options: UpdatesOptions) -> None:
    """Print updates per second of another algorithm."""
    from omrl.bench import bench_updates

    result = bench_updates(
        name,
        options.compute.resolve(),
        seeds=options.seeds,
        seconds=options.seconds,
        repeats=options.repeats,
    )
    if options.json:
        print_json(dataclasses.asdict(result))
        return
    print(
        f"{name} on {result.device}, {result.seeds} seed(s), {result.parameters:,} parameters of "
        f"{result.preset}: {result.updates_per_s:,.1f} updates/s (compiled in "
        f"{result.compile_s:.1f} s; {result.temporary_bytes / 1e6:,.1f} MB of temporary memory)"
    )
