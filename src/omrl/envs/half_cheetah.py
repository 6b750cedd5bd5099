"""Half-cheetah tasks: run at a target velocity, or in a target direction.

Model: gymnasium's half_cheetah.xml (identical to that of gym 0.12.1, which the papers used).
Sources: MACAW, arXiv:2008.06043, and its reference code; SMAC, arXiv:2107.03974, and the oyster
repository of PEARL, arXiv:1903.08254.

Difference to all reference code: the observed torso position is the fresh kinematics (from qpos);
theirs is that before the last physics step, because they read `xpos` after `mj_step`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.envs.task_lists import Splits, all_but, first_train

NQ = 9
ACT_DIM = 6
JOINTS = ("rootx", "rootz", "rooty", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
TORSO_HEIGHT = 0.7
"""Torso z at qpos 0 [m]."""
TOTAL_MASS = 14.0
"""[kg]"""
FRAME_SKIP = 5
TIMESTEP = 0.01
DT = FRAME_SKIP * TIMESTEP
POSITION_NOISE = 0.1
VELOCITY_NOISE = 0.1
CONTROL_COST_WEIGHT = 0.05
MODEL_FILE = "half_cheetah.xml"
MODEL_SHA256 = "11797a5d69e8ac955e89ca6fdd3a0087f1c990094fda401ac51420de1b6c5494"

# Columns of the state: time, qpos, qvel.
_X, _Z = 1, 2
_QPOS = slice(1, 1 + NQ)
_QVEL = slice(1 + NQ, 1 + 2 * NQ)


class HalfCheetah(TaskEnv):
    """Physics, observation and terms that both families share; the reward is theirs."""

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """qpos = U(-.1, .1) per coordinate, then qvel = .1 N(0, 1); the initial pose is all 0."""
        qpos = rng.uniform(-POSITION_NOISE, POSITION_NOISE, NQ)
        qvel = VELOCITY_NOISE * rng.standard_normal(NQ)
        return np.concatenate([[0.0], qpos, qvel])

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """qpos without x (8), qvel (9), then torso x, y, z (3) unless the id leaves it out."""
        parts = [state[..., _Z : 1 + NQ], state[..., _QVEL]]
        if self.spec.position_source == "qpos":
            x, z = state[..., _X], state[..., _Z] + TORSO_HEIGHT
            parts.append(np.stack([x, np.zeros_like(x), z], axis=-1))
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """(x_velocity [m/s] over the step, control_cost = .05 sum a^2)."""
        x_velocity = (next_state[..., _X] - state[..., _X]) / DT
        control_cost = CONTROL_COST_WEIGHT * np.sum(action**2, axis=-1)
        return np.stack([x_velocity, control_cost], axis=-1)

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Never."""
        return np.zeros(state.shape[:-1], bool)

    def physics(self, num_threads: int) -> Physics:
        """Native MuJoCo."""
        # Relabelling and validation need no simulator, and the import takes 0.1 s.
        from omrl.envs.mujoco_physics import MujocoPhysics, compile_model

        model = compile_model(MODEL_FILE, MODEL_SHA256, TOTAL_MASS)
        return MujocoPhysics(model, FRAME_SKIP, num_threads)


@dataclass(frozen=True)
class CheetahVel(HalfCheetah):
    """Run at a target velocity: reward -|x_velocity - v| - control_cost."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    slowest: float = 0.0
    """Of new tasks [m/s]."""

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """v ~ U(slowest, 3) m/s."""
        return rng.uniform(self.slowest, 3.0, (num, 1))

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """-|x_velocity - v| - control_cost."""
        return -np.abs(terms[..., 0] - task[..., 0]) - terms[..., 1]


@dataclass(frozen=True)
class CheetahDir(HalfCheetah):
    """Run forwards (+1) or backwards (-1): reward direction * x_velocity - control_cost."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    task_values: ClassVar[tuple[float, ...]] = (-1.0, 1.0)

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """-1 or +1, equally likely."""
        return rng.choice(self.task_values, (num, 1))

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """direction * x_velocity - control_cost."""
        return task[..., 0] * terms[..., 0] - terms[..., 1]


