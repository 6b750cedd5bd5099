"""Layouts of other programs, one module each: `omrl data import` and `omrl data export`.

A reader is `read(source, request)`, which lists the tasks without reading their rows; a writer is
`write(dataset, folder)`. `omrl.data.exchange` connects them with the store, which checks all data.
`from_episodes` takes episodes from a Python program instead. Readers trust nothing: see `unpickle`,
`hdf5`, `npy` and `minari_arrow`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omrl.data.formats.episodes import from_episodes
from omrl.errors import InputError, nearest

__all__ = ["FORMATS", "Format", "format_named", "from_episodes"]


@dataclass(frozen=True)
class Format:
    """One layout."""

    module: str
    source: str
    """What SOURCE is."""
    is_writable: bool = False

    def load(self) -> Any:
        """Its module."""
        return importlib.import_module(f"omrl.data.formats.{self.module}")


FORMATS: Mapping[str, Format] = {
    "minari": Format("minari", "a folder with Minari datasets; written as HDF5", True),
    "minari-arrow": Format("minari", "the same; written as Arrow", True),
    "macaw": Format("macaw", "a folder of MACAW's HDF5 buffers and task files", True),
    "npz": Format("npz", "a folder of task-N/episode-N.npz", True),
    "rlkit": Format("rlkit", "a snapshot of replay buffers by rlkit or oyster"),
    "smac": Format("smac", "a folder of SMAC's macaw_replay_buffer_task_N.npy"),
    "focal": Format("focal", "a folder of FOCAL's goal_idxN/trj_eval*.npy"),
    "borel": Format("borel", "a folder of BOReL's seed_N_goal_X/*.npy"),
    "d4rl": Format("d4rl", "a D4RL file, or a folder of them"),
}


def format_named(name: str, *, to_write: bool = False) -> Format:
    """The format of that name. Raises `InputError` with the nearest ones for another."""
    known = [name for name, each in FORMATS.items() if each.is_writable or not to_write]
    if name not in known:
        what = "no format that is written" if name in FORMATS else "no format"
        raise InputError(f"{what} is called {name!r}; {nearest(name, known)}")
    return FORMATS[name]
