"""Walker and hopper whose dynamics are the task: masses, inertias, damping and friction.

All tasks share one reward; what differs is the model. A task is the vector of factors that
multiply the nominal arrays of the compiled model, element by element, in the order in which they
are drawn: body_mass, body_inertia, dof_damping, geom_friction.

Models: gymnasium's walker2d.xml and hopper.xml, with the time step of the id. Sources: the
repository rand_param_envs, used by PEARL, arXiv:1903.08254 (oyster), and MACAW, arXiv:2008.06043;
SMAC, arXiv:2107.03974, whose port runs at half the time step; CORRO, arXiv:2206.10442, which
UNICORN, arXiv:2402.02429, follows; Meta-DT, arXiv:2410.11448.

CORRO's code (PKU-RL/CORRO@c270fe8) observes x and velocities that are not clipped, and its walker
varies mass and friction only: so do the ids `corro-v1`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from omrl.envs.base import EnvSpec, Physics, TaskEnv
from omrl.envs.task_lists import Splits, all_but, digest_text, first_train

FRAME_SKIP = 4
INITIAL_HEIGHT = 1.25
"""Height coordinate of the torso in the initial pose [m]; all other coordinates are 0."""
RESET_NOISE = 0.005
VELOCITY_LIMIT = 10.0
"""Observed velocities are clipped to this."""
CONTROL_COST_WEIGHT = 1e-3
MAX_EXPONENT = 3.0
BASES = {"body_mass": 1.5, "body_inertia": 1.5, "dof_damping": 1.3, "geom_friction": 1.5}
"""A factor is base^U(-3, 3), by array (damping: that of the code; the SMAC paper says 1.5)."""

# Columns of the state: time, qpos (x, height, pitch, joint angles), qvel.
_X, _HEIGHT, _PITCH = 1, 2, 3


@dataclass(frozen=True)
class Bounds:
    """An episode goes on strictly inside; infinite: no bound."""

    min_height: float = -math.inf
    max_height: float = math.inf
    max_pitch: float = math.inf
    """Of |pitch| [rad]."""
    max_entry: float = math.inf
    """Of the absolute value of every coordinate and velocity but x and height."""

    @property
    def constants(self) -> tuple[tuple[str, float], ...]:
        """The finite ones by name."""
        return tuple((name, value) for name, value in vars(self).items() if math.isfinite(value))


_ENDS = {
    "min_height": "height <= min_height",
    "max_height": "height >= max_height",
    "max_pitch": "|pitch| >= max_pitch",
    "max_entry": "any |coordinate or velocity| but x and height >= max_entry",
}


@dataclass(frozen=True)
class Robot:
    """A model file, the names of its elements, and the bounds of the original task."""

    family: str
    model_file: str
    model_sha256: str
    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    """One degree of freedom each."""
    geoms: tuple[str, ...]
    act_dim: int
    bounds: Bounds

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the factors: array, element, and column where an element has three."""
        return (
            *(f"body_mass.{body}" for body in self.bodies),
            *(f"body_inertia.{body}.{axis}" for body in self.bodies for axis in range(3)),
            *(f"dof_damping.{joint}" for joint in self.joints),
            *(f"geom_friction.{geom}.{column}" for geom in self.geoms for column in range(3)),
        )


def draw_tasks(
    parameters: tuple[str, ...], rng: np.random.Generator, num: int
) -> Float64[np.ndarray, "{num} parameter"]:
    """Independent factors base^U(-3, 3), task after task."""
    bases = np.array([BASES[name.split(".")[0]] for name in parameters])
    return bases ** rng.uniform(-MAX_EXPONENT, MAX_EXPONENT, (num, len(bases)))


