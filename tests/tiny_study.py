"""An experiment at the smallest sizes, of which MACAW's run is that of `tiny_cheetah.config`.

As a program: `tiny_study.py DATA OUT PRESET STEP` runs it and is killed when a run of that preset
has made so many updates.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from omrl.experiments.declare import SCALES, Arm, Claim, Experiment, Overrides, Setting

_SIZES: Overrides = {
    "algo.steps": 3,
    "algo.hidden": [8],
    "algo.latent": 4,
    "algo.inner_batch.size": 16,
    "algo.outer_batch.size": 16,
    "eval.episodes": 1,
    "eval.context_size": 16,
    "train.checkpoint_every": 1,
}

STUDY = Experiment(
    id="tiny-study",
    title="A tiny study",
    claim=Claim(words="Nothing.", source="no paper"),
    arms=(
        Arm("MACAW", "macaw-cheetah-vel", overrides={"algo.head_hidden": [4]}),
        Arm(
            "MACAW",
            "macaw-cheetah-vel",
            "one trajectory",
            overrides={"algo.head_hidden": [4]},
            evaluate={"context_unit": "trajectories", "context_size": 1},
        ),
        Arm("BC", "bc-cheetah-vel"),
    ),
    scales={scale: Setting("bundled:cheetah-vel", 2, _SIZES) for scale in SCALES},
    reference="MACAW",
)


def main(data: str, out: str, preset: str, step: int) -> None:
    from omrl import train
    from omrl.experiments.declare import plan
    from omrl.experiments.reproduce import reproduce
    from omrl.runs import resolve_devices

    chunk = train._Trainer._chunk

    def deadly(self, *arguments):
        if preset in self.run.path.name and self.position.step == step:
            self.checkpoints.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        chunk(self, *arguments)

    train._Trainer._chunk = deadly
    planned = plan(STUDY, "smoke")
    devices = resolve_devices("cpu")
    reproduce(
        STUDY, "smoke", planned, Path(out), data, devices=devices, command="tests", quiet=True
    )


if __name__ == "__main__":
    import conftest  # noqa: F401 - the settings of the compiler, so that bits are the same

    main(*sys.argv[1:4], int(sys.argv[4]))
