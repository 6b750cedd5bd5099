"""Presets of BOReL as SMAC's paper compares with it (arXiv:2107.03974, section 6, appendix C.3).

The paper ran BOReL's code on the data of SMAC with the original hyper-parameters and with those of
SMAC (network size, learning rate, batch size), and drew the better of both in Figure 5. All of them
are evaluated as SMAC is; the belief goes through all three trajectories. Ours are two more: a
better trained model, and a conservative policy for so little data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from omrl.algos.borel_config import BeliefSacConfig, BorelConfig
from omrl.envs import registry
from omrl.preset_borel import CODE
from omrl.preset_macaw_smac import EXPLORED
from omrl.preset_sawyer import ENV_75 as SAWYER
from omrl.preset_smac import ENVS, SLICES

if TYPE_CHECKING:
    from omrl.presets import Preset


def _matched(original: BorelConfig) -> BorelConfig:
    policy = BeliefSacConfig(hidden=(300, 300, 300), log_prob="clipped")
    return replace(original, policy=policy, task_batch=4, steps=50_000)


def _conservative(original: BorelConfig) -> BorelConfig:
    matched = _matched(original)
    assert isinstance(matched.policy, BeliefSacConfig)
    policy = replace(matched.policy, conservative=10.0, log_prob="exact")
    return replace(matched, policy=policy)


def _ours(original: BorelConfig) -> BorelConfig:
    return replace(
        _matched(original),
        vae=replace(original.vae, elbo_terms=50),
        normalize_obs=True,
        lr_decay=True,
        vae_steps=6000,
        steps=20_000,
    )


KINDS: dict[str, Callable[[BorelConfig], BorelConfig]] = {
    "": _ours,
    "-original": lambda original: original,
    "-matched": _matched,
    "-conservative": _conservative,
}
"""What a preset's name ends with -> what of the original settings it changes."""

PAPER = ("-original", "-matched")

PROBLEMS = {**ENVS, "sawyer": SAWYER}
"""The environments of the paper's six problems, by name."""

PHYSICS = ("walker-params", "hopper-params")
"""Problems whose tasks differ in their physics alone, so that rewards do not tell them apart."""

EPOCHS = 100
"""Of the VAE in the reference code: all tasks, 4 at a time, with all trajectories, 8 at a time."""

CHUNKS = {"sawyer": 4}
"""Of up to 8 trajectories in the data of a task: Sawyer's 50 episodes are 25. Else one: 1,200
transitions are 3 where no episode ends early."""

_VAE = (
    "trajectories are drawn with replacement, in the code by permutations, of 100 epochs: here as "
    "many updates as these are with the data of SMAC's paper where no episode ends early"
)
_WITH_DATA = (
    "the data is that of `omrl collect sawyer-manip-smac-paper`, whole, and trajectories have 75 "
    "steps in evaluation too; which objects are there differs between tasks, so that rewards "
    "cannot be another task's"
)
_STATES = "the code decodes rewards alone, which say nothing of physics: here next states as well"
_NOT_TOLD = {
    "": "as -matched, with standardised observations, 50 of the posteriors of a trajectory at an "
    "update, rates that fall to 0, more updates of the model and fewer of the policy: taken from "
    "borel-cheetah-vel, not tuned; where tasks differ in rewards, made for data that is mixed with "
    "relabelled trajectories",
    "-original": "as borel-cheetah-vel-code, on all problems alike; which of the code's four "
    "configurations was run is not told",
    "-matched": "matched are the widths of policy and Qs, their Adam rates, which were the same, "
    "256 transitions of 4 tasks, and 50,000 updates as SMAC's offline phase has; which batch size "
    "and networks are meant, and whether more was matched, is not told: encoder and decoder are as "
    "in -original",
    "-conservative": "ours, not tuned: as -matched, with CQL's term (arXiv:2006.04779, Eq. 4) of "
    "alpha 5, exact densities, and 10 actions of each of its two proposals",
}


def presets(base: Preset) -> dict[str, Preset]:
    """`borel-smac-PROBLEM` and its kinds, made of `base`."""
    return {
        f"borel-smac-{problem}{kind}": _preset(base, problem, kind)
        for problem in PROBLEMS
        for kind in KINDS
    }


def _preset(base: Preset, problem: str, kind: str) -> Preset:
    original, deviates = _original(problem), [_NOT_TOLD[kind]]
    if kind:
        deviates.append(_VAE)
    if problem in PHYSICS:
        deviates.append(_STATES)
    if problem == "sawyer":
        deviates.append(_WITH_DATA)
    config = replace(
        base.config,
        env=PROBLEMS[problem],
        algo=KINDS[kind](original),
        slice=SLICES.get(f"{problem}-paper", ("all", ""))[0],
        eval=EXPLORED,
    )
    paper = f"arXiv:2107.03974, section 6 and appendix C.3: BOReL, {kind[1:]} hyper-parameters"
    return replace(
        base,
        config=config,
        source=paper if kind in PAPER else "ours, after the matched preset",
        deviates="; ".join(deviates),
    )


def _original(problem: str) -> BorelConfig:
    num_tasks = len(registry.make(PROBLEMS[problem]).splits["train"])
    vae = replace(CODE.vae, state_head="squared") if problem in PHYSICS else CODE.vae
    chunks = math.ceil(num_tasks / CODE.vae_task_batch) * CHUNKS.get(problem, 1)
    return replace(CODE, vae=vae, vae_steps=EPOCHS * chunks)
