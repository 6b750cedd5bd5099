"""What comes with the package: a dataset and a checkpoint, opened by the name `bundled:NAME`.

Such a name stands wherever a dataset or a run is asked for, on the command line and in Python.
"""

from __future__ import annotations

from pathlib import Path

from omrl.errors import InputError, nearest

PREFIX = "bundled:"
FOLDER = Path(__file__).parent


def names() -> list[str]:
    """What there is, with the prefix."""
    return sorted(f"{PREFIX}{path.parent.name}" for path in FOLDER.glob("*/manifest.json"))


def resolve(path: str | Path) -> Path:
    """The folder that `path` names: a bundled one, or an ordinary path as it is."""
    name = str(path)
    if not name.startswith(PREFIX):
        return Path(path)
    if name not in names():
        hint = nearest(name, names()) if names() else "this copy of omrl came without any"
        raise InputError(f"nothing is bundled as {name!r}; {hint}")
    return FOLDER / name.removeprefix(PREFIX)


def label(path: Path) -> str:
    """The inverse of `resolve`: how a folder is called in results, on every machine alike."""
    is_bundled = path.parent == FOLDER
    return f"{PREFIX}{path.name}" if is_bundled else str(path)
