"""Opening and writing datasets: folders of plain `.npy` columns beside a manifest.

    my-data/manifest.json
    my-data/task-007/{obs,action,reward,terms,terminated,truncated,episode_start}.npy

Rows are transitions in time order, whole episodes one after another. `obs` has one row more per
episode, its last observation, so that next and terminal observations are stored once.
`episode_start` has one number more than there are episodes: episode `e` is the rows
`episode_start[e]:episode_start[e + 1]`, and its observations begin at `episode_start[e] + e`.

A writer works in `my-data.partial` and renames it at the end. What it completed before it was
interrupted, or appended up to a point that its caller recorded, is kept and continued.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from omrl import bundled
from omrl.config import json_hash
from omrl.data import manifest as manifests
from omrl.data import validate, validate_mdp
from omrl.data.dataset import Dataset, TaskData
from omrl.data.growing import GrowingTask
from omrl.data.manifest import Manifest, TaskRecord
from omrl.data.mixture import DataView, MixedData
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError
from omrl.files import check_apart, check_room, named

__all__ = [
    "Dataset",
    "TaskData",
    "Writer",
    "create",
    "open_dataset",
    "open_for_training",
    "with_tasks_of",
]

# --- Opening ---


def open_dataset(path: str | Path) -> Dataset:
    """Open after the cheap checks: manifest, and dtype, shape and size of every file.

    `path` may be `bundled:NAME` for data that comes with the package.
    """
    folder = bundled.resolve(path)
    manifest = manifests.read(folder)
    validate.raise_first(folder, validate.file_findings(folder, manifest))
    return Dataset(folder, manifest)


def open_for_training(
    path: str | Path,
    env: TaskEnv,
    splits: Sequence[str] = (),
    *,
    options: str = "--train-split, --holdout, --eval.split",
) -> Dataset:
    """Open data of this MDP that has `splits`, which `options` name, and a clean full
    validation.

    Data of the same MDP with longer episodes is as good.
    Validates now, and puts that on record, where the record is absent or belongs to other data.
    Raises `InputError` naming what does not fit.
    """
    dataset = open_dataset(path)
    if not dataset.spec.is_longer(env.spec):
        manifests.check_mdp(dataset.path, dataset.manifest, env)
    for name in splits:
        if name not in dataset.splits:
            held = ", ".join(dataset.splits) or "none"
            raise InputError(
                f"{path}: no split {name!r}; the dataset has {held}: name another one, or tasks "
                f"alone ({options})"
            )
    manifest = dataset.manifest
    if not manifest.validated:
        report = validate.validate(dataset.path, manifest, env)
        manifest = validate.record(dataset.path, manifest, report)
    return dataclasses.replace(dataset, manifest=manifest)


def with_tasks_of(dataset: Dataset, env: TaskEnv) -> TaskEnv:
    """`env` with the splits of the dataset, and with its tasks where they are not those of `env`.

    The dataset decides what task 3 is: logs may be of any tasks of the MDP. Where they are those of
    `env`, its further splits stay. Raises `InputError` where their numbers have a gap.
    """
    tasks, splits = env.tasks, {**env.splits, **dataset.splits}
    if not are_tasks_of(env, dataset.manifest.tasks):
        tasks, splits = dataset.task_parameters, dataset.splits
        if dataset.task_indices != tuple(range(len(tasks))):
            raise InputError(
                f"{dataset.path}: its tasks are not those of {env.spec.id}, and their numbers "
                f"{dataset.task_indices} have a gap; number them 0 to {len(tasks) - 1}"
            )
    return env.with_tasks(tasks, splits)


def are_tasks_of(env: TaskEnv, records: Sequence[TaskRecord]) -> bool:
    """Whether the list of `env` has these tasks under these numbers."""
    tasks = env.tasks
    return all(
        record.index < len(tasks) and np.array_equal(tasks[record.index], record.parameters)
        for record in records
    )


# --- Writing ---


def create(
    path: str | Path,
    env: TaskEnv,
    *,
    command: str,
    overwrite: bool = False,
    dtype: str = "float32",
    source: Mapping[str, str] | None = None,
    reads: Sequence[Path] = (),
) -> Writer:
    """Begin a dataset of `env`, or continue the one that was begun here by the same `command`.

    Tasks and splits are those of `env`, see `TaskEnv.with_tasks`. An existing dataset is an
    `InputError` unless it may be overwritten, and then stays as it is until the new one is whole.
    It is always one if it is or holds what the new one is made of, `reads`.
    """
    out = named(Path(path))
    check_apart(out, reads, beside=(".partial", ".replaced"))
    if out.exists() and not (overwrite and (out / manifests.NAME).is_file()):
        what = "exists and is not a dataset" if overwrite else "exists"
        fix = "give another folder" + ("" if overwrite else ", or replace the dataset: --overwrite")
        raise InputError(f"{out}: {what}; {fix}")
    if dtype not in manifests.FLOATS:
        raise InputError(f"dtype {dtype!r}: must be {' or '.join(manifests.FLOATS)}")
    begun = Manifest(
        spec=env.spec,
        dtype=dtype,
        splits=env.splits,
        command=command,
        versions=manifests.library_versions(),
        source=source,
    )
    partial = out.with_name(out.name + ".partial")
    held = _begun(partial)
    if held is not None and _continues(held, begun, env):
        damaged = {finding.task for finding in validate.file_findings(partial, held)}
        whole = tuple(task for task in held.tasks if task.index not in damaged)
        return Writer(out, env, dataclasses.replace(begun, tasks=whole), overwrite)
    if held is not None and not overwrite:
        raise InputError(
            f"{partial}: begun by another command, library version or environment, from other data "
            f"or with other tasks, {held.command!r}; repeat that one, or delete the folder"
        )
    if held is not None:
        shutil.rmtree(partial)
    manifests.write(partial, begun)
    return Writer(out, env, begun, overwrite)


def _continues(held: Manifest, begun: Manifest, env: TaskEnv) -> bool:
    """Whether what `held` tells of would have been written by a writer that `begun` describes."""
    # The splits of the last one count; `finish` cuts them.
    like_begun = dataclasses.replace(held, tasks=(), splits=begun.splits, validation=None)
    return like_begun == begun and are_tasks_of(env, held.tasks)


def _begun(partial: Path) -> Manifest | None:
    """The manifest of an interrupted writer, None where there is none."""
    if (partial / manifests.NAME).is_file():
        return manifests.read(partial)
    # Killed while it wrote its first manifest, a writer leaves a hidden file at most.
    if partial.exists() and any(not path.name.startswith(".") for path in partial.iterdir()):
        raise InputError(f"{partial}: in the way and not an interrupted dataset; move it elsewhere")
    return None


class Writer:
    """Writes a dataset task by task (`write_task`), or in rounds (`append`, then `complete`).

    Both take the columns of the module's docstring by name, as floating-point, bool and integer
    arrays or lists; `terms` may be left out where they were not recorded. All are checked as in a
    full validation before a byte is written.
    """

    def __init__(self, out: Path, env: TaskEnv, manifest: Manifest, overwrite: bool):
        self.out = out
        self.partial = out.with_name(out.name + ".partial")
        self._env = env
        self._manifest = manifest
        self._overwrite = overwrite

    def is_complete(self, index: int) -> bool:
        """Whether task `index` is written, hashed and on record."""
        return any(task.index == index for task in self._manifest.tasks)

    def episodes(self, index: int) -> int:
        """Number of whole episodes in the files of task `index`."""
        return self._files(index).cursor()[0]

    def append(self, index: int, **columns: ArrayLike) -> None:
        """Add whole episodes, all columns of theirs, to the lifetime of task `index`.

        `InputError` names the first bad row, counted within these columns, or the bytes that the
        disk lacks; the files then are as before.
        """
        if self.is_complete(index):
            raise InputError(f"{self.out}: task {index} is complete; truncate it to write it again")
        parameters = self._parameters(index)
        cast = self._cast(index, columns)
        findings = validate.column_findings(self._env.spec, index, cast)
        findings += validate_mdp.reward_findings(self._env, index, parameters, cast)
        validate.raise_first(self.out, findings)
        check_room(self.partial, sum(column.nbytes for column in cast.values()))
        try:
            self._files(index).append(cast)
        except OSError as error:
            raise InputError(
                f"{self.partial}: {error.strerror}; free the disk and repeat, a collection with "
                "--resume"
            ) from error

    def truncate(self, index: int, episodes: int) -> None:
        """Keep the first `episodes` episodes of task `index`, which then is not complete."""
        if self.is_complete(index):
            kept = tuple(task for task in self._manifest.tasks if task.index != index)
            self._record(kept)
        self._files(index).truncate(episodes)

    def sync(self, index: int) -> None:
        """Wait until the episodes of task `index` would survive a loss of power."""
        self._files(index).sync()

    def complete(self, index: int, behaviour: Mapping[str, Any]) -> None:
        """Finish task `index`: hash its columns and put it on record.

        `behaviour` says in plain JSON values what collected the data.
        """
        try:
            json_hash(behaviour)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{self.out}: task {index}, behaviour: {error}; give plain numbers, strings and "
                "lists: float(x), not a number of numpy's"
            ) from error
        files = self._files(index)
        episodes, rows = files.cursor()
        if episodes == 0:
            raise InputError(f"{self.out}: task {index} has no episode; append some first")
        files.seal()
        starts, reward = (np.load(files.path(n)) for n in ("episode_start", "reward"))
        mean, low, high = validate.return_statistics(validate.episode_returns(reward, starts))
        record = TaskRecord(
            index=index,
            parameters=self._parameters(index),
            episodes=episodes,
            transitions=rows,
            return_mean=mean,
            return_min=low,
            return_max=high,
            behaviour=behaviour,
            columns={name: validate.column_record(files.path(name)) for name in files.names()},
        )
        others = [task for task in self._manifest.tasks if task.index != index]
        self._record(tuple(sorted([*others, record], key=lambda task: task.index)))

    def write_task(self, index: int, *, behaviour: Mapping[str, Any], **columns: ArrayLike) -> None:
        """Write the whole lifetime of task `index`: the columns of `append`, then `complete`."""
        self.truncate(index, 0)
        self.append(index, **columns)
        self.complete(index, behaviour)

    def finish(self) -> Dataset:
        """Validate everything, put that on record, and give the folder its name.

        Splits keep the tasks that there is data of; one without any is left out.
        """
        begun = {path.name for path in self.partial.glob("task-*")}
        unfinished = sorted(begun - {task.folder for task in self._manifest.tasks})
        if unfinished or not begun:
            what = f"{unfinished[0]} is not complete" if unfinished else "no task was written"
            raise InputError(f"{self.partial}: {what}; complete it before finishing")
        if self.out.exists() and not self._overwrite:
            raise InputError(f"{self.out}: exists by now; move it, then repeat the command")
        manifest = self._manifest
        written = {task.index for task in manifest.tasks}
        kept = {name: [i for i in tasks if i in written] for name, tasks in manifest.splits.items()}
        splits = {name: tuple(tasks) for name, tasks in kept.items() if tasks}
        manifest = dataclasses.replace(manifest, splits=splits)
        validate.record(
            self.partial, manifest, validate.validate(self.partial, manifest, self._env)
        )
        replaced = self.out.with_name(self.out.name + ".replaced")
        if self.out.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            self.out.rename(replaced)
        self.partial.rename(self.out)
        shutil.rmtree(replaced, ignore_errors=True)
        return open_dataset(self.out)

    def _files(self, index: int) -> GrowingTask:
        folder = self.partial / manifests.task_folder(index)
        return GrowingTask(folder, self._env.spec, self._manifest.dtype)

    def _record(self, tasks: tuple[TaskRecord, ...]) -> None:
        manifest = dataclasses.replace(self._manifest, tasks=tasks)
        manifests.write(self.partial, manifest)
        self._manifest = manifest

    def _parameters(self, index: int) -> tuple[float, ...]:
        tasks = self._env.tasks
        if not 0 <= index < len(tasks):
            raise InputError(f"{self.out}: no task {index}; {self._env.spec.id} has {len(tasks)}")
        return tuple(float(value) for value in tasks[index])

    def _cast(self, index: int, given: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """The columns in the dtypes of the files; `InputError` where kind or shape is another."""
        try:
            columns = {name: np.asarray(column) for name, column in given.items()}
        except ValueError as error:
            raise InputError(f"{self.out}: task {index}: not an array ({error})") from error
        names = set(manifests.column_names(self._env.spec, "terms" in columns))
        if columns.keys() != names:
            wrong = ", ".join(sorted(columns.keys() ^ names))
            raise InputError(f"{self.out}: task {index}: missing or unknown columns: {wrong}")
        num_rows, num_episodes = columns["reward"].size, columns["episode_start"].size - 1
        cast = {}
        for name, column in columns.items():
            dtype = manifests.column_dtype(name, self._manifest.dtype)
            shape = manifests.column_shape(name, self._env.spec, num_rows, num_episodes)
            if column.dtype.kind != dtype.kind or column.shape != shape:
                raise InputError(
                    f"{self.out}: task {index}, {name}: {column.dtype} {column.shape}; give a "
                    f"{dtype} {shape} array for {num_rows} rows in {num_episodes} episodes"
                )
            with np.errstate(over="ignore"):  # Found as an infinity by the checks.
                cast[name] = column.astype(dtype, copy=False)
        return cast


def task_bytes(spec: EnvSpec, num_rows: int, num_episodes: int, dtype: str = "float32") -> int:
    """Bytes of the columns of a task, for `check_room` before a long collection."""
    return sum(
        manifests.column_dtype(name, dtype).itemsize
        * math.prod(manifests.column_shape(name, spec, num_rows, num_episodes))
        for name in manifests.column_names(spec, with_terms=True)
    )


def write_slice(
    view: DataView,
    path: str | Path,
    env: TaskEnv,
    *,
    every: int = 1,
    dtype: str | None = None,
    command: str,
    overwrite: bool = False,
) -> Dataset:
    """Write the episodes of `view`, thinned to every `every`-th, as a dataset.

    `dtype` float16 makes a compact copy; without one the columns keep theirs, of a mixture
    the narrower.
    """
    parts = view.parts if isinstance(view, MixedData) else (view,)
    dataset, reads = parts[0], [part.path for part in parts]
    # Rounded rewards would not be those of the environment in a wider dtype.
    dtype = dtype or max((part.manifest.dtype for part in parts), key=manifests.FLOATS.index)
    if every < 1:
        raise InputError(f"every {every}: must be at least 1; 10 keeps episodes 0, 10, 20, ...")
    manifests.check_mdp(dataset.path, dataset.manifest, env)
    env = with_tasks_of(dataset, env)
    tasks = {index: view.task(index) for index in dataset.task_indices}
    tasks = {i: task.only(np.arange(0, task.num_episodes, every)) for i, task in tasks.items()}
    sizes = [
        task_bytes(env.spec, task.num_rows, task.num_episodes, dtype) for task in tasks.values()
    ]
    source = view.source | {"slice": f"{view.selection}, every {every}"}
    how: dict[str, Any] = {"overwrite": overwrite, "dtype": dtype, "source": source}
    writer = create(path, env, command=command, reads=reads, **how)
    check_room(writer.partial, sum(sizes))
    for index, task in tasks.items():
        if not writer.is_complete(index):
            task.check_hashes(task.names)  # Or the hashes of the copy would vouch for damage.
            columns = {name: task.column(name) for name in task.names if name != "episode_start"}
            columns["episode_start"] = task.episode_start
            writer.write_task(index, behaviour=task.behaviour, **columns)
    return writer.finish()
