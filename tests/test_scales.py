"""Standard deviations that observations are divided by: what hardly moves stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.data import statistics
from omrl.data.slice import Slice
from omrl.data.store import open_dataset
from omrl.scales import divisors, measured_divisors


def test_an_entry_that_moves_by_a_thousandth_of_the_others_stays_as_it_is():
    """The median of 0.1, 0.1, 0.2, 2e-4 and 5e-5 is 0.1; the constant 0 is none of them."""
    std = np.array([0.1, 0.1, 0.2, 2e-4, 5e-5, 0.0])
    mean = np.array([0.0, 0.5, 0.0, 0.0, 1.0, 7.0])
    np.testing.assert_array_equal(measured_divisors(mean, std), [0.1, 0.1, 0.2, 2e-4, 1.0, 1.0])
    np.testing.assert_array_equal(divisors(mean, std), [0.1, 0.1, 0.2, 2e-4, 5e-5, 1.0])


@pytest.mark.parametrize("unit", [1e-2, 1.0, 1e3])
def test_the_unit_of_all_entries_decides_nothing(unit):
    std = unit * np.array([1.0, 2.0, 3.0, 0.0005])
    np.testing.assert_array_equal(measured_divisors(np.zeros(4), std), [*std[:3], 1.0])


def test_of_constants_alone_all_stay():
    np.testing.assert_array_equal(measured_divisors(np.array([0.0, 3.0]), np.zeros(2)), [1.0, 1.0])


def test_a_turned_object_that_lay_still_in_training_is_no_huge_number():
    """Seven entries of a hand that moves and one of a quaternion, still but for 1e-5: turned by a
    right angle in a test task it is 0.7, and 0.7 / 1e-5 would be what a network sees."""
    rng = np.random.Generator(np.random.Philox(key=0))
    obs = rng.normal(0.0, 0.1, (1000, 8))
    obs[:, 7] = 1.0 + 1e-5 * rng.normal(size=1000)
    mean, std = obs.mean(0), obs.std(0)
    turned = np.abs(np.sqrt(0.5) - mean[7])
    assert turned / divisors(mean, std)[7] > 1e4
    assert turned / measured_divisors(mean, std)[7] < 1.0


def test_the_scales_of_the_bundled_data_are_what_they_were():
    """All that moves in it moves by a tenth of the median or more; one entry is constant."""
    view = open_dataset("bundled:cheetah-vel").view(Slice.parse("all"))
    tasks = view.splits["train"]
    measured = statistics.measure(view, tasks, 0.99)
    obs = np.concatenate([statistics._sample(view.task(index)).obs for index in tasks])
    obs = obs.astype(np.float64)
    assert measured.obs_std == tuple(divisors(obs.mean(0), obs.std(0)).tolist())
    assert measured.obs_std.count(1.0) == 1
