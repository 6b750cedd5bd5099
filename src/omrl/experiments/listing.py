"""What `omrl reproduce` knows, told before any of it is run."""

from __future__ import annotations

from typing import Any

from omrl import bundled
from omrl.experiments import registry
from omrl.experiments.declare import SCALES, Experiment, FromRun, Scale, collecting, plan

HEADER = ["id", "shows", *(f"{scale}, pieces" for scale in SCALES)]


def pieces(experiment: Experiment, scale: Scale) -> int:
    """Things that are made one by one and found again by a repeated command: data that is
    collected, and trainings, each with its evaluations."""
    data = experiment.scales[scale].data
    trainings = {each.config for each in plan(experiment, scale)}
    if isinstance(data, FromRun):
        return len(trainings | {collecting(experiment, scale).config})
    return len(trainings) + (not data.startswith(bundled.PREFIX))


def to_object(experiment: Experiment) -> dict[str, Any]:
    """An experiment as JSON values."""
    return {
        "id": experiment.id,
        "title": experiment.title,
        "claim": experiment.claim.words,
        "source": experiment.claim.source,
        "rows": [arm.label for arm in experiment.arms],
        "needs": "",
        "scales": {
            scale: {"pieces": pieces(experiment, scale), "seeds": setting.seeds}
            for scale, setting in experiment.scales.items()
        },
    }


def objects() -> list[dict[str, Any]]:
    """All experiments; `needs` is what they need beside the package."""
    outside = [
        {"id": name, "title": title, "needs": f"--data, and options of its own: {name} --help"}
        for name, title in registry.OUTSIDE_RL.items()
    ]
    return [*map(to_object, registry.EXPERIMENTS.values()), *outside]


def table() -> list[list[str]]:
    """Rows below `HEADER`."""
    rows = []
    for each in objects():
        scales = each.get("scales", {})
        counts = [str(scales[name]["pieces"]) if name in scales else "-" for name in SCALES]
        rows.append([each["id"], each["title"], *counts])
    return rows