@dataclass(frozen=True)
class LocomotionParams(TaskEnv):
    """Run forwards without falling: reward x_velocity + alive_bonus - control_cost."""

    spec: EnvSpec
    task_table: tuple[tuple[float, ...], ...]
    split_table: tuple[tuple[str, tuple[int, ...]], ...]
    robot: Robot
    bounds: Bounds
    alive_bonus: float
    task_minimum: ClassVar[float] = 0.0
    task_changes_physics: ClassVar[bool] = True

    def sample_tasks(
        self, rng: np.random.Generator, num: int
    ) -> Float64[np.ndarray, "{num} parameter"]:
        """Factors base^U(-3, 3), base 1.3 for damping, else 1.5."""
        return draw_tasks(self.spec.task_names, rng, num)

    def reset(self, rng: np.random.Generator) -> Float64[np.ndarray, " state"]:
        """The initial pose at rest, plus U(-.005, .005) in every coordinate, then velocity."""
        num_joints = len(self.robot.joints)
        state = np.zeros(1 + 2 * num_joints)
        state[_HEIGHT] = INITIAL_HEIGHT
        state[1:] += rng.uniform(-RESET_NOISE, RESET_NOISE, 2 * num_joints)
        return state

    def observe(
        self, state: Float64[np.ndarray, "*batch state"]
    ) -> Float32[np.ndarray, "*batch obs"]:
        """qpos without x and qvel clipped to +-10; ids that observe x: both, as they are."""
        if self.spec.position_source == "qpos":
            return state[..., _X:].astype(np.float32)
        first_velocity = 1 + len(self.robot.joints)
        qpos, qvel = state[..., _HEIGHT:first_velocity], state[..., first_velocity:]
        clipped = np.clip(qvel, -VELOCITY_LIMIT, VELOCITY_LIMIT)
        return np.concatenate([qpos, clipped], axis=-1).astype(np.float32)

    def terms(
        self,
        state: Float64[np.ndarray, "*batch state"],
        action: Float64[np.ndarray, "*batch act"],
        next_state: Float64[np.ndarray, "*batch state"],
    ) -> Float64[np.ndarray, "*batch term"]:
        """(x_velocity [m/s] over the step, control_cost = .001 sum a^2)."""
        x_velocity = (next_state[..., _X] - state[..., _X]) / self.spec.dt
        control_cost = CONTROL_COST_WEIGHT * np.sum(action**2, axis=-1)
        return np.stack([x_velocity, control_cost], axis=-1)

    def reward(
        self,
        terms: Float[np.ndarray, "*#batch term"],
        action: Float[np.ndarray, "*#batch act"],
        task: Float[np.ndarray, "*#batch parameter"],
    ) -> Float[np.ndarray, "*#batch"] | np.floating:
        """x_velocity + alive_bonus - control_cost, also on the step that ends the episode."""
        same_for_all = np.zeros(task.shape[:-1])
        return terms[..., 0] + self.alive_bonus - terms[..., 1] + same_for_all

    def terminated(self, state: Float64[np.ndarray, "*batch state"]) -> Bool[np.ndarray, "*batch"]:
        """Outside of the bounds of the id."""
        height, entries = state[..., _HEIGHT], np.abs(state[..., _PITCH:])
        inside = (
            (height > self.bounds.min_height)
            & (height < self.bounds.max_height)
            & (entries[..., 0] < self.bounds.max_pitch)
            & (entries < self.bounds.max_entry).all(axis=-1)
        )
        return np.asarray(~inside)

    def physics(self, num_threads: int) -> Physics:
        """Native MuJoCo, with a model per task."""
        # Relabelling and validation need no simulator, and the import takes 0.1 s.
        from omrl.envs.mujoco_physics import MujocoPhysics, compile_model, scaled_models

        model = compile_model(
            self.robot.model_file, self.robot.model_sha256, timestep=self.spec.timestep
        )
        arrays = tuple(dict.fromkeys(name.split(".")[0] for name in self.spec.task_names))
        return MujocoPhysics(model, FRAME_SKIP, num_threads, model_of=scaled_models(model, arrays))


# --- Ids ---------------------------------------------------------------------------------------

_ROOT = ("rootx", "rootz", "rooty")
_RIGHT, _LEFT = ("thigh", "leg", "foot"), ("thigh_left", "leg_left", "foot_left")


def _robot(family: str, file: str, sha256: str, limbs: tuple[str, ...], bounds: Bounds) -> Robot:
    return Robot(
        family=family,
        model_file=file,
        model_sha256=sha256,
        bodies=("world", "torso", *limbs),
        joints=(*_ROOT, *(f"{limb}_joint" for limb in limbs)),
        geoms=("floor", "torso_geom", *(f"{limb}_geom" for limb in limbs)),
        act_dim=len(limbs),
        bounds=bounds,
    )


WALKER = _robot(
    "walker-params",
    "walker2d.xml",
    "ac13373c7ac9003a5311c4704b314ed11149b3dd7600bbc02770487300f9ad2d",
    _RIGHT + _LEFT,
    Bounds(min_height=0.8, max_height=2.0, max_pitch=1.0),
)
HOPPER = _robot(
    "hopper-params",
    "hopper.xml",
    "3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e",
    _RIGHT,
    Bounds(min_height=0.7, max_pitch=0.2, max_entry=100.0),
)

# The papers' lists were never released. One list per robot serves all its ids, which take the
# first so many tasks; a file, because powers differ in the last digit between machines.
_NUM_TASKS = 55
_TASK_SEEDS = {WALKER.family: 1, HOPPER.family: 2}


