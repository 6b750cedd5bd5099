"""The result of diagnosis `traces`: where trajectories went. No JAX here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64, Shaped

from omrl import stats
from omrl.diagnostics.base import SETS, Diagnosis, Kinds, describe_contexts
from omrl.result_files import Head
from omrl.results import estimate_to_json


@dataclass(frozen=True)
class TracesResult(Diagnosis):
    """Trajectories."""

    quantities: Shaped[np.ndarray, " quantity"]
    """Names, in pairs: horizontal and vertical."""
    states: Float64[np.ndarray, "set seed task repetition time quantity"]
    """After every step; NaN behind the end, and where the data tells none."""

    FORMAT: ClassVar[str] = "omrl-traces-1"

    @classmethod
    def kinds(cls, head: Head, tasks: int, arrays: Mapping[str, np.ndarray]) -> Kinds:
        names, states = arrays["quantities"], arrays["states"]
        rows = (len(head.provenance.seeds), tasks, head.config.episodes)
        time = states.shape[4] if states.ndim == 6 else 1
        pairs = max(1, names.size // 2)
        text = names.dtype if names.dtype.kind == "U" else np.dtype("U1")
        return {
            "quantities": (text, (2 * pairs,)),
            "states": (np.float64, (len(SETS), *rows, time, 2 * pairs)),
        }

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of what is drawn against what."""
        names = [str(name) for name in self.quantities]
        return list(zip(names[::2], names[1::2], strict=True))

    @property
    def places(self) -> list[int]:
        """Those of the first pair that are positions: ends are compared by them."""
        return [number for number in (0, 1) if "velocity" not in str(self.quantities[number])]

    def traces(self, name: str, pair: int) -> Float64[np.ndarray, "seed task repetition time 2"]:
        return self.states[SETS.index(name)][..., 2 * pair : 2 * pair + 2]

    def ends(self, name: str) -> Float64[np.ndarray, "seed task repetition place"]:
        """Where trajectories end; NaN where there are none."""
        of_set = self.states[SETS.index(name)][..., self.places]
        there = np.isfinite(of_set).all(-1)
        last = np.where(there, np.arange(there.shape[-1]), 0).max(-1)
        return np.take_along_axis(of_set, last[..., None, None], -2)[..., 0, :]

    def spread_of(self, name: str, group: str) -> stats.Estimate | None:
        """How far apart tasks are: the mean of `distances`; of logged ones, which are of no seed,
        without interval. None where there are none."""
        distances = self.distances(name, group)
        return None if distances is None else stats.bootstrap(distances[..., None], stats.mean)

    def distances(self, name: str, group: str) -> Float64[np.ndarray, "seed task"] | None:
        """Of a task's mean end to the middle of those of all tasks of the group; all logged ones as
        if of one seed. None where a task has no trajectory, or is the only one."""
        ends = self.ends(name)[:, self.groups[group]]
        if name == "dataset":
            ends = np.concatenate(list(ends), axis=1)[None]
        there = np.asarray(np.isfinite(ends).all(-1))
        count = there.sum(2)
        if ends.shape[1] < 2 or not count.all():
            return None
        ends = np.where(there[..., None], ends, 0.0).sum(2) / count[..., None]
        return np.linalg.norm(ends - ends.mean(1, keepdims=True), axis=-1)

    def gap_of(self, group: str) -> stats.Estimate:
        """Mean distance between the ends after an offline and after an online context, of the same
        seed, task, repetition, initial state and noise."""
        offline, online = (self.ends(name)[:, self.groups[group]] for name in SETS[2:])
        return stats.bootstrap(np.linalg.norm(online - offline, axis=-1), stats.mean)

    def to_json(self) -> dict[str, Any]:
        groups = {name: self._group(name) for name in self.groups}
        return {
            **self.head_to_json(),
            "quantities": [str(name) for name in self.quantities],
            "groups": groups,
        }

    def _group(self, group: str) -> dict[str, Any]:
        spread = {name: self.spread_of(name, group) for name in SETS}
        return {
            "spread": {name: each and estimate_to_json(each) for name, each in spread.items()},
            "gap": estimate_to_json(self.gap_of(group)),
        }


# --- The printed table ---


def table(results: Sequence[TracesResult]) -> tuple[list[str], list[list[str]]]:
    """Header and a row per checkpoint and group of tasks."""
    header = ["updates", "tasks", *(f"spread, {name}" for name in SETS), "gap, offline to online"]
    rows = []
    for result in results:
        for group in result.groups:
            spread = [_shown(result.spread_of(name, group)) for name in SETS]
            gap = _shown(result.gap_of(group))
            rows.append([f"{result.provenance.step:,}", group, *spread, gap])
    return header, rows


def describe(results: Sequence[TracesResult]) -> list[str]:
    """What has to be printed with the numbers."""
    last = results[-1]
    group = next(iter(last.groups))
    compared = " and ".join(str(last.quantities[number]) for number in last.places)
    listed = [
        f"{name} tasks {', '.join(map(str, last.task_indices[tasks]))}"
        for name, tasks in last.groups.items()
    ]
    return [
        *describe_contexts(results),
        *listed,
        f"spread: how far, by {compared}, the mean end of a task's trajectories is from the middle "
        f"of those of all tasks; {last.gap_of(group).method}",
        "gap: how far the ends after an offline and after an online context are apart, of the same "
        "seed, task, repetition, initial state and noise",
    ]


def _shown(estimate: stats.Estimate | None) -> str:
    return "-" if estimate is None else estimate.shown(3)
