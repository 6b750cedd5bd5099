"""Ant tasks: walk in a hidden direction, or to a hidden goal on a semicircle.

Model: gymnasium's ant.xml (identical to those of the oyster and MACAW repositories but for markers
that do not touch). Sources: the oyster repository of PEARL, arXiv:1903.08254; MACAW,
arXiv:2008.06043; SMAC, arXiv:2107.03974, and the 120 directions released with it; CORRO,
arXiv:2206.10442, and UNICORN, arXiv:2402.02429, which reward speed alone; BOReL, arXiv:2008.02598.

Differences to all reference code: displacements are those of the fresh kinematics (from qpos),
theirs of `xpos`, which after `mj_step` is a Runge-Kutta stage old; the initial quaternion is
normalised at reset, theirs by MuJoCo.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.envs.task_lists import (
    Splits,
    all_but,
    digest_text,
    directions_text,
    draw_directions,
    first_train,
    semicircle_goals,
)

NQ, NV = 15, 14
ACT_DIM = 8
JOINTS = tuple(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))
INITIAL_HEIGHT = 0.75
"""Torso z at reset, before the noise [m]."""
FRAME_SKIP = 5
TIMESTEP = 0.01
DT = FRAME_SKIP * TIMESTEP
POSITION_NOISE = 0.1
VELOCITY_NOISE = 0.1
CONTROL_COST_WEIGHT = 0.5
CONTACT_COST_WEIGHT = 0.5e-3
CONTACT_CLIP = 1.0
SURVIVE_REWARD = 1.0
HEALTHY_Z_MIN, HEALTHY_Z_MAX = 0.2, 1.0
"""[m]"""
GOAL_CONTROL_COST_WEIGHT = 0.1
GOAL_RADIUS = 0.2
"""Within this distance of the goal the sparse reward is 1 [m]."""
MODEL_FILE = "ant.xml"
MODEL_SHA256 = "cd5f83ef0ea35b0969e65d360c5bacd5b74ccaef6b27e4433b5168c605e3e2be"

# Columns of the state: time, qpos, qvel, then contact_cost of the step that led here.
_X, _Y, _Z = 1, 2, 3
_QUAT = slice(4, 8)
_QVEL = slice(1 + NQ, 1 + NQ + NV)
_CONTACT_COST = 1 + NQ + NV


def contact_cost(forces: Float64[np.ndarray, "row body 6"]) -> Float64[np.ndarray, " row"]:
    """.0005 sum clip(cfrc_ext, -1, 1)^2 over the bodies."""
    clipped = np.clip(forces, -CONTACT_CLIP, CONTACT_CLIP)
    return CONTACT_COST_WEIGHT * np.sum(clipped**2, axis=(-2, -1))


class Ant(TaskEnv):
    """Physics and reset that both families share."""

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """The initial pose + U(-.1, .1) per coordinate, then qvel = .1 N(0, 1).

        The noise is on the entries of the quaternion, too, which is normalised then.
        """
        state = np.zeros(_CONTACT_COST + (self.spec.contact_source != "none"))
        state[_Z] = INITIAL_HEIGHT
        state[_QUAT] = (1.0, 0.0, 0.0, 0.0)
        state[1 : 1 + NQ] += rng.uniform(-POSITION_NOISE, POSITION_NOISE, NQ)
        state[_QUAT] /= np.linalg.norm(state[_QUAT])
        state[_QVEL] = VELOCITY_NOISE * rng.standard_normal(NV)
        return state

    def physics(self, num_threads: int) -> Physics:
        """Native MuJoCo."""
        # Relabelling and validation need no simulator, and the import takes 0.1 s.
        from omrl.envs.contact import add_contact_sensors, external_forces
        from omrl.envs.mujoco_physics import MujocoPhysics, compile_model

        if self.spec.contact_source == "none":
            return MujocoPhysics(compile_model(MODEL_FILE, MODEL_SHA256), FRAME_SKIP, num_threads)
        return MujocoPhysics(
            compile_model(MODEL_FILE, MODEL_SHA256, edit=add_contact_sensors),
            FRAME_SKIP,
            num_threads,
            derive=lambda sensors: contact_cost(external_forces(sensors))[:, None],
        )


@dataclass(frozen=True)
class AntDir(Ant):
    """Walk in a direction [rad]: reward is the speed along it - costs + 1, or the speed alone."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    forward_only: bool = False
    """The reward is the speed alone, and the MDP never ends."""
    axis: bool = False
    """New tasks are 0 or pi."""

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """direction ~ U(0, 2 pi), or 0 and pi equally likely."""
        if self.axis:
            return rng.choice([0.0, np.pi], (num, 1))
        return rng.uniform(0.0, 2.0 * np.pi, (num, 1))

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """qpos without x and y (13), qvel (14)."""
        return state[..., _Z:_CONTACT_COST].astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """(torso_dx, torso_dy [m] over the step, control_cost = .5 sum a^2, contact_cost,
        healthy: 1 where the height after the step is within bounds, else 0)."""
        moved = next_state[..., [_X, _Y]] - state[..., [_X, _Y]]
        control_cost = CONTROL_COST_WEIGHT * np.sum(action**2, axis=-1)
        rest = [control_cost, next_state[..., _CONTACT_COST], _healthy(next_state)]
        return np.concatenate([moved, np.stack(rest, axis=-1)], axis=-1)

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """Speed along the direction [m/s] - control_cost - contact_cost + 1, or the speed alone."""
        direction = task[..., 0]
        along = terms[..., 0] * np.cos(direction) + terms[..., 1] * np.sin(direction)
        if self.forward_only:
            return along / DT
        return along / DT - terms[..., 2] - terms[..., 3] + SURVIVE_REWARD

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Where the torso is lower than .2 m or higher than 1 m; never with `forward_only`."""
        if self.forward_only:
            return np.zeros(state.shape[:-1], bool)
        return np.asarray(~_healthy(state))


def _healthy(state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"] | np.bool:
    return (state[..., _Z] >= HEALTHY_Z_MIN) & (state[..., _Z] <= HEALTHY_Z_MAX)


@dataclass(frozen=True)
class AntSemicircle(Ant):
    """Walk to a goal: reward -|x - goal_x| - |y - goal_y| - control_cost, or sparse."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    sparse: bool = False
    """The reward is 1 within the radius of the goal, else 0, minus control_cost."""

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """Goals on the semicircle of radius 1 m, the angle from the x axis ~ U(0, pi)."""
        return semicircle_goals(rng, num)

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """qpos (15), qvel (14)."""
        return state[..., _X:_CONTACT_COST].astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """(x, y [m] of the torso after the step as observed, control_cost = .1 sum a^2).

        In float32: so the stored terms are on the same side of the goal's border.
        """
        position = next_state[..., [_X, _Y]].astype(np.float32).astype(np.float64)
        control_cost = GOAL_CONTROL_COST_WEIGHT * np.sum(action**2, axis=-1, keepdims=True)
        return np.concatenate([position, control_cost], axis=-1)

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """-|x - goal_x| - |y - goal_y| - control_cost; sparse: (1 within .2 m) - control_cost."""
        if self.sparse:
            return self.achieved(terms, task) - terms[..., 2]
        return -np.sum(np.abs(terms[..., :2] - task), axis=-1) - terms[..., 2]

    def achieved(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Bool[np.ndarray, "*#batch"]:
        """The torso is within .2 m of the goal."""
        distance = np.linalg.norm(terms[..., :2] - task, axis=-1)
        return np.asarray(distance <= GOAL_RADIUS)

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Never."""
        return np.zeros(state.shape[:-1], bool)


def _spec(
    env_id: str,
    *,
    obs_names: tuple[str, ...],
    term_names: tuple[str, ...],
    task_names: tuple[str, ...],
    reward: str,
    termination: str,
    task_distribution: str,
    constants: tuple[tuple[str, float], ...],
    contact_source: str,
) -> EnvSpec:
    return EnvSpec(
        id=env_id,
        obs_dim=len(obs_names),
        act_dim=ACT_DIM,
        horizon=200,
        dt=DT,
        term_names=term_names,
        task_names=task_names,
        obs_names=obs_names,
        reward=reward,
        reset="qpos = initial pose (torso_z = initial_height, upright, joints 0) + "
        "U(-position_noise, position_noise), then its quaternion normalised; "
        "qvel = velocity_noise * N(0, 1)",
        action="joint torques in the order of the model's actuators (leg 4, then 1, 2, 3), "
        "clipped to [-1, 1]",
        termination=termination,
        task_distribution=task_distribution,
        constants=(
            *constants,
            ("initial_height", INITIAL_HEIGHT),
            ("position_noise", POSITION_NOISE),
            ("velocity_noise", VELOCITY_NOISE),
        ),
        engine="mujoco",
        model_file=MODEL_FILE,
        model_sha256=MODEL_SHA256,
        timestep=TIMESTEP,
        frame_skip=FRAME_SKIP,
        position_source="qpos",
        contact_source=contact_source,
    )


# --- Ids ---------------------------------------------------------------------------------------

_TORSO = ("x", "y", "z", "qw", "qx", "qy", "qz")
_TORSO_VELOCITY = ("x_velocity", "y_velocity", "z_velocity", "wx", "wy", "wz")
OBS_NAMES = (
    *(f"torso_{name}" for name in _TORSO),
    *JOINTS,
    *(f"torso_{name}" for name in _TORSO_VELOCITY),
    *(f"{joint}_velocity" for joint in JOINTS),
)
"""Of qpos and qvel; the angular velocity is in the frame of the torso."""

_DIRECTIONS = {"macaw": (1, 50), "oyster": (2, 2), "fwd": (3, 40)}
"""Seed and number of the directions that no paper released."""
_SEMICIRCLE_SEED = 4
_ASSETS = Path(__file__).with_name("assets")
TASK_FILE = _ASSETS / "ant_tasks.npz"
with np.load(TASK_FILE, allow_pickle=False) as _file:
    _DRAWN = {name: _file[name] for name in (*_DIRECTIONS, "semicircle")}
with np.load(_ASSETS / "author_tasks.npz", allow_pickle=False) as _file:
    _SMAC_DEGREES = _file["ant_dir_tasks_degrees"]

_ALONG = "(torso_dx * cos(direction) + torso_dy * sin(direction)) / dt"
_TERMS_TEXT = (
    "control_cost = control_cost_weight * sum(action^2); contact_cost = contact_cost_weight * "
    "sum(clip(cfrc_ext, -contact_clip, contact_clip)^2) over all bodies, cfrc_ext at the start of "
    "the last physics step; healthy: healthy_z_min <= torso_z <= healthy_z_max"
)


def draw_tasks() -> dict[str, np.ndarray]:
    """The lists in `assets/ant_tasks.npz`: directions [rad] and goals that no paper released."""
    drawn = {name: draw_directions(seed, num) for name, (seed, num) in _DIRECTIONS.items()}
    goals = semicircle_goals(np.random.RandomState(_SEMICIRCLE_SEED), 100)
    return drawn | {"semicircle": goals}


def _directions(
    version: str,
    splits: Splits,
    directions: np.ndarray,
    task_distribution: str,
    *,
    forward_only: bool = False,
    axis: bool = False,
) -> AntDir:
    reward = _ALONG if forward_only else f"{_ALONG} - control_cost - contact_cost + survive_reward"
    spec = _spec(
        f"ant-dir/{version}",
        obs_names=OBS_NAMES[2:],
        term_names=("torso_dx", "torso_dy", "control_cost", "contact_cost", "healthy"),
        task_names=("direction",),
        reward=f"{reward}; {_TERMS_TEXT}",
        termination="never" if forward_only else "not healthy",
        task_distribution=task_distribution,
        constants=(
            ("control_cost_weight", CONTROL_COST_WEIGHT),
            ("contact_cost_weight", CONTACT_COST_WEIGHT),
            ("contact_clip", CONTACT_CLIP),
            *(() if forward_only else (("survive_reward", SURVIVE_REWARD),)),
            ("healthy_z_min", HEALTHY_Z_MIN),
            ("healthy_z_max", HEALTHY_Z_MAX),
        ),
        contact_source="rne",
    )
    table = tuple((float(direction),) for direction in directions)
    return AntDir(spec, table, tuple(splits.items()), forward_only, axis)


def _drawn_text(name: str) -> str:
    seed, _ = _DIRECTIONS[name]
    return directions_text(seed, _DRAWN[name])


def _semicircle(version: str, *, sparse: bool = False) -> AntSemicircle:
    goals = _DRAWN["semicircle"]
    dense_text = "-|next_x - goal_x| - |next_y - goal_y|"
    sparse_text = "(1 where |(next_x, next_y) - goal| <= goal_radius, else 0)"
    spec = _spec(
        f"ant-semicircle/{version}",
        obs_names=OBS_NAMES,
        term_names=("next_x", "next_y", "control_cost"),
        task_names=("goal_x", "goal_y"),
        reward=f"{sparse_text if sparse else dense_text} - control_cost_weight * sum(action^2); "
        "next_x, next_y: torso after the step, in float32",
        termination="never",
        task_distribution="angle U(0, pi) from the x axis at distance 1 from the origin, drawn by "
        f"numpy RandomState({_SEMICIRCLE_SEED}), {digest_text(goals)}",
        constants=(
            ("control_cost_weight", GOAL_CONTROL_COST_WEIGHT),
            *((("goal_radius", GOAL_RADIUS),) if sparse else ()),
        ),
        contact_source="none",
    )
    table = tuple((float(x), float(y)) for x, y in goals)
    return AntSemicircle(spec, table, tuple(first_train(80, 20).items()), sparse)


_BOTH = {"train": (0, 1), "test": (0, 1)}

ENVIRONMENTS: tuple[TaskEnv, ...] = (
    _directions(
        "macaw-v1",
        all_but((6, 17, 23, 30, 41), 50),
        _DRAWN["macaw"],
        _drawn_text("macaw"),
    ),
    _directions(
        "smac-v1",
        first_train(100, 20),
        np.deg2rad(_SMAC_DEGREES),
        f"U(0, 2 pi): the list released with SMAC, in degrees, {digest_text(_SMAC_DEGREES)}",
    ),
    _directions("oyster-v1", _BOTH, _DRAWN["oyster"], _drawn_text("oyster")),
    _directions("fwdback-v1", _BOTH, np.array([0.0, np.pi]), "0 and pi, equally likely", axis=True),
    _directions(
        "fwd-v1",
        first_train(30, 10),
        _DRAWN["fwd"],
        _drawn_text("fwd"),
        forward_only=True,
    ),
    _semicircle("borel-v1"),
    _semicircle("borel-sparse-v1", sparse=True),
)
