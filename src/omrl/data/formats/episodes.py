"""Episodes of a Python program, as Gymnasium and Minari have them, into a dataset."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from omrl.data.dataset import Dataset
from omrl.data.formats.layout import Columns, batches, episode
from omrl.data.store import Writer, create
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError

FIELDS = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
}
"""What Gymnasium and Minari call our columns."""


def from_episodes(
    path: str | Path,
    env: TaskEnv,
    episodes: Mapping[int, Iterable[Any]],
    *,
    command: str,
    behaviour: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset of `env` from the episodes of each task, which are taken one at a time.

    An episode is a mapping or an object (such as Minari's `EpisodeData`) with `observations`
    [T + 1, obs], `actions` [T, act], `rewards` [T], `terminations` [T], `truncations` [T], and
    perhaps `infos`. The terms of the reward are `terms` in `infos`: an array [T, term], or one
    array [T] per name; or `infos` is a list of the T dicts that `step` returned. A row more, of the
    reset, may come first.

    `command` and `behaviour` go into the manifest: what made the dataset, what collected the data.
    Tasks that are complete from an interrupted run of the same command are kept, nothing where data
    was refused: it will be corrected. Raises `InputError` naming task, episode and field of what is
    wrong.
    """
    writer = create(path, env, command=command, dtype=dtype, overwrite=overwrite)
    try:
        for index, of_task in episodes.items():
            _write_task(writer, env.spec, index, of_task, behaviour or {})
    except InputError:
        shutil.rmtree(writer.partial)
        raise
    return writer.finish()


def _write_task(
    writer: Writer,
    spec: EnvSpec,
    index: int,
    episodes: Iterable[Any],
    behaviour: Mapping[str, Any],
) -> None:
    if writer.is_complete(index):
        return
    writer.truncate(index, 0)
    numbered = (
        _columns(spec, f"task {index}, episode {number}", given)
        for number, given in enumerate(episodes)
    )
    for columns in batches(numbered):
        writer.append(index, **columns)
    writer.complete(index, behaviour)


def _columns(spec: EnvSpec, where: str, given: Any) -> Columns:
    fields = {ours: _field(where, given, name) for ours, name in FIELDS.items()}
    infos = _attribute(given, "infos")
    terms = _terms(spec, where, infos) if infos is not None and spec.term_names else None
    if terms is not None:
        fields["terms"] = without_reset(terms, np.size(fields["reward"]))
    return episode(spec, where, fields)


def _field(where: str, given: Any, name: str) -> Any:
    found = _attribute(given, name)
    if found is None:
        raise InputError(f"{where}: no {name}; an episode has {', '.join(FIELDS.values())}")
    return found


def _attribute(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _terms(spec: EnvSpec, where: str, infos: Any) -> np.ndarray | None:
    """[T, term] or, with the reset, [T + 1, term]; None where there are none."""
    if isinstance(infos, Mapping):
        terms = infos.get("terms")
    else:
        rows = [info["terms"] for info in infos if "terms" in info]
        terms = {name: [row.get(name) for row in rows] for name in spec.term_names if rows} or None
    if isinstance(terms, Mapping):
        if missing := [name for name in spec.term_names if name not in terms]:
            raise InputError(f"{where}, infos, terms: no {missing[0]!r}; it is needed")
        terms = np.stack([np.asarray(terms[name]) for name in spec.term_names], axis=-1)
    return None if terms is None else np.asarray(terms)


def without_reset(terms: np.ndarray, num_steps: int) -> np.ndarray:
    """The rows of the steps, where the info of the reset may come first."""
    return terms[1:] if terms.ndim and len(terms) == num_steps + 1 else terms
