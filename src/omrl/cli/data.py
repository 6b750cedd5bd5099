"""`omrl data …`: look at datasets, check, cut, relabel, exchange and take them from runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from omrl import bundled
from omrl.cli import data_info
from omrl.cli.data_exchange import ExportOptions, ImportOptions, run_export, run_import
from omrl.cli.data_info import known_env, manifest_to_json, print_manifest
from omrl.cli.data_relabel import RelabelOptions, run_relabel
from omrl.cli.options import as_options, as_typed, parse, print_json
from omrl.data import manifest as manifests
from omrl.data import validate as validation
from omrl.data.mixture import open_view
from omrl.data.slice import GRAMMAR
from omrl.data.store import open_dataset, write_slice
from omrl.envs import registry
from omrl.errors import InputError, nearest
from omrl.ranges import Count, Natural
from omrl.tables import print_grid

_COMMANDS = ("info", "validate", "slice", "relabel", "import", "export", "from-run")


@dataclass(frozen=True)
class ValidateOptions:
    """Check every number of a dataset, and record a clean result in its manifest."""

    path: Positional[Path]
    """Folder of the dataset."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class SliceOptions:
    """Write some whole episodes of every task as a new, validated dataset."""

    source: Positional[Path]
    """Folder of the dataset to cut from."""
    out: Positional[Path]
    """Folder of the new dataset."""
    slice: Annotated[
        str, tyro.conf.arg(help=f"{GRAMMAR}; or a mixture of two, 0.3:all+0.7:end.")
    ] = "all"
    mix: Path | None = None
    """Dataset that the second slice of the mixture is of, if not of the same."""
    every: Count = 1
    """Of the slice, keep episodes 0, K, 2K, ...: evenly over each lifetime."""
    dtype: Literal["float32", "float16"] | None = None
    """Of the floating-point columns; without it they keep theirs."""
    overwrite: bool = False
    """Replace the dataset at `out`, if there is one, once the new one is whole."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class FromRunOptions:
    """Write what a run collected itself as datasets: OUT has its main buffer, OUT-encoder its
    encoder buffer."""

    run: Positional[Path]
    """Folder of a run that explores, such as one of a preset pearl-online-… or smac-data-…."""
    out: Positional[Path]
    """Folder of the new dataset."""
    seed: Natural | None = None
    """Seed of the run; without it its first."""
    overwrite: bool = False
    """Replace the datasets, if they are there, once the new ones are whole."""
    json: bool = False
    """Print one JSON object instead of tables: main, and encoder if there is one."""


def validate(options: ValidateOptions) -> None:
    """Print every finding; `InputError` if there is any. A clean result is put on record."""
    path = bundled.resolve(options.path)
    manifest = manifests.read(path)
    env = known_env(manifest)
    if env is not None:
        manifests.check_mdp(path, manifest, env)
    report = validation.validate(path, manifest, env)
    _print_report(report, options.json)
    validation.raise_first(path, report.findings)
    if env is not None:
        validation.record(path, manifest, report)


def slice_dataset(options: SliceOptions) -> None:
    """Write the slice and print what it holds."""
    mixed_in = None if options.mix is None else open_dataset(options.mix)
    source = open_view(options.slice, open_dataset(options.source), mixed_in)
    # In one spelling, since it is part of the dataset's hash.
    values = {"slice": str(source.selection), "every": options.every, "dtype": options.dtype}
    values["mix"] = None if options.mix is None else as_typed(options.mix)
    chosen = as_options(values, {"slice": "all", "every": 1, "dtype": None, "mix": None})
    words = ["omrl", "data", "slice", as_typed(options.source), manifests.OUT, *chosen]
    result = write_slice(
        source,
        options.out,
        registry.make(source.spec.id),
        every=options.every,
        dtype=options.dtype,
        command=shlex.join(words),
        overwrite=options.overwrite,
    )
    print_manifest(result.path, result.manifest, options.json)


def write_from_run(options: FromRunOptions) -> None:
    """Write the datasets and print what they hold."""
    from omrl.data.from_run import write_collected

    written = write_collected(
        options.run, options.out, seed=options.seed, overwrite=options.overwrite
    )
    if options.json:
        print_json({name: manifest_to_json(d.path, d.manifest) for name, d in written.items()})
        return
    for dataset in written.values():
        print_manifest(dataset.path, dataset.manifest, False)


def main(arguments: Sequence[str], command: str) -> None:
    """`omrl data info|validate|slice|relabel|import|export|from-run …`."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        names = "|".join(_COMMANDS)
        print(f"usage: omrl data {names} …; omrl data COMMAND --help tells more")
        if not arguments:
            raise InputError(f"name a command: omrl data {names}")
    elif name == "info":
        data_info.run(parse(data_info.InfoOptions, "data info", rest))
    elif name == "validate":
        validate(parse(ValidateOptions, "data validate", rest))
    elif name == "slice":
        slice_dataset(parse(SliceOptions, "data slice", rest))
    elif name == "relabel":
        options = parse(RelabelOptions, "data relabel", rest)
        result = run_relabel(options)
        print_manifest(result.path, result.manifest, options.json)
    elif name == "import":
        options = parse(ImportOptions, "data import", rest)
        result = run_import(options)
        print_manifest(result.path, result.manifest, options.json)
    elif name == "export":
        run_export(parse(ExportOptions, "data export", rest))
    elif name == "from-run":
        write_from_run(parse(FromRunOptions, "data from-run", rest))
    else:
        raise InputError(f"no command data {name!r}; {nearest(name, _COMMANDS)}")


def _print_report(report: validation.Report, as_json: bool) -> None:
    if as_json:
        findings = [vars(finding) for finding in report.findings]
        print(json.dumps({"findings": findings, "reward": report.reward}))
        return
    from rich.table import Table

    if report.findings:
        names = ("file", "task", "field", "row", "problem", "fix")
        table = Table(*names)
        for finding in report.findings:
            values = (getattr(finding, name) for name in names)
            table.add_row(*("" if value is None else str(value) for value in values))
        print_grid(table)
    else:
        print(f"no finding; rewards: {report.reward}")
