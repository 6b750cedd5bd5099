"""The MuJoCo model of a scene: boxes and cylinders, and a hand that slides along x, y and z.

Every model has every body, so that environments of different scenes step in one batch; what a scene
lacks touches nothing, has no weight and is not drawn. Joint coordinates are positions in the world.
"""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float64

from omrl.envs import sawyer_scene as scenes
from omrl.envs.sawyer_scene import FINGER_TRAVEL, SLIDE, STACK_X, TABLE_Z

TIMESTEP = 1 / 240
FRAME_SKIP = 10
MAX_MODELS = 512

_BOX, _CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
SHAPES: tuple[tuple[str, Any, tuple[float, float, float]], ...] = (
    ("camera", _BOX, (0.02, 0.0175, 0.025)),
    ("mug", _CYLINDER, (0.0175, 0.0275, 0.0)),
    ("sofa", _BOX, (0.03, 0.0175, 0.0165)),
    ("bin", _BOX, (0.0175, 0.0175, 0.025)),
    ("bottle", _CYLINDER, (0.0165, 0.035, 0.0)),
)
"""Name, geometry and half sizes of the objects."""

# Who may touch whom: bits of contype, and of conaffinity.
_HAND, _FREE, _FIXED = 1, 2, 4
_TOUCHES = {_HAND: _FREE | _FIXED, _FREE: _HAND | _FREE | _FIXED, _FIXED: 0}
_COLOURS = {
    "table": (0.75, 0.72, 0.68, 1.0),
    "frame": (0.45, 0.32, 0.22, 1.0),
    "drawer": (0.8, 0.62, 0.4, 1.0),
    "handle": (0.3, 0.3, 0.35, 1.0),
    "button": (0.85, 0.15, 0.15, 1.0),
    "tray": (0.25, 0.45, 0.75, 1.0),
    "lego": (0.95, 0.8, 0.1, 1.0),
    "object": (0.2, 0.65, 0.35, 1.0),
    "hand": (0.35, 0.35, 0.4, 1.0),
}
_HIDDEN_GROUP = 4

HAND_MASS = 0.3
HAND_ARMATURE = 0.4
HAND_DAMPING, HAND_FORCE = 300.0, 100.0
"""Of the servos of its velocity [Ns/m, N]. Servos of its position would start and stop the hand in
every step, and what it carries would slip."""
CONTACT_TIME = 0.01
"""Time constant of contacts [s], near the smallest for this time step: softer ones creep."""
FINGER_PAD = 0.004
"""From the middle of a finger to its inner face [m]."""
FINGER_WIDTH = 0.04
FINGER_ARMATURE = 0.05
FINGER_STIFFNESS, FINGER_DAMPING, FINGER_FORCE = 700.0, 14.0, 10.0
DRAWER_FRICTION, DRAWER_DAMPING = 1.0, 15.0
"""[N, Ns/m] Of the drawer that the button moves."""
HANDLE_FRICTION, HANDLE_DAMPING = 0.2, 2.0
BUTTON_FRICTION, BUTTON_DAMPING = 0.5, 5.0


class _Body:
    """Adds geometry of one kind to a body."""

    def __init__(self, body: Any, layer: int, colour: str, present: bool = True):
        self.body, self._layer, self._colour, self._present = body, layer, colour, present

    def add(self, kind: Any, at: Sequence[float], half: Sequence[float], **options: Any) -> None:
        touches = (self._layer, _TOUCHES[self._layer]) if self._present else (0, 0)
        self.body.add_geom(
            type=kind,
            pos=at,
            size=half,
            contype=touches[0],
            conaffinity=touches[1],
            rgba=_COLOURS[self._colour],
            group=0 if self._present else _HIDDEN_GROUP,
            condim=4,
            solref=(CONTACT_TIME, 1.0),
            **options,
        )

    def box(self, at: Sequence[float], full: Sequence[float], **options: Any) -> None:
        self.add(_BOX, at, [size / 2 for size in full], **options)


def build(scene: Float64[np.ndarray, " 8"]) -> mujoco.MjModel:
    """The model of a scene. All have the same sizes."""
    spec = mujoco.MjSpec()
    option = spec.option
    option.timestep = TIMESTEP
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10.0
    option.gravity = (0.0, 0.0, -10.0)
    table = _Body(spec.worldbody, _FIXED, "table")
    table.add(mujoco.mjtGeom.mjGEOM_PLANE, (0.7, 0.0, TABLE_Z), (0.6, 0.6, 0.1))
    spec.stat.center, spec.stat.extent = (0.67, 0.0, -0.22), 0.55
    look = spec.visual.global_
    look.azimuth, look.elevation = 145.0, -35.0
    spec.worldbody.add_light(pos=(0.7, -0.5, 1.5), dir=(0.0, 0.3, -1.0))
    _add_hand(spec)
    side, y = float(scene[scenes.SIDE]), float(scenes.stack_y(scene))
    here = {name: bool(scenes.has(scene, n)) for n, name in enumerate(scenes.SCENE_NAMES)}
    _add_drawer(spec, y, here["drawer"])
    _add_handle_drawer(spec, side, y, float(scenes.handle_z(scene)), here["handle"])
    _add_button(spec, y, float(scenes.button_rest_z(scene)), here["button"])
    _add_tray(spec, scenes.tray_xy(scene).tolist(), here["tray"])
    lego = _add_free(spec, "lego", here["drawer"])
    lego.box((0.0, 0.0, 0.0), scenes.LEGO_SIZE, mass=0.1)
    _, kind, half = SHAPES[int(scene[scenes.SHAPE])]
    _add_free(spec, "object", here["object"]).add(kind, (0.0, 0.0, 0.0), half, mass=0.05)
    return spec.compile()