def draw_canonical_tasks(robot: Robot) -> Float64[np.ndarray, "task parameter"]:
    """The list in `assets/locomotion_params_tasks.npz`."""
    rng = np.random.Generator(np.random.Philox(key=_TASK_SEEDS[robot.family]))
    return draw_tasks(robot.parameters, rng, _NUM_TASKS)


TASK_FILE = Path(__file__).with_name("assets") / "locomotion_params_tasks.npz"
with np.load(TASK_FILE, allow_pickle=False) as _file:
    _TASKS = {robot.family: _file[robot.family] for robot in (WALKER, HOPPER)}


def _canonical(
    robot: Robot, arrays: tuple[str, ...], num: int
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and values of the factors of these arrays, of the first `num` tasks."""
    chosen = [n for n, name in enumerate(robot.parameters) if name.split(".")[0] in arrays]
    names = tuple(robot.parameters[n] for n in chosen)
    return names, np.ascontiguousarray(_TASKS[robot.family][:num, chosen])


def _environment(
    robot: Robot,
    version: str,
    splits: Splits,
    *,
    timestep: float = 0.004,
    bounds: Bounds | None = None,
    alive_bonus: float = 1.0,
    arrays: tuple[str, ...] = tuple(BASES),
    observe_all: bool = False,
) -> LocomotionParams:
    """`bounds` None: those of the robot; `observe_all`: x too, and velocities are not clipped."""
    bounds = robot.bounds if bounds is None else bounds
    num_tasks = sum(map(len, splits.values()))
    task_names, tasks = _canonical(robot, arrays, num_tasks)
    velocities = tuple(f"{joint}_velocity" for joint in robot.joints)
    obs_names = robot.joints[0 if observe_all else 1 :] + velocities
    spec = EnvSpec(
        id=f"{robot.family}/{version}",
        obs_dim=len(obs_names),
        act_dim=robot.act_dim,
        horizon=200,
        dt=FRAME_SKIP * timestep,
        term_names=("x_velocity", "control_cost"),
        task_names=task_names,
        obs_names=obs_names,
        reward="x_velocity + alive_bonus - control_cost_weight * sum(action^2)",
        reset="qpos = initial pose + U(-reset_noise, reset_noise), qvel = U(-reset_noise, "
        "reset_noise); the initial pose is all 0 but the height, initial_height",
        action="joint torques, clipped to [-1, 1]",
        termination=" or ".join(_ENDS[name] for name, _ in bounds.constants) or "never",
        task_distribution="factors 1.5^U(-3, 3), of dof_damping 1.3^U(-3, 3), of the elements of "
        f"the compiled model's {', '.join(arrays)}; nothing else is recomputed (no mj_setConst); "
        f"canonical list: first {num_tasks} of {TASK_FILE.name}, drawn by numpy's "
        f"Philox(key={_TASK_SEEDS[robot.family]}), {digest_text(tasks)}",
        constants=(
            ("control_cost_weight", CONTROL_COST_WEIGHT),
            ("alive_bonus", alive_bonus),
            ("reset_noise", RESET_NOISE),
            ("initial_height", INITIAL_HEIGHT),
            *(() if observe_all else (("observed_velocity_limit", VELOCITY_LIMIT),)),
            *bounds.constants,
        ),
        engine="mujoco",
        model_file=robot.model_file,
        model_sha256=robot.model_sha256,
        timestep=timestep,
        frame_skip=FRAME_SKIP,
        position_source="qpos" if observe_all else "none",
    )
    table = tuple(tuple(map(float, task)) for task in tasks)
    return LocomotionParams(spec, table, tuple(splits.items()), robot, bounds, alive_bonus)


_NEVER = Bounds()

ENVIRONMENTS: tuple[TaskEnv, ...] = (
    _environment(WALKER, "macaw-v1", all_but((2, 12, 15, 39, 43), 50)),
    _environment(WALKER, "workshop-v1", first_train(30, 5)),
    _environment(WALKER, "oyster-v1", first_train(40, 10)),
    _environment(WALKER, "smac-v1", first_train(50, 5), timestep=0.002),
    _environment(
        WALKER,
        "corro-v1",
        first_train(40, 10),
        bounds=Bounds(min_height=0.5),
        arrays=("body_mass", "geom_friction"),
        observe_all=True,
    ),
    _environment(WALKER, "nodone-v1", first_train(40, 10), bounds=_NEVER),
    _environment(HOPPER, "oyster-v1", first_train(40, 10)),
    _environment(HOPPER, "smac-v1", first_train(50, 5), timestep=0.002),
    _environment(
        HOPPER, "corro-v1", first_train(40, 10), bounds=_NEVER, alive_bonus=0.0, observe_all=True
    ),
    _environment(HOPPER, "nodone-v1", first_train(40, 10), bounds=_NEVER),
)
