"""Statistics over raw returns [seed, task, episode], apart from training and from simulation.

A run's score on a task is its mean over episodes (Agarwal et al. 2021, arXiv:2108.13264). Intervals
resample runs within each task (stratified bootstrap). With one seed there is no spread between
training runs to resample: each episode then counts as a run, and `Estimate.method` says so, because
such an interval says nothing about the next training run.

The papers' own summaries are here too: mean with standard error over seeds or tasks (MACAW), mean
with standard deviation over seeds (SMAC), median with quartiles (MACAW's workshop version).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64

from omrl.errors import InputError

Returns = Float[np.ndarray, "seed task episode"]
Scores = Float64[np.ndarray, "*resample run task"]
Statistic = Callable[[Scores], Float64[np.ndarray, "*resample"]]
Over = Literal["seed", "task", "run"]
"""What counts as one number: a seed's mean, a task's mean, or one seed on one task."""

NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A number with its range; `method` is the sentence that has to be printed with them."""

    value: float
    low: float
    """NaN where the data cannot give a range (one run)."""
    high: float
    method: str

    def __str__(self) -> str:
        return self.shown(1)

    def shown(self, digits: int) -> str:
        """With so many digits behind the point."""
        value, low, high = (f"{each:.{digits}f}" for each in (self.value, self.low, self.high))
        return value if math.isnan(self.low) else f"{value} [{low}, {high}]"


def iqm(scores: Scores) -> Float64[np.ndarray, "*resample"]:
    """Interquartile mean over runs and tasks: the mean of the middle half of all scores."""
    from scipy.stats import trim_mean  # takes 1.7 s

    return np.asarray(trim_mean(scores.reshape(*scores.shape[:-2], -1), 0.25, axis=-1))


def mean(scores: Scores) -> Float64[np.ndarray, "*resample"]:
    """Mean over runs and tasks."""
    return np.asarray(scores.mean((-2, -1)))


