"""The page on other formats names every format and option, and its JSON is a statement."""

import json
import re
from pathlib import Path

from omrl.cli.data_exchange import ImportOptions
from omrl.data.formats import FORMATS
from omrl.data.formats.source import parse_statement

PAGE = (Path(__file__).parents[2] / "docs/import.md").read_text()


def test_the_statement_is_one():
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert parse_statement(json.loads(text), "page").splits == {"train": (0, 1), "test": (2,)}


def test_every_format_and_option_is_named():
    for name, each in FORMATS.items():
        assert f"--format {name}" in PAGE
        assert not each.is_writable or re.search(rf"data export .*--format {name}`", PAGE)
    for option in ("env", "tasks", "canonical", "parameters", "train", "test", "path-length"):
        assert option.replace("-", "_") in ImportOptions.__dataclass_fields__
        assert f"--{option}" in PAGE
