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
from omrl.files import check_writable
from omrl.protocol import EXPLORE, FINETUNE, EvalConfig, exploring, finetuning
from omrl.ranges import Count, Natural
from omrl.studies.plan import ROUNDS, StudyName

OWN_SETTINGS = ("finetune", "explore")
"""Protocols with options of their own, `--finetune.burn-in`."""

if TYPE_CHECKING:
    from omrl.evaluate import How
    from omrl.metatrain import Trained


@dataclass(frozen=True)
class EvaluateOptions:
    """Adapt a run to test tasks and measure its returns. Defaults are the settings of the run's own
    evaluations, which `omrl evaluate RUN --help` shows; `--traces` without a name: none.

    --protocol finetune goes on learning online, --protocol explore has agents gather their context
    themselves and needs no data; they take the settings finetune-paper and explore-paper unless
    --settings names others. What finetune measured is kept beside the raw returns until all is, and
    the same command goes on with the tasks that were not finished."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or bundled:NAME."""
    config: Annotated[EvalConfig, tyro.conf.arg(name="")]
    data: Path | None = None
    """Dataset of the contexts, or bundled:NAME; without it the one the run was trained on."""
    step: Natural | None = None
    """Checkpoint to evaluate; without it the last, which is the one that counts."""
    study: StudyName | None = None
    """A whole study in place of one evaluation: return against gradient steps (--shots; 0 to 20 by
    default), against the size or the quality of the context, or in and out of the training tasks.
    An interrupted one goes on."""
    diagnose: Literal["shift", "traces", "rewards"] | None = None
    """In place of an evaluation, for methods that infer a latent task: contexts from data against
    contexts that the run explores itself, by KL to the prior, return and where trajectories go
    (shift), by the trajectories themselves (traces), or by how well rewards are predicted
    (rewards). Context options are those of the data; of the rest it is as --protocol explore."""
    checkpoints: Literal["last", "all"] = "last"
    """Of diagnose: the last (or --step), or all that the run has kept."""
    points: tuple[str, ...] = ()
    """Of study context-size, in place of its own: 64, 2-trajectories; of context-quality:
    first-500, part-0.0-0.2."""
    more_data: tuple[Path, ...] = ()
    """Further datasets of the same tasks, random actions for example, each a point of study
    context-quality."""
    out: Path | None = None
    """File of the raw returns, or folder of a study or diagnosis; without it one in RUN/eval, named
    by what was evaluated. Those of a bundle are kept only with it."""
    overwrite: bool = False
    """Replace what is at `out`, or the study or diagnosis that is in RUN/eval."""
    settings: Literal["", "finetune-paper", "finetune-code", "explore-paper", "explore-code"] = ""
    """Protocol finetune as MACAW's paper or its reference code has it, protocol explore as SMAC's;
    single settings can be changed beside it, as in --finetune.burn-in 10."""
    tasks_at_once: Count | None = None
    """Of finetune: tasks that learn side by side; without it as many as fit into the memory."""
    quiet: bool = False
    """No progress lines."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object instead of a table."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse_for_run(EvaluateOptions, "evaluate", arguments, _settings(arguments))
    _check_protocol(options, arguments)
    if options.diagnose is not None:
        _diagnose(options)
    elif options.checkpoints != "last":
        raise InputError(
            "checkpoints: belongs to a diagnosis; name it: --diagnose shift, traces or rewards"
        )
    elif options.study is None:
        _evaluate(options)
    else:
        _study(options)


def _check_protocol(options: EvaluateOptions, arguments: Sequence[str]) -> None:
    """`InputError` for settings that the protocol does not read."""
    protocol = options.config.protocol
    of = options.settings.partition("-")[0]
    if of and of != protocol:
        raise InputError(
            f"settings: {options.settings} is of protocol {of}, and --protocol is {protocol}; "
            "leave one of the two out"
        )
    for option in _values(arguments):
        group, dot, _ = option.removeprefix("--").partition(".")
        if dot and group in OWN_SETTINGS and group != protocol:
            raise InputError(
                f"{option}: protocol {protocol} does not read it; name its own: --protocol {group}"
            )


def _evaluate(options: EvaluateOptions) -> None:
    config = options.config
    _check_no_study(options)
    if options.out is not None and options.out.exists() and not options.overwrite:
        raise InputError(f"{options.out}: exists; choose another file, or replace it: --overwrite")
    if options.out is not None and options.out.is_dir():
        raise InputError(f"{options.out}: is a folder; give a file for the raw returns")
    from omrl import metatrain
    from omrl.curve import unfinished
    from omrl.results import print_table

    trained = _load(options)
    # Contexts of other data are another evaluation, so another file.
    of = to_json(config) if options.data is None else [to_json(config), str(options.data)]
    out = _out(options, f"{config.protocol}-{json_hash(of)[:8]}-{trained.step:08d}.npz")
    if out is not None:
        check_writable(out.parent)
    result = metatrain.evaluate_trained(trained, options.data, config, _how(options, out))
    if out is not None:
        result.save(out)
        unfinished(out).unlink(missing_ok=True)
    if options.json:
        print_json({"run": str(options.run), "file": out and str(out)} | result.to_json())
        return
    print_table(result)
    if out is not None:
        print(f"\nraw returns: {out}")


def _how(options: EvaluateOptions, out: Path | None) -> How:
    from omrl.curve import unfinished
    from omrl.evaluate import How

    return How(options.tasks_at_once, out and unfinished(out), _reporter(options))


def _reporter(options: EvaluateOptions) -> Callable[[str], None]:
    def report(line: str) -> None:
        if not options.quiet:
            print(line, file=sys.stderr, flush=True)

    return report


def _study(options: EvaluateOptions) -> None:
    assert options.study is not None
    if options.tasks_at_once is not None:
        raise InputError("tasks_at_once: belongs to protocol finetune, which a study does not use")
    out = _out(options, f"study-{options.study}")
    trained = _load(options)
    if out is not None:
        check_writable(out.parent)
    from omrl.studies.results import print_study
    from omrl.studies.run import run_study

    result = run_study(
        trained,
        options.study,
        options.config,
        data=options.data,
        points=options.points,
        more_data=options.more_data,
        out=out,
        overwrite=options.overwrite,
        report=_reporter(options),
    )
    if options.json:
        print_json({"run": str(options.run), "folder": out and str(out)} | result.to_json())
        return
    print_study(result)
    if out is not None:
        print(f"\nraw returns: {out}")


def _check_no_study(options: EvaluateOptions) -> None:
    for name in ("points", "more_data"):
        if getattr(options, name):
            raise InputError(f"{name}: belongs to a study; name it: --study context-quality")


def _diagnose(options: EvaluateOptions) -> None:
    _check_no_study(options)
    if options.study is not None:
        raise InputError("diagnose: not with a study; make one after the other")
    if options.config.protocol != "explore":
        raise InputError(
            f"diagnose: explores, the protocol is {options.config.protocol!r}; leave --protocol out"
        )
    if options.step is not None and options.checkpoints == "all":
        raise InputError("step: names one checkpoint; leave it out, or --checkpoints all")
    from omrl.diagnostics.kinds import folder_of, print_diagnosis
    from omrl.diagnostics.run import diagnose_checkpoints, kept_checkpoints

    name = options.diagnose or ""
    out = _out(options, folder_of(name))
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give a folder for the diagnosis")
    steps = kept_checkpoints(options.run)
    if options.checkpoints == "last":
        steps = steps[-1:] if options.step is None else [options.step]
    found = diagnose_checkpoints(
        lambda step: _load(options, step),
        steps,
        options.config,
        name=name,
        data=options.data,
        out=out,
        overwrite=options.overwrite,
        report=_reporter(options),
    )
    if options.json:
        told = [result.to_json() for result in found]
        print_json({"run": str(options.run), "folder": out and str(out), "checkpoints": told})
        return
    print_diagnosis(name, found)
    if out is not None:
        print(f"\nraw numbers: {out}")


def _load(options: EvaluateOptions, step: int | None = None) -> Trained:
    from omrl import metatrain

    return metatrain.load_trained(
        options.run,
        options.compute.resolve(),
        step=options.step if step is None else step,
        shots=options.config.rounds,
    )


def _out(options: EvaluateOptions, name: str) -> Path | None:
    """Where the returns are kept: what was asked for, else `name` in the run folder."""
    from omrl import bundle, bundled

    if options.out is not None or bundle.is_bundle(bundled.resolve(options.run)):
        return options.out
    return options.run / "eval" / name


def _settings(arguments: Sequence[str]) -> Callable[[EvalConfig], EvalConfig]:
    """What is to be evaluated by default, for a run's own evaluations: the same, but a split that
    is named is not hidden by tasks that the run lists; online fine-tuning, exploration and study
    `steps` have shots of their own."""
    named = _values(arguments)

    def settings(own: EvalConfig) -> EvalConfig:
        own = replace(own, tasks=()) if "--split" in named else own
        if named.get("--study") == "steps" and own.protocol == "given":
            own = replace(own, shots=ROUNDS)
        protocol, chosen = named.get("--protocol"), named.get("--settings")
        if "--diagnose" in named:
            protocol = protocol or "explore"
        if protocol in OWN_SETTINGS and own.protocol != protocol:
            chosen = chosen or f"{protocol}-paper"
        if not chosen:
            return own
        if chosen not in (*EXPLORE, *FINETUNE):
            raise InputError(
                f"settings: {chosen!r} is not one of {', '.join((*FINETUNE, *EXPLORE))}"
            )
        return exploring(chosen, own) if chosen in EXPLORE else finetuning(chosen, own)

    return settings


def _values(arguments: Sequence[str]) -> dict[str, str]:
    """Every option with what is behind it."""
    values = {}
    for argument, behind in itertools.pairwise([*arguments, ""]):
        option, equals, value = argument.partition("=")
        values[option] = value if equals else behind
    return values
