"""`omrl envs`: the environments, or one in full."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from omrl.cli.options import parse, print_json


@dataclass(frozen=True)
class EnvsOptions:
    """List the environments, or describe one."""

    id: tyro.conf.Positional[str | None] = None
    """Environment to describe."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(EnvsOptions, "envs", arguments)
    from omrl.envs import registry

    if options.id is not None:
        env = registry.make(options.id)
        print_json(
            {
                "spec": json.loads(env.spec.to_json()),
                "hash": env.spec.hash,
                "tasks": env.tasks.tolist(),
                "splits": {name: list(tasks) for name, tasks in env.splits.items()},
            }
        )
        return
    rows = []
    for env_id in registry.ids():
        env = registry.make(env_id)
        rows.append(
            {
                "id": env_id,
                "hash": env.spec.hash,
                "obs": env.spec.obs_dim,
                "act": env.spec.act_dim,
                "horizon": env.spec.horizon,
                "tasks": len(env.tasks),
                "splits": {name: len(tasks) for name, tasks in env.splits.items()},
            }
        )
    if options.json:
        print_json(rows)
        return
    for row in rows:
        splits = ", ".join(f"{name} {count}" for name, count in row["splits"].items())
        print(
            f"{row['id']:<28} obs {row['obs']:>3}  act {row['act']:>2}  "
            f"horizon {row['horizon']:>3}  tasks {row['tasks']:>3} ({splits})  {row['hash'][:12]}"
        )
