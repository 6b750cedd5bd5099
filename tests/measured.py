"""Benchmarks that measure once, whichever way the command prints what was found."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


def once(patch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[dict[str, Any]]:
    """Lets the benchmark `module.name` run at its first call alone, whose result is that of all.

    Returns the list of the keyword arguments of every call.
    """
    run, asked, found = getattr(module, name), [], []

    def measure(*arguments: Any, **settings: Any) -> Any:
        asked.append(settings)
        if not found:
            found.append(run(*arguments, **settings))
        return found[0]

    patch.setattr(module, name, measure)
    return asked
