"""What MuJoCo knows of each body, in batches: its `cinert`, `cvel`, `cfrc_ext` from sensors.

For a model of one robot, whose root is the world's first child and has a free joint; all other
joints are hinges or slides.
"""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import mujoco
import numpy as np
from jaxtyping import Float64
from mujoco import mjtSensor

from omrl.envs.contact import PER_BODY, add_contact_sensors, cross, write_external_forces

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


def add_body_sensors(spec: mujoco.MjSpec) -> None:
    """Sensors for `body_columns`, in a model that serves to read them. Names unnamed bodies."""
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


def body_columns(
    model: mujoco.MjModel, sensors: Float64[np.ndarray, "row sensor"]
) -> Float64[np.ndarray, "row column"]:
    """What MuJoCo computes, up to rounding, at the state where the sensors were read.

    cinert (10 per body, the world first: inertia xx, yy, zz, xy, xz, yz about the centre of mass of
    the robot, mass * offset from there, mass), cvel (6 per body: angular velocity, then linear
    velocity of the point of the body there), qfrc_actuator (per degree of freedom), cfrc_ext (6 per
    body, see `external_forces`), and x and y of the centre of mass [m].
    """
    # Rows last: sums over three numbers each are fast along a long axis only.
    by_sensor = np.ascontiguousarray(sensors.T)
    num_rows, num_bodies = len(sensors), model.nbody - 1
    first_frame = num_bodies * PER_BODY + 3
    first_joint = first_frame + num_bodies * len(_FRAME) * 3
    com = by_sensor[first_frame - 3 : first_frame]
    frames = by_sensor[first_frame:first_joint].reshape(num_bodies, len(_FRAME), 3, num_rows)
    offset = frames[:, 0] - com
    sizes = [10 * model.nbody, 6 * model.nbody, model.nv, 6 * model.nbody, 2]
    columns = np.zeros((sum(sizes), num_rows))  # what is not written is the world's, or the root's
    cinert, cvel, actuator, external, position = np.split(columns, np.cumsum(sizes[:-1]))
    of_each = (model.nbody, -1, num_rows)
    _write_inertia(model, frames[:, 1:4], offset, cinert.reshape(of_each)[1:])
    angular, linear = frames[:, 4], frames[:, 5]
    velocities = cvel.reshape(of_each)[1:]
    velocities[:, :3] = angular
    np.subtract(linear, cross(angular, offset), out=velocities[:, 3:])
    actuator[_ROOT_DOFS:] = by_sensor[first_joint:]
    write_external_forces(by_sensor[:first_frame], external.reshape(of_each))
    position[:] = com[:2]
    return columns.T


def _write_inertia(
    model: mujoco.MjModel,
    axes: Float64[np.ndarray, "body 3 3 row"],
    offset: Float64[np.ndarray, "body 3 row"],
    out: Float64[np.ndarray, "body 10 row"],
) -> None:
    """sum_k I_k a_k a_k' + m (|d|^2 1 - d d'), by the axes a_k and the offset d; then m d and m."""
    mass = model.body_mass[1:, None, None]
    scaled = model.body_inertia[1:, :, None, None] * axes
    about_body = out[:, :6]
    for entry, (row, column) in enumerate(zip(_ROW, _COLUMN, strict=True)):
        first, second, third = (scaled[:, k, row] * axes[:, k, column] for k in range(3))
        first += second
        np.add(first, third, out=about_body[:, entry])
    about_com = -offset[:, _ROW] * offset[:, _COLUMN]
    about_com[:, :3] += np.sum(offset**2, axis=1, keepdims=True)
    about_com *= mass
    about_body += about_com
    np.multiply(mass, offset, out=out[:, 6:9])
    out[:, 9:] = mass
