"""`omrl evaluate RUN`: adapt a trained run to test tasks and measure returns before and after."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from omrl.cli.options import DeviceOptions, parse_for_run, print_json
from omrl.config import json_hash, to_json
from omrl.errors import InputError
from omrl.protocol import EvalConfig, finetuning
from omrl.ranges import Count, Natural

if TYPE_CHECKING:
    from omrl.evaluate import How


@dataclass(frozen=True)
class EvaluateOptions:
    """Adapt a run to test tasks and measure its returns. Defaults are the settings of the run's own
    evaluations, which `omrl evaluate RUN --help` shows; `--traces` without a name: none.

    --protocol finetune goes on learning online; it takes the settings finetune-paper unless
    --settings names others. What was measured is kept beside the raw returns until all is, and the
    same command goes on with the tasks that were not finished."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or bundled:NAME."""
    config: Annotated[EvalConfig, tyro.conf.arg(name="")]
    data: Path | None = None
    """Dataset of the contexts, or bundled:NAME; without it the one the run was trained on."""
    step: Natural | None = None
    """Checkpoint to evaluate; without it the last, which is the one that counts."""
    out: Path | None = None
    """File of the raw returns; without it one in RUN/eval, named by what was evaluated. Those of a
    bundle are kept only with it."""
    overwrite: bool = False
    """Replace the file at `out`, if there is one."""
    settings: Literal["", "finetune-paper", "finetune-code"] = ""
    """Protocol finetune as MACAW's paper or its reference code has it; single settings can be
    changed beside it, as in --finetune.burn-in 10."""
    tasks_at_once: Count | None = None
    """Of finetune: tasks that learn side by side; without it as many as fit into the memory."""
    quiet: bool = False
    """No progress lines."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object instead of a table."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse_for_run(EvaluateOptions, "evaluate", arguments, _settings(arguments))
    config = options.config
    if options.out is not None and options.out.exists() and not options.overwrite:
        raise InputError(f"{options.out}: exists; choose another file, or replace it: --overwrite")
    if options.out is not None and options.out.is_dir():
        raise InputError(f"{options.out}: is a folder; give a file for the raw returns")
    from omrl import bundle, bundled, metatrain
    from omrl.results import print_table

    trained = metatrain.load_trained(
        options.run, options.compute.resolve(), step=options.step, shots=config.rounds
    )
    out = options.out
    if out is None and not bundle.is_bundle(bundled.resolve(options.run)):
        name = f"{config.protocol}-{json_hash(to_json(config))[:8]}-{trained.step:08d}.npz"
        out = options.run / "eval" / name
    result = metatrain.evaluate_trained(trained, options.data, config, _how(options, out))
    if out is not None:
        result.save(out)
        _unfinished(out).unlink(missing_ok=True)
    if options.json:
        print_json({"run": str(options.run), "file": out and str(out)} | result.to_json())
        return
    print_table(result)
    if out is not None:
        print(f"\nraw returns: {out}")


def _how(options: EvaluateOptions, out: Path | None) -> How:
    from omrl.evaluate import How

    def report(line: str) -> None:
        if not options.quiet:
            print(line, file=sys.stderr)

    return How(options.tasks_at_once, out and _unfinished(out), report)


def _unfinished(out: Path) -> Path:
    """Not among the results of a run's `eval`, since it is none."""
    return out.with_name(f"{out.name}.unfinished")


def _settings(arguments: Sequence[str]) -> Callable[[EvalConfig], EvalConfig]:
    """What is to be evaluated by default, for a run's own evaluations: the same, but a split that
    is named is not hidden by tasks that the run lists, and online fine-tuning has its own."""
    named = _values(arguments)

    def settings(own: EvalConfig) -> EvalConfig:
        own = replace(own, tasks=()) if "--split" in named else own
        finetune = named.get("--settings")
        if named.get("--protocol") == "finetune" and own.protocol != "finetune":
            finetune = finetune or "finetune-paper"
        return finetuning(finetune, own) if finetune else own

    return settings


def _values(arguments: Sequence[str]) -> dict[str, str]:
    """Every option with what is behind it."""
    values = {}
    for argument, behind in itertools.pairwise([*arguments, ""]):
        option, equals, value = argument.partition("=")
        values[option] = value if equals else behind
    return values
