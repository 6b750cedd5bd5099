"""Meta-trainings that collect their data themselves, as presets: online PEARL, and PEARL as SMAC's
authors run it to make their offline data.

Names of the first kind are `pearl-online-FAMILY-code`. The second kind, `smac-data-FAMILY`, leaves
buffers that `omrl data from-run` makes datasets of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omrl.algos.pearl_config import PearlConfig
from omrl.data.sample import BatchSpec
from omrl.exploration import Exploration
from omrl.train import TrainConfig

TRAIN = TrainConfig(log_every=1000, checkpoint_every=10_000)


@dataclass(frozen=True)
class Online:
    """Such a meta-training, and where its numbers are from."""

    env: str
    algo: PearlConfig
    explore: str
    """How it is evaluated: one of `omrl.protocol.EXPLORE`."""
    source: str
    deviates: str


def _context(size: int) -> BatchSpec:
    return BatchSpec("context", size, buffer="encoder")


def _pearl(
    env: str,
    file: str,
    *,
    tasks: int = 16,
    context: int = 256,
    updates: int = 4000,
    prior: int = 400,
    posterior: int = 600,
    next_obs: bool = False,
) -> Online:
    """A configuration of PEARL's reference code: `updates` in each of 500 iterations."""
    exploration = Exploration(
        every=updates, prior_steps=prior, posterior_steps=posterior, context_size=context
    )
    algo = PearlConfig(
        log_prob="clipped",
        steps=500 * updates,
        task_batch=tasks,
        context=_context(context),
        next_obs_in_context=next_obs,
        distinct_tasks=False,
        exploration=exploration,
    )
    return Online(
        env,
        algo,
        "explore-paper",
        f"katerakelly/oyster@44e20fd, configs/default.py and {file}.json",
        "test tasks have 4 repetitions of 3 trajectories; the code's number differs by problem",
    )


def _smac_data(env: str, iterations: int, told: str, deviates: str = "") -> Online:
    """The PEARL run behind SMAC's data: 4,000 steps an iteration, of 4 updates with 64 transitions
    of context each."""
    algo = PearlConfig(
        steps=iterations * 16_000,
        task_batch=4,
        context=_context(64),
        distinct_tasks=False,
        exploration=Exploration(every=16_000, resample_every="step"),
    )
    return Online(
        env,
        algo,
        "explore-code",
        f"arXiv:2107.03974, appendix C.1, and rail-berkeley/rlkit@ac45a9d, {told}",
        "1,000 new transitions an iteration are read as those of each of 5 tasks, as in the code; "
        "of 4 updates on one task batch each has its own; no reward decoder, which changes no data"
        + deviates,
    )


_LIKE_ANT = "torch/smac/base_config.py"
_UNTOLD = "; the number of iterations is not in the paper: here that of ant-dir"

ONLINE: Mapping[str, Online] = {
    "pearl-online-cheetah-vel-code": _pearl(
        "cheetah-vel/oyster-v1", "cheetah-vel", context=100, updates=2000
    ),
    "pearl-online-cheetah-dir-code": _pearl(
        "cheetah-dir/oyster-v1", "cheetah-dir", tasks=4, updates=2000, prior=1000, posterior=1000
    ),
    "pearl-online-ant-dir-code": _pearl("ant-dir/oyster-v1", "ant-dir", tasks=4),
    "pearl-online-humanoid-dir-code": _pearl("humanoid-dir/oyster-v1", "humanoid-dir"),
    "pearl-online-walker-params-code": _pearl(
        "walker-params/oyster-v1", "walker_rand_params", tasks=10, context=100, next_obs=True
    ),
    "pearl-online-hopper-params-code": _pearl(
        "hopper-params/oyster-v1", "hopper_rand_params", tasks=10, context=100, next_obs=True
    ),
    "smac-data-cheetah-vel": _smac_data(
        "cheetah-vel/oyster-v1", 50, "examples/smac/generate_cheetah_data.py"
    ),
    "smac-data-ant-dir": _smac_data("ant-dir/smac-v1", 100, "examples/smac/generate_ant_data.py"),
    "smac-data-walker-params": _smac_data("walker-params/smac-v1", 100, _LIKE_ANT, _UNTOLD),
    "smac-data-hopper-params": _smac_data("hopper-params/smac-v1", 100, _LIKE_ANT, _UNTOLD),
    "smac-data-humanoid-dir": _smac_data("humanoid-dir/smac-v1", 100, _LIKE_ANT, _UNTOLD),
}
