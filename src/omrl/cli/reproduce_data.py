"""The collections of experiments: made once, and found again by what they are of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omrl import bundled
from omrl.config import json_hash

if TYPE_CHECKING:
    from omrl.data.collect.config import CollectConfig


def collected(
    name: str,
    home: Path,
    device: Literal["auto", "cpu", "gpu"],
    say: Callable[[str], None],
    *,
    quiet: bool = False,
) -> str:
    """The dataset `name`: one that is bundled, or of a preset of `omrl collect` in the cache
    `home`, where it is collected unless it was before."""
    if name.startswith(bundled.PREFIX):
        return name
    from omrl.cli import collect
    from omrl.experiments.holding import LOCKS, holding
    from omrl.experiments.stages import told_to_repeat

    config, command, folder = collection(name, home)
    lock = folder.parent.with_name(LOCKS) / folder.name
    if folder.exists():
        return str(folder)
    with told_to_repeat(), holding(lock, say):
        if not folder.exists():
            begun = folder.with_name(folder.name + ".partial").exists()
            say(f"{'going on with' if begun else 'collecting'} {folder}")
            collect.run(config, folder, command=command, resume=begun, device=device, quiet=quiet)
    return str(folder)


def collection(name: str, home: Path) -> tuple[CollectConfig, str, Path]:
    """Config, command and folder of the data of a preset of `omrl collect`."""
    from omrl.cli import collect
    from omrl.experiments.stages import ADDRESS

    config = collect.named_config(name)
    command = collect.canonical_command(config)
    return config, command, home / "data" / f"{name}-{json_hash(command)[:ADDRESS]}"
