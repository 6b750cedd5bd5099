"""Pictures of MuJoCo states, without a display."""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
import importlib

import mujoco
import numpy as np
from jaxtyping import Float64, UInt8

DISTANCE, AZIMUTH, ELEVATION = 4.0, 90.0, -15.0
"""Of the camera from what it looks at [m, degrees, degrees]."""
LOOK_AT_HEIGHT = 0.8
"""[m] Not that of the torso, or the picture would bob."""
_MAX_GEOMS = 200


class Camera:
    """Follows the torso of one model, or looks from where a model without one says. Close it."""

    def __init__(self, model: mujoco.MjModel, backend: str, width: int, height: int):
        """`backend`: the module of `mujoco` that makes the OpenGL context, `egl` or `osmesa`."""
        self._model = copy.copy(model)
        self._model.vis.global_.offwidth = width
        self._model.vis.global_.offheight = height
        self._data = mujoco.MjData(self._model)
        self._num_physics = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._gl = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        self._gl.make_current()
        self._renderer = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._renderer)
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._scene = mujoco.MjvScene(self._model, maxgeom=_MAX_GEOMS)
        self._camera = mujoco.MjvCamera()
        self._follows = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "torso") >= 0
        if self._follows:
            self._camera.distance, self._camera.azimuth = DISTANCE, AZIMUTH
            self._camera.elevation = ELEVATION
        else:
            mujoco.mjv_defaultFreeCamera(self._model, self._camera)

    def paint(
        self, states: Float64[np.ndarray, "time state"], caption: str
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The last of the states, with the caption above."""
        model, data = self._model, self._data
        physics = states[-1, : self._num_physics]
        mujoco.mj_setState(model, data, physics, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_forward(model, data)
        if self._follows:
            self._camera.lookat[:] = [*data.body("torso").xpos[:2], LOOK_AT_HEIGHT]
        option, perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, option, perturb, self._camera, everything, self._scene)
        mujoco.mjr_render(self._viewport, self._scene, self._renderer)
        font, corner = mujoco.mjtFont.mjFONT_NORMAL, mujoco.mjtGridPos.mjGRID_TOPLEFT
        mujoco.mjr_overlay(font, corner, self._viewport, caption, "", self._renderer)
        picture = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, self._viewport, self._renderer)
        return np.flipud(picture)

    def close(self) -> None:
        """Free the memory of the graphics card."""
        self._renderer.free()
        self._gl.free()
