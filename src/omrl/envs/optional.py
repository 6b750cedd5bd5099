"""Packages that only some environments need, and what to say where one is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from omrl.envs.base import TaskEnv
from omrl.errors import InputError

VERSIONS = {"metaworld": "3.0.0"}
"""The version of each extra's package that the MDPs are defined by: with another one they are
others."""


def install_line(extra: str) -> str:
    """The command that brings an extra."""
    return f"pip install 'omrl[{extra}]'"


def is_installed(extra: str) -> bool:
    """Whether there is such a package, of whatever version; it is not imported."""
    spec = importlib.util.find_spec(extra)
    # A folder or a single file of that name is something else.
    return spec is not None and spec.origin is not None and bool(spec.submodule_search_locations)


def check_installed(extra: str, what: str) -> None:
    """`InputError` unless the package is there in its version; `what` needs it."""
    if not is_installed(extra):
        raise InputError(f"{what} needs {extra}, which is not installed: {install_line(extra)}")
    found = importlib.metadata.version(extra)
    if found != VERSIONS[extra]:
        raise InputError(
            f"{what} is defined by {extra} {VERSIONS[extra]}, installed is {found}: "
            f"{install_line(extra)}"
        )


def check_steppable(env: TaskEnv) -> None:
    """`InputError` where the extra that this environment needs is missing."""
    if env.extra:
        check_installed(env.extra, env.spec.id)
