"""What MuJoCo knows of each body, in batches: its `cinert`, `cvel`, `cfrc_ext` from sensors.

For a model of one robot, whose root is the world's first child and has a free joint; all other
joints are hinges or slides.
"""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Float64
from mujoco import mjtSensor

from omrl.envs.contact import PER_BODY, add_contact_sensors, cross, external_forces, with_world

_ROOT_DOFS = 6
_FRAME = (
    mjtSensor.mjSENS_FRAMEPOS,
    mjtSensor.mjSENS_FRAMEXAXIS,
    mjtSensor.mjSENS_FRAMEYAXIS,
    mjtSensor.mjSENS_FRAMEZAXIS,
    mjtSensor.mjSENS_FRAMEANGVEL,
    mjtSensor.mjSENS_FRAMELINVEL,
)
"""Of each body's inertial frame, in world coordinates; three numbers each."""
_ROW, _COLUMN = [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]
"""MuJoCo's order of the entries of a symmetric matrix."""


class BodyState(NamedTuple):
    """As MuJoCo has it in an `mjData`, with the world first among the bodies."""

    com: Float64[np.ndarray, "row 3"]
    """Centre of mass of the robot [m]."""
    cinert: Float64[np.ndarray, "row body 10"]
    """About `com`: inertia (xx, yy, zz, xy, xz, yz), mass * offset, mass."""
    cvel: Float64[np.ndarray, "row body 6"]
    """Angular velocity, then linear velocity of the point of the body at `com`."""
    qfrc_actuator: Float64[np.ndarray, "row dof"]
    cfrc_ext: Float64[np.ndarray, "row body 6"]
    """After `mj_rnePostConstraint`, see `external_forces`."""


def add_body_sensors(spec: mujoco.MjSpec) -> None:
    """Sensors for `body_state`, in a model that serves to read them. Names unnamed bodies."""
    # A step of Euler's evaluates the dynamics once, one of Runge-Kutta's four times.
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    add_contact_sensors(spec)
    _, *bodies = spec.bodies
    for body in bodies:
        for kind in _FRAME:
            spec.add_sensor(type=kind, objtype=mujoco.mjtObj.mjOBJ_BODY, objname=body.name)
    _, *joints = spec.joints
    for joint in joints:
        spec.add_sensor(
            type=mjtSensor.mjSENS_JOINTACTFRC,
            objtype=mujoco.mjtObj.mjOBJ_JOINT,
            objname=joint.name,
        )


def body_state(model: mujoco.MjModel, sensors: Float64[np.ndarray, "row sensor"]) -> BodyState:
    """Equal, up to rounding, to what MuJoCo computes at the state where the sensors were read."""
    num_bodies = model.nbody - 1
    first_frame = num_bodies * PER_BODY + 3
    first_joint = first_frame + num_bodies * len(_FRAME) * 3
    contacts = sensors[:, :first_frame]
    com = contacts[:, -3:]
    frames = sensors[:, first_frame:first_joint].reshape(-1, num_bodies, len(_FRAME), 3)
    axes, angular, linear = frames[:, :, 1:4], frames[:, :, 4], frames[:, :, 5]
    offset = frames[:, :, 0] - com[:, None]
    cvel = np.concatenate([angular, linear - cross(angular, offset)], axis=-1)
    return BodyState(
        com,
        with_world(_inertia(model.body_mass[1:, None], model.body_inertia[1:], axes, offset)),
        with_world(cvel),
        np.concatenate([np.zeros((len(sensors), _ROOT_DOFS)), sensors[:, first_joint:]], axis=1),
        external_forces(contacts),
    )


def _inertia(
    mass: Float64[np.ndarray, "body 1"],
    principal: Float64[np.ndarray, "body 3"],
    axes: Float64[np.ndarray, "row body 3 3"],
    offset: Float64[np.ndarray, "row body 3"],
) -> Float64[np.ndarray, "row body 10"]:
    """sum_k I_k a_k a_k' + m (|d|^2 1 - d d'), by the axes a_k and the offset d; then m d and m."""
    about_body = np.einsum("bk,rbke,rbke->rbe", principal, axes[..., _ROW], axes[..., _COLUMN])
    about_com = -offset[..., _ROW] * offset[..., _COLUMN]
    about_com[..., :3] += np.sum(offset**2, axis=-1, keepdims=True)
    masses = np.broadcast_to(mass, (*offset.shape[:-1], 1))
    return np.concatenate([about_body + mass * about_com, mass * offset, masses], axis=-1)
