"""`omrl reproduce tiny-study` with options, as a program whose trainings can be held up or fail.

Where PAUSES is a folder, a training that made one update leaves a file there, with its process and
node, and waits until there is one of the same name with `.go`. With FAILS it raises an `InputError`
if its run's name begins so. Workers of Ray import this module too (`--import`).

With `cluster` as the only argument: two nodes of one CPU each until the input ends; prints their
address, and id and raylet's process of the second one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from omrl import train
from omrl.cli import main
from omrl.errors import InputError
from omrl.experiments import registry
from tiny_study import STUDY

PAUSES, FAILS = "OMRL_TEST_PAUSES", "OMRL_TEST_FAILS"
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 5,
}
"""A node that does not answer is given up after some seconds."""


def _pause(folder: Path, name: str) -> None:
    import ray  # pyright: ignore[reportMissingImports]

    beside = folder / f"{name}.tmp"
    beside.write_text(f"{os.getpid()} {ray.get_runtime_context().get_node_id()}")
    beside.rename(folder / name)
    while not (folder / f"{name}.go").exists():
        time.sleep(0.1)


def _patch() -> None:
    chunk, pauses, fails = train._Trainer._chunk, os.environ.get(PAUSES), os.environ.get(FAILS)

    def slow(self, *arguments):
        name = self.run.path.name
        if self.position.step == 1:
            self.checkpoints.wait()
            if fails and name.startswith(fails):
                raise InputError("no luck")
            if pauses and not Path(pauses, f"{name}.go").exists():
                _pause(Path(pauses), name)
        chunk(self, *arguments)

    train._Trainer._chunk = slow


def cluster() -> None:
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": HEALTH}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    second = nodes.add_node(num_cpus=1)
    (raylet,) = second.all_processes["raylet"]
    print(json.dumps([nodes.address, second.node_id, raylet.process.pid]), flush=True)
    sys.stdin.read()
    nodes.shutdown()


if __name__ == "__main__":
    if sys.argv[1:] == ["cluster"]:
        cluster()
        sys.exit()
    registry.EXPERIMENTS = {STUDY.id: STUDY}
    arguments = ["--import", "ray_study", "reproduce", STUDY.id, "--scale", "smoke"]
    sys.exit(main([*arguments, "--device", "cpu", *sys.argv[1:]]))

_patch()
