"""Literal statistics, and the coverage of the bootstrap interval on a known distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import trim_mean

from omrl import stats
from omrl.errors import InputError


def runs(scores) -> np.ndarray:
    """Returns [seed, task, episode=2] whose episode means are the given scores [seed, task]."""
    scores = np.asarray(scores, np.float64)
    return np.stack([scores - 1, scores + 1], -1)


def test_iqm_is_the_mean_of_the_middle_half():
    # Eight scores 0, 1, 2, 3, 4, 5, 6, 100: the quarters cut are {0, 1} and {6, 100}; (2+3+4+5)/4.
    estimate = stats.bootstrap(runs([[0, 100], [1, 6], [2, 5], [3, 4]]))
    assert estimate.value == pytest.approx(3.5)
    assert estimate.low < 3.5 < estimate.high


def test_iqm_equals_scipy_over_all_axes():
    scores = np.random.default_rng(0).normal(size=(7, 5))
    assert float(stats.iqm(scores)) == pytest.approx(trim_mean(scores, 0.25, axis=None), rel=1e-14)


def test_mean_of_scores_is_literal():
    assert stats.bootstrap(runs([[1, 2], [3, 6]]), stats.mean).value == pytest.approx(3.0)


def test_bootstrap_resamples_within_each_task():
    # Tasks 0 and 1 differ by 1000 and seeds by nothing, so no resample can change the mean.
    estimate = stats.bootstrap(runs([[0, 1000], [0, 1000]]), stats.mean)
    assert (estimate.low, estimate.value, estimate.high) == (500.0, 500.0, 500.0)


def test_bootstrap_is_a_function_of_its_seed():
    returns = np.random.default_rng(1).normal(size=(5, 3, 2))
    assert stats.bootstrap(returns, seed=3) == stats.bootstrap(returns, seed=3)
    assert stats.bootstrap(returns, seed=3) != stats.bootstrap(returns, seed=4)


@pytest.mark.parametrize("statistic", [stats.mean, stats.iqm])
def test_interval_covers_the_true_value(statistic):
    """Normal scores around their task's centre; symmetric, so mean and IQM both estimate 10.

    A percentile interval of 10 runs is narrow by sqrt(9/10): P(|z| < 1.96 * .949) = .937, and a
    little less since the deviation is estimated too.
    """
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(400):
        returns = rng.normal(10.0, 3.0, (10, 4, 1))
        estimate = stats.bootstrap(returns, statistic, num_resamples=400, seed=trial)
        covered += estimate.low <= 10.0 <= estimate.high
    assert 0.90 <= covered / 400 <= 0.97


def test_interval_has_the_width_of_theory():
    # Standard error of the mean of 50 runs x 4 tasks with deviation 3: 3 / sqrt(200) = 0.2121.
    returns = np.random.default_rng(3).normal(0.0, 3.0, (50, 4, 1))
    estimate = stats.bootstrap(returns, stats.mean, num_resamples=5000)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * 0.2121, rel=0.1)


def test_one_seed_resamples_episodes_and_says_so():
    returns = np.array([[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]])
    estimate = stats.bootstrap(returns, stats.mean)
    assert estimate.value == pytest.approx(3.5)
    assert estimate.low < 3.5 < estimate.high
    assert "one seed: the interval is over episodes" in estimate.method
    assert "one seed" not in stats.bootstrap(np.concatenate([returns, returns])).method


def test_one_seed_and_one_episode_has_no_interval():
    estimate = stats.bootstrap(np.zeros((1, 3, 1)))
    assert estimate.value == 0.0
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)
    assert "no interval" in estimate.method


def test_improvement_is_paired():
    # Starts differ by 100 and what is gained by nothing: each alone has a wide interval.
    before = runs([[0, 200], [100, 300], [500, 700]])
    estimate = stats.improvement(before + 7, before)
    assert (estimate.low, estimate.value, estimate.high) == (7.0, 7.0, 7.0)
    assert estimate.method.startswith(
        "paired differences; mean over seeds and tasks; 95 % interval"
    )
    assert stats.bootstrap(before, stats.mean).low < stats.bootstrap(before, stats.mean).high


def test_improvement_is_of_the_statistic():
    # Gains of 1, 2, 3, 100: their mean is 26.5; the quarters cut are {1} and {100}, (2 + 3) / 2.
    after = runs([[1, 100], [2, 3]])
    assert stats.improvement(after, np.zeros_like(after)).value == pytest.approx(26.5)
    iqm = stats.improvement(after, np.zeros_like(after), stats.iqm)
    assert iqm.value == pytest.approx(2.5)


def test_improvement_pairs_what_has_the_same_axes():
    with pytest.raises(InputError, match=r"\(2, 3, 1\) after against \(1, 3, 1\) before"):
        stats.improvement(np.zeros((2, 3, 1)), np.zeros((1, 3, 1)))


def test_probability_of_improvement_is_mann_whitney_per_task():
    # Task 0: 3 > 1, 3 > 2, 1.5 > 1, 1.5 < 2: 3/4. Task 1: equal: 1/2. Mean: 0.625.
    estimate = stats.probability_of_improvement(runs([[3, 0], [1.5, 0]]), runs([[1, 0], [2, 0]]))
    assert estimate.value == pytest.approx(0.625)
    assert estimate.low <= 0.625 <= estimate.high


def test_probability_of_improvement_is_complementary():
    rng = np.random.default_rng(4)
    ours, theirs = rng.normal(size=(4, 3, 2)), rng.normal(size=(5, 3, 2))
    forward = stats.probability_of_improvement(ours, theirs).value
    assert forward + stats.probability_of_improvement(theirs, ours).value == pytest.approx(1.0)


def test_probability_of_improvement_needs_the_same_tasks():
    with pytest.raises(InputError, match="3 against 2"):
        stats.probability_of_improvement(np.zeros((2, 3, 1)), np.zeros((2, 2, 1)))


def test_papers_own_summaries():
    returns = runs([[1, 2], [3, 6], [5, 10]])  # seed means 1.5, 4.5, 7.5; task means 3, 6
    error = stats.mean_standard_error(returns, "seed")
    assert error.value == pytest.approx(4.5)
    assert error.high - error.value == pytest.approx(3.0 / math.sqrt(3))  # deviation 3 over 3 seeds
    assert error.method == "mean ± standard error over 3 seeds"
    assert stats.mean_standard_error(returns, "task").high == pytest.approx(4.5 + 1.5)
    deviation = stats.mean_standard_deviation(returns, "seed")
    assert (deviation.low, deviation.high) == (pytest.approx(1.5), pytest.approx(7.5))
    quartiles = stats.median_quartiles(returns, "seed")
    assert (quartiles.low, quartiles.value, quartiles.high) == (3.0, 4.5, 6.0)
    # 1, 2, 3, 5, 6, 10: a quarter of the way through 5 gaps is 1.25 gaps.
    over_all = stats.median_quartiles(returns)
    assert (over_all.low, over_all.value, over_all.high) == (2.25, 4.0, 5.75)
    assert over_all.method == "median and quartiles over 6 runs, each one seed on one task"


@pytest.mark.parametrize(
    ("name", "value", "half_width"),
    [
        ("standard-error", 4.5, 3.0 / math.sqrt(3)),
        ("standard-error-tasks", 4.5, 1.5),  # 3 and 6: deviation 3 / sqrt(2), over 2 tasks
        ("standard-deviation", 4.5, 3.0),
        ("standard-deviation-tasks", 4.5, 3.0 / math.sqrt(2)),
        ("median", 4.0, None),
        ("median-seeds", 4.5, 1.5),
        ("median-tasks", 4.5, 0.75),
        ("mean", 4.5, None),
        ("iqm", 4.0, None),  # 2, 3, 5, 6: of six scores one is cut off at each end
    ],
)
def test_statistics_by_name(name, value, half_width):
    estimate = stats.STATISTICS[name](runs([[1, 2], [3, 6], [5, 10]]))
    assert estimate.value == pytest.approx(value)
    assert estimate.low <= estimate.value <= estimate.high
    if half_width is not None:
        assert estimate.high - estimate.value == pytest.approx(half_width)


def test_every_name_of_a_statistic_is_tested():
    (names,) = (mark.args[1] for mark in test_statistics_by_name.pytestmark)
    assert {name for name, *_ in names} == stats.STATISTICS.keys()


def test_one_unit_has_no_spread():
    assert math.isnan(stats.mean_standard_error(np.zeros((1, 2, 3)), "seed").low)


@pytest.mark.parametrize("bad", [np.full((2, 2, 1), np.nan), np.zeros((0, 2, 1))])
def test_bad_returns_are_refused(bad):
    with pytest.raises(InputError, match="finite and not empty"):
        stats.bootstrap(bad)
