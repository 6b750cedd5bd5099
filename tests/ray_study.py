"""`omrl reproduce tiny-study` with options, as a program whose trainings can be held up.

Where PAUSES is a folder, a training that made one update leaves a file there with its process and
node, and waits until there is a file `go`. Workers of Ray import this module too (`--import`).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from omrl import train
from omrl.cli import main
from omrl.experiments import registry
from tiny_study import STUDY

PAUSES = "OMRL_TEST_PAUSES"


def _pause(folder: Path, run: Path) -> None:
    import ray  # pyright: ignore[reportMissingImports]

    node = ray.get_runtime_context().get_node_id()
    (folder / run.name).write_text(f"{os.getpid()} {node}")
    while not (folder / "go").exists():
        time.sleep(0.1)


def _patch(folder: Path) -> None:
    chunk = train._Trainer._chunk

    def slow(self, *arguments):
        if self.position.step == 1 and not (folder / "go").exists():
            self.checkpoints.wait()
            _pause(folder, self.run.path)
        chunk(self, *arguments)

    train._Trainer._chunk = slow


if PAUSES in os.environ:
    _patch(Path(os.environ[PAUSES]))

if __name__ == "__main__":
    registry.EXPERIMENTS = {STUDY.id: STUDY}
    arguments = ["--import", "ray_study", "reproduce", STUDY.id, "--scale", "smoke"]
    sys.exit(main([*arguments, "--device", "cpu", *sys.argv[1:]]))
