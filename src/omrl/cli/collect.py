"""`omrl collect`: behaviour data, one agent per task, all tasks at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from omrl.data.collect.config import CollectConfig
from omrl.data.collect.run import collect
from omrl.runs import resolve_devices

__all__ = ["CollectConfig", "describe", "run"]


def run(
    config: CollectConfig,
    out: Path,
    *,
    command: str,
    resume: bool = False,
    device: Literal["auto", "cpu", "gpu"] = "auto",
) -> dict[str, Any]:
    """Collect the dataset `out`; see `collect`. Returns what `--json` prints."""
    started = time.monotonic()
    (chosen,) = resolve_devices(device, 1)
    dataset = collect(config, out, command=command, device=chosen, resume=resume)
    seconds = time.monotonic() - started
    tasks = [
        {
            "task": task.index,
            "parameters": list(task.parameters),
            "episodes": task.episodes,
            "transitions": task.transitions,
            "return_mean": task.return_mean,
            "final_return": task.behaviour["final_return"],
        }
        for task in dataset.manifest.tasks
    ]
    return {
        "dataset": str(out),
        "env": dataset.env_id,
        "spec_hash": dataset.spec.hash,
        "device": chosen.device_kind,
        "seconds": seconds,
        "transitions": sum(task["transitions"] for task in tasks),
        "return_mean": float(np.mean([task["return_mean"] for task in tasks])),
        "final_return": float(np.mean([task["final_return"] for task in tasks])),
        "tasks": tasks,
    }


def describe(summary: dict[str, Any]) -> str:
    """The summary of `run` for a person: one line."""
    finals = [task["final_return"] for task in summary["tasks"]]
    return (
        f"{summary['dataset']}: {summary['env']}, {len(finals)} tasks, "
        f"{summary['transitions']:,} transitions in {summary['seconds']:.0f} s on "
        f"{summary['device']}; mean return of the data {summary['return_mean']:.1f}, of the final "
        f"agents {np.mean(finals):.1f} (worst {min(finals):.1f}, best {max(finals):.1f})"
    )
