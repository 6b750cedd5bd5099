"""What the commands share: options as dataclasses, near names, devices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Options = TypeVar("Options")


def parse(
    kind: type[Options], command: str, arguments: Sequence[str], default: Any = None
) -> Options:
    """The options as an instance of `kind`; wrong ones end the program with exit code 2."""
    import tyro

    extra: Any = {} if default is None else {"default": default}
    return tyro.cli(
        kind,
        prog=f"omrl {command}",
        args=list(arguments),
        config=(tyro.conf.AvoidSubcommands,),  # A union is what its default is.
        **extra,
    )


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