@functools.lru_cache(MAX_MODELS)
def _kept(scene: bytes) -> mujoco.MjModel:
    return build(np.frombuffer(scene))


def model_of(scene: Float64[np.ndarray, " 8"]) -> mujoco.MjModel:
    """The same object for equal scenes. Never write to it."""
    return _kept(scene.tobytes())


def _add_hand(spec: Any) -> None:
    """Three slides, a palm, and two fingers that open along y."""
    hand = spec.worldbody.add_body(name="hand", gravcomp=1)
    slide = mujoco.mjtJoint.mjJNT_SLIDE
    for name, axis in (("x", (1, 0, 0)), ("y", (0, 1, 0)), ("z", (0, 0, 1))):
        hand.add_joint(name=f"hand_{name}", type=slide, axis=axis, armature=HAND_ARMATURE)
        _add_servo(spec, f"hand_{name}", HAND_DAMPING, 0.0, HAND_DAMPING, HAND_FORCE)
    _Body(hand, _HAND, "hand").box((0.0, 0.0, 0.09), (0.04, 0.1, 0.03), mass=HAND_MASS)
    for name, sign in (("left", 1), ("right", -1)):
        finger = hand.add_body(name=name, gravcomp=1)
        finger.add_joint(
            name=name,
            type=slide,
            axis=(0, sign, 0),
            limited=1,
            range=(FINGER_PAD, FINGER_TRAVEL),
            armature=FINGER_ARMATURE,
        )
        _add_servo(spec, name, FINGER_STIFFNESS, FINGER_STIFFNESS, FINGER_DAMPING, FINGER_FORCE)
        part = _Body(finger, _HAND, "handle")
        part.box(
            (0.0, sign * (0.005 - FINGER_PAD), 0.0275),
            (FINGER_WIDTH, 0.01, 0.095),
            mass=0.02,
            friction=(2, 0.05, 0.001),
        )
    together = spec.add_equality(
        type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, name1="left", name2="right"
    )
    together.data[1] = 1.0
    together.solref = (CONTACT_TIME, 1.0)


def _add_servo(
    spec: Any, joint: str, gain: float, stiffness: float, damping: float, force: float
) -> None:
    """force = gain * control - stiffness * position - damping * velocity, limited."""
    actuator = spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        forcelimited=1,
        forcerange=(-force, force),
    )
    actuator.gainprm[0] = gain
    actuator.biasprm[1:3] = (-stiffness, -damping)


def _add_frame(spec: Any, at: Sequence[float], turn: float, present: bool) -> Any:
    """The open box that a drawer slides in, towards -y of its own axes, turned by `turn`."""
    frame = spec.worldbody.add_body(pos=at, quat=(np.cos(turn / 2), 0, 0, np.sin(turn / 2)))
    part = _Body(frame, _FIXED, "frame", present)
    part.box((0.0, 0.0, 0.0375), (0.1875, 0.1625, 0.0125))
    part.box((0.0, 0.08125, 0.0), (0.1875, 0.00625, 0.075))
    for sign in (-1, 1):
        part.box((sign * 0.09375, 0.0, 0.0), (0.00625, 0.1625, 0.075))
    return frame


def _add_slide(
    spec: Any, frame: Any, name: str, turn: float, axis: np.ndarray, **joint: Any
) -> _Body:
    """The box inside, which slides along `axis` of the world."""
    present = joint.pop("present")
    inner = frame.add_body(name=name, pos=(0.0, 0.0, -0.0125))
    cos, sin = np.cos(turn), np.sin(turn)
    own = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]]) @ axis
    inner.add_joint(
        name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=own, limited=1, armature=0.01, **joint
    )
    part = _Body(inner, _FIXED, "drawer", present)
    part.box((0.0, 0.0, -0.025), (0.175, 0.15, 0.0125), mass=0.02)
    for sign in (-1, 1):
        part.box((0.0, sign * 0.075, 0.0), (0.175, 0.00625, 0.05), mass=0.02)
        part.box((sign * 0.0875, 0.0, 0.0), (0.00625, 0.15, 0.05), mass=0.02)
    return part


