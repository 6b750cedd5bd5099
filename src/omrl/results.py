"""The result of an evaluation: raw returns with all that is needed to read them. No JAX here.

A result is one `.npz` of plain arrays and one JSON string. Statistics are computed when it is read
(`omrl.stats`), never stored in place of the returns.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from omrl import stats
from omrl.arrays import check_array
from omrl.config import to_json
from omrl.errors import InputError
from omrl.marks import marks
from omrl.protocol import EvalConfig, Measure
from omrl.result_files import FIX, Head, Provenance, read_arrays, write_arrays
from omrl.tables import parameter_cells, parameter_names, print_rows
from omrl.tuning import counted

FORMAT = "omrl-evaluation-1"
BASELINES = ("behaviour", "random", "zero", "oracle")


@dataclass(frozen=True)
class EvalResult:
    """Undiscounted returns and, beside them, what they have to be compared with."""

    config: EvalConfig
    provenance: Provenance
    task_indices: Int64[np.ndarray, " task"]
    task_parameters: Float64[np.ndarray, "task parameter"]
    returns: Float64[np.ndarray, "seed task shot episode"]
    random: Float64[np.ndarray, "task episode"]
    """Uniform actions."""
    zero: Float64[np.ndarray, "task episode"]
    """The action 0."""
    behaviour: Float64[np.ndarray, " task"]
    """Mean return of the task's data over its lifetime; NaN: no data was given."""
    oracle: Float64[np.ndarray, " task"]
    """Final return of the task's own agent; NaN: not recorded with the data."""
    traces: Mapping[str, Float64[np.ndarray, "seed task shot time"]]
    """Reward terms over time, mean over the episodes still alive; NaN where none is."""
    env_steps: Int64[np.ndarray, "seed task shot"] | None = None
    """Of protocol `finetune`: environment steps made online until then."""
    success: Float64[np.ndarray, "seed task shot episode"] | None = None
    """1 of episodes that did at some step what their task asks for, 0 of others; None where tasks
    are not done or left undone."""
    behaviour_success: Float64[np.ndarray, " task"] | None = None
    """Share of the episodes of the task's data that succeed, over its lifetime; NaN of tasks whose
    data does not tell, None where none does."""
    rounds_taken: Int64[np.ndarray, "seed task"] | None = None
    """Adaptation rounds that did not diverge, where that is not all of them (`omrl.adaptation`); of
    `explore` after every trajectory and in every repetition. None: all."""

    # --- Reading ---

    def shot(self, rounds: int) -> Float64[np.ndarray, "seed task episode"]:
        """Returns after `rounds` adaptation rounds; of `finetune` and `explore` after that many
        trajectories."""
        return self.returns[:, :, self.config.points.index(rounds)]

    def measured(self, measure: Measure, rounds: int) -> Float64[np.ndarray, "seed task episode"]:
        """`shot`, or of the same episodes 1 for those that succeed and 0 for others."""
        if measure == "return":
            return self.shot(rounds)
        if self.success is None:
            raise InputError(f"{self.provenance.env_id}: its tasks are not done or left undone")
        return self.success[:, :, self.config.points.index(rounds)]

    def success_rates(self) -> dict[int, stats.Estimate]:
        """Of every shot the share of episodes that succeed; empty where there is no success."""
        if self.success is None:
            return {}
        at = self.config.points.index
        return {
            rounds: stats.bootstrap(self.success[:, :, at(rounds)], stats.mean)
            for rounds in self.config.shots
        }

    def mean_behaviour_success(self) -> float | None:
        """Over the tasks; None where that of any is not known."""
        rates = self.behaviour_success
        return None if rates is None else _number(rates.mean())

    def total(self) -> stats.Estimate:
        """Of protocol `explore`: the return of all trajectories together."""
        return stats.bootstrap(self.returns.sum(axis=2), stats.mean)

    def shot_name(self, rounds: int) -> str:
        if self.env_steps is not None:
            steps = self.env_steps[:, :, self.config.points.index(rounds)]
            about = "" if (steps == steps.min()).all() else "about "
            return f"{about}{steps.mean():,.0f} steps"
        if self.config.protocol == "zero-shot":
            return "zero-shot"
        if self.config.protocol == "explore":
            return f"trajectory {rounds + 1}"
        return "before" if rounds == 0 else f"after {rounds}"

    def curve(self) -> list[tuple[float, stats.Estimate]]:
        """Of `finetune`, at every point: environment steps per seed and task, and the mean return
        with its interval."""
        assert self.env_steps is not None
        return [
            (float(steps), stats.bootstrap(self.shot(number), stats.mean))
            for steps, number in zip(self.env_steps.mean((0, 1)), self.config.points, strict=True)
        ]

    def gains(self) -> dict[int, stats.Estimate]:
        """Of every shot but the first: its mean return less that of the first, paired by run seed,
        task and repetition."""
        first, *later = self.config.shots
        before = self.shot(first)
        return {rounds: stats.improvement(self.shot(rounds), before) for rounds in later}

    def baseline(self, name: str) -> Float64[np.ndarray, " task"]:
        """Mean return per task of one of `BASELINES`."""
        values = getattr(self, name)
        return values.mean(-1) if values.ndim == 2 else values

    def to_json(self) -> dict[str, Any]:
        """The table and its statistics as JSON values; null stands for what is not known."""
        tasks = [
            {
                "index": int(index),
                "parameters": dict(
                    zip(self.provenance.task_names, map(float, parameters), strict=True)
                ),
                "returns": {
                    str(rounds): float(self.shot(rounds)[:, position].mean())
                    for rounds in self.config.shots
                },
            }
            | {name: _number(self.baseline(name)[position]) for name in BASELINES}
            for position, (index, parameters) in enumerate(
                zip(self.task_indices, self.task_parameters, strict=True)
            )
        ]
        whole = {
            "config": to_json(self.config),
            "provenance": to_json(self.provenance),
            "tasks": tasks,
            "summary": {
                str(rounds): {
                    "mean": estimate_to_json(stats.bootstrap(self.shot(rounds), stats.mean)),
                    "iqm": estimate_to_json(stats.bootstrap(self.shot(rounds))),
                    "standard_error": estimate_to_json(
                        stats.mean_standard_error(self.shot(rounds))
                    ),
                }
                for rounds in self.config.shots
            },
            "gains": {str(rounds): estimate_to_json(gain) for rounds, gain in self.gains().items()},
            "success": {
                str(rounds): estimate_to_json(rate) for rounds, rate in self.success_rates().items()
            },
            "behaviour_success": self.mean_behaviour_success(),
            "baselines": {name: _number(self.baseline(name).mean()) for name in BASELINES},
            "rounds_taken": None if self.rounds_taken is None else self.rounds_taken.tolist(),
        }
        if self.config.protocol == "explore":
            whole["sum"] = estimate_to_json(self.total())
        if self.env_steps is None:
            return whole
        points = zip(self.config.points, self.curve(), strict=True)
        return whole | {
            "curve": [
                {"trajectories": number, "env_steps": steps, "mean": estimate_to_json(mean)}
                for number, (steps, mean) in points
            ]
        }

    # --- Files ---

    def save(self, path: str | Path) -> Path:
        """Writes one `.npz` in one step; an interrupted write leaves what was there before."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name in _OPTIONAL:
            if (array := getattr(self, name)) is not None:
                arrays[name] = array
        arrays |= {f"trace/{name}": trace for name, trace in self.traces.items()}
        return write_arrays(Path(path), Head(FORMAT, self.config, self.provenance), arrays)

    @classmethod
    def load(cls, path: str | Path) -> EvalResult:
        """The result in `path`. Raises `InputError` for anything but a complete one."""
        path = Path(path)
        head, arrays = read_arrays(path, FORMAT, _ARRAYS)
        named = {name: arrays.pop(name) for name in _ARRAYS}
        if head.config.protocol == "finetune" and "env_steps" not in arrays:
            raise InputError(f"{path}: env_steps is missing; {FIX}")
        named |= {name: arrays.pop(name) for name in _OPTIONAL if name in arrays}
        _check(path, head, named, arrays)
        traces = {name.removeprefix("trace/"): array for name, array in arrays.items()}
        return cls(head.config, head.provenance, **named, traces=traces)


_OPTIONAL = ("env_steps", "success", "behaviour_success", "rounds_taken")
_INTEGERS = ("task_indices", "env_steps", "rounds_taken")
_ARRAYS = tuple(
    field.name
    for field in dataclasses.fields(EvalResult)
    if field.name not in ("config", "provenance", "traces", *_OPTIONAL)
)


# --- The printed table ---


def print_table(result: EvalResult) -> None:
    """The table per task, then what the numbers are; Markdown where the output is no terminal."""
    print_rows(*table(result), describe(result))


def table(result: EvalResult) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Header, one row per task, and the rows of the mean and of its 95 % interval."""
    shots, names = result.config.shots, parameter_names(result.provenance.task_names)
    header = ["task", *names, *map(result.shot_name, shots), *BASELINES]
    per_shot = [result.shot(rounds).mean((0, 2)) for rounds in shots]
    baselines = [result.baseline(name) for name in BASELINES]
    rows = [
        [
            str(index),
            *parameter_cells(result.task_parameters[position].tolist()),
            *(_cell(column[position]) for column in per_shot + baselines),
        ]
        for position, index in enumerate(result.task_indices)
    ]
    estimates = [stats.bootstrap(result.shot(rounds), stats.mean) for rounds in shots]
    blank, none = ["" for _ in names], ["" for _ in BASELINES]
    means = [*(estimate.value for estimate in estimates), *(column.mean() for column in baselines)]
    summary = [
        ["mean", *blank, *map(_cell, means)],
        ["from", *blank, *(_cell(estimate.low) for estimate in estimates), *none],
        ["to", *blank, *(_cell(estimate.high) for estimate in estimates), *none],
    ]
    return header, rows, summary


