"""`omrl presets`: the named settings, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from omrl.cli.options import parse, print_json
from omrl.config import to_json
from omrl.presets import PRESETS, Preset, preset


@dataclass(frozen=True)
class PresetsOptions:
    """List the presets, or print one completely: `omrl presets NAME > my.json` makes a file of
    settings to edit, which `omrl train --from my.json` takes."""

    name: tyro.conf.Positional[str | None] = None
    """Preset to print."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(PresetsOptions, "presets", arguments)
    if options.name is not None:
        print_json(_describe(preset(options.name)))
    elif options.json:
        print_json({name: _describe(each) for name, each in PRESETS.items()})
    else:
        for name, each in PRESETS.items():
            print(f"{name}\n    {each.config.env}; {each.source}")
            if each.deviates:
                print(f"    deviates: {each.deviates}")


def _describe(each: Preset) -> dict[str, object]:
    return {
        "source": each.source,
        "deviates": each.deviates,
        "run": to_json(each.config),
    }