def _spec(
    env_id: str, *, reward: str, task_name: str, task_distribution: str, observe_position: bool
) -> EnvSpec:
    obs_names = JOINTS[1:] + tuple(f"{joint}_velocity" for joint in JOINTS)
    if observe_position:
        obs_names += ("torso_x", "torso_y", "torso_z")
    return EnvSpec(
        id=env_id,
        obs_dim=len(obs_names),
        act_dim=ACT_DIM,
        horizon=200,
        dt=DT,
        term_names=("x_velocity", "control_cost"),
        task_names=(task_name,),
        obs_names=obs_names,
        reward=reward,
        reset="qpos = U(-position_noise, position_noise), qvel = velocity_noise * N(0, 1)",
        action="joint torques, clipped to [-1, 1]",
        termination="never",
        task_distribution=task_distribution,
        constants=(
            ("control_cost_weight", CONTROL_COST_WEIGHT),
            ("position_noise", POSITION_NOISE),
            ("velocity_noise", VELOCITY_NOISE),
            ("torso_height", TORSO_HEIGHT),
            ("total_mass", TOTAL_MASS),
        ),
        engine="mujoco",
        model_file=MODEL_FILE,
        model_sha256=MODEL_SHA256,
        timestep=TIMESTEP,
        frame_skip=FRAME_SKIP,
        position_source="qpos" if observe_position else "none",
    )


# --- Ids ---------------------------------------------------------------------------------------

_GRID = np.linspace(0.075, 3.0, 40)
_GRID_TEXT = "linspace(0.075, 3, 40); new tasks U(0, 3)"
# The generator of the reference code: equal to the released list in every digit.
_OYSTER_TARGETS = np.random.RandomState(1337).uniform(0.0, 3.0, 130)
# CSRO and ER-TRL train on U(1, 3) but released no list.
_CSRO_TARGETS = np.random.RandomState(1337).uniform(1.0, 3.0, 40)
_MACAW_TEST = (2, 7, 15, 23, 26)
_MACAW_VALIDATION = (5, 12, 19, 29, 34)
"""Of the training tasks: presets are chosen on these, never on the test tasks."""


_MACAW_SPLITS = all_but(_MACAW_TEST, 40) | {"validation": _MACAW_VALIDATION}


def _velocity(
    version: str,
    splits: Splits,
    targets: np.ndarray = _GRID,
    task_distribution: str = _GRID_TEXT,
    observe_position: bool = True,
    slowest: float = 0.0,
) -> CheetahVel:
    spec = _spec(
        f"cheetah-vel/{version}",
        reward="-|x_velocity - target_velocity| - control_cost_weight * sum(action^2)",
        task_name="target_velocity",
        task_distribution=task_distribution,
        observe_position=observe_position,
    )
    table = tuple((float(target),) for target in targets)
    return CheetahVel(spec, table, tuple(splits.items()), slowest)


def _sparse(stride: int) -> CheetahVel:
    """Every `stride`-th task trains, all others test (MACAW, appendix D.3)."""
    train = tuple(range(0, 40, stride))
    others = all_but(train, 40)["train"]
    return _velocity(f"sparse-{len(train)}-v1", {"train": train, "test": others})


def _direction(version: str, directions: tuple[float, float]) -> CheetahDir:
    spec = _spec(
        f"cheetah-dir/{version}",
        reward="direction * x_velocity - control_cost_weight * sum(action^2)",
        task_name="direction",
        task_distribution=f"{directions}, equally likely",
        observe_position=True,
    )
    table = tuple((direction,) for direction in directions)
    return CheetahDir(spec, table, (("train", (0, 1)), ("test", (0, 1))))


ENVIRONMENTS: tuple[TaskEnv, ...] = (
    _velocity("macaw-v1", _MACAW_SPLITS),
    _velocity("nopos-v1", _MACAW_SPLITS, observe_position=False),
    _velocity(
        "oyster-v1",
        first_train(100, 30),
        _OYSTER_TARGETS,
        "U(0, 3), drawn by numpy RandomState(1337)",
    ),
    _velocity(
        "csro-v1",
        first_train(30, 10),
        _CSRO_TARGETS,
        "U(1, 3), drawn by numpy RandomState(1337)",
        slowest=1.0,
    ),
    _velocity("ood-0-2-v1", {"train": tuple(range(26)), "test": tuple(range(27, 40))}),
    _velocity("ood-0-2-code-v1", first_train(26, 14)),
    _velocity("ood-0-1-v1", first_train(13, 27)),
    _sparse(2),
    _sparse(4),
    _sparse(8),
    _sparse(16),
    _direction("macaw-v1", (1.0, -1.0)),
    _direction("oyster-v1", (-1.0, 1.0)),
)
