"""Where everything of Sawyer Manipulation stands: the scene that a task describes, in numbers.

On one of two sides is a stack: a drawer that a button opens, on it a drawer with a handle, on top
the button. Each is there or not, as are a tray and an object on the table. The hand starts on the
other side. Lengths are metres; the numbers are those of the environment of SMAC's authors
(docs/environments/sawyer-manip.md).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float64

SCENE_NAMES = ("side", "drawer", "handle", "button", "open", "tray", "object", "shape")
"""side: 1 or -1, the sign of the stack's y; drawer, handle, button: 1 where it is there, else 0;
open: 1 where the drawer starts open; tray, object: 0 absent, else a place of `PLACES`; shape: of
the object, a position in `omrl.envs.sawyer_model.SHAPES`."""
SIDE, DRAWER, HANDLE, BUTTON, OPEN, TRAY, OBJECT, SHAPE = range(len(SCENE_NAMES))
NUM_SHAPES = 5

TABLE_Z = -0.375
STACK_X, STACK_Y = 0.6, 0.125
SLIDE = 0.15625
"""Travel of a drawer."""
HANDLE_OFFSET = 0.1375
"""From the middle of the stack to the handle of the closed drawer, towards the other side."""
BUTTON_TRAVEL = 0.0125
PRESSED = 0.01
"""How far down the button counts as pressed."""
HAND_LOW, HAND_HIGH = np.array([0.5, -0.2, -0.36]), np.array([0.85, 0.2, -0.1])
"""The box that the hand is kept in."""
HAND_START_X, HAND_START_Y, HAND_START_Z = 0.6, 0.15, -0.2
FINGER_TRAVEL = 0.0265
LEGO_BACK = 0.01
"""From the middle of the drawer."""
PLACES = ("absent", "back_left", "back_right", "front_left", "front_right")
_TRAY_X = np.array([0.0, 0.6, 0.6, 0.79, 0.79])
_OBJECT_X = np.array([0.0, 0.6, 0.6, 0.78, 0.78])
_PLACE_Y = np.array([0.0, -0.15, 0.15, -0.12, 0.12])
"""On side 1."""
TRAY_Z = -0.35
LEGO_SIZE = (0.0448, 0.0322, 0.0448)
LEGO_Z = -0.34885
"""On the floor of the drawer."""
OBJECT_HALF_HEIGHTS = np.array([0.025, 0.0275, 0.0165, 0.025, 0.035])

# Columns of the state: time, qpos, qvel, then what lasts for an episode.
NQ, NV = 22, 20
HAND = slice(1, 4)
FINGERS = slice(4, 6)
DRAWER_X, HANDLE_Y, BUTTON_Z = 6, 7, 8
LEGO, LEGO_QUAT = slice(9, 12), slice(12, 16)
OBJECT_AT, OBJECT_QUAT = slice(16, 19), slice(19, 23)
USED = 1 + NQ + NV
"""1 once the button was pressed."""
GOAL = USED + 1
"""y of the handle that the reward asks for."""
SCENE = slice(GOAL + 1, GOAL + 1 + len(SCENE_NAMES))
STATE_DIM = SCENE.stop

Scene = Float[np.ndarray, "*batch 8"]
Flags = Bool[np.ndarray, "*batch"] | np.bool
Numbers = Float[np.ndarray, "*batch"] | np.floating


def has(scene: Scene, column: int) -> Flags:
    """Whether something is there."""
    return scene[..., column] > 0


def stack_y(scene: Scene) -> Numbers:
    """Middle of the stack."""
    return STACK_Y * scene[..., SIDE]


def handle_z(scene: Scene) -> Numbers:
    """Of the upper drawer's handle and middle: lower where there is no drawer under it."""
    return np.where(has(scene, DRAWER), -0.22, -0.34)


def closed_handle_y(scene: Scene) -> Numbers:
    """Of the closed drawer."""
    return stack_y(scene) - HANDLE_OFFSET * scene[..., SIDE]


def button_rest_z(scene: Scene) -> Numbers:
    """Of the button before it is pressed, by the number of drawers below."""
    number = 0 + has(scene, DRAWER) + has(scene, HANDLE)
    return np.array([-0.34, -0.25, -0.14])[number]


def tray_xy(scene: Scene) -> Float[np.ndarray, "*batch 2"]:
    """Middle of the tray, (0, 0) where there is none."""
    return _at(scene, TRAY, _TRAY_X)


def object_start(scene: Scene) -> Float[np.ndarray, "*batch 3"]:
    """Where the object stands on the table; (0, 0, half its height) where there is none."""
    height = OBJECT_HALF_HEIGHTS[scene[..., SHAPE].astype(int)]
    height = height + np.where(has(scene, OBJECT), TABLE_Z, 0.0)
    return np.concatenate([_at(scene, OBJECT, _OBJECT_X), height[..., None]], axis=-1)


def _at(scene: Scene, column: int, x_of_places: np.ndarray) -> Float[np.ndarray, "*batch 2"]:
    """x and y of the place that a column names."""
    place = scene[..., column, None] == np.arange(len(PLACES))
    return np.stack([place @ x_of_places, place @ _PLACE_Y * scene[..., SIDE]], axis=-1)


def initial_state(
    scene: Float64[np.ndarray, "*batch 8"], goal: Numbers
) -> Float64[np.ndarray, "*batch state"]:
    """At rest, the hand open at its start. `goal`: y of the handle that the reward asks for."""
    state = np.zeros((*scene.shape[:-1], STATE_DIM))
    side = scene[..., SIDE]
    state[..., HAND] = [HAND_START_X, 0.0, HAND_START_Z]
    state[..., HAND.start + 1] = -HAND_START_Y * side
    state[..., FINGERS] = FINGER_TRAVEL
    state[..., DRAWER_X] = STACK_X + SLIDE * scene[..., OPEN]
    state[..., HANDLE_Y] = closed_handle_y(scene)
    state[..., BUTTON_Z] = button_rest_z(scene)
    state[..., LEGO.start] = state[..., DRAWER_X] - LEGO_BACK
    state[..., LEGO.start + 1] = stack_y(scene)
    state[..., LEGO.start + 2] = LEGO_Z
    state[..., OBJECT_AT] = object_start(scene)
    state[..., LEGO_QUAT.start] = state[..., OBJECT_QUAT.start] = 1.0
    state[..., GOAL] = goal
    state[..., SCENE] = scene
    return state
