"""The chain of SMAC's experiments at the smallest sizes, on the point robot: PEARL collects, two
datasets and a relabelled one are made of that, SMAC learns offline and online."""

from __future__ import annotations

from omrl.data.borrow import Borrowing
from omrl.experiments.declare import (
    Arm,
    Claim,
    Experiment,
    FromRun,
    Overrides,
    Relabelled,
    Setting,
)

TASKS, TEST_TASKS = [0, 1, 2], [80, 81]
_COMMON: Overrides = {
    "env": "point-robot/oyster-v1",
    "train_tasks": TASKS,
    "eval.tasks": TEST_TASKS,
    "eval.episodes": 2,
    "eval.traces": [],
    "train.eval_every": 0,
    "algo.hidden": [4],
    "algo.encoder_hidden": [4],
    "algo.latent": 2,
    "algo.batch.size": 8,
    "algo.context.size": 5,
    "algo.exploration.explored_tasks": 2,
    "algo.exploration.prior_steps": 20,
    "algo.exploration.posterior_steps": 20,
    "algo.exploration.context_size": 5,
    "algo.exploration.every": 2,
}
_SMAC: Overrides = {
    **_COMMON,
    "algo.decoder_hidden": [4],
    "algo.steps": 3,
    "algo.online_steps": 4,
    "algo.task_batch": 2,
    "algo.online_batch.size": 8,
    "algo.exploration.label_context": 5,
    "slice": "first-40-transitions",
}
_ENCODER: Overrides = {"encoder_slice": "last-20-transitions", "separate_encoder": True}
_MADE = FromRun(
    "smac-data-cheetah-vel",
    {**_COMMON, "algo.steps": 4, "algo.exploration.initial_steps": 40},
    Relabelled("first-40-transitions", Borrowing(share=0.5, mode="replace", trajectory=2)),
)

STUDY = Experiment(
    id="tiny-smac",
    title="A tiny chain",
    claim=Claim(words="Nothing.", source="no paper"),
    arms=(
        Arm("SMAC", "smac-cheetah-vel", "offline", overrides=_ENCODER, after="offline"),
        Arm("SMAC", "smac-cheetah-vel", "online", overrides=_ENCODER),
        Arm(
            "SMAC, relabelled",
            "smac-cheetah-vel",
            "online",
            reads="relabelled",
            overrides={"slice": "all", "encoder_slice": "", "separate_encoder": False},
        ),
        Arm("PEARL", "smac-data-cheetah-vel", "online", collects=True),
    ),
    scales={
        "smoke": Setting(
            _MADE,
            seeds=2,
            overrides=_SMAC,
            diagnose={
                "shift": {"tasks": TASKS[:2], "split": "train", "context_size": 10},
                "traces": {"tasks": TASKS[:2], "split": "train", "context_size": 10},
                "rewards": {"tasks": [TASKS[0], TEST_TASKS[0]], "context_size": 10},
            },
            note="the mechanism, not the result",
        )
    },
    reference="SMAC",
    pictures=("shift", "traces", "rewards"),
    better_of={"SMAC of two kinds": ("SMAC", "SMAC, relabelled")},
)
