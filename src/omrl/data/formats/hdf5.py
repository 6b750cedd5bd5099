"""Reading HDF5 files of strangers: only plain numbers that are in the file itself.

Refused are links of any kind (also external ones), virtual and external storage, filters other
than those that come with h5py, data types that are no numbers, and datasets much larger than the
file: those that were declared and never written, and those that expand enormously.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from omrl.arrays import reading
from omrl.data.finding import RESTORE
from omrl.data.formats.source import require
from omrl.errors import InputError

MAX_EXPANSION = 100
"""Bytes of the datasets that are read per byte of the file; recorded floats compress to a half."""
MAX_CHUNK_BYTES = 256 << 20
"""A chunk is decompressed as a whole."""
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}


class Hdf5File:
    """An open file; get it from `opened`."""

    def __init__(self, path: Path, root: Any):
        self.path = path
        self.root = root
        self._budget = MAX_EXPANSION * path.stat().st_size

    def names(self, group: str = "/") -> list[str]:
        """What a group holds."""
        return list(self._group(group).keys())

    def has(self, name: str) -> bool:
        """Whether there is anything of that path."""
        parent, _, last = name.rpartition("/")
        return last in self._group(parent)

    def is_group(self, name: str) -> bool:
        """Whether there is a group of that path."""
        return self.has(name) and isinstance(self._item(name), require("h5py").Group)

    def attribute(self, group: str, name: str) -> int | None:
        """A whole number among the attributes of a group, None where there is none."""
        attributes = self._group(group).attrs
        if name not in attributes:
            return None
        attribute = attributes.get_id(name)
        if attribute.shape != () or attribute.dtype.kind not in "iu":
            raise InputError(f"{self.path}, {group}: attribute {name} must be a whole number")
        return int(attributes[name])

    def dataset(self, name: str) -> Any:
        """The dataset of that path, checked; slices of it are arrays of numbers."""
        found = self._item(name)
        if not isinstance(found, require("h5py").Dataset):
            raise InputError(f"{self.path}, {name}: must be a dataset, is a group")
        self._check(name, found)
        self._budget -= found.nbytes
        if self._budget < 0:
            raise InputError(
                f"{self.path}, {name}: shape {found.shape}, more than {MAX_EXPANSION} times the "
                "file; recorded numbers do not compress so far"
            )
        return found

    def _check(self, name: str, found: Any) -> None:
        where = f"{self.path}, {name}"
        if found.is_virtual or found.external:
            raise InputError(f"{where}: its content is in other files; copy it into this one")
        if found.shape is None or found.dtype.kind not in "fiub":
            raise InputError(f"{where}: dtype {found.dtype}; only numbers are read")
        properties = found.id.get_create_plist()
        filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
        if unknown := [code for code in filters if code not in _FILTERS]:
            raise InputError(
                f"{where}: filter {unknown[0]}; allowed are {', '.join(_FILTERS.values())}"
            )
        if not filters and found.id.get_storage_size() < found.nbytes:
            raise InputError(
                f"{where}: shape {found.shape} was declared, but only "
                f"{found.id.get_storage_size():,} of {found.nbytes:,} bytes were written"
            )
        chunk = found.dtype.itemsize * int(np.prod(found.chunks or (0,), dtype=np.float64))
        if chunk > MAX_CHUNK_BYTES:
            raise InputError(f"{where}: chunks above {MAX_CHUNK_BYTES:,} bytes; write smaller ones")

    def _group(self, name: str) -> Any:
        found = self._item(name)
        if not isinstance(found, require("h5py").Group):
            raise InputError(f"{self.path}, {name}: must be a group, is a dataset")
        return found

    def _item(self, name: str) -> Any:
        """What is at a path, whose every step is a hard link."""
        h5py = require("h5py")
        found = self.root
        for step in name.strip("/").split("/") if name.strip("/") else ():
            link = found.get(step, getlink=True) if isinstance(found, h5py.Group) else None
            if link is None:
                raise InputError(f"{self.path}: no {name}; it is needed")
            if not isinstance(link, h5py.HardLink):
                raise InputError(
                    f"{self.path}, {name}: a {type(link).__name__}; links are not followed, copy "
                    "what it points to into the file"
                )
            found = found[step]
        return found


@contextmanager
def opened(path: Path) -> Iterator[Hdf5File]:
    """The file, open for reading. What h5py raises while it is becomes an `InputError`."""
    with reading(path, RESTORE), require("h5py").File(path, "r") as root:
        yield Hdf5File(path, root)
