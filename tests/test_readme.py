"""What the README tells a newcomer to run runs, with a tiny preset and tiny bundled files."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

import tiny_cheetah
from omrl import presets
from omrl.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(autouse=True)
def _tiny(stand_ins, tmp_path, monkeypatch):
    name = "macaw-cheetah-vel"
    config = dataclasses.replace(tiny_cheetah.config(), train=presets.RunConfig().train)
    preset = dataclasses.replace(presets.PRESETS[name], config=config)
    monkeypatch.setitem(presets.PRESETS, name, preset)
    monkeypatch.chdir(tmp_path)


def test_the_python_runs(capsys):
    library, gym = blocks("python")
    assert library.count("\n") <= 20
    assert "steps=500" in library
    program = library.replace("steps=500", "steps=3") + gym
    names: dict = {}
    exec(compile(program, "README.md", "exec"), names)
    assert "| mean |" in capsys.readouterr().out
    assert Path("runs/first/config.json").exists()
    assert Path("policy.safetensors").exists()
    assert names["obs"].shape == (20,)


def test_the_commands_run(capsys):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("omrl ")]
    assert len(commands) >= 7
    for _, *arguments in commands:
        assert main(arguments) == 0, capsys.readouterr().err
    assert Path("runs/second/report.html").exists()
    assert Path("policy-7.json").exists()


def test_every_command_is_in_the_table():
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == COMMANDS.keys()


def test_links_lead_somewhere():
    """Those of all pages: to files, and to headings in them."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lost = [f"{page.relative_to(ROOT)}: {link}" for page in pages for link in lost_links(page)]
    assert len(pages) > 10
    assert lost == []


def lost_links(page: Path) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    links = [x for x in re.findall(r"\]\(([^)\s]+)\)", prose) if not x.startswith("http")]
    return [link for link in links if not leads_somewhere(page, *link.partition("#")[::2])]


def leads_somewhere(page: Path, file: str, anchor: str) -> bool:
    target = page.parent / file if file else page
    if not target.exists() or not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


def test_make_has_the_targets():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)", TEXT + contributing, re.MULTILINE)
    assert set(named) == {"demo", "install", "test"}
    assert set(named) <= set(targets)
