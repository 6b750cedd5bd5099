"""Checks of a dataset: the cheap ones of every opening, and the full pass that is put on record.

`file_findings` reads headers and sizes only, so it also runs on what cannot be opened. `validate`
reads everything once: hashes, finiteness, episode boundaries, action bounds, ends of episodes, and
that the stored reward is the reward of the environment. Both return what they found rather than
raise: the command line prints all of it, an opening raises the first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from omrl.arrays import HEADERS, map_npy
from omrl.data import manifest as manifests
from omrl.data.finding import RECREATE, RESTORE, Finding, file_of, where
from omrl.data.manifest import FLOATS, ColumnRecord, Manifest, TaskRecord
from omrl.data.validate_mdp import parameter_findings, reward_findings, success_findings
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError, reason


@dataclass(frozen=True)
class Report:
    """The outcome of a full pass."""

    findings: tuple[Finding, ...]
    reward: str
    """`checked`, or `not checkable` with the reason."""


def raise_first(folder: Path, findings: Sequence[Finding]) -> None:
    """`InputError` with the first finding and the number of the others, if there is any."""
    if findings:
        others = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
        raise InputError(f"{folder}/{findings[0]}{others}")


# --- Headers and sizes ---


def file_findings(folder: Path, manifest: Manifest) -> list[Finding]:
    """Whether there are tasks, those that the splits name, and every column of theirs with the
    dtype, the shape and the size it must have."""
    findings = _task_list_findings(manifest)
    for task in manifest.tasks:
        for name in manifests.column_names(manifest.spec, "terms" in task.columns):
            problem, fix = _file_problem(folder, manifest, task, name)
            if problem:
                findings.append(
                    Finding(file_of(task.index, name), task.index, name, None, problem, fix)
                )
    return findings


def _task_list_findings(manifest: Manifest) -> list[Finding]:
    def finding(field: str, problem: str) -> Finding:
        return Finding(manifests.NAME, None, field, None, problem, RECREATE)

    held = {task.index for task in manifest.tasks}
    findings = [] if held else [finding("tasks", "a dataset without a task")]
    for name, tasks in manifest.splits.items():
        if not tasks:
            findings.append(finding(f"splits.{name}", "names no task"))
        for index in sorted(set(tasks) - held)[:1]:
            findings.append(finding(f"splits.{name}", f"names task {index}, which has no data"))
    return findings


def _file_problem(folder: Path, manifest: Manifest, task: TaskRecord, name: str) -> tuple[str, str]:
    path, record = folder / file_of(task.index, name), task.columns.get(name)
    if record is None:
        return "the manifest does not list this column", RECREATE
    if not path.is_file():
        return "the file is missing", RESTORE
    try:
        shape, dtype, offset = read_header(path)
    except ValueError as error:
        return f"not a readable .npy file ({error})", RESTORE
    expected = manifests.column_shape(name, manifest.spec, task.transitions, task.episodes)
    allowed = manifests.column_dtype(name, manifest.dtype)
    if dtype != allowed:
        return f"dtype {dtype}, must be {allowed}", RECREATE
    if shape != expected:
        return f"shape {shape}, but the manifest's counts and spec ask for {expected}", RECREATE
    if (dtype.name, shape) != (record.dtype, record.shape):
        return f"{dtype.name} {shape}, recorded as {record.dtype} {record.shape}", RESTORE
    size, needed = path.stat().st_size, offset + dtype.itemsize * math.prod(shape)
    if size != needed:
        return f"{'truncated' if size < needed else 'too long'}: {size} of {needed} bytes", RESTORE
    return "", ""


def read_header(path: Path) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype and offset of the data of a C-ordered `.npy` file; ValueError otherwise."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            with HEADERS:
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        except Exception as error:  # numpy reads the header as Python
            raise ValueError(reason(error)) from error
        if version != (1, 0):
            raise ValueError("format version other than 1.0")
        if fortran_order:
            raise ValueError("Fortran order")
        return shape, dtype, file.tell()


# --- The full pass ---


def validate(folder: Path, manifest: Manifest, env: TaskEnv | None) -> Report:
    """Read everything once. Without `env` the rewards are not checked. Writes nothing."""
    findings = file_findings(folder, manifest)
    broken = {finding.task for finding in findings}
    readable = [task for task in manifest.tasks if task.index not in broken]
    # Hashing and most of numpy release the interpreter's lock.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        check = partial(_task_findings, folder, manifest.spec, env)
        for found in threads.map(check, readable):
            findings += found
    without_terms = any("terms" not in task.columns for task in manifest.tasks)
    if env is None:
        reward = "not checkable: the environment is not known here"
    elif manifest.spec.term_names and without_terms:
        reward = "not checkable: no terms were recorded"
    else:
        reward = "checked"
    return Report(tuple(findings), reward)


def _task_findings(
    folder: Path, spec: EnvSpec, env: TaskEnv | None, task: TaskRecord
) -> list[Finding]:
    columns = {name: map_npy(folder / file_of(task.index, name), RESTORE) for name in task.columns}
    findings = column_findings(spec, task.index, columns)
    if not findings:
        findings += _return_findings(task, columns)
    findings += success_findings(spec, task.index, columns)
    if env is not None:
        findings += parameter_findings(env, task)
        findings += reward_findings(env, task.index, task.parameters, columns)
    return _hash_findings(folder, task, tuple(task.columns)) + findings


def column_findings(spec: EnvSpec, index: int, columns: Mapping[str, np.ndarray]) -> list[Finding]:
    """What is wrong with whole episodes of task `index`, apart from their rewards."""
    checker = _Checker(spec.horizon, index, columns)
    boundaries = checker.boundaries()
    findings = boundaries + checker.finite() + checker.actions()
    return findings if boundaries else findings + checker.ends()


def record(folder: Path, manifest: Manifest, report: Report) -> Manifest:
    """`manifest` with a clean `report` on record, also in `folder` where that can be written."""
    raise_first(folder, report.findings)
    recorded = dataclasses.replace(
        manifest, validation={"hash": manifest.hash, "reward": report.reward}
    )
    # A dataset that is installed read-only is validated anew by every process.
    with contextlib.suppress(OSError):
        manifests.write(folder, recorded)
    return recorded


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hash(folder: Path, task: TaskRecord, name: str) -> None:
    """`InputError` where a column is not the one that was recorded, be it by one bit."""
    raise_first(folder, _hash_findings(folder, task, (name,)))


def _hash_findings(folder: Path, task: TaskRecord, names: Sequence[str]) -> list[Finding]:
    return [
        Finding(file_of(task.index, name), task.index, name, None, "sha256 differs", RESTORE)
        for name in names
        if sha256(folder / file_of(task.index, name)) != task.columns[name].sha256
    ]


def _return_findings(task: TaskRecord, columns: Mapping[str, np.ndarray]) -> list[Finding]:
    returns = episode_returns(columns["reward"], columns["episode_start"])
    recorded = (task.return_mean, task.return_min, task.return_max)
    # Only the order of summation may differ.
    if np.allclose(return_statistics(returns), recorded, rtol=1e-9, atol=1e-9):
        return []
    problem = f"mean, minimum, maximum recorded as {recorded} are not those of the rewards"
    return [Finding(manifests.NAME, task.index, "return", None, problem, RECREATE)]


@dataclass(frozen=True)
class _Checker:
    """The checks of the columns of one task; each returns one finding or none per problem."""

    horizon: int
    index: int
    columns: Mapping[str, np.ndarray]

    def _rows(self, field: str, rows: np.ndarray, problem: str) -> list[Finding]:
        if not len(rows):
            return []
        others = f" (and in {len(rows) - 1} more rows)" if len(rows) > 1 else ""
        first, file = int(rows[0]), file_of(self.index, field)
        return [Finding(file, self.index, field, first, problem + others, RECREATE)]

    def finite(self) -> list[Finding]:
        findings = []
        for name, column in self.columns.items():
            if column.dtype.name in FLOATS:
                findings += self._rows(name, where(_not_finite, column), "NaN or infinity")
        return findings

    def boundaries(self) -> list[Finding]:
        starts = self.columns["episode_start"]
        lengths = np.diff(starts)
        ends = np.array([0, len(starts) - 1])
        edges = ends[[starts[0] != 0, starts[-1] != len(self.columns["reward"])]]
        name, too_long = "episode_start", f"an episode longer than the horizon {self.horizon}"
        return (
            self._rows(name, edges, "the episodes do not cover the rows from 0 to the last")
            + self._rows(
                name, np.flatnonzero(lengths <= 0), "not increasing: an episode without a row"
            )
            + self._rows(name, np.flatnonzero(lengths > self.horizon), too_long)
        )

    def actions(self) -> list[Finding]:
        return self._rows("action", where(_outside, self.columns["action"]), "outside [-1, 1]")

    def ends(self) -> list[Finding]:
        terminated, truncated = self.columns["terminated"], self.columns["truncated"]
        last = np.zeros(len(terminated), bool)
        last[self.columns["episode_start"][1:] - 1] = True
        early = "set within an episode"
        unexplained = where(lambda last, t, u: last & ~(t | u), last, terminated, truncated)
        return (
            self._rows("terminated", where(_without, terminated, last), early)
            + self._rows("truncated", where(_without, truncated, last), early)
            + self._rows(
                "truncated", unexplained, "an episode ends neither terminated nor truncated"
            )
        )


def _not_finite(column: np.ndarray) -> np.ndarray:
    return np.asarray(~np.isfinite(column.reshape(len(column), -1)).all(axis=1))


def _outside(action: np.ndarray) -> np.ndarray:
    return np.asarray((np.abs(action) > 1).any(axis=1))


def _without(flag: np.ndarray, other: np.ndarray) -> np.ndarray:
    return flag & ~other


def episode_returns(reward: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
    """Undiscounted sum of rewards of every episode, float64 [episodes]."""
    return np.add.reduceat(reward, episode_start[:-1], dtype=np.float64)


def episode_blocks(episode_start: np.ndarray, rows: int) -> Iterator[tuple[int, int]]:
    """The episodes `first` to `stop - 1` of one block after another: about so many `rows`, or one
    longer episode."""
    first = 0
    while first < len(episode_start) - 1:
        limit = np.searchsorted(episode_start, episode_start[first] + rows, side="right") - 1
        stop = max(int(limit), first + 1)
        yield first, stop
        first = stop


def return_statistics(returns: np.ndarray) -> tuple[float, float, float]:
    """Mean, minimum and maximum."""
    return float(returns.mean()), float(returns.min()), float(returns.max())


def column_record(path: Path) -> ColumnRecord:
    """What the manifest says about the column in `path`."""
    shape, dtype, _ = read_header(path)
    return ColumnRecord(dtype.name, shape, sha256(path))
