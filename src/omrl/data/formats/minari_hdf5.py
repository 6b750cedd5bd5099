"""Minari's HDF5 storage: one file, a group per episode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.formats.episodes import FIELDS
from omrl.data.formats.hdf5 import Hdf5File, opened
from omrl.data.formats.layout import episode_bytes
from omrl.data.formats.source import require
from omrl.envs.base import EnvSpec
from omrl.errors import InputError

PACKAGE = "h5py"
_FILE = "main_data.hdf5"


def read(spec: EnvSpec, folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """Our columns of episodes 0 to count - 1, `terms` as they are under `infos`."""
    with opened(folder / _FILE) as file:
        held = len(file.names())
        if held != count:
            raise InputError(f"{file.path}: holds {held} groups for {count} episodes in metadata")
        for number in range(count):
            group = f"episode_{number}"
            if file.attribute(group, "id") not in (None, number):
                raise InputError(f"{file.path}, {group}: its id is of another episode; number anew")
            fields = {ours: _read(spec, file, f"{group}/{name}") for ours, name in FIELDS.items()}
            yield fields | _terms(spec, file, group)


def _terms(spec: EnvSpec, file: Hdf5File, group: str) -> dict[str, np.ndarray]:
    """`infos/terms` of the episode: an array, or a group with an array per name."""
    name = f"{group}/infos/terms"
    if not spec.term_names or not file.has(f"{group}/infos") or not file.has(name):
        return {}
    if not file.is_group(name):
        return {"terms": _read(spec, file, name)}
    columns = [_read(spec, file, f"{name}/{term}").reshape(-1) for term in spec.term_names]
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"{file.path}, {name}: columns of different lengths; write them again")
    return {"terms": np.stack(columns, axis=1)}


def _read(spec: EnvSpec, file: Hdf5File, name: str) -> np.ndarray:
    dataset, limit = file.dataset(name), episode_bytes(spec)
    if dataset.nbytes > limit:
        raise InputError(
            f"{file.path}, {name}: shape {dataset.shape}; an episode of this environment has at "
            f"most {limit:,} bytes in a column"
        )
    return np.atleast_1d(dataset[()])


def write(folder: Path, episodes: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Write the storage of a task into its folder."""
    h5py = require("h5py")
    with h5py.File(folder / _FILE, "w", track_order=True) as file:
        for number, columns in enumerate(episodes):
            group = file.create_group(f"episode_{number}")
            group.attrs["id"] = number
            group.attrs["total_steps"] = len(columns["reward"])
            for ours, name in FIELDS.items():
                group.create_dataset(name, data=columns[ours])
            if "terms" in columns:
                group.create_dataset("infos/terms", data=columns["terms"])
