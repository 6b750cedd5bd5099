"""`omrl data import | export`: data of other programs into a dataset, and a dataset for them."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from omrl.cli.options import as_options, as_typed, print_json
from omrl.data.dataset import Dataset
from omrl.data.exchange import export_dataset, import_dataset
from omrl.data.formats import FORMATS
from omrl.data.formats.source import Request, Statement, read_statement
from omrl.data.manifest import OUT
from omrl.data.slice import GRAMMAR, Slice
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.errors import InputError
from omrl.ranges import Count, Finite, Natural

_READ = "; ".join(f"{name}: {each.source}" for name, each in FORMATS.items())
_WRITTEN = ", ".join(name for name, each in FORMATS.items() if each.is_writable)


@dataclass(frozen=True)
class ImportOptions:
    """Read data of another program into a new, validated dataset."""

    source: Positional[Path]
    """What to read."""
    out: Positional[Path]
    """Folder of the new dataset."""
    format: Annotated[str, tyro.conf.arg(help=_READ)]
    env: str = ""
    """Environment of the data, one of `omrl envs`; exports say it themselves."""
    tasks: Path | None = None
    """JSON file that states env, tasks and splits: {"env": "…", "tasks": [[0.1], [0.2]], "splits":
    {"train": [0], "test": [1]}}. Without it, tasks.json in SOURCE."""
    canonical: bool = False
    """The tasks are those of the environment, by number."""
    parameters: tuple[Finite, ...] = ()
    """Parameters of task 0, then of task 1, …, instead of a file."""
    train: tuple[Natural, ...] = ()
    """Tasks for training."""
    test: tuple[Natural, ...] = ()
    """Tasks for testing."""
    path_length: Count | None = None
    """Steps after which the recording program cut an episode; without it the horizon."""
    buffer: Literal["replay_buffer", "enc_replay_buffer"] = "replay_buffer"
    """Of rlkit and SMAC: data for the policy, or for the encoder."""
    pattern: str = Request.pattern
    """Of FOCAL: names of the trajectories to read."""
    dtype: Literal["float32", "float16"] | None = None
    """Of the floating-point columns; without it that of an export, or float32."""
    overwrite: bool = False
    """Replace the dataset at `out`, if there is one, once the new one is whole."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class ExportOptions:
    """Write a dataset in the layout of another program."""

    source: Positional[Path]
    """Folder of the dataset."""
    out: Positional[Path]
    """Folder to write; for Minari its root, which may hold other datasets."""
    format: Annotated[str, tyro.conf.arg(help=f"One of {_WRITTEN}.")]
    slice: Annotated[str, tyro.conf.arg(help=f"{GRAMMAR}.")] = "all"
    json: bool = False
    """Print one JSON object."""


def run_import(options: ImportOptions) -> Dataset:
    """Write the dataset."""
    given = read_statement(options.tasks) if options.tasks else Statement()
    splits = {name: tasks for name in ("train", "test") if (tasks := getattr(options, name))}
    if options.env and given.env and options.env != given.env:
        raise InputError(f"{options.tasks}: env is {given.env}, --env {options.env}; give one")
    given = dataclasses.replace(given, env=options.env or given.env, splits=splits or given.splits)
    if options.parameters:
        if given.tasks or options.canonical or not given.env:
            raise InputError("--parameters needs --env, and no --canonical or tasks of a file")
        given = dataclasses.replace(given, tasks=_tasks(given.env, options.parameters))
    reading = {name: getattr(options, name) for name in ("path_length", "buffer", "pattern")}
    return import_dataset(
        options.source,
        options.out,
        options.format,
        command=_command(options),
        given=given,
        canonical=options.canonical,
        dtype=options.dtype,
        overwrite=options.overwrite,
        **reading,
    )


def _command(options: ImportOptions) -> str:
    """In one spelling, since it is part of the dataset's hash."""
    left_out = ("source", "out", "format", "overwrite", "json")
    kept = [each for each in dataclasses.fields(ImportOptions) if each.name not in left_out]
    values: Any = {each.name: getattr(options, each.name) for each in kept}
    values |= {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
    values["tasks"] = None if options.tasks is None else as_typed(options.tasks)
    defaults: Any = {each.name: each.default for each in kept}
    defaults |= {name: list(value) for name, value in defaults.items() if isinstance(value, tuple)}
    chosen = as_options(values, defaults)
    words = ["omrl", "data", "import", as_typed(options.source), OUT, "--format", options.format]
    return shlex.join([*words, *chosen])


def _tasks(env_id: str, numbers: tuple[float, ...]) -> dict[int, tuple[float, ...]]:
    width = len(registry.make(env_id).spec.task_names)
    if len(numbers) % width:
        raise InputError(f"--parameters: {len(numbers)} numbers, must be {width} for every task")
    return {i: numbers[i * width : (i + 1) * width] for i in range(len(numbers) // width)}


def run_export(options: ExportOptions) -> None:
    """Write the files and say what they are."""
    dataset = open_dataset(options.source).view(Slice.parse(options.slice))
    summary = export_dataset(dataset, options.out, options.format)
    if options.json:
        print_json(summary)
        return
    text = "{path}: {tasks} tasks of {env}, {episodes:,} episodes, {transitions:,} transitions"
    print(text.format(**summary))
    if "ids" in summary:
        print(f"MINARI_DATASETS_PATH={options.out}, minari.load_dataset({summary['ids'][0]!r}), …")
