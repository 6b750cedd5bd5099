"""The code of docs/data.md runs as it stands there."""

import re
from pathlib import Path

from omrl.data.store import open_dataset

PAGE = Path(__file__).parents[2] / "docs/data.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec("\n".join(blocks), {})
    dataset = open_dataset("my-data")
    assert dataset.manifest.validation["reward"] == "checked"
    assert dataset.task(3).num_episodes == 50
    # Three tasks of 1,050 observations and 1,000 actions of two numbers, and per transition three
    # further floats, a truth value and two indices; one count per task.
    total = 3 * (1050 * 2 * 4 + 1000 * 2 * 4 + 1000 * (3 * 4 + 1 + 2 * 4)) + 3 * 4
    assert str(total) in capsys.readouterr().out.split()
