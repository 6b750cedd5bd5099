"""Contact forces from sensors equal MuJoCo's own."""

import mujoco
import numpy as np
import pytest

from omrl.envs import ant, humanoid
from omrl.envs.contact import add_contact_sensors, cross, external_forces
from omrl.envs.mujoco_physics import compile_model

MODELS = {robot.MODEL_FILE: robot.MODEL_SHA256 for robot in (ant, humanoid)}


@pytest.mark.parametrize("file_name", MODELS)
def test_equal_to_mujocos_external_forces(file_name):
    model = compile_model(file_name, MODELS[file_name], edit=add_contact_sensors)
    assert model.nsensordata == 9 * (model.nbody - 1) + 3
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    touching = 0
    for _ in range(300):
        data.ctrl[:] = rng.uniform(-1, 1, model.nu)
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        ours = external_forces(data.sensordata[None])[0]
        mujoco.mj_rnePostConstraint(model, data)
        scale = max(1.0, np.abs(data.cfrc_ext).max())
        np.testing.assert_allclose(ours, data.cfrc_ext, rtol=0, atol=1e-12 * scale)
        touching += data.cfrc_ext.any()
    assert touching > 20


@pytest.mark.parametrize("file_name", MODELS)
def test_sensors_do_not_change_the_dynamics(file_name):
    plain = compile_model(file_name, MODELS[file_name])
    sensing = compile_model(file_name, MODELS[file_name], edit=add_contact_sensors)
    one, other = mujoco.MjData(plain), mujoco.MjData(sensing)
    rng = np.random.default_rng(0)
    touching = 0
    for _ in range(300):
        one.ctrl[:] = other.ctrl[:] = rng.uniform(-1, 1, plain.nu)
        mujoco.mj_step(plain, one)
        mujoco.mj_step(sensing, other)
        touching += one.ncon > 0
    assert touching > 20
    np.testing.assert_array_equal(one.qpos, other.qpos)
    np.testing.assert_array_equal(one.qvel, other.qvel)


def test_rows_are_independent_and_signs_by_hand():
    # One body pushes with force (0, 0, -5) and torque (0, 0, 2) at (1, 0, 0); centre (0, 0, 0).
    # On it act force (0, 0, 5), torque -(0, 0, 2) - (1, 0, 0) x (0, 0, -5) = (0, -5, -2).
    contact = [0.0, 0.0, -5.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0]
    forces = external_forces(np.array([[*contact, 0.0, 0.0, 0.0], np.zeros(12)]))
    assert forces.shape == (2, 2, 6)
    np.testing.assert_array_equal(forces[0], [np.zeros(6), [0.0, -5.0, -2.0, 0.0, 0.0, 5.0]])
    assert not forces[1].any()


def test_cross_product_has_the_bits_of_numpys():
    left, right = np.random.default_rng(0).normal(size=(2, 50, 4, 3)) * [1e-8, 1.0, 1e8]
    ours = cross(left.swapaxes(1, 2), right.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_array_equal(ours, np.cross(left, right))
