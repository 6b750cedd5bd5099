"""Golden files, `golden_<family>_<set>[_<kind>].npz`: named arrays, inputs and outputs."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from omrl.errors import InputError

NAME = re.compile(r"golden_(?P<family>[a-z]+)_(?P<letter>[A-Za-z0-9]+)(?:_(?P<kind>\w+))?\.npz")


@dataclass(frozen=True)
class Group:
    """What the library computes for every output of a file whose name starts with `prefix`, or is
    that, if `exact`."""

    label: str
    prefix: str
    arrays: Mapping[str, Any]
    exact: bool = False
    zero: Mapping[str, Any] = field(default_factory=dict)
    """What the reference left out because it is zero, and ours has to be too."""

    def covers(self, name: str) -> bool:
        return name == self.prefix if self.exact else name.startswith(self.prefix)


@dataclass(frozen=True)
class GoldenFile:
    """One file; `InputError` for a name or content that is not of the format."""

    path: Path

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.path.name):
            raise InputError(f"{self.path}: name is not golden_<family>_<set>[_<kind>].npz")

    @property
    def family(self) -> str:
        return self._part("family")

    @property
    def kind(self) -> str:
        return self._part("kind")

    def _part(self, name: str) -> str:
        match = NAME.fullmatch(self.path.name)
        return (match and match[name]) or ""

    def sibling(self, kind: str) -> GoldenFile:
        """The file of another kind of the same set."""
        return GoldenFile(
            self.path.with_name(f"golden_{self.family}_{self._part('letter')}_{kind}.npz")
        )

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        try:
            # Opened here, because numpy leaves a broken archive open.
            with self.path.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"cannot read {self.path}: {error}") from error

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise InputError(f"{self.path} lacks the input {name!r}")
        return self.arrays[name]

    def folders(self, prefix: str = "") -> list[str]:
        """First parts of the names under `prefix`, each once, in the file's order."""
        below = (n[len(prefix) :] for n in self.arrays if n.startswith(prefix))
        return list(dict.fromkeys(name.split("/")[0] for name in below))
