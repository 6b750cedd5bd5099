"""What the commands share: options as dataclasses, near names, devices."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from omrl.errors import InputError

Options = TypeVar("Options")


def parse(
    kind: type[Options], command: str, arguments: Sequence[str], default: Any = None
) -> Options:
    """The options as an instance of `kind`. Raises `InputError` for wrong ones."""
    import tyro

    extra: Any = {} if default is None else {"default": default}
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(
                kind,
                prog=f"omrl {command}",
                args=list(arguments),
                config=(tyro.conf.AvoidSubcommands,),  # A union is what its default is.
                **extra,
            )
    except SystemExit as stopped:
        if not stopped.code:  # --help
            raise
        raise InputError(_one_line(box.getvalue(), command)) from None


def _one_line(box: str, command: str) -> str:
    """The message of tyro's box: the part above its first rule, and the names it suggests."""
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()[1:]]
    rule = next((number for number, line in enumerate(lines) if line.startswith("──")), len(lines))
    message, rest = " ".join(lines[:rule]).strip(), " ".join(lines[rule:])
    _, _, suggested = rest.partition("you meant:")
    names = [name for name in re.findall(r"--[\w.-]+", suggested) if name != "--help"]
    hint = f"; did you mean {' or '.join(names)}?" if names else ""
    return f"{message}{hint} (omrl {command} --help lists all)"


def print_json(value: Any) -> None:
    """One JSON object on standard output, numbers that are not finite as null."""
    print(json.dumps(value, indent=2, allow_nan=False))


@dataclass(frozen=True)
class DeviceOptions:
    """Where to compute."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """auto takes a GPU if JAX finds one."""
    devices: int | None = None
    """How many of them, for equal shares of the seeds. Without it one; on several hosts all."""
    coordinator: str = ""
    """HOST:PORT of process 0, for one run on several hosts."""
    num_processes: int = 1
    process_id: int = 0

    def resolve(self) -> list[Any]:
        """The JAX devices; joins the other processes first if there are any."""
        from omrl import hosts
        from omrl.runs import resolve_devices

        if self.coordinator:
            hosts.initialise(self.coordinator, self.num_processes, self.process_id)
        return resolve_devices(self.device, self.devices)
