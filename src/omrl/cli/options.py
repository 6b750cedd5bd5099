"""What the commands share: options as dataclasses, near names, devices."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from omrl.config import Json
from omrl.errors import InputError, at
from omrl.ranges import Count, Natural, check_ranges

if TYPE_CHECKING:
    from omrl.protocol import EvalConfig

Options = TypeVar("Options")


def parse(kind: type[Options], command: str, arguments: Sequence[str], **defaults: Any) -> Options:
    """The options as an instance of `kind`. Raises `InputError` for wrong ones.

    `defaults` are those of fields whose default depends on what was asked for.
    """
    options = _read(kind, command, arguments, defaults)
    _check_lists(options, arguments, defaults)
    return options


def _read(
    kind: type[Options], command: str, arguments: Sequence[str], defaults: Mapping[str, Any]
) -> Options:
    """`parse`, where the defaults may be stand-ins."""
    import tyro

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            options = tyro.cli(
                _with_defaults(kind, defaults),
                prog=f"omrl {command}",
                args=list(arguments),
                config=(tyro.conf.AvoidSubcommands,),  # A union is what its default is.
            )
    except SystemExit as stopped:
        if not stopped.code:  # --help
            raise
        raise InputError(_one_line(box.getvalue(), command)) from None
    _check_paths(options, arguments)
    check_ranges(options)
    return options


def parse_for_run(
    kind: type[Options],
    command: str,
    arguments: Sequence[str],
    settings: Callable[[EvalConfig], Any],
) -> Options:
    """`parse` for a command on a `run`: `config` defaults to the `settings` of its evaluations."""
    from omrl.protocol import EvalConfig

    default = EvalConfig()
    # A wrong option is told by the second reading; the first is for the run alone, so nothing else
    # is required, and these shots go with every protocol.
    names = [name for name, hint in typing.get_type_hints(kind).items() if hint is Path]
    spare: dict[str, Any] = dict.fromkeys({*names} - {"run"}, Path())
    spare["config"] = settings(replace(default, shots=(0,)))
    first = [argument for argument in arguments if argument not in ("-h", "--help")]
    with contextlib.suppress(InputError):
        named = _read(kind, command, first, spare)
        from omrl.metatrain import record_of

        default = record_of(named.run).run.eval  # pyright: ignore[reportAttributeAccessIssue]
    return parse(kind, command, arguments, config=settings(default))


def _check_paths(options: Any, arguments: Sequence[str]) -> None:
    """`InputError` for an empty path, which pathlib takes for the folder that one is in."""
    blank = {before for before, value in itertools.pairwise(["", *arguments]) if not value}
    blank |= {argument[:-1] for argument in arguments if argument.endswith("=")}
    positional = any(not before.startswith("-") for before in blank)
    for option in dataclasses.fields(options):
        is_blank = positional or f"--{option.name.replace('_', '-')}" in blank
        value = getattr(options, option.name)
        if is_blank and Path() in (value if isinstance(value, tuple) else (value,)):
            raise InputError(f"{option.name}: an empty path; name a file or folder")


def _check_lists(options: Any, arguments: Sequence[str], defaults: Mapping[str, Any]) -> None:
    """`InputError` for a list without a value that is empty anyway, as --tasks $(seq 9 0) is.

    Where there is something to leave out, as of --eval.traces, an option without values does it.
    """
    before = dict(defaults)
    for option in dataclasses.fields(options):
        if option.default_factory is not dataclasses.MISSING:
            before.setdefault(option.name, option.default_factory())
        else:
            before.setdefault(option.name, option.default)
    for name, value in itertools.pairwise([*arguments, "--"]):
        if name.startswith("--") and value.startswith("--"):
            path = name[2:].replace("-", "_").split(".")
            if () in _found(before, path):
                raise InputError(f"{name}: no value follows; give at least one, or leave it out")


def _found(values: Mapping[str, Any], path: Sequence[str]) -> list[Any]:
    """What a path of names leads to, with names of dataclasses left out that options leave out."""
    nested = [vars(value) for value in values.values() if dataclasses.is_dataclass(value)]
    below = [found for each in nested for found in _found(each, path)]
    if path[0] not in values:
        return below
    value = values[path[0]]
    if len(path) == 1:
        return [*below, value]
    return [*below, *(_found(vars(value), path[1:]) if dataclasses.is_dataclass(value) else [])]


def as_options(values: Json, defaults: Json, prefix: str = "") -> list[str]:
    """The options that make `values` of the config `defaults`, both as JSON objects of a config.

    So that a command has one spelling, whatever was typed.
    """
    options = []
    for name, value in values.items():
        if isinstance(value, dict):
            options += as_options(value, defaults[name], f"{prefix}{name}.")
        elif value is True and defaults[name] is False:
            options.append(f"--{prefix}{name}".replace("_", "-"))
        elif value != defaults[name]:
            items = value if isinstance(value, list) else [value]
            options += [f"--{prefix}{name}".replace("_", "-"), *map(str, items)]
    return options


def as_typed(path: Path) -> str:
    """A path for what is published with the data: as typed, or its name where that would tell where
    this machine has it."""
    return path.name if path.is_absolute() else str(path)


def _with_defaults(kind: type[Options], defaults: Mapping[str, Any]) -> type[Options]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [(name, hints[name], field(default=value)) for name, value in defaults.items()]
    namespace = {"__doc__": kind.__doc__}
    return dataclasses.make_dataclass(
        kind.__name__, fields, bases=(kind,), namespace=namespace, frozen=True, kw_only=True
    )


def _one_line(box: str, command: str) -> str:
    """What tyro's box says below its title, and the names that it suggests further down.

    Its sections are parted by rules of "─", or of "-" on a terminal that is not UTF-8.
    """
    text = "\n".join(line.strip("│╭╮╰╯ ") for line in box.splitlines()[1:])
    sections = [part for part in re.split(r"^[─-]+$", text, flags=re.MULTILINE) if part.strip()]
    message = " ".join(sections[0].split()) if sections else "wrong options"
    if refused := re.fullmatch(
        r"Error parsing (?P<option>--)?(?P<path>[\w.-]+): (?P<why>.*)", message
    ):
        if refused["option"] is None:
            # A config within the options, `config.algo.inner-batch`, refused one of its fields.
            path = refused["path"].partition(".")[2].replace("-", "_")
            return at(path, refused["why"]) if path else refused["why"]
        message = f"--{refused['path']}: {_of_number(refused['why'])}"
    suggestions = [part for part in sections[1:] if "meant" in part]
    names = re.findall(r"--[\w.-]+", " ".join(suggestions))
    hint = f"; did you mean {' or '.join(names)}?" if names else ""
    return f"{message}{hint} (omrl {command} --help lists all)"


def _of_number(why: str) -> str:
    """What Python says of text that is no number, in other words."""
    why = re.sub(
        r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number", why
    )
    return re.sub(r"could not convert string to float: (.*)", r"\1 is not a number", why)


def print_json(value: Any) -> None:
    """One JSON object on standard output, numbers that are not finite as null."""
    print(json.dumps(value, indent=2, allow_nan=False))


@dataclass(frozen=True)
class DeviceOptions:
    """Where to compute."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """auto takes a GPU if JAX finds one."""
    devices: Count | None = None
    """How many of them, for equal shares of the seeds. Without it one; on several hosts all."""
    coordinator: str = ""
    """HOST:PORT of process 0, for one run on several hosts."""
    num_processes: Count = 1
    """Of that run, all started with the same options but for their `process_id`."""
    process_id: Natural = 0
    """Of this process, from 0 on."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.coordinator and (self.num_processes, self.process_id) != (1, 0):
            raise InputError("num_processes, process_id: need --coordinator HOST:PORT")

    def resolve(self) -> list[Any]:
        """The JAX devices; joins the other processes first if there are any."""
        from omrl import hosts
        from omrl.runs import resolve_devices

        if self.coordinator:
            hosts.initialise(self.coordinator, self.num_processes, self.process_id)
        return resolve_devices(self.device, self.devices)