def _add_drawer(spec: Any, y: float, present: bool) -> None:
    turn = np.pi / 2
    frame = _add_frame(spec, (STACK_X, y, -0.34), turn, present)
    _add_slide(
        spec,
        frame,
        "drawer",
        turn,
        np.array([1.0, 0.0, 0.0]),
        ref=STACK_X,
        range=(STACK_X, STACK_X + SLIDE),
        frictionloss=DRAWER_FRICTION * present,
        damping=(DRAWER_DAMPING, 0, 0),
        present=present,
    )
    motor = spec.add_actuator(name="drawer", target="drawer", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.gainprm[0] = 1.0


def _add_handle_drawer(spec: Any, side: float, y: float, z: float, present: bool) -> None:
    turn = 0.0 if side > 0 else np.pi
    frame = _add_frame(spec, (STACK_X, y, z), turn, present)
    closed = y - side * scenes.HANDLE_OFFSET
    ends = sorted((closed, closed - side * SLIDE))
    part = _add_slide(
        spec,
        frame,
        "handle",
        turn,
        np.array([0.0, 1.0, 0.0]),
        ref=closed,
        range=ends,
        frictionloss=HANDLE_FRICTION * present,
        damping=(HANDLE_DAMPING, 0, 0),
        present=present,
    )
    grip = _Body(part.body, _FIXED, "handle", present)
    lying = (np.sqrt(0.5), 0, np.sqrt(0.5), 0)
    grip.add(_CYLINDER, (0.0, -0.1375, 0.0125), (0.01, 0.0875, 0.0), quat=lying, mass=0.02)
    for sign in (-1, 1):
        grip.box((sign * 0.08125, -0.0875, 0.0125), (0.00625, 0.075, 0.0225), mass=0.01)


def _add_button(spec: Any, y: float, z: float, present: bool) -> None:
    base = spec.worldbody.add_body(pos=(STACK_X, y, z))
    _Body(base, _FIXED, "frame", present).box((0.0, 0.0, -0.025), (0.1, 0.1, 0.025))
    cap = base.add_body(name="button", gravcomp=1)
    cap.add_joint(
        name="button",
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=(0, 0, 1),
        ref=z,
        limited=1,
        range=(z - scenes.BUTTON_TRAVEL, z + scenes.BUTTON_TRAVEL),
        armature=0.01,
        frictionloss=BUTTON_FRICTION * present,
        damping=(BUTTON_DAMPING, 0, 0),
    )
    _Body(cap, _FIXED, "button", present).add(
        _CYLINDER, (0.0, 0.0, 0.0), (0.025, 0.00625, 0.0), mass=0.1
    )


def _add_tray(spec: Any, xy: Sequence[float], present: bool) -> None:
    tray = spec.worldbody.add_body(name="tray", pos=(*xy, scenes.TRAY_Z))
    part = _Body(tray, _FIXED, "tray", present)
    for sign in (-1, 1):
        part.box((0.0, sign * 0.083, 0.0), (0.175, 0.00875, 0.0875))
        part.box((sign * 0.083, 0.0, 0.0), (0.00875, 0.175, 0.0875))


def _add_free(spec: Any, name: str, present: bool) -> _Body:
    body = spec.worldbody.add_body(name=name, gravcomp=0 if present else 1)
    body.add_freejoint(name=name)
    return _Body(body, _FREE, name, present)


_OF_GEOMS = ("type", "size", "pos", "quat", "contype", "conaffinity", "friction", "solref")
_DIGESTED = (
    *(f"geom_{name}" for name in (*_OF_GEOMS, "condim", "solimp", "bodyid")),
    *("body_pos", "body_quat", "body_mass", "body_inertia", "body_gravcomp", "body_parentid"),
    *("jnt_type", "jnt_axis", "jnt_range", "qpos0", "dof_armature", "dof_damping"),
    *("dof_frictionloss", "actuator_gainprm", "actuator_biasprm", "actuator_forcerange"),
    *("eq_data", "eq_solref"),
)


def digest() -> str:
    """sha256, hexadecimal, of the numbers of the models of a few scenes: all parts, no part, and
    either side. Rounded, since compilers differ in last digits."""
    found = hashlib.sha256()
    for side, there in itertools.product((1.0, -1.0), (0.0, 1.0)):
        for shape in range(len(SHAPES)):
            model = build(np.array([side, *[there] * 4, there, 3 * there, shape]))
            for name in _DIGESTED:
                found.update((np.round(getattr(model, name), 6) + 0.0).astype("<f8").tobytes())
            option = model.opt
            values = [option.timestep, option.integrator, option.cone, option.impratio]
            found.update(np.array([*values, *option.gravity], "<f8").tobytes())
    return found.hexdigest()
