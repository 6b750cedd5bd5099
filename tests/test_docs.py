"""Every Python block of the documentation runs as it stands, page by page from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omrl.cli import main
from omrl.envs import registry

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = {
    str(page.relative_to(DOCS)): re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for page in sorted(DOCS.rglob("*.md"))
}


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks])
def test_the_python_runs(page, stand_ins, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_ENVIRONMENTS", {**registry._ENVIRONMENTS})
    names: dict = {}
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), names)


def test_the_pages_that_have_programs_are_found():
    having = {page for page, blocks in BLOCKS.items() if blocks}
    assert having >= {"data.md", "evaluation.md", "environments/cheetah-vel.md"}


def test_what_data_info_is_said_to_print_is_what_it_prints(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["data", "info", "bundled:cheetah-vel"]) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    (shown,) = re.findall(r"```text\n(┏.*?)```", (DOCS / "data.md").read_text(), re.DOTALL)
    lines = [line for line in shown.splitlines() if line != "…"]
    assert len(lines) > 10
    # In this order, with others between them.
    assert [line for line in lines if line not in printed] == []