def bootstrap(
    returns: Returns,
    statistic: Statistic = iqm,
    *,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """`statistic` of the scores with its stratified percentile-bootstrap interval."""
    scores, unit = _scores(returns)
    resampled = statistic(_resample(scores, num_resamples, _generator(seed)))
    name = f"{getattr(statistic, '__name__', 'statistic')} over {unit} and tasks"
    return _with_interval(
        float(statistic(scores)),
        resampled,
        confidence=confidence,
        name=name,
        num_runs=len(scores),
        unit=unit,
    )


def improvement(
    after: Returns,
    before: Float[np.ndarray, "before_seed before_task before_episode"],
    statistic: Statistic = mean,
    **options: Any,
) -> Estimate:
    """`statistic` of after - before, with the interval of the differences themselves; `options` are
    those of `bootstrap`.

    Paired: the two are of the same seed, task and initial state, so what these make of a return is
    no part of the interval. Raises `InputError` unless both have the same shape.
    """
    if after.shape != before.shape:
        raise InputError(
            f"improvement pairs returns [seed, task, episode]: {after.shape} after against "
            f"{before.shape} before"
        )
    difference = after.astype(np.float64) - before
    estimate = bootstrap(difference, statistic, **options)
    return replace(estimate, method=f"paired differences; {estimate.method}")


def probability_of_improvement(
    returns: Returns,
    baseline: Float[np.ndarray, "baseline_seed baseline_task baseline_episode"],
    *,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """P(a run of `returns` beats one of `baseline` on a random task); a tie counts one half.

    Agarwal et al. 2021, section 4.3: the Mann-Whitney statistic of each task, averaged over tasks.
    """
    if returns.shape[1] != baseline.shape[1]:
        raise InputError(
            f"probability of improvement needs the same tasks on both sides: {returns.shape[1]} "
            f"against {baseline.shape[1]}"
        )
    (ours, unit), (theirs, unit_theirs) = _scores(returns), _scores(baseline)
    generator = _generator(seed)
    resampled = _improvement(
        _resample(ours, num_resamples, generator), _resample(theirs, num_resamples, generator)
    )
    units = unit if unit == unit_theirs else f"{unit} against {unit_theirs}"
    return _with_interval(
        float(_improvement(ours, theirs)),
        resampled,
        confidence=confidence,
        name="P(improvement)",
        num_runs=min(len(ours), len(theirs)),
        unit=units,
    )


def mean_standard_error(returns: Returns, over: Over = "seed") -> Estimate:
    """Mean plus and minus one standard error of the mean over seeds or tasks."""
    units = _unit_means(returns, over)
    spread = _sample_deviation(units) / np.sqrt(len(units))
    return _symmetric(units, spread, f"mean ± standard error over {_counted(units, over)}")


def mean_standard_deviation(returns: Returns, over: Over = "seed") -> Estimate:
    """Mean plus and minus one sample standard deviation (n - 1) over seeds or tasks."""
    units = _unit_means(returns, over)
    method = f"mean ± standard deviation (n - 1) over {_counted(units, over)}"
    return _symmetric(units, _sample_deviation(units), method)


def median_quartiles(returns: Returns, over: Over = "run") -> Estimate:
    """Median with the 25th and 75th percentile, over what the workshop paper leaves open."""
    units = _unit_means(returns, over)
    low, value, high = np.percentile(units, (25, 50, 75))
    method = f"median and quartiles over {_counted(units, over)}"
    return Estimate(float(value), float(low), float(high), method)


STATISTICS: Mapping[str, Callable[[Returns], Estimate]] = {
    "mean": partial(bootstrap, statistic=mean),
    "iqm": bootstrap,
    "standard-error": mean_standard_error,
    "standard-error-tasks": partial(mean_standard_error, over="task"),
    "standard-deviation": mean_standard_deviation,
    "standard-deviation-tasks": partial(mean_standard_deviation, over="task"),
    "median": median_quartiles,
    "median-seeds": partial(median_quartiles, over="seed"),
    "median-tasks": partial(median_quartiles, over="task"),
}
"""By the names that they have on the command line."""


def _scores(returns: Returns) -> tuple[Float64[np.ndarray, "run task"], str]:
    """One score per run and task, and what a run is: a seed, or an episode if there is one seed."""
    if returns.size == 0 or not np.isfinite(returns).all():
        raise InputError(
            f"returns [seed, task, episode] of shape {returns.shape} must be finite and not empty"
        )
    values = returns.astype(np.float64)
    if len(values) > 1:
        return values.mean(-1), "seeds"
    return np.ascontiguousarray(values[0].T), "episodes"


def _resample(
    scores: Float64[np.ndarray, "run task"], num: int, generator: np.random.Generator
) -> Float64[np.ndarray, "resample run task"]:
    """Runs drawn with replacement, independently within each task."""
    num_runs, num_tasks = scores.shape
    runs = generator.integers(0, num_runs, size=(num, num_runs, num_tasks))
    return scores[runs, np.arange(num_tasks)]


def _improvement(
    ours: Scores, theirs: Float64[np.ndarray, "*resample other_run task"]
) -> Float64[np.ndarray, "*resample"]:
    difference = ours[..., :, None, :] - theirs[..., None, :, :]
    return np.asarray((0.5 * (np.sign(difference) + 1)).mean((-3, -2, -1)))


def _with_interval(
    value: float,
    resampled: Float64[np.ndarray, " resample"],
    *,
    confidence: float,
    name: str,
    num_runs: int,
    unit: str,
) -> Estimate:
    if num_runs == 1:
        return Estimate(value, float("nan"), float("nan"), f"{name}; no interval: one run of each")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(resampled, (tail, 100 - tail))
    method = (
        f"{name}; {100 * confidence:g} % interval from {len(resampled)} stratified bootstrap "
        f"samples, {num_runs} {unit} resampled within each task"
    )
    if "episodes" in unit:
        method += " (one seed: the interval is over episodes, not over training runs)"
    return Estimate(value, float(low), float(high), method)


def _unit_means(returns: Returns, over: Over) -> Float64[np.ndarray, " unit"]:
    runs = returns.astype(np.float64).mean(2)
    return runs.ravel() if over == "run" else runs.mean(1 if over == "seed" else 0)


def _counted(units: Float64[np.ndarray, " unit"], over: Over) -> str:
    names = {"run": "runs, each one seed on one task"}
    return f"{len(units)} {names.get(over, f'{over}s')}"


def _sample_deviation(units: Float64[np.ndarray, " unit"]) -> float:
    return float(units.std(ddof=1)) if len(units) > 1 else float("nan")


def _symmetric(units: Float64[np.ndarray, " unit"], spread: float, method: str) -> Estimate:
    value = float(units.mean())
    return Estimate(value, value - spread, value + spread, method)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, 0]))
