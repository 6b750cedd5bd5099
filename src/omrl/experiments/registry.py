"""The experiments that `omrl reproduce` knows, by their ids."""

from __future__ import annotations

from collections.abc import Mapping

from omrl.errors import InputError, nearest
from omrl.experiments import macaw
from omrl.experiments.declare import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {each.id: each for each in macaw.EXPERIMENTS}


def experiment(name: str) -> Experiment:
    """The experiment of that id. `InputError` with the nearest ones if there is none."""
    if name not in EXPERIMENTS:
        raise InputError(f"no experiment {name!r}; {nearest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
