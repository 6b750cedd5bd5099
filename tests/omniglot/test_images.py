"""Reading Omniglot's archives, and splitting them into classes."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from omrl.errors import InputError
from omrl.omniglot import images as omniglot
from omrl.omniglot.images import read_images
from omrl.omniglot.split import SIDES, make_classes, split_alphabets
from tiny_omniglot import ALPHABETS, drawing, members, png, write_archive, write_data

SMALL = "images_background_small1"
ORIGINALS = Path(
    os.environ.get("OMNIGLOT", Path(__file__).parents[2].parent / "shared" / "data" / "omniglot")
)


@pytest.fixture
def originals() -> Path:
    if not (ORIGINALS / f"{SMALL}.zip").is_file():
        pytest.skip(f"no {ORIGINALS / SMALL}.zip; OMNIGLOT names a folder of the original archives")
    return ORIGINALS


def test_ink_is_white_and_rows_come_from_the_top(tmp_path):
    left = np.ones((105, 105), bool)
    left[:, :52] = False
    top = np.ones((105, 105), bool)
    top[:30] = False
    contents = {
        "Greek/character01/0001_01.png": png(left),
        "Greek/character01/0001_02.png": png(top),
    }
    write_archive(tmp_path, SMALL, contents)
    found = read_images(tmp_path)
    assert found.characters == (("background", "Greek", "character01"),)
    assert found.pixels.shape == (1, 2, 784)
    first, second = found.pixels.reshape(2, 28, 28)
    # 105 / 28 = 3.75 pixels make one: column 13 is the first that sees paper, as 52 / 3.75 = 13.9.
    assert (first[:, :13] == 255).all()
    assert (first[:, 15:] == 0).all()
    assert (second[:7] == 255).all()
    assert (second[10:] == 0).all()


def test_what_two_archives_have_is_taken_once(tmp_path):
    first, second = ALPHABETS[:4], ALPHABETS[2:]
    whole = members()
    for name, alphabets in (("small1", first), ("small2", second)):
        part = {m: png for m, png in whole.items() if m.split("/")[0] in alphabets}
        write_archive(tmp_path / "two", f"images_background_{name}", part)
    write_archive(tmp_path / "one", SMALL, whole)
    two, one = read_images(tmp_path / "two"), read_images(tmp_path / "one")
    assert two.hash == one.hash
    assert len(two.characters) == 12


def test_names_lead_nowhere(tmp_path):
    path = write_archive(tmp_path / "data", SMALL, members())
    before = read_images(path.parent).hash
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("../images_background/Evil/character01/0001_01.png", b"x")
        file.writestr("/images_background/Evil/character01/0001_01.png", b"x")
        file.writestr("images_background/../../Evil/character01/0001_01.png", b"x")
        file.writestr(f"{SMALL}/.DS_Store", b"x")
    assert read_images(path.parent).hash == before
    assert [each.name for each in tmp_path.rglob("*")] == ["data", f"{SMALL}.zip"]


BROKEN = "Gamma/character02/0002_03.png"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({BROKEN: b"no png"}, rf"images_.*zip: {SMALL}/{BROKEN}: damaged .*get images_\*.zip"),
        ({BROKEN: members()[BROKEN][:60]}, rf"{BROKEN}: damaged"),
        ({BROKEN: png(np.ones((90, 105), bool))}, rf"{BROKEN}: is 105 x 90 pixels.* 105 x 105"),
        ({BROKEN: bytes(20_000)}, rf"{BROKEN}: is larger than 16,384 bytes"),
        ({BROKEN: None}, r"alphabet Gamma has 2 drawings of character02, and has 3 of others"),
    ],
)
def test_one_bad_image_is_named(tmp_path, change, message):
    contents = {name: png for name, png in (members() | change).items() if png is not None}
    write_archive(tmp_path, SMALL, contents)
    with pytest.raises(InputError, match=message):
        read_images(tmp_path)


def test_an_image_that_two_archives_have_differently_is_refused(tmp_path):
    write_archive(tmp_path, SMALL, members())
    other = members() | {BROKEN: png(drawing(0, 2))}
    write_archive(tmp_path, "images_background_small2", other)
    with pytest.raises(InputError, match=f"{BROKEN}: is another image than .*small1"):
        read_images(tmp_path)


def test_folders_without_alphabets(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"data: .* has no images_\*.zip; get"):
        read_images(tmp_path)
    path = write_archive(tmp_path, SMALL, {"readme.txt": b"hello"})
    with pytest.raises(InputError, match=rf"{SMALL}.zip: has no .*so no alphabets"):
        read_images(tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=rf"{SMALL}.zip: damaged"):
        read_images(tmp_path)
    write_archive(tmp_path, SMALL, members())
    monkeypatch.setattr(omniglot, "MAX_MEMBERS", 30)
    with pytest.raises(InputError, match="has 37 members, more than 30"):
        read_images(tmp_path)
    monkeypatch.setattr(omniglot, "MAX_ARCHIVE_BYTES", 1000)
    with pytest.raises(InputError, match="bytes, more than 1,000"):
        read_images(tmp_path)


def test_single_drawings_are_too_few(tmp_path):
    write_archive(tmp_path, SMALL, {"Greek/character01/0001_01.png": png(drawing(0, 0))})
    with pytest.raises(InputError, match="Greek has 1 drawings of character01, and needs"):
        read_images(tmp_path)


# --- Sides and classes ---


def test_one_set_is_split_by_alphabet(tmp_path):
    split = split_alphabets(read_images(write_data(tmp_path)))
    # In the order of the names: Alpha, Beta, Delta, Epsilon, Gamma, Zeta.
    assert split.test == ("Epsilon",)
    assert split.validation == ("Delta (new)",)
    assert split.train == ("Alpha", "Beta", "Gamma", "Zeta")


def test_the_evaluation_set_is_the_test_where_there_is_one(tmp_path):
    write_archive(tmp_path, "images_background", members(ALPHABETS[:4]))
    write_archive(tmp_path, "images_evaluation", members(ALPHABETS[4:]))
    split = split_alphabets(read_images(tmp_path))
    assert split.test == ("Epsilon", "Zeta")
    assert split.validation == ("Delta (new)",)
    assert split.train == ("Alpha", "Beta", "Gamma")
    assert split.rule == "background set against evaluation set"


def test_turns_are_classes(tmp_path):
    images = read_images(write_data(tmp_path))
    split = split_alphabets(images)
    classes = make_classes(images, split, ways=3, drawings=2)
    assert classes.counts == {"train": 32, "validation": 8, "test": 8}
    assert (classes.on_side.sum(0) == 1).all()
    assert classes.pixels.shape == (48, 3, 784)
    for number, alphabet in enumerate(character.alphabet for character in images.characters):
        side = SIDES.index(split.side(alphabet))
        assert classes.on_side[side, 4 * number : 4 * number + 4].all()
    upright = images.pixels[5, 1].reshape(28, 28)
    for turn in range(4):
        turned = classes.pixels[4 * 5 + turn, 1].reshape(28, 28)
        np.testing.assert_array_equal(turned, np.rot90(upright, turn))


@pytest.mark.parametrize(
    ("alphabets", "sizes", "message"),
    [
        (ALPHABETS, (9, 2), "ways: episodes have 9 classes, side validation has 8 .Delta"),
        (
            ALPHABETS,
            (3, 4),
            "queries: episodes take 4 drawings .*, characters have 3; .* 2 queries",
        ),
        (ALPHABETS[:3], (3, 2), "alphabets: there are 3, Alpha, Beta, Gamma; .* at least 4"),
    ],
)
def test_too_few_for_an_episode(tmp_path, alphabets, sizes, message):
    write_archive(tmp_path, SMALL, members(alphabets))
    images = read_images(tmp_path)
    with pytest.raises(InputError, match=message):
        make_classes(images, split_alphabets(images), ways=sizes[0], drawings=sizes[1])


def test_one_alphabet_beside_the_evaluation_set_is_too_few(tmp_path):
    write_archive(tmp_path, "images_background", members(ALPHABETS[:1]))
    write_archive(tmp_path, "images_evaluation", members(ALPHABETS[1:]))
    with pytest.raises(InputError, match="Alpha alone is beside the test"):
        split_alphabets(read_images(tmp_path))


def test_the_original_small_sets(originals):
    images = read_images(originals)
    split = split_alphabets(images)
    assert images.pixels.shape == (242, 20, 784)
    counts = Counter(character.alphabet for character in images.characters)
    assert len(counts) == 8
    assert counts["Korean"] == 40
    assert split.test == ("Japanese_(katakana)", "Tagalog")
    assert split.validation == ("Greek",)
    classes = make_classes(images, split, ways=20, drawings=2)
    assert classes.counts == {"train": 616, "validation": 96, "test": 256}
    # Thin strokes: most of an image is paper.
    assert 0.04 < images.pixels.mean() / 255 < 0.12
