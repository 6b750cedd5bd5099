"""`omrl presets`: the named settings, each with its source."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from omrl.algos.registry import network_sizes
from omrl.cli.options import parse, print_json
from omrl.config import to_json
from omrl.data.collect import presets as collections
from omrl.data.collect.presets import CollectPreset
from omrl.envs import registry
from omrl.errors import InputError, nearest
from omrl.presets import PRESETS, Preset, RunConfig
from omrl.types import Spec


@dataclass(frozen=True)
class PresetsOptions:
    """List the presets of `omrl train` and `omrl collect`, or print one completely, with the number
    of parameters of its networks: `omrl presets NAME > my.json` makes a file of settings to edit,
    which `omrl train --from my.json` takes if the preset is its own."""

    name: tyro.conf.Positional[str | None] = None
    """Preset to print, or a pattern, as in 'smac-*', of those to list."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse(PresetsOptions, "presets", arguments)
    every: dict[str, Preset | CollectPreset] = {**PRESETS, **collections.PRESETS}
    if options.name is None or "*" in options.name:
        _list(fnmatch.filter(every, options.name or "*"), options)
    elif options.name in every:
        print_json(_describe(every[options.name]))
    else:
        raise InputError(f"no preset {options.name!r}; {nearest(options.name, every)}")


def _list(names: list[str], options: PresetsOptions) -> None:
    """Those of `names`, in their order."""
    if not names:
        raise InputError(f"no preset {options.name!r}; `omrl presets` lists all")
    trained = {name: PRESETS[name] for name in names if name in PRESETS}
    collected = {name: each for name, each in collections.PRESETS.items() if name in names}
    if options.json:
        print_json({name: _describe(each) for name, each in {**trained, **collected}.items()})
        return
    if trained:
        print("Of omrl train:\n")
    for name, each in trained.items():
        _print(name, each, each.config.env)
    if collected:
        print("\n" * bool(trained) + "Of omrl collect:\n")
    for name, each in collected.items():
        config = each.config
        what = f"{config.env}, {config.algorithm}, {config.steps:,} transitions per task"
        _print(name, each, what)


def _print(name: str, each: Preset | CollectPreset, what: str) -> None:
    print(f"{name}\n    {what}; {each.source}")
    if each.deviates:
        print(f"    deviates: {each.deviates}")


def _describe(each: Preset | CollectPreset) -> dict[str, object]:
    about: dict[str, object] = {"source": each.source, "deviates": each.deviates}
    if isinstance(each, CollectPreset):
        return about | {"collect": to_json(each.config)}
    return about | {"parameters": parameters(each.config), "run": to_json(each.config)}


def parameters(config: RunConfig) -> dict[str, int]:
    """How many numbers each network has in a run on all training tasks of the environment."""
    env = registry.make(config.env)
    left_out = env.splits[config.holdout] if config.holdout else ()
    num_tasks = len(set(env.splits[config.train_split]) - set(left_out))
    spec = Spec(env.spec.obs_dim, env.spec.act_dim, num_tasks, env.spec.horizon)
    return network_sizes(config.algo, spec)