def describe(result: EvalResult) -> list[str]:
    """What has to be printed with every number: environment, protocol, seeds, interval."""
    last = result.shot(result.config.shots[-1])
    name = result.shot_name(result.config.shots[-1])
    return [
        *circumstances(result),
        f"mean, from, to: {stats.bootstrap(last, stats.mean).method}",
        f"{name}: IQM {stats.bootstrap(last)}{_standard_error(last)}",
        *_over_shots(result),
    ]


def circumstances(result: EvalResult) -> list[str]:
    """What was evaluated, and how; no number that came out."""
    config, source = result.config, result.provenance
    dataset = f"{source.dataset} ({source.dataset_hash[:12]})" if source.dataset else "none"
    context = config.context
    if config.needs_context:
        context += f" of {dataset}, seed {config.context_seed}"
    of_data = f"no data was adapted to; behaviour and oracle of data: {dataset}"
    return [
        f"environment {source.env_id}, spec {source.spec_hash[:12]}",
        f"protocol {config.protocol}; context: {context}",
        *marks(result),
        *online_notes(config),
        *([of_data] if config.protocol == "explore" else []),
        f"{source.algorithm} after {source.step:,} updates, seeds "
        f"{', '.join(map(str, source.seeds))}; {episodes_note(config)}",
    ]


