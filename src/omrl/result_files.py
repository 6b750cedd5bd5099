"""A file of measured numbers: arrays, and a JSON string of what they were measured with. No JAX.

Arrays are read without pickle, and a file is written in one step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from omrl.arrays import read_npz
from omrl.config import from_json, parse_json, to_json
from omrl.errors import InputError
from omrl.files import atomic_write
from omrl.protocol import EvalConfig, ExploreConfig
from omrl.tuning import FinetuneConfig

FIX = "delete it and evaluate again"


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from, beside the `EvalConfig`."""

    env_id: str
    spec_hash: str
    """Of the environment: equal hashes mean equal MDPs."""
    task_names: tuple[str, ...]
    dt: float
    """Seconds per environment step."""
    algorithm: str
    step: int
    """Updates that the evaluated states had made."""
    seeds: tuple[int, ...]
    """The run seed of each entry of the seed axis."""
    dataset: str
    """Folder that contexts, behaviour and oracle returns were read from; empty: none."""
    dataset_hash: str
    run_hash: str = ""
    """Of all settings of the run and of what it was trained on, `RunRecord.hash`; empty: states of
    no run, or a result from before there was one."""
    test_tasks: Literal["", "with their rewards", "without their rewards"] = ""
    """How the run explored test tasks while it was meta-trained; empty: it did not."""


@dataclass(frozen=True)
class Head:
    """The JSON string of a file of raw numbers."""

    format: str
    config: EvalConfig
    provenance: Provenance


def write_arrays(path: Path, head: Head, arrays: Mapping[str, np.ndarray]) -> Path:
    """Writes one `.npz` in one step; an interrupted write leaves what was there before."""
    text = np.array(json.dumps(to_json(head)))
    with atomic_write(path) as file:
        np.savez_compressed(file, allow_pickle=False, json=text, **arrays)
    return path


def read_arrays(
    path: Path, format_name: str, names: Sequence[str]
) -> tuple[Head, dict[str, np.ndarray]]:
    """What `write_arrays` wrote. Raises `InputError` for anything but a file of that format with
    at least the arrays `names`."""
    arrays = read_npz(path, FIX)
    absent = {"json", *names} - arrays.keys()
    if absent:
        raise InputError(f"{path}: {min(absent)} is missing; {FIX}")
    fields = parse_json(str(arrays.pop("json")[()]), f"{path}: json", FIX)
    _as_now(fields)
    head = from_json(Head, fields, f"{path}: json", FIX)
    if head.format != format_name:
        raise InputError(f"{path} has format {head.format!r}, this version reads {format_name!r}")
    return head, arrays


def _as_now(fields: Any) -> None:
    """Completes a result from before there was a run hash, or runs that explore test tasks, or
    `finetune` or `explore`, whose settings no other protocol reads."""
    parts = fields if isinstance(fields, dict) else {}
    config, provenance = parts.get("config"), parts.get("provenance")
    if isinstance(provenance, dict):
        provenance.setdefault("run_hash", "")
        provenance.setdefault("test_tasks", "")
    later = {"finetune": FinetuneConfig(), "explore": ExploreConfig()}
    for name, default in later.items():
        if isinstance(config, dict) and config.get("protocol") != name:
            config.setdefault(name, to_json(default))
