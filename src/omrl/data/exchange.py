"""`import_dataset` and `export_dataset`: other programs' data through the store, and back out.

An import asks three things that other programs' files rarely say: of which environment the data
is, what the parameters of the tasks are, and which tasks are for what (see
`omrl.data.formats.source`). All rows go through `omrl.data.store.Writer`, which checks them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.dataset import Dataset
from omrl.data.formats import format_named
from omrl.data.formats.source import (
    STATEMENT,
    ForeignTask,
    Parameters,
    Request,
    Statement,
    fingerprint,
    statement_beside,
    statement_of,
)
from omrl.data.store import Writer, create
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.files import check_room, named

ROUNDED = 1e-3
"""How far parameters that a source tells may be from the canonical ones; names have 3 decimals."""


# --- Import ---


def import_dataset(
    source: str | Path,
    out: str | Path,
    format: str,
    *,
    command: str,
    given: Statement | None = None,
    canonical: bool = False,
    env: TaskEnv | None = None,
    path_length: int | None = None,
    dtype: str | None = None,
    overwrite: bool = False,
    **reading: str,
) -> Dataset:
    """Read `source` in `format` and write it as the validated dataset `out`.

    Args:
        given: what is stated about the source; what is missing is taken from the source.
        canonical: the tasks are those of the environment, by number.
        env: of the data, where it is not one of the registry.
        dtype: of the floating-point columns; without it that of an export, or float32.
        path_length: steps after which the recording program cut an episode; without it the horizon.
        reading: further fields of `omrl.data.formats.source.Request`.

    Tasks that are complete from an interrupted import of the same source by the same `command` are
    kept. Raises `InputError` naming what is missing, or the file, task and row that is wrong.
    """
    source, module = Path(source), format_named(format).load()
    if not source.exists():
        raise InputError(f"{source}: no such file or folder; give the data to import")
    if path_length is not None and path_length < 1:
        raise InputError(f"path length {path_length}: must be at least 1 step")
    found = module.stated(source) if hasattr(module, "stated") else statement_beside(source)
    given = given or Statement()
    env = env or _environment(source, given.env, found.env)
    _check_spec(source, env, given.spec_hash or found.spec_hash)
    tasks = module.read(source, Request(env.spec, path_length or env.spec.horizon, **reading))
    stated = given.tasks or found.tasks
    env = _with_tasks(env, tasks, stated, given.splits or found.splits, canonical)
    writer = create(
        out,
        env,
        command=command,
        overwrite=overwrite,
        dtype=dtype or given.dtype or found.dtype or "float32",
        source={"format": format, "name": source.name, "fingerprint": fingerprint(source)},
        reads=[source],
    )
    try:
        for task in tasks:
            behaviour = {"imported": format, "file": task.file.name, **task.behaviour}
            _import_task(writer, task, found.behaviour.get(task.index, behaviour))
    except InputError:
        # Other options, or the source mended: what was read of it as it is would be of no use.
        shutil.rmtree(writer.partial)
        raise
    return writer.finish()


def _environment(source: Path, given: str, found: str) -> TaskEnv:
    if given and found and given != found:
        raise InputError(f"{source}: is data of {found}, not of {given}; leave out --env")
    if not (given or found):
        raise InputError(
            f"{source}: does not say of which environment it is; give --env ID, one of `omrl envs`"
        )
    return registry.make(given or found)


def _check_spec(source: Path, env: TaskEnv, spec_hash: str) -> None:
    if spec_hash not in ("", env.spec.hash):
        raise InputError(
            f"{source}: exported from an environment of spec hash {spec_hash[:12]}, "
            f"{env.spec.id} has {env.spec.hash[:12]}: another MDP; give the right --env"
        )


def _with_tasks(
    env: TaskEnv,
    tasks: Sequence[ForeignTask],
    stated: Mapping[int, Parameters],
    splits: Mapping[str, Sequence[int]],
    canonical: bool,
) -> TaskEnv:
    """`env` with the tasks and splits of the source."""
    table = {index: tuple(row) for index, row in enumerate(env.tasks.tolist())}
    used = {}
    for task in tasks:
        told = stated.get(task.index, task.parameters)
        used[task.index] = _checked(env, task, table, told) if canonical else told
        if used[task.index] is None:
            raise InputError(
                f"{task.file}: the parameters of task {task.index} are not known; state them with "
                f"--tasks FILE or --parameters, or that they are those of {env.spec.id} with "
                "--canonical"
            )
        if len(used[task.index]) != len(env.spec.task_names):
            raise InputError(
                f"{task.file}: task {task.index} has {len(used[task.index])} parameters; those of "
                f"{env.spec.id} are {', '.join(env.spec.task_names)[:200]}"
            )
    if all(table.get(index) == values for index, values in used.items()):
        return env.with_tasks(env.tasks, splits or env.splits)
    if sorted(used) != list(range(len(used))):
        raise InputError(
            f"the source has tasks {', '.join(map(str, sorted(used)))[:200]}, which are not those "
            f"of {env.spec.id}; number them 0 to {len(used) - 1}"
        )
    if not splits:
        raise InputError(
            "which tasks are for training is not known; state it with --train and --test (data "
            "to adapt to needs --test alone), or as splits in --tasks FILE"
        )
    return env.with_tasks(np.array([used[index] for index in range(len(used))]), splits)


def _checked(
    env: TaskEnv, task: ForeignTask, table: dict[int, Parameters], told: Parameters | None
) -> Parameters:
    """The canonical parameters of a task. Raises `InputError` where the source tells others."""
    if task.index not in table:
        raise InputError(f"{task.file}: task {task.index}; {env.spec.id} has {len(table)} tasks")
    own = table[task.index]
    if told is not None and (
        len(told) != len(own) or np.abs(np.subtract(told, own)).max() > ROUNDED
    ):
        raise InputError(
            f"{task.file}: task {task.index} is {told} there and {own} in {env.spec.id}; leave out "
            "--canonical"
        )
    return own


def _import_task(writer: Writer, task: ForeignTask, behaviour: Any) -> None:
    if writer.is_complete(task.index):
        return
    writer.truncate(task.index, 0)
    rows = 0
    try:
        for columns in task.read():
            writer.append(task.index, **columns)
            rows += len(columns["reward"])
        writer.complete(task.index, behaviour)
    except InputError as error:
        if str(task.file) in str(error):
            raise
        raise InputError(f"{task.file}, task {task.index}, from row {rows} on: {error}") from error


# --- Export ---


def export_dataset(dataset: Dataset, out: str | Path, format: str) -> dict[str, Any]:
    """Write the selected episodes of `dataset` to the folder `out`; returns a summary.

    Minari's datasets go below `out`, which may hold others; every other format needs `out` for
    itself. Nothing of that name is left there unless it is whole.
    """
    out, module = named(Path(out)), format_named(format, to_write=True).load()
    tasks = [dataset.task(index) for index in dataset.task_indices]
    widths = 2 * dataset.spec.obs_dim + dataset.spec.act_dim + len(dataset.spec.term_names) + 5
    rows = sum(task.num_rows + task.num_episodes for task in tasks)
    check_room(out, 4 * widths * rows)
    summary = {
        "path": str(out),
        "format": format,
        "env": dataset.env_id,
        "tasks": len(tasks),
        "episodes": sum(task.num_episodes for task in tasks),
        "transitions": sum(task.num_rows for task in tasks),
    }
    if module.__name__.endswith(".minari"):
        storage = "arrow" if format == "minari-arrow" else "hdf5"
        return summary | {"ids": module.write(dataset, out, storage)}
    if out.exists():
        raise InputError(f"{out}: exists; give another folder")
    unfinished = out.with_name(out.name + ".exporting")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        module.write(dataset, unfinished)
    except InputError:
        shutil.rmtree(unfinished)
        raise
    statement = statement_of(dataset, dataset.manifest.tasks)
    (unfinished / STATEMENT).write_text(json.dumps(statement.to_json(), indent=1))
    unfinished.rename(out)
    return summary