def _over_shots(result: EvalResult) -> list[str]:
    """What is of several shots together, and how many episodes succeed in each."""
    name = result.shot_name
    gains = [f"{name(rounds)} {gain}" for rounds, gain in result.gains().items()]
    rates = [f"{name(rounds)} {rate.shown(2)}" for rounds, rate in result.success_rates().items()]
    if (of_data := result.mean_behaviour_success()) is not None:
        rates.append(f"behaviour {of_data:.2f}")
    lines = [f"gain over {name(result.config.shots[0])}, paired: {', '.join(gains)}"] * bool(gains)
    if result.config.protocol == "explore":
        lines.append(f"sum of {len(result.config.points)} trajectories: {result.total()}")
    return lines + [f"success at any step: {', '.join(rates)}"] * bool(rates)


def online_notes(config: EvalConfig) -> list[str]:
    """How an evaluation goes on online, if it does."""
    if config.protocol != "finetune":
        return []
    offline = counted(config.finetune.rounds, "adaptation round")
    notes = [f"{offline} offline, then online: {config.finetune.schedule}"]
    settings = config.finetune
    if config.shots[-1] < settings.burn_in or not (settings.value_steps or settings.policy_steps):
        notes.append(f"NO GRADIENT STEP WAS TAKEN ONLINE in {config.shots[-1]} trajectories")
    return notes


def episodes_note(config: EvalConfig) -> str:
    """What a return is of."""
    actions = "deterministic" if config.deterministic else "sampled"
    episodes = counted(config.episodes, "episode")
    return f"{episodes} per seed and task, seed {config.episode_seed}, {actions} actions"


def _standard_error(returns: Float64[np.ndarray, "seed task episode"]) -> str:
    """Of one seed there is none."""
    if len(returns) == 1:
        return ""
    error = stats.mean_standard_error(returns)
    return f"; {error.value:.1f} ± {error.high - error.value:.1f} ({error.method})"


def _cell(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def estimate_to_json(estimate: stats.Estimate) -> dict[str, Any]:
    """As JSON values; null for a range that is not known."""
    fields = dataclasses.asdict(estimate)
    return fields | {name: _number(fields[name]) for name in ("value", "low", "high")}


def _check(
    path: Path, head: Head, named: Mapping[str, np.ndarray], traces: Mapping[str, np.ndarray]
) -> None:
    """`InputError` for the first array that is not as config and provenance say."""
    config, provenance = head.config, head.provenance
    num_tasks = named["task_indices"].size
    if not num_tasks or not provenance.seeds:
        raise InputError(f"{path}: holds no task or no seed; {FIX}")
    lead = (len(provenance.seeds), num_tasks, len(config.points))
    shapes: dict[str, tuple[int, ...]] = {
        "task_indices": (num_tasks,),
        "task_parameters": (num_tasks, len(provenance.task_names)),
        "returns": (*lead, config.episodes),
        "success": (*lead, config.episodes),
        "random": (num_tasks, config.episodes),
        "zero": (num_tasks, config.episodes),
        "behaviour": (num_tasks,),
        "behaviour_success": (num_tasks,),
        "oracle": (num_tasks,),
        "env_steps": lead,
        "rounds_taken": lead[:2],
    }
    for name, array in {**named, **traces}.items():
        dtype = np.int64 if name in _INTEGERS else np.float64
        time = array.shape[-1] if array.ndim else 0
        check_array(path, name, array, dtype, shapes.get(name, (*lead, time or 1)), FIX)
    if not np.isfinite(named["returns"]).all():
        raise InputError(f"{path}: returns must be finite; {FIX}")
    taken, asked = named.get("rounds_taken"), config.rounds[-1]
    if taken is not None and not (0 <= taken.min() < asked and taken.max() <= asked):
        raise InputError(
            f"{path}: rounds_taken must be 0 to {asked}, and somewhere fewer than that; {FIX}"
        )
