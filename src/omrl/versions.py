"""Versions of what could change a number."""

from __future__ import annotations

import importlib.metadata

import omrl


def version(package: str) -> str | None:
    """Of an installed package, or of omrl, which may be a checkout on the path; None: there is no
    such package."""
    if package == omrl.__name__:
        return omrl.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
