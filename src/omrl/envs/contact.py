"""Contact forces in batches: MuJoCo's `cfrc_ext` from sensors.

`mujoco.rollout` returns sensors, not `cfrc_ext`, which `mj_step` leaves at zero. A contact sensor
per body has the same information: the net force and torque of its contacts, at their centre.
"""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import mujoco
import numpy as np
from jaxtyping import Float64
from mujoco import mjtConDataField

PER_BODY = 9
"""Sensor values: force, torque, position; in world coordinates."""
_FIELDS = sum(
    1 << int(field)
    for field in (
        mjtConDataField.mjCONDATA_FORCE,
        mjtConDataField.mjCONDATA_TORQUE,
        mjtConDataField.mjCONDATA_POS,
    )
)
_NET_FORCE = 3
"""Code of `reduce="netforce"` in MJCF."""


def add_contact_sensors(spec: mujoco.MjSpec) -> None:
    """Sensors for `external_forces`: one per body, then the centre of mass. Names unnamed bodies.

    For a model of one robot, whose root is the world's first child.
    """
    _, *bodies = spec.bodies
    for index, body in enumerate(bodies, start=1):
        body.name = body.name or f"body_{index}"
        spec.add_sensor(
            name=f"contact_{body.name}",
            type=mujoco.mjtSensor.mjSENS_CONTACT,
            objtype=mujoco.mjtObj.mjOBJ_BODY,
            objname=body.name,
            intprm=[_FIELDS, _NET_FORCE, 1],
        )
    spec.add_sensor(
        name="robot_com",
        type=mujoco.mjtSensor.mjSENS_SUBTREECOM,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        objname=bodies[0].name,
    )


def external_forces(
    sensors: Float64[np.ndarray, "row sensor"],
) -> Float64[np.ndarray, "row body 6"]:
    """`cfrc_ext` of all bodies with the world first: torque about the centre of mass, force.

    Equal to what `mj_rnePostConstraint` computes at the state where the sensors were evaluated,
    provided that nothing but contacts acts from outside.
    """
    num_bodies = (sensors.shape[1] - 3) // PER_BODY
    forces = np.zeros((1 + num_bodies, 6, len(sensors)))
    write_external_forces(sensors.T, forces)
    # Copied: the bits of a sum over a view would depend on the number of rows.
    return np.ascontiguousarray(forces.transpose(2, 0, 1))


def write_external_forces(
    sensors: Float64[np.ndarray, "sensor row"], out: Float64[np.ndarray, "all_bodies 6 row"]
) -> None:
    """`external_forces` with rows along the last axis, where numpy is fastest; the world's entries
    are left as they are."""
    contacts = sensors[:-3].reshape(-1, PER_BODY, sensors.shape[1])
    force, torque, position = contacts[:, :3], contacts[:, 3:6], contacts[:, 6:]
    # A sensor has the force that the body exerts.
    np.negative(torque + cross(position - sensors[-3:], force), out=out[1:, :3])
    np.negative(force, out=out[1:, 3:])


_NEXT, _AFTER_NEXT = [1, 2, 0], [2, 0, 1]


def cross(
    left: Float64[np.ndarray, "*batch 3 row"], right: Float64[np.ndarray, "*batch 3 row"]
) -> Float64[np.ndarray, "*batch 3 row"]:
    """The bits of `np.cross` along the axis before the last, which spends longer on its arguments
    than on small arrays."""
    ahead = left[..., _NEXT, :] * right[..., _AFTER_NEXT, :]
    return ahead - left[..., _AFTER_NEXT, :] * right[..., _NEXT, :]
