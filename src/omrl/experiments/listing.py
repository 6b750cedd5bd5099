"""What `omrl reproduce` knows, told before any of it is run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from omrl import bundled
from omrl.envs.optional import install_line
from omrl.experiments import lifetimes, registry
from omrl.experiments.declare import (
    SCALES,
    Experiment,
    FromRun,
    Planned,
    Scale,
    collecting,
    extras,
    plan,
)
from omrl.experiments.lifetimes import Lifetimes

HEADER = ["id", "shows", *(f"{scale}, pieces" for scale in SCALES)]


def pieces(experiment: Experiment, scale: Scale, planned: Iterable[Planned]) -> int:
    """Things that are made one by one and found again by a repeated command: data that is
    collected, and trainings, each with its evaluations."""
    data = experiment.scales[scale].data
    trainings = {each.config for each in planned}
    if isinstance(data, FromRun):
        return len(trainings | {collecting(experiment, scale).config})
    return len(trainings) + (not data.startswith(bundled.PREFIX))


def to_object(experiment: Experiment) -> dict[str, Any]:
    """An experiment as JSON values."""
    planned = {scale: plan(experiment, scale) for scale in experiment.scales}
    return {
        "id": experiment.id,
        "title": experiment.title,
        "claim": experiment.claim.words,
        "source": experiment.claim.source,
        "rows": [arm.label for arm in experiment.arms],
        "needs": _told(extras(chain.from_iterable(planned.values()))),
        "scales": {
            scale: {"pieces": pieces(experiment, scale, planned[scale]), "seeds": setting.seeds}
            for scale, setting in experiment.scales.items()
        },
    }


def _told(needed: Iterable[str]) -> str:
    return ", ".join(f"{extra}: {install_line(extra)}" for extra in sorted(needed))


def figure_of_data(figure: Lifetimes) -> dict[str, Any]:
    """A figure that trains nothing, alike; it has no seeds."""
    needed = {extra for scale in SCALES for extra in lifetimes.extras(figure, scale)}
    return {
        "id": figure.id,
        "title": figure.title,
        "claim": figure.claim.words,
        "source": figure.claim.source,
        "rows": [problem.name for problem in figure.problems],
        "needs": _told(needed),
        "scales": {
            scale: {"pieces": len(lifetimes.collections(figure, scale)), "seeds": None}
            for scale in SCALES
        },
    }


def objects() -> list[dict[str, Any]]:
    """All experiments; `needs` is what they need beside the package."""
    outside = [
        {"id": name, "title": title, "needs": f"--data, and options of its own: {name} --help"}
        for name, title in registry.OUTSIDE_RL.items()
    ]
    of_data = map(figure_of_data, registry.BEHAVIOUR.values())
    return [*map(to_object, registry.EXPERIMENTS.values()), *of_data, *outside]


def table() -> list[list[str]]:
    """Rows below `HEADER`."""
    rows = []
    for each in objects():
        scales = each.get("scales", {})
        counts = [str(scales[name]["pieces"]) if name in scales else "-" for name in SCALES]
        rows.append([each["id"], each["title"], *counts])
    return rows
