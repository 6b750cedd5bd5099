"""Trains the toy in a run folder: a process that tests can signal, kill and resume."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omrl import hosts, runs
from omrl.checkpoint import Checkpoints
from omrl.chunk import Layout
from omrl.config import from_json
from omrl.errors import InputError, NonFiniteError, Stopped
from omrl.train import TrainConfig, train
from toy import Toy, ToyConfig, make_data


@dataclass(frozen=True)
class ToyRun:
    algo: ToyConfig
    train: TrainConfig


def run_toy(path: Path, config: ToyRun, *, resume: bool = False, evaluate=None):
    """Trains to the end on the CPU; the final states."""
    devices = runs.resolve_devices("cpu")
    layout = Layout.of(devices, config.train.seeds)
    open_run = runs.resume if resume else runs.create
    run = open_run(path, config, command="toy", devices=devices)
    return train(
        run, Toy(config.algo), config.train, layout, make_data(), np.arange(6), evaluate=evaluate
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("config", type=json.loads)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--kill-in-save", type=int, help="SIGKILL while this step is written")
    parser.add_argument("--slow-evaluation", action="store_true")
    parser.add_argument("--coordinator")
    parser.add_argument("--process-id", type=int)
    given = parser.parse_args()
    if given.coordinator:
        hosts.initialise(given.coordinator, 2, given.process_id)
    if given.kill_in_save:
        _kill_in_save(given.kill_in_save)
    try:
        run_toy(
            given.path,
            from_json(ToyRun, given.config),
            resume=given.resume,
            evaluate=_slow_evaluation if given.slow_evaluation else None,
        )
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.code
    except (InputError, NonFiniteError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _kill_in_save(step: int) -> None:
    save = Checkpoints.save

    def save_and_die(self, at, *arguments):
        save(self, at, *arguments)  # returns while a thread still writes
        if at == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoints.save = save_and_die


def _slow_evaluation(_states, _step):
    print("evaluating", flush=True)
    time.sleep(120)


if __name__ == "__main__":
    sys.exit(main())
