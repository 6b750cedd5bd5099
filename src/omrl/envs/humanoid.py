"""Humanoid-Dir: walk in a hidden direction without falling.

Model: gymnasium's humanoid.xml (identical to that of gym 0.12.1, which the papers used). Sources:
the oyster repository of PEARL, arXiv:1903.08254; SMAC, arXiv:2107.03974.

Difference to all reference code: what is observed of bodies, and the centre of mass, belong to the
state after the step; theirs to the last Runge-Kutta stage before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.envs.task_lists import Splits, directions_text, draw_directions, first_train

NQ, NV = 24, 23
INITIAL_HEIGHT = 1.4
"""Torso z at reset, before the noise [m]."""
FULL_CONTROL = 0.4
"""Control of an action of 1."""
FRAME_SKIP = 5
TIMESTEP = 0.003
DT = FRAME_SKIP * TIMESTEP
RESET_NOISE = 0.01
LINEAR_WEIGHT = 0.25
"""Of the displacement per physics step, not per environment step: 1.25 times the velocity."""
CONTROL_COST_WEIGHT = 0.1
IMPACT_COST_WEIGHT = 0.5e-6
MAX_IMPACT_COST = 10.0
ALIVE_BONUS = 5.0
HEIGHT_MIN, HEIGHT_MAX = 1.0, 2.0
"""[m]"""
MODEL_FILE = "humanoid.xml"
MODEL_SHA256 = "85816f372c826d2094b4a598918233bd9c5843b2439119eece2733bdc2e0d073"
BODIES = (
    "world",
    "torso",
    "lwaist",
    "pelvis",
    *(f"{side}_{part}" for side in ("right", "left") for part in ("thigh", "shin", "foot")),
    *(f"{side}_{part}" for side in ("right", "left") for part in ("upper_arm", "lower_arm")),
)
_LEG, _ARM = ("hip_x", "hip_z", "hip_y", "knee"), ("shoulder1", "shoulder2", "elbow")
JOINTS = (
    *("abdomen_z", "abdomen_y", "abdomen_x"),
    *(f"{side}_{joint}" for side in ("right", "left") for joint in _LEG),
    *(f"{side}_{joint}" for side in ("right", "left") for joint in _ARM),
)
_DOFS = (*(f"torso_{name}" for name in ("x", "y", "z", "wx", "wy", "wz")), *JOINTS)
_CINERT = ("xx", "yy", "zz", "xy", "xz", "yz", "mx", "my", "mz", "m")
OBS_NAMES = (
    *("torso_z", "torso_qw", "torso_qx", "torso_qy", "torso_qz"),
    *JOINTS,
    *(f"{dof}_velocity" for dof in _DOFS),
    *(f"{body}_cinert_{entry}" for body in BODIES for entry in _CINERT),
    *(f"{body}_cvel_{entry}" for body in BODIES for entry in ("wx", "wy", "wz", "x", "y", "z")),
    *(f"{dof}_qfrc_actuator" for dof in _DOFS),
    *(f"{body}_cfrc_ext_{entry}" for body in BODIES for entry in ("tx", "ty", "tz", "x", "y", "z")),
)
"""qpos without x and y, qvel, then MuJoCo's arrays; the world's rows are 0."""

# Columns of the state: time, qpos, qvel, cinert, cvel, qfrc_actuator, cfrc_ext, centre of mass.
_Z = 3
_QUAT = slice(4, 8)
_OBSERVED = slice(_Z, _Z + len(OBS_NAMES))
_FORCES = slice(_OBSERVED.stop - 6 * len(BODIES), _OBSERVED.stop)
_COM = slice(_OBSERVED.stop, _OBSERVED.stop + 2)


@dataclass(frozen=True)
class HumanoidDir(TaskEnv):
    """Walk in a direction [rad]: reward 1.25 * speed along it - costs + 5."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """direction ~ U(0, 2 pi)."""
        return rng.uniform(0.0, 2.0 * np.pi, (num, 1))

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """The initial pose at rest, plus U(-.01, .01) in every coordinate, then velocity.

        The noise is on the entries of the quaternion, too, which is normalised then.
        """
        from omrl.envs.mujoco_physics import compile_model, forward

        state = np.zeros(1 + NQ + NV)
        state[_Z] = INITIAL_HEIGHT
        state[_QUAT] = (1.0, 0.0, 0.0, 0.0)
        state[1:] += rng.uniform(-RESET_NOISE, RESET_NOISE, NQ + NV)
        state[_QUAT] /= np.linalg.norm(state[_QUAT])
        data = forward(compile_model(MODEL_FILE, MODEL_SHA256), state)
        arrays = (
            data.cinert,
            data.cvel,
            data.qfrc_actuator,
            data.cfrc_ext,
            data.subtree_com[1, :2],
        )
        return np.concatenate([state, *(array.ravel() for array in arrays)])

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """qpos without x and y (22), qvel (23), cinert (140), cvel (84), qfrc_actuator (23),
        cfrc_ext (84)."""
        return state[..., _OBSERVED].astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """(com_dx, com_dy [m] over the step, control_cost = .1 sum (.4 a)^2,
        impact_cost = min(.5e-6 sum cfrc_ext^2, 10))."""
        impact_cost = IMPACT_COST_WEIGHT * np.sum(next_state[..., _FORCES] ** 2, axis=-1)
        terms = np.empty((*impact_cost.shape, len(self.spec.term_names)))
        terms[..., :2] = next_state[..., _COM] - state[..., _COM]
        terms[..., 2] = CONTROL_COST_WEIGHT * np.sum((FULL_CONTROL * action) ** 2, axis=-1)
        terms[..., 3] = np.minimum(impact_cost, MAX_IMPACT_COST)
        return terms

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """.25 * displacement along the direction / .003 - control_cost - impact_cost + 5."""
        direction = task[..., 0]
        along = terms[..., 0] * np.cos(direction) + terms[..., 1] * np.sin(direction)
        return LINEAR_WEIGHT * along / TIMESTEP - terms[..., 2] - terms[..., 3] + ALIVE_BONUS

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Where the torso is lower than 1 m or higher than 2 m."""
        height = state[..., _Z]
        return np.asarray(~((height >= HEIGHT_MIN) & (height <= HEIGHT_MAX)))

    def physics(self, num_threads: int) -> Physics:
        """Native MuJoCo."""
        # Relabelling and validation need no simulator, and the import takes 0.1 s.
        from omrl.envs.mujoco_physics import MujocoPhysics, compile_model

        model = compile_model(MODEL_FILE, MODEL_SHA256)
        return MujocoPhysics(
            model, FRAME_SKIP, num_threads, derive=_derive, sensing=_sensing_model()
        )


