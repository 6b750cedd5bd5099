"""Which characters are trained on, which choose the rates, and which are the test.

No alphabet is on two sides. Every quarter turn of a character is a class of its own, on all sides
(Vinyals et al. 2016, arXiv:1606.04080, who split by lists of characters instead).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, UInt8

from omrl.errors import InputError
from omrl.omniglot.images import SIDE, Images

Side = Literal["train", "validation", "test"]
SIDES: tuple[Side, ...] = get_args(Side)
TURNS = 4
_EVERY_TEST, _EVERY_VALIDATION = 4, 8


@dataclass(frozen=True)
class Split:
    """The alphabets of each side."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    rule: str
    """How the test alphabets were chosen, in words."""

    def side(self, alphabet: str) -> Side:
        return next(side for side in SIDES if alphabet in getattr(self, side))


@dataclass(frozen=True)
class Classes:
    """What episodes are drawn from."""

    pixels: UInt8[np.ndarray, "class drawing pixel"]
    """Four classes a character: as it is, and turned by 90, 180 and 270 degrees."""
    on_side: Bool[np.ndarray, "side class"]
    """Rows as in `SIDES`."""

    @property
    def counts(self) -> dict[Side, int]:
        return dict(zip(SIDES, self.on_side.sum(1).tolist(), strict=True))


def split_alphabets(images: Images) -> Split:
    """The evaluation set is the test where there is one beside the background set; else every
    fourth alphabet is. Of the others, in the order of their names, numbers 3, 11, 19 … of the
    training side are for validation.

    Raises `InputError` where there are too few alphabets for three sides.
    """
    parts = {character.alphabet: character.part for character in images.characters}
    for character in images.characters:
        if parts[character.alphabet] != character.part:
            raise InputError(
                f"data: alphabet {character.alphabet} is in the sets {character.part} and "
                f"{parts[character.alphabet]}, and would be trained and tested on; remove one of "
                "the archives"
            )
    names = sorted(parts)
    if len(names) < _EVERY_TEST:
        raise InputError(
            f"data: alphabets: there are {len(names)}, {', '.join(names)}; training, validation "
            f"and test need at least {_EVERY_TEST}: add images_background.zip"
        )
    if len(set(parts.values())) > 1:
        test = [name for name in names if parts[name] == "evaluation"]
        rule = "background set against evaluation set"
    else:
        test = names[_EVERY_TEST - 1 :: _EVERY_TEST]
        rule = "every fourth alphabet is test"
    rest = [name for name in names if name not in test]
    validation = rest[min(2, len(rest) - 1) :: _EVERY_VALIDATION]
    train = [name for name in rest if name not in validation]
    if not train:
        raise InputError(
            f"data: alphabets: {', '.join(rest)} alone is beside the test; add "
            "images_background.zip, two of training and validation are the least"
        )
    return Split(tuple(train), tuple(validation), tuple(test), rule)


def make_classes(images: Images, split: Split, *, ways: int, drawings: int) -> Classes:
    """The classes of all sides, for episodes of `ways` classes with `drawings` of each.

    Raises `InputError` for a side with fewer classes, or characters with fewer drawings.
    """
    there = images.pixels.shape[1]
    if there < drawings:
        raise InputError(
            f"queries: episodes take {drawings} drawings of a class, characters have {there}; take "
            f"at most {there - 1} queries"
        )
    square = images.pixels.reshape(len(images.characters), there, SIDE, SIDE)
    turned = np.stack([np.rot90(square, turn, axes=(2, 3)) for turn in range(TURNS)], axis=1)
    sides = [split.side(character.alphabet) for character in images.characters]
    on_side = np.array([[side == of for of in sides] for side in SIDES]).repeat(TURNS, axis=1)
    classes = Classes(turned.reshape(-1, there, SIDE * SIDE), on_side)
    for side, count in classes.counts.items():
        if count < ways:
            raise InputError(
                f"ways: episodes have {ways} classes, side {side} has {count} "
                f"({', '.join(getattr(split, side))}); take fewer, or add images_background.zip"
            )
    return classes
