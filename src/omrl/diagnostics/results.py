"""The result of diagnosis `shift`: posteriors and returns. No JAX here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float64

from omrl import stats
from omrl.diagnostics.base import SETS, SOURCES, Diagnosis, Kinds, describe_contexts
from omrl.result_files import Head
from omrl.results import estimate_to_json


@dataclass(frozen=True)
class ShiftResult(Diagnosis):
    """Posteriors and returns."""

    kl: Float64[np.ndarray, "source seed task repetition"]
    """KL(q(z|c) || N(0, 1)) in nats, summed over the dimensions."""
    returns: Float64[np.ndarray, "source seed task repetition"]
    """Undiscounted, of the trajectory after adaptation."""
    exploration: Float64[np.ndarray, "seed task trajectory repetition"]
    """Undiscounted, of those from the prior."""
    decoder_error: Float64[np.ndarray, "source seed task"] | None
    """Mean squared error of predicted rewards, told the offline context, on transitions of each
    source; None: no decoder."""
    xy: Float64[np.ndarray, "set task repetition time 2"] | None
    """Positions after every step, of the first run seed; NaN behind the end. None: no positions
    among the environment's terms."""

    FORMAT: ClassVar[str] = "omrl-shift-1"
    OPTIONAL: ClassVar[tuple[str, ...]] = ("used", "decoder_error", "xy")
    FINITE: ClassVar[tuple[str, ...]] = ("kl", "returns", "exploration")

    @classmethod
    def kinds(cls, head: Head, tasks: int, arrays: Mapping[str, np.ndarray]) -> Kinds:
        rows, config = (len(head.provenance.seeds), tasks), head.config
        horizon = arrays["xy"].shape[3] if arrays.get("xy", np.zeros(())).ndim == 5 else 1
        return {
            "kl": (np.float64, (2, *rows, config.episodes)),
            "returns": (np.float64, (2, *rows, config.episodes)),
            "exploration": (np.float64, (*rows, config.explore.episodes, config.episodes)),
            "decoder_error": (np.float64, (2, *rows)),
            "xy": (np.float64, (len(SETS), tasks, config.episodes, horizon, 2)),
        }

    def kl_of(self, source: str, group: str) -> stats.Estimate:
        """Median over all contexts of the tasks of a group, with quartiles."""
        kl = self.kl[SOURCES.index(source)][:, self.groups[group]]
        low, value, high = map(float, np.percentile(kl, (25, 50, 75)))
        method = (
            f"median and quartiles over {kl.size} contexts, of all seeds, tasks and repetitions"
        )
        return stats.Estimate(value, low, high, method)

    def return_of(self, source: str, group: str) -> stats.Estimate:
        """Mean over the tasks of a group, with its interval; of `prior` before adaptation."""
        tasks = self.groups[group]
        if source == "prior":
            return stats.bootstrap(self.exploration.mean(2)[:, tasks], stats.mean)
        return stats.bootstrap(self.returns[SOURCES.index(source)][:, tasks], stats.mean)

    def change_of(self, group: str) -> stats.Estimate:
        """Mean of return with the online minus return with the offline context, paired."""
        offline, online = self.returns[:, :, self.groups[group]]
        return stats.improvement(online, offline)

    def error_of(self, source: str, group: str) -> float | None:
        if self.decoder_error is None:
            return None
        return float(self.decoder_error[SOURCES.index(source)][:, self.groups[group]].mean())

    def to_json(self) -> dict[str, Any]:
        groups = {name: self._group(name) for name in self.groups}
        return {**self.head_to_json(), "groups": groups}

    def _group(self, group: str) -> dict[str, Any]:
        per_source = {
            source: {
                "kl": estimate_to_json(self.kl_of(source, group)),
                "return": estimate_to_json(self.return_of(source, group)),
                "decoder_error": self.error_of(source, group),
            }
            for source in SOURCES
        }
        return per_source | {
            "prior": {"return": estimate_to_json(self.return_of("prior", group))},
            "online_minus_offline": estimate_to_json(self.change_of(group)),
        }


# --- The printed table ---


def table(results: Sequence[ShiftResult]) -> tuple[list[str], list[list[str]]]:
    """Header and a row per checkpoint, group of tasks and kind of context."""
    decoder = results[-1].decoder_error is not None
    header = ["updates", "tasks", "context", "KL to prior (nats)", "return"]
    rows = []
    for result in results:
        step = f"{result.provenance.step:,}"
        for group in result.groups:
            for source in SOURCES:
                kl, told = result.kl_of(source, group), result.return_of(source, group)
                quartiles = f"{kl.value:.2f} ({kl.low:.2f}, {kl.high:.2f})"
                error = [_number(result.error_of(source, group))] if decoder else []
                rows.append([step, group, source, quartiles, str(told), *error])
            prior = str(result.return_of("prior", group))
            rows.append([step, group, "none", "-", prior, *["-"] * decoder])
    return [*header, *["decoder error"] * decoder], rows


def describe(results: Sequence[ShiftResult]) -> list[str]:
    """What has to be printed with the numbers."""
    last = results[-1]
    source, group = last.provenance, next(iter(last.groups))
    lines = [
        *describe_contexts(results),
        f"KL: {last.kl_of('offline', group).method}",
        f"return: {last.return_of('offline', group).method}",
    ]
    for name, tasks in last.groups.items():
        listed = ", ".join(map(str, last.task_indices[tasks]))
        lines.append(
            f"{name} tasks {listed}: online minus offline {last.change_of(name)} after "
            f"{source.step:,} updates ({last.change_of(name).method})"
        )
    if last.decoder_error is not None:
        lines.append(
            "decoder error: mean squared error of predicted rewards, told the offline context, on "
            "other transitions of the data (offline) and on the explored ones (online)"
        )
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
