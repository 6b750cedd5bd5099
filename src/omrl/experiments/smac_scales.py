"""What the scales are for the experiments of SMAC: a PEARL run that collects, and how long and how
large the runs on its data are.

`smoke` shows that the chain works from end to end; nothing is learned in so few updates. `gpu` has
the settings of docs/results.md, where they were measured on cheetah-vel and ant-dir; the three
other problems have those of ant-dir, humanoids fewer updates, and all three a slice of our choice.
`paper` has the presets that end in -paper as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omrl.data.borrow import Borrowing
from omrl.experiments.declare import FromRun, Overrides, Relabelled, Scale, Setting
from omrl.preset_smac import SLICES

SMOKE_NOTE = (
    "scale smoke shows the mechanism, not the result: in two hundred updates of small networks on "
    "four tasks nothing is learned that could be compared"
)


@dataclass(frozen=True)
class Lengths:
    """Of scale gpu."""

    data_updates: int | None = None
    """Of the PEARL run; None: its preset's."""
    online_updates: int = 300_000
    """Of the online phase: 15 iterations of 20,000."""
    eval_every: int = 640_000
    """Updates of the PEARL run between its evaluations."""


LENGTHS: Mapping[str, Lengths] = {
    "cheetah-vel": Lengths(None, 400_000, 160_000),
    "humanoid-dir": Lengths(480_000, 200_000, 480_000),
}
"""By problem; docs/results.md. Humanoids have 30 iterations of PEARL and 10 online: what fits."""
OTHERS = Lengths(640_000)
"""As ant-dir: 40 iterations of PEARL."""

PART: Mapping[str, str] = {
    "walker-params": "last-1200-transitions",
    "hopper-params": "last-1200-transitions",
    "humanoid-dir": "last-1200-transitions",
}
"""Of the data at scale gpu, by problem, where the paper does not tell it: chosen on validation
tasks of walkers and hoppers, docs/results.md, and taken over for humanoids, whose first 1,200
transitions are random actions, too."""

FIRST_TEST: Mapping[str, int] = {"cheetah-vel": 100, "ant-dir": 100}
"""Number of the first test task, by problem; else 50."""

BORROWING = Borrowing(share=1.0, mode="replace", trajectory=2)
"""Of two episodes in a row, as BOReL's agents play, the first is another task's."""


def settings(
    problem: str, *, relabel: bool = False, shift: bool = False
) -> Mapping[Scale, Setting]:
    """Those of a problem with a preset smac-data-PROBLEM.

    Args:
        relabel: a row reads relabelled data; not where tasks differ in their physics.
        shift: contexts of data are compared with explored ones.
    """
    main, encoder = SLICES[f"{problem}-paper"]
    part = PART.get(problem, main)
    relabelled = Relabelled(main, BORROWING) if relabel else None
    lengths = LENGTHS.get(problem, OTHERS)
    of_data: Overrides = {"train.eval_every": lengths.eval_every}
    if lengths.data_updates is not None:
        of_data = {**of_data, "algo.steps": lengths.data_updates}
    data = f"smac-data-{problem}"
    return {
        "smoke": _smoke(problem, relabelled, shift),
        "gpu": Setting(
            FromRun(data, of_data, relabelled),
            seeds=4,
            overrides={"train.checkpoint_every": 10_000},
            of_algorithm={
                "smac": {
                    **slices(part, encoder),
                    "algo.online_steps": lengths.online_updates,
                    "train.eval_every": 200_000,
                },
                "macaw": {"slice": part},
                "borel": {"slice": part},
                "pearl": of_data,
            },
            diagnose={"shift": OF_TRAIN} if shift else {},
        ),
        "paper": Setting(
            FromRun(data, relabelled=relabelled),
            seeds=4,
            overrides={"train.checkpoint_every": 10_000},
            of_algorithm={"smac": slices(main, encoder)},
            diagnose={"shift": OF_TRAIN} if shift else {},
        ),
    }


OF_TRAIN: Overrides = {"split": "train", "tasks": []}
"""The shift is on training tasks: the data has no others."""


def slices(main: str, encoder: str) -> Overrides:
    """Parts of both datasets; without a second one contexts are of the first."""
    return {"slice": main, "encoder_slice": encoder, "separate_encoder": bool(encoder)}


# --- Smoke ---

_TASKS = [0, 1, 2, 3]
_WIDTHS = [32, 32]
_EXPLORATION: Overrides = {
    "algo.exploration.every": 100,
    "algo.exploration.explored_tasks": 2,
    "algo.exploration.prior_steps": 400,
    "algo.exploration.posterior_steps": 200,
}
_PEARL: Overrides = {
    "algo.steps": 100,
    "algo.hidden": _WIDTHS,
    "algo.encoder_hidden": _WIDTHS,
    "algo.exploration.initial_steps": 1200,
    **_EXPLORATION,
}
_SMAC: Overrides = {
    "algo.steps": 100,
    "algo.online_steps": 100,
    "algo.hidden": _WIDTHS,
    "algo.encoder_hidden": _WIDTHS,
    "algo.decoder_hidden": _WIDTHS,
    **_EXPLORATION,
}
_MACAW: Overrides = {"algo.steps": 100, "algo.latent": 8, "algo.hidden": _WIDTHS}
_BOREL: Overrides = {
    "algo.steps": 100,
    "algo.vae_steps": 20,
    "algo.rollouts": 2,
    "algo.vae.gru": 32,
    "algo.vae.elbo_terms": 10,
    "algo.policy.hidden": _WIDTHS,
}


def _smoke(problem: str, relabelled: Relabelled | None, shift: bool) -> Setting:
    """Minutes on two cores."""
    main, encoder = SLICES[f"{problem}-paper"]
    test = FIRST_TEST.get(problem, 50)
    common: Overrides = {
        "train_tasks": _TASKS,
        "eval.tasks": [test, test + 1],
        "eval.episodes": 2,
        "train.checkpoint_every": 100,
        "train.eval_every": 0,
        "train.keep": 1,
    }
    return Setting(
        FromRun(f"smac-data-{problem}", {**common, **_PEARL}, relabelled),
        seeds=2,
        overrides=common,
        of_algorithm={
            "smac": {**slices(main, encoder), **_SMAC},
            "pearl": _PEARL,
            "macaw": _MACAW,
            "borel": _BOREL,
        },
        diagnose={"shift": {"tasks": _TASKS[:2], "split": "train"}} if shift else {},
        note=SMOKE_NOTE,
    )