def _sensing_model() -> Any:
    """The `mujoco.MjModel` that is read, not stepped."""
    from omrl.envs.body_sensors import add_body_sensors
    from omrl.envs.mujoco_physics import compile_model

    return compile_model(MODEL_FILE, MODEL_SHA256, edit=add_body_sensors)


def _derive(sensors: Float64[np.ndarray, "row sensor"]) -> Float64[np.ndarray, "row column"]:
    from omrl.envs.body_sensors import body_columns

    return body_columns(_sensing_model(), sensors)


# --- Ids ---------------------------------------------------------------------------------------

# The papers' lists were never released. One list serves both ids, which take its first so many.
_TASK_SEED, _NUM_TASKS = 5, 130
TASK_FILE = Path(__file__).with_name("assets") / "humanoid_tasks.npz"
with np.load(TASK_FILE, allow_pickle=False) as _file:
    _DIRECTIONS = _file["directions"]


def draw_tasks() -> Float64[np.ndarray, " task"]:
    """The list in `assets/humanoid_tasks.npz`."""
    return draw_directions(_TASK_SEED, _NUM_TASKS)


def _environment(version: str, splits: Splits) -> HumanoidDir:
    directions = _DIRECTIONS[: sum(map(len, splits.values()))]
    spec = EnvSpec(
        id=f"humanoid-dir/{version}",
        obs_dim=len(OBS_NAMES),
        act_dim=len(JOINTS),
        horizon=200,
        dt=DT,
        term_names=("com_dx", "com_dy", "control_cost", "impact_cost"),
        task_names=("direction",),
        obs_names=OBS_NAMES,
        reward="linear_weight * (com_dx * cos(direction) + com_dy * sin(direction)) / timestep "
        "- control_cost - impact_cost + alive_bonus; com: centre of mass of the robot; "
        "control_cost = control_cost_weight * sum((full_control * action)^2); impact_cost = "
        "min(impact_cost_weight * sum(cfrc_ext^2), max_impact_cost) over all bodies; com and "
        "cfrc_ext, and what is observed of bodies, at the state after the step with its control",
        reset="qpos = initial pose (torso_z = initial_height, upright, joints 0) + "
        "U(-reset_noise, reset_noise), then its quaternion normalised; "
        "qvel = U(-reset_noise, reset_noise); what is observed of bodies: with no control",
        action="controls of the model's actuators in their order, clipped to [-1, 1], times "
        "full_control",
        termination="torso_z < height_min or torso_z > height_max",
        task_distribution=directions_text(_TASK_SEED, directions),
        constants=(
            ("linear_weight", LINEAR_WEIGHT),
            ("control_cost_weight", CONTROL_COST_WEIGHT),
            ("impact_cost_weight", IMPACT_COST_WEIGHT),
            ("max_impact_cost", MAX_IMPACT_COST),
            ("alive_bonus", ALIVE_BONUS),
            ("full_control", FULL_CONTROL),
            ("initial_height", INITIAL_HEIGHT),
            ("reset_noise", RESET_NOISE),
            ("height_min", HEIGHT_MIN),
            ("height_max", HEIGHT_MAX),
        ),
        engine="mujoco",
        model_file=MODEL_FILE,
        model_sha256=MODEL_SHA256,
        timestep=TIMESTEP,
        frame_skip=FRAME_SKIP,
        position_source="qpos",
        contact_source="rne",
    )
    table = tuple((float(direction),) for direction in directions)
    return HumanoidDir(spec, table, tuple(splits.items()))


ENVIRONMENTS: tuple[TaskEnv, ...] = (
    _environment("smac-v1", first_train(50, 5)),
    _environment("oyster-v1", first_train(100, 30)),
)
