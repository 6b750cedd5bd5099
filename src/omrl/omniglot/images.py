"""The original images of Omniglot (Lake et al. 2015), straight from their archives.

An archive holds `images_background/Greek/character01/0394_01.png`: the set, the alphabet, the
character, and behind the underscore which of its 20 drawers drew it. Archives come from elsewhere:
nothing is extracted, names are only compared with that pattern, and sizes are bounded before
anything is decompressed.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from omrl.arrays import reading
from omrl.errors import InputError

SIDE = 28
"""Pixels of an image's side as the networks see it (Vinyals et al. 2016, arXiv:1606.04080)."""
ORIGINAL_SIDE = 105
MAX_ARCHIVE_BYTES = 2**26
MAX_MEMBERS = 100_000
MAX_PNG_BYTES = 2**14
"""The largest original has 500."""
GET = "get images_*.zip of Omniglot from github.com/brendenlake/omniglot, folder python"
_NAME = re.compile(
    r"images_(?P<part>background(?:_small[12])?|evaluation)/(?P<alphabet>[\w()'. -]{1,64})/"
    r"(?P<character>character[0-9]{2})/[0-9]{4}_(?P<drawer>[0-9]{2})\.png"
)


class Character(NamedTuple):
    """One character of an alphabet."""

    part: str
    """background or evaluation: the set that Omniglot has it in."""
    alphabet: str
    name: str

    def __str__(self) -> str:
        return f"{self.alphabet}/{self.name}"


@dataclass(frozen=True)
class Images:
    """All characters, in the order of their names."""

    characters: tuple[Character, ...]
    pixels: UInt8[np.ndarray, "character drawing pixel"]
    """Rows of 28 x 28 images from the top; ink is 255, paper 0."""

    @property
    def hash(self) -> str:
        """sha256 of names and pixels."""
        names = "\n".join("/".join(character) for character in self.characters)
        return hashlib.sha256(names.encode() + self.pixels.tobytes()).hexdigest()


def read_images(folder: Path) -> Images:
    """The images of every `images_*.zip` in `folder`, 28 x 28 by an antialiased bilinear filter.

    What several archives hold, as the two small background sets do, is taken once.

    Raises `InputError` for a folder without such archives, one that is damaged or too large, an
    image that is none of Omniglot, and characters with too few drawings.
    """
    archives = sorted(folder.glob("images_*.zip"))
    if not archives:
        what = "has no images_*.zip" if folder.is_dir() else "is no folder"
        raise InputError(f"data: {folder} {what}; {GET}")
    found: dict[Character, dict[int, _Drawing]] = {}
    for archive in archives:
        for character, drawer, drawing in _drawings(archive):
            known = found.setdefault(character, {}).setdefault(drawer, drawing)
            if known.png != drawing.png:
                raise InputError(
                    f"{drawing.source}: is another image than {known.source}; remove one of the "
                    "archives"
                )
    characters = tuple(sorted(found))
    _check_drawings(folder, found)
    pixels = [
        [_decode(found[character][drawer]) for drawer in sorted(found[character])]
        for character in characters
    ]
    return Images(characters, np.array(pixels))


class _Drawing(NamedTuple):
    png: bytes
    source: str
    """Archive and name in it."""


def _drawings(archive: Path) -> Iterator[tuple[Character, int, _Drawing]]:
    size = archive.stat().st_size
    if size > MAX_ARCHIVE_BYTES:
        raise InputError(f"{archive}: has {size:,} bytes, more than {MAX_ARCHIVE_BYTES:,}; {GET}")
    with reading(archive, GET), zipfile.ZipFile(archive) as file:
        members = file.infolist()
        if len(members) > MAX_MEMBERS:
            raise InputError(
                f"{archive}: has {len(members):,} members, more than {MAX_MEMBERS:,}; {GET}"
            )
        named = [(member, _NAME.fullmatch(member.filename)) for member in members]
        if not any(match for _, match in named):
            raise InputError(
                f"{archive}: has no images_…/ALPHABET/character01/0001_01.png, so no alphabets; "
                f"{GET}"
            )
        for member, match in named:
            if match:
                source = f"{archive}: {member.filename}"
                part = match["part"].partition("_")[0]
                character = Character(part, match["alphabet"], match["character"])
                png = _read(file, member, source)
                yield character, int(match["drawer"]), _Drawing(png, source)


def _read(file: zipfile.ZipFile, member: zipfile.ZipInfo, source: str) -> bytes:
    with reading(source, GET), file.open(member) as stream:
        png = stream.read(MAX_PNG_BYTES + 1)  # Whatever its header says.
    if len(png) > MAX_PNG_BYTES:
        raise InputError(f"{source}: is larger than {MAX_PNG_BYTES:,} bytes; {GET}")
    return png


def _check_drawings(folder: Path, found: dict[Character, dict[int, _Drawing]]) -> None:
    most = max(map(len, found.values()))
    for character, drawings in found.items():
        if len(drawings) < max(most, 2):
            there = "needs at least 2" if most < 2 else f"has {most} of others"
            raise InputError(
                f"{folder}: alphabet {character.alphabet} has {len(drawings)} drawings of "
                f"{character.name}, and {there}; {GET}"
            )


def _decode(drawing: _Drawing) -> UInt8[np.ndarray, " pixel"]:
    from PIL import Image  # matplotlib needs it, too

    with reading(drawing.source, GET):
        image = Image.open(io.BytesIO(drawing.png), formats=("PNG",))
        if image.size != (ORIGINAL_SIDE, ORIGINAL_SIDE):
            width, height = image.size
            raise InputError(
                f"{drawing.source}: is {width} x {height} pixels, the originals are "
                f"{ORIGINAL_SIDE} x {ORIGINAL_SIDE}; {GET}"
            )
        grey = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return 255 - np.asarray(grey).ravel()
