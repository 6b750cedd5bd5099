"""The transition of Sawyer Manipulation: the hand's servos, and the button that moves a drawer."""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import mujoco
import numpy as np
from jaxtyping import Bool, Float64

from omrl.envs import sawyer_scene as scenes
from omrl.envs.base import Physics, check_finite
from omrl.envs.mujoco_physics import MujocoPhysics
from omrl.envs.sawyer_model import FRAME_SKIP, TIMESTEP, model_of

REACH = 0.05
"""The hand is sent so far per unit of action [m], within its box."""
SPEED = 0.62 / (FRAME_SKIP * TIMESTEP)
"""Per way [1/s]: a unit action moves the hand by .031 m, as measured in the reference code."""
DISTANCE_MIDDLE, DISTANCE_PER_ACTION = 0.016, -0.037
"""Of the fingers, by the last entry of the action, as measured in the reference code [m]."""
MOTOR_FORCE = 7.0
"""[N]"""
MOTOR_STEPS = 150
"""Physics steps in which the drawer opens or closes, all in the environment step that presses the
button; the hand stays where it is."""


def controls(
    states: Float64[np.ndarray, "env state"], actions: Float64[np.ndarray, "env 4"]
) -> Float64[np.ndarray, "env 6"]:
    """Velocity of the hand [m/s], where the fingers are sent [m], no force on the drawer [N]."""
    hand = states[:, scenes.HAND]
    goal = np.clip(hand + REACH * actions[:, :3], scenes.HAND_LOW, scenes.HAND_HIGH)
    distance = DISTANCE_MIDDLE + DISTANCE_PER_ACTION * actions[:, 3:]
    rest = [distance / 2, distance / 2, np.zeros_like(distance)]
    return np.concatenate([SPEED * (goal - hand), *rest], axis=1)


class SawyerPhysics(Physics):
    """A batch of scenes, whose models have one size."""

    def __init__(self, num_threads: int):
        scene = np.zeros(len(scenes.SCENE_NAMES))
        scene[scenes.SIDE] = 1.0
        self.model: mujoco.MjModel = model_of(scene)
        self._mujoco = MujocoPhysics(self.model, FRAME_SKIP, num_threads)

    def step(
        self,
        states: Float64[np.ndarray, "env state"],
        actions: Float64[np.ndarray, "env act"],
        tasks: Float64[np.ndarray, "env parameter"],
        active: Bool[np.ndarray, " env"],
    ) -> Float64[np.ndarray, "env state"]:
        """See `Physics.step`. The scene is that of the state."""
        check_finite(states, active)
        next_states = states.copy()
        rows = np.flatnonzero(active)
        if not rows.size:
            return next_states
        if not states[rows][:, scenes.SCENE][:, scenes.SIDE].all():
            raise ValueError("states of Sawyer Manipulation have to be placed: TaskEnv.place")
        told = controls(states[rows], actions[rows])
        self._simulate(next_states, rows, told, FRAME_SKIP)
        pressed = next_states[rows, scenes.USED] == 0.0
        pressed &= scenes.has(next_states[rows][:, scenes.SCENE], scenes.BUTTON)
        rest = scenes.button_rest_z(next_states[rows][:, scenes.SCENE])
        pressed &= rest - next_states[rows, scenes.BUTTON_Z] > scenes.PRESSED
        self._move_drawers(next_states, rows[pressed], told[pressed])
        return next_states

    def _move_drawers(
        self,
        states: Float64[np.ndarray, "env state"],
        rows: np.ndarray,
        told: Float64[np.ndarray, "row 6"],
    ) -> None:
        """Open the closed drawers of `rows` and close the open ones; their clocks stand still."""
        states[rows, scenes.USED] = 1.0
        moving = scenes.has(states[rows][:, scenes.SCENE], scenes.DRAWER)
        rows, told = rows[moving], told[moving].copy()
        if not rows.size:
            return
        clock = states[rows, 0].copy()
        told[:, :3] = 0.0
        opens = states[rows][:, scenes.SCENE][:, scenes.OPEN] == 0.0
        told[:, -1] = np.where(opens, MOTOR_FORCE, -MOTOR_FORCE)
        self._simulate(states, rows, told, MOTOR_STEPS)
        states[rows, 0] = clock

    def _simulate(
        self,
        states: Float64[np.ndarray, "env state"],
        rows: np.ndarray,
        told: Float64[np.ndarray, "row 6"],
        num_steps: int,
    ) -> None:
        """Writes the new physics of `rows` into `states`."""
        models = [model_of(states[row, scenes.SCENE]) for row in rows]
        physics = slice(0, scenes.USED)
        states[rows, physics] = self._mujoco.simulate(
            models, states[rows, physics], told, num_steps, rows
        )

    def drawn(self, task: Float64[np.ndarray, " parameter"]) -> mujoco.MjModel:
        """See `MujocoPhysics.drawn`."""
        return model_of(task[1:])

    def close(self) -> None:
        """Stop the threads."""
        self._mujoco.close()
