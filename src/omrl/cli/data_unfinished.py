"""`omrl data info` of a collection or import that is not finished: what is there, how to go on."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from omrl.data import manifest as manifests
from omrl.data.growing import GrowingTask
from omrl.data.manifest import Manifest
from omrl.tables import print_lines, print_table


def unfinished_of(folder: Path) -> Path | None:
    """The folder of a writer that was interrupted, if `folder` is that or what it would
    become; None for a dataset."""
    partial = folder
    if folder.suffix != ".partial":
        if not folder.name or (folder / manifests.NAME).is_file():
            return None
        partial = folder.with_name(f"{folder.name}.partial")
    return partial if (partial / manifests.NAME).is_file() else None


def print_unfinished(folder: Path, manifest: Manifest, as_json: bool) -> None:
    """How much is there and how to go on."""
    complete = {task.index: (task.episodes, task.transitions) for task in manifest.tasks}
    begun = {}
    for path in sorted(folder.glob("task-*")):
        if match := re.fullmatch(r"task-(\d{3,9})", path.name):
            begun[int(match[1])] = GrowingTask(path, manifest.spec, manifest.dtype).cursor()
    held = dict(sorted((begun | complete).items()))
    tasks = [
        {"index": index, "complete": index in complete, "episodes": rows[0], "transitions": rows[1]}
        for index, rows in held.items()
    ]
    summary = {
        "path": str(folder),
        "unfinished": True,
        "env": manifest.spec.id,
        "command": manifest.command,
        "continue": _continuation(folder, manifest),
        "tasks": tasks,
    }
    if as_json:
        print(json.dumps(summary))
        return
    rows = sum(task["transitions"] for task in tasks)
    print_lines(
        f"{folder}: unfinished, not a dataset yet: {len(complete)} tasks of {manifest.spec.id} are "
        f"complete and {len(held) - len(complete)} begun, {rows:,} transitions so far",
        [f"to go on: {summary['continue']}"],
    )
    titles = ["task", "complete", "episodes", "transitions"]
    print_table(titles, [[str(value) for value in task.values()] for task in tasks])


def _continuation(folder: Path, manifest: Manifest) -> str:
    out = shlex.quote(str(folder.with_suffix("")))
    command = manifest.command
    if command.startswith("omrl collect "):
        return f"{command} --out {out} --resume"
    words = shlex.split(command)
    if words[:2] == ["omrl", "data"] and manifests.OUT in words:
        words[words.index(manifests.OUT)] = str(folder.with_suffix(""))
        return shlex.join(words)
    return f"run the program again that began it with the command {command!r}"
