"""`omrl train PRESET`: meta-train on a dataset into a run folder; `--resume` goes on with one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from omrl.cli.options import DeviceOptions, parse, print_json
from omrl.config import from_json, read_json
from omrl.errors import InputError
from omrl.presets import PRESETS, RunConfig, preset

if TYPE_CHECKING:
    from omrl.runs import Run

USAGE = "omrl train PRESET | --from CONFIG.json | --resume RUN"
HELP = """\
usage: omrl train PRESET --data DATASET --out RUN [OPTIONS]
       omrl train ONLINE-PRESET --out RUN [OPTIONS]
       omrl train --from CONFIG.json --data DATASET --out RUN [OPTIONS]
       omrl train --resume RUN [OPTIONS]

Meta-train on a dataset (a folder, or bundled:NAME) into the new folder RUN. Presets pearl-online-…
and smac-data-… collect their data themselves and need none. Other smac-… learn from it and then go
on in a simulator; --algo.online-steps 0 ends before that.

PRESET is a set of settings that has a name:
{presets}
`omrl presets` tells where their numbers are from. Every setting is an option as well, as in
--algo.steps 1000 --train.seeds 4; `omrl train PRESET --help` lists them all with their values.

--from CONFIG.json  settings from a file: what `omrl presets NAME` prints, edited or not, or the
                    config.json of a run
--resume RUN        go on with a run where it stopped, with its own settings; the further options
                    are listed by `omrl train --resume RUN --help`
"""


@dataclass(frozen=True)
class TrainOptions:
    """Meta-train the preset. Its settings are options too: --algo.steps 1000 --train.seeds 4."""

    out: Path
    """Folder of the new run."""
    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    data: Path | None = None
    """Folder of the dataset, or bundled:NAME. Runs that collect all they learn from need none."""
    mix: Path | None = None
    """Dataset to mix in: the second term of a --slice such as 0.3:all+0.7:all is of this one."""
    encoder_data: Path | None = None
    """Dataset of the encoder buffer (--encoder-slice), if that is another one."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    placement: Literal["auto", "device", "host"] = "auto"
    """Where the data is while it trains; it changes no number. auto takes the device if the data
    takes at most half of its free memory, host leaves it on the disk."""
    wandb: bool = False
    """Log to Weights & Biases as well (extra [wandb])."""
    quiet: bool = False
    """No progress lines."""
    json: bool = False
    """Print the last evaluation as one JSON object."""


@dataclass(frozen=True)
class ResumeOptions:
    """Go on with a run, with its own settings, exactly as if it had not stopped."""

    resume: Path
    """Folder of the run."""
    data: Path | None = None
    """Where its dataset is now, if it was moved."""
    mix: Path | None = None
    """The same of the dataset that is mixed in."""
    encoder_data: Path | None = None
    """The same of the dataset of the encoder buffer."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    placement: Literal["auto", "device", "host"] = "auto"
    wandb: bool = False
    quiet: bool = False
    json: bool = False


def main(arguments: Sequence[str], command: str) -> None:
    if any(argument.partition("=")[0] == "--resume" for argument in arguments):
        _check_no_setting(arguments)
        _resume(parse(ResumeOptions, "train", arguments), command)
        return
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        if not arguments:
            raise InputError(f"name a preset: {USAGE}")
        return
    first, *rest = arguments
    option, equals, value = first.partition("=")
    if option == "--from":
        if not (equals or rest):
            raise InputError(f"--from needs a file: {USAGE}")
        config = _read_config(Path(value if equals else rest.pop(0)))
    elif option.startswith("-"):
        raise InputError(f"{option}: name a preset before all options: {USAGE}")
    else:
        config = preset(first).config
    options = parse(TrainOptions, "train PRESET", rest, config=config)
    if not any(argument.partition("=")[0] == "--eval.traces" for argument in rest):
        options = replace(options, config=_without_foreign_traces(options.config, config.env))
    _start(options, command)


def _without_foreign_traces(config: RunConfig, env: str) -> RunConfig:
    """With another environment than `env`, whose traces these are, those that both have."""
    if config.env == env:
        return config
    from omrl.envs import registry

    terms = registry.make(config.env).spec.term_names
    traces = tuple(name for name in config.eval.traces if name in terms)
    return replace(config, eval=replace(config.eval, traces=traces))


def _help() -> str:
    width = max(map(len, PRESETS))
    lines = [f"  {name:<{width}}  for {each.config.env}" for name, each in PRESETS.items()]
    return HELP.format(presets="\n".join(lines)).rstrip()


def _start(options: TrainOptions, command: str) -> None:
    from omrl import metatrain

    run = metatrain.start(
        options.config,
        options.data,
        options.out,
        mix=options.mix or "",
        encoder_data=options.encoder_data or "",
        **_how(options, command),
    )
    _show(run, options.json)


def _resume(options: ResumeOptions, command: str) -> None:
    from omrl import metatrain

    run = metatrain.go_on(
        options.resume,
        data=options.data,
        mix=options.mix,
        encoder_data=options.encoder_data,
        **_how(options, command),
    )
    _show(run, options.json)


def _check_no_setting(arguments: Sequence[str]) -> None:
    """`InputError` for an option of a new run, which one that is resumed has from its config."""
    settings = {each.name for each in fields(RunConfig)}
    for argument in arguments:
        option = argument.partition("=")[0]
        name = option.removeprefix("--").removeprefix("no-").partition(".")[0]
        if option.startswith("--") and name.replace("-", "_") in settings:
            raise InputError(
                f"{option}: a resumed run keeps its settings; leave it out, or start another run "
                "with --from RUN/config.json"
            )


def _how(options: TrainOptions | ResumeOptions, command: str) -> dict[str, Any]:
    """What starting a run and going on with one have in common."""
    return {
        "command": command,
        "devices": options.compute.resolve(),
        "placement": options.placement,
        "report": lambda text: None if options.quiet else print(text, file=sys.stderr),
        "wandb": options.wandb,
        "quiet": options.quiet,
    }


def _show(run: Run, as_json: bool) -> None:
    from omrl import hosts
    from omrl.checkpoint import steps_in
    from omrl.results import EvalResult, print_table

    if not hosts.is_main():
        return
    file = run.evaluation_file(max(steps_in(run.checkpoints)))
    if not file.exists():
        raise InputError(
            f"{run.path}: trained to its end, but its last evaluation is no longer in eval/; make "
            f"a new one: omrl evaluate {run.path}"
        )
    result = EvalResult.load(file)
    if as_json:
        print_json({"run": str(run.path)} | result.to_json())
    else:
        print_table(result)
        print(f"\nrun folder: {run.path}")


def _read_config(path: Path) -> RunConfig:
    """The config in a run's config.json, or a config alone."""
    value = read_json(path)
    if isinstance(value, dict) and "run" in value:
        value = value["run"]
    return from_json(RunConfig, value, str(path))
