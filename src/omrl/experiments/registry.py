"""The experiments that `omrl reproduce` knows, by their ids."""

from __future__ import annotations

from collections.abc import Mapping

from omrl.errors import InputError, nearest
from omrl.experiments import (
    later,
    macaw,
    macaw_behaviour,
    macaw_ml45,
    macaw_problems,
    macaw_shift,
    smac,
    smac_diagnoses,
)
from omrl.experiments.declare import Experiment
from omrl.experiments.lifetimes import Lifetimes
from omrl.omniglot import settings as omniglot

EXPERIMENTS: Mapping[str, Experiment] = {
    each.id: each
    for module in (macaw, macaw_problems, macaw_shift, macaw_ml45, smac, smac_diagnoses, later)
    for each in module.EXPERIMENTS
}
BEHAVIOUR: Mapping[str, Lifetimes] = {each.id: each for each in macaw_behaviour.BEHAVIOUR}
"""Figures of the data, which train nothing; `omrl.cli.reproduce_behaviour`."""
OUTSIDE_RL: Mapping[str, str] = {omniglot.ID: omniglot.TITLE}
"""Titles by id; these have commands of their own, `omrl.cli.reproduce_…`."""

ALL = "ALL"
"""In place of an id: `EXPERIMENTS` and `BEHAVIOUR`."""


def experiment(name: str) -> Experiment:
    """The experiment of that id. `InputError` with the nearest ones if there is none."""
    if name not in EXPERIMENTS:
        known = [*EXPERIMENTS, *BEHAVIOUR, *OUTSIDE_RL, ALL]
        raise InputError(f"no experiment {name!r}; {nearest(name, known)}")
    return EXPERIMENTS[name]
