"""A tiny Omniglot: archives named and laid out as the original ones, and small learners.

As a program: `tiny_omniglot.py DATA OUT LABEL STEP` runs the tiny study and is killed when the
training LABEL has made so many meta-steps.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from omrl.omniglot.settings import Learner, Network, Scaled

LEARNER = Learner(
    hidden=(8,), latent=4, ways=3, meta_batch=2, eval_episodes=4, lr_lr=0.1, queries=1
)
SCALE = Scaled(
    networks=(
        Network("weight transform", LEARNER),
        Network("plain, equal width", replace(LEARNER, layer="linear")),
    ),
    seeds=2,
    steps=9,
    eval_every=8,
    search_steps=2,
    targets=(0.0, 1.0),
    inner_lrs=(0.1, 1.0),
    outer_lrs=(0.01,),
    checkpoint_every=5,
)
ALPHABETS = ("Alpha", "Beta", "Gamma", "Delta (new)", "Epsilon", "Zeta")
DRAWINGS = 3


def png(image: np.ndarray) -> bytes:
    """One bit a pixel, as the originals are; True is paper."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def drawing(number: int, drawer: int) -> np.ndarray:
    """A dark block whose place tells the character, shifted a little by every drawer."""
    image = np.ones((105, 105), bool)
    row, column = 5 + 12 * (number % 7) + drawer, 5 + 20 * (number % 4) + drawer
    image[row : row + 20, column : column + 30] = False
    return image


def members(alphabets: tuple[str, ...] = ALPHABETS, characters: int = 2) -> dict[str, bytes]:
    """The names and contents of an archive, below its set."""
    found = {}
    for number, alphabet in enumerate(alphabets):
        for character in range(characters):
            for drawer in range(DRAWINGS):
                name = f"{alphabet}/character{character + 1:02}/{number:04}_{drawer + 1:02}.png"
                found[name] = png(drawing(number * characters + character, drawer))
    return found


def write_archive(folder: Path, name: str, contents: Mapping[str, bytes]) -> Path:
    """`NAME.zip`, all in a folder NAME as in the original archives."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/", b"")
        for member, content in contents.items():
            file.writestr(f"{name}/{member}", content)
    return path


def write_data(folder: Path) -> Path:
    """A folder for `--data`."""
    write_archive(folder, "images_background_small1", members())
    return folder


def main(data: str, out: str, label: str, step: int) -> None:
    from omrl.cli import main as omrl
    from omrl.omniglot import settings, study, training

    settings.SCALES = study.SCALES = {"smoke": SCALE}
    advance = training._Trainer._advance

    def deadly(self):
        if self.label == label and self.step == step:
            self.checkpoints.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        advance(self)

    training._Trainer._advance = deadly
    arguments = ["reproduce", settings.ID, "--scale", "smoke", "--data", data, "--out", out]
    omrl([*arguments, "--device", "cpu", "--quiet"])


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
