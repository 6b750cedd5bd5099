"""The command line: `omrl COMMAND …`. Commands import what they need, so that help is immediate.

`omrl --import MODULE COMMAND …` first imports a module that registers environments of its own.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Sequence

IMPORT = "--import"
COMMANDS = {
    "demo": "adapt a bundled meta-policy to unseen tasks, then meta-train one on this machine",
    "envs": "list the environments, or describe one",
    "presets": "list the named settings, or print one",
    "collect": "make behaviour data: one RL agent per task, all tasks at once",
    "data": "look at and change datasets: info, validate, slice, relabel, import, export, from-run",
    "train": "meta-train a preset on a dataset",
    "evaluate": "adapt a trained run to test tasks and measure its returns",
    "adapt": "adapt a trained run to logged transitions and export the policy",
    "reproduce": "run an experiment of the papers: all methods, one table with intervals",
    "report": "write the HTML report of a run, or compare several",
    "bench": "measure speed",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code: 0 only on success, 2 for wrong usage or input.

    Without `arguments` those of the process, which is taken to exit next.
    """
    from omrl.interrupt import MESSAGE, EndOnSignal

    code, message = 0, ""
    with EndOnSignal(own_process=arguments is None) as signals:
        code, message = _run(list(sys.argv[1:] if arguments is None else arguments))
    if signals.signum:
        code, message = 128 + signals.signum, MESSAGE
    if message:
        print(f"omrl: error: {message}", file=sys.stderr)
    return code


def _run(arguments: list[str]) -> tuple[int, str]:
    """Runs one command; its exit code, and in one line what went wrong."""
    modules, arguments = split_imports(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return (0 if arguments else 2), ""
    if arguments[0] == "--version":
        from omrl import __version__

        print(__version__)
        return 0, ""
    from omrl.config import UNSTORABLE
    from omrl.errors import (
        InputError,
        NonFiniteError,
        PartlyFailed,
        Stopped,
        WorkerLost,
        nearest,
        out_of_memory,
        system_error,
    )

    name, *rest = arguments
    try:
        for argument in filter(UNSTORABLE.search, [*modules, *arguments]):
            raise InputError(f"{argument!r}: has a character that files cannot have; leave it out")
        for module in modules:
            import_module(module)
        if name not in COMMANDS:
            raise InputError(f"no command {name!r}; {nearest(name, COMMANDS)}")
        command = importlib.import_module(f"omrl.cli.{name}")
        imports = [word for module in modules for word in (IMPORT, module)]
        command.main(rest, shlex.join(["omrl", *imports, *arguments]))
    except InputError as error:
        return 2, str(error)
    except (NonFiniteError, PartlyFailed, WorkerLost) as error:
        return 1, str(error)
    except Stopped as stopped:
        return stopped.code, str(stopped)
    except BrokenPipeError:
        return 141, ""  # As a program that SIGPIPE ends; the reader closed our output.
    except OSError as error:
        return 2, system_error(error)
    except Exception as error:
        line = out_of_memory(error)
        if line is None:
            raise
        return 1, line
    return 0, ""


def split_imports(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The modules of every leading `--import MODULE`, and what is behind them."""
    modules = []
    while arguments and arguments[0].partition("=")[0] == IMPORT:
        _, equals, value = arguments[0].partition("=")
        modules += [value] if equals else arguments[1:2]
        arguments = arguments[1:] if equals else arguments[2:]
    return modules, arguments


def import_module(module: str) -> None:
    """Imports a module, which may be in the present folder. `InputError` if that fails."""
    from omrl.errors import InputError, reason

    if not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"{IMPORT}: {module!r} is no name of a module, as my_envs is")
    sys.path.append(os.getcwd())  # Behind what is installed, which it may not hide.
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:  # Its own code, where anything may be wrong.
        raise InputError(
            f"{IMPORT} {module}: {type(error).__name__}: {reason(error)}; give a module's name; "
            f"python -c 'import {module}' tells more"
        ) from error


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    usage = "usage: omrl [--import MODULE] COMMAND [options]; omrl COMMAND --help tells more"
    own = "MODULE is one of yours, which registers environments (docs/environments/your-own.md)"
    return "\n".join([usage, "", *lines, "", own])
