"""What figures have in common."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from omrl.drawing import interval_line
from omrl.stats import Estimate


@pytest.mark.parametrize("count", [1, 2])
def test_an_interval_is_seen_at_one_point_too(count):
    axes = Figure().subplots()
    estimates = [Estimate(1.0, -2.0, 3.0, "made up")] * count
    interval_line(axes, range(count), estimates, color="black", label="a")
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert (path.vertices[:, 1].min(), path.vertices[:, 1].max()) == (-2.0, 3.0)
    # An area needs a width to be seen, a line does not.
    assert isinstance(band, LineCollection) or np.ptp(path.vertices[:, 0]) > 0
