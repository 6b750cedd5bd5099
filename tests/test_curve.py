"""Success of a fine-tuning that is gone on with."""

from __future__ import annotations

import numpy as np
import pytest

from omrl.curve import Curve
from omrl.simulate import Labels, Outcome

LABELS = Labels(seeds=(0, 1), tasks=(3, 4), shots=(0, 10), num_episodes=2)


@pytest.mark.parametrize("succeeds", [False, True])
def test_what_was_put_is_in_the_file(tmp_path, succeeds):
    ones = np.ones((2, 1, 1, 2))
    outcome = Outcome(-3.0 * ones, np.zeros((2, 1, 2)), {}, ones if succeeds else None)
    curve = Curve.of(LABELS, (), 5, succeeds=succeeds)
    curve.put(np.array([1]), 0, outcome, np.zeros((2, 1), np.int64))
    curve.save(tmp_path / "curve", "mine")
    again = Curve.of(LABELS, (), 5, succeeds=succeeds)
    again.take_over(tmp_path / "curve", "mine")
    np.testing.assert_array_equal(again.returns, curve.returns)
    if not succeeds:
        assert again.success is None
        return
    assert again.success is not None
    assert (again.success[:, 1, 0] == 1).all()
    assert np.isnan(again.success[:, 0]).all()
    assert np.isnan(again.success[:, :, 1]).all()
