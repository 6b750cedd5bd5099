"""Minari datasets, one per task: https://minari.farama.org, read and written without the package.

    ROOT/omrl/cheetah-vel/macaw-v1/my-data/task-007-v0/data/metadata.json
                                                           main_data.hdf5    or
                                                           0/part-0.arrow 0/metadata.json 1/…

With `MINARI_DATASETS_PATH=ROOT`, `minari.load_dataset("omrl/cheetah-vel/…/task-007-v0")` opens one.
The metadata's field `omrl` has what Minari does not model: the parameters and number of the task,
the full spec of the environment, and the splits; so importing an export needs no options. The
terms of the reward are `infos/terms`, whose row 0 belongs to the reset and is NaN.

Checked against Minari 0.5.0 and 0.5.4.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.dataset import Dataset, TaskData
from omrl.data.formats import minari_arrow, minari_hdf5
from omrl.data.formats.episodes import without_reset
from omrl.data.formats.layout import Columns, batches, episode
from omrl.data.formats.source import (
    ForeignTask,
    Request,
    Statement,
    parse_statement,
    read_description,
    require,
    statement_of,
)
from omrl.data.manifest import TaskRecord
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

OLDEST = "0.5.0"
"""The version in our metadata: the first with this layout, so that all later ones read it."""
_STORAGES = {"hdf5": minari_hdf5, "arrow": minari_arrow}
_NUMBER = re.compile(r"task[-_]?(\d{1,9})(?!\d)")
_METADATA = "metadata.json"


# --- Reading ---


def stated(source: Path) -> Statement:
    """What the metadata of exports say; empty for datasets that were made elsewhere."""
    statements = [
        parse_statement(ours, f"{path}.omrl")
        for path, metadata in _metadata(source).items()
        if (ours := _ours(path, metadata)[1])
    ]
    if not statements:
        return Statement()
    first = statements[0]
    for other in statements:
        if dataclasses.replace(other, tasks=first.tasks, behaviour=first.behaviour) != first:
            raise InputError(
                f"{source}: holds parts of several exports (environment, splits and dtype differ); "
                "give the folder of one of them"
            )
    tasks = {index: values for each in statements for index, values in each.tasks.items()}
    behaviour = {index: value for each in statements for index, value in each.behaviour.items()}
    return dataclasses.replace(first, tasks=tasks, behaviour=behaviour)


def read(source: Path, request: Request) -> list[ForeignTask]:
    """The datasets in or below a folder. Raises `InputError` where two are of the same task."""
    tasks: dict[int, ForeignTask] = {}
    found = _metadata(source)
    for path, metadata in found.items():
        index = _index(path, metadata, alone=len(found) == 1)
        if index in tasks:
            raise InputError(f"{path}: task {index} is in {tasks[index].file} already; give one")
        name = metadata.get("data_format")
        if not isinstance(name, str) or name not in _STORAGES:
            raise InputError(f"{path}: data_format {name!r}; must be {' or '.join(_STORAGES)}")
        require(_STORAGES[name].PACKAGE)
        folder, count = path.parent, metadata.get("total_episodes")
        if type(count) is not int or count < 1:
            raise InputError(f"{path}: total_episodes must be a number of at least 1")
        tasks[index] = ForeignTask(
            index=index,
            file=folder,
            read=partial(_batches, request.spec, name, folder, count),
            behaviour={"minari": str(metadata.get("dataset_id", ""))},
        )
    return list(tasks.values())


def _metadata(source: Path) -> dict[Path, dict[str, Any]]:
    alone = [path for path in (source / _METADATA, source / "data" / _METADATA) if path.is_file()]
    paths = alone[:1] or sorted(source.glob(f"**/data/{_METADATA}"))
    if not paths:
        raise InputError(f"{source}: no Minari dataset; give a folder with data/{_METADATA} below")
    return {path: read_description(path) for path in paths}


def _ours(path: Path, metadata: Mapping[str, Any]) -> tuple[int | None, dict[str, Any]]:
    """The number of the task and the statement in the field `omrl`, if there is one."""
    fields = metadata.get("omrl")
    if fields is None:
        return None, {}
    if not isinstance(fields, dict) or type(fields.get("task")) is not int or fields["task"] < 0:
        raise InputError(f"{path}, omrl: must be an object with the number of the task")
    return fields["task"], {name: fields[name] for name in fields.keys() - {"task", "spec"}}


def _index(path: Path, metadata: Mapping[str, Any], alone: bool) -> int:
    index, _ = _ours(path, metadata)
    if index is not None:
        return index
    name = str(metadata.get("dataset_id", path.parent.parent.name)).rpartition("/")[2]
    if match := _NUMBER.search(name):
        return int(match[1])
    if alone:
        return 0
    raise InputError(f"{path}: the id {name!r} has no task number; call it task-0-v0, task-1-v0, …")


def _batches(spec: EnvSpec, name: str, folder: Path, count: int) -> Iterator[Columns]:
    episodes = _STORAGES[name].read(spec, folder, count)
    return batches(_episode(spec, folder, *numbered) for numbered in enumerate(episodes))


def _episode(spec: EnvSpec, folder: Path, number: int, fields: dict[str, Any]) -> Columns:
    if "terms" in fields:
        fields["terms"] = without_reset(fields["terms"], np.size(fields["reward"]))
    return episode(spec, f"{folder}, episode {number}", fields)


# --- Writing ---


def write(dataset: Dataset, root: Path, storage: str) -> list[str]:
    """Write every task below `root` and return the ids. `storage` is `hdf5` or `arrow`.

    Raises `InputError` where datasets of that name are there already.
    """
    require(_STORAGES[storage].PACKAGE)
    namespace = [_word(part) for part in ("omrl", *dataset.env_id.split("/"), dataset.path.name)]
    folder = root.joinpath(*namespace)
    if folder.exists():
        raise InputError(f"{folder}: exists; export to another folder or rename the dataset")
    unfinished = folder.with_name(folder.name + ".exporting")
    shutil.rmtree(unfinished, ignore_errors=True)
    ids = []
    for index in dataset.task_indices:
        name = f"task-{index:03d}-v0"
        ids.append("/".join((*namespace, name)))
        data = unfinished / name / "data"
        data.mkdir(parents=True)
        task = dataset.task(index)
        _STORAGES[storage].write(data, _episodes(task))
        metadata = _described(dataset, task, ids[-1], storage)
        (data / _METADATA).write_text(json.dumps(metadata))
    unfinished.rename(folder)
    for depth in range(1, len(namespace) + 1):
        path = root.joinpath(*namespace[:depth], "namespace_metadata.json")
        if not path.exists():
            path.write_text("{}")
    return ids


def _episodes(task: TaskData) -> Iterator[Columns]:
    for number in range(task.num_episodes):
        one = task.only(np.array([number]))
        columns = {name: one.column(name) for name in task.columns if name != "episode_start"}
        if "terms" in columns:
            reset = np.full((1, columns["terms"].shape[1]), np.nan, columns["terms"].dtype)
            columns["terms"] = np.concatenate([reset, columns["terms"]])
        yield columns


def _described(dataset: Dataset, task: TaskData, name: str, storage: str) -> dict[str, Any]:
    spec, record = dataset.spec, task.record
    parameters = dict(zip(spec.task_names, record.parameters, strict=True))
    fields = {
        "total_episodes": task.num_episodes,
        "total_steps": task.num_rows,
        "data_format": storage,
        "observation_space": _box(dataset, spec.obs_dim, float("inf")),
        "action_space": _box(dataset, spec.act_dim, 1.0),
        "dataset_id": name,
        "minari_version": OLDEST,
        "description": f"Task {record.index} {parameters} of {spec.id}, spec hash {spec.hash}; "
        f"infos/terms are {spec.term_names}.",
        "requirements": ["omrl"],
        "dataset_size": round(sum(c.num_bytes for c in record.columns.values()) / 1e6, 1),
        "omrl": {"task": record.index, "spec": json.loads(spec.to_json())}
        | statement_of(dataset, [record]).to_json(),
    }
    return fields | _gymnasium_spec(record, spec)


def _box(dataset: Dataset, width: int, bound: float) -> str:
    """A space, as Minari writes it: JSON in a string, with Infinity."""
    fields = {"type": "Box", "dtype": dataset.manifest.dtype, "shape": [width]}
    return json.dumps(fields | {"low": [-bound] * width, "high": [bound] * width})


def _gymnasium_spec(record: TaskRecord, spec: EnvSpec) -> dict[str, str]:
    """With what `recover_environment` makes the environment of exactly this task.

    Nothing for an environment or a task of the user's own, of which Gymnasium does not know.
    """
    import gymnasium

    from omrl.envs import registry
    from omrl.envs.gym_hook import gymnasium_id

    registered = gymnasium.registry.get(gymnasium_id(spec.id))
    if registered is None or spec.id not in registry.all_ids():
        return {}
    tasks = registry.make(spec.id).task_table
    if record.index >= len(tasks) or tasks[record.index] != record.parameters:
        return {}
    own = copy.deepcopy(registered)
    own.kwargs["task"] = record.index
    return {"env_spec": own.to_json()}


def _word(text: str) -> str:
    """As part of an id of Minari's, which allows no dots."""
    return re.sub(r"[^-\w]", "-", text, flags=re.ASCII)
