"""The scripted behaviour of Sawyer Manipulation: random things that the scene allows, one by one.

It does not know what is rewarded, but sees the simulator's state. At the start of an episode it
chooses one of what there is to do, equally likely: pull the handle, press the button, carry the
block out of the drawer if that starts open, carry the object; or go to the place of the hand, and
stay. When it has done one, it chooses among the others. The stages follow the facts of the
reference code (docs/environments/sawyer-manip.md), with Gaussian noise on all actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from omrl.envs import sawyer_scene as scenes

HANDLE, BUTTON, LEGO, OBJECT, REST = range(5)
HAND_GOAL = np.array([0.675, 0.0, -0.11])
_UP = np.array([0.0, 0.0, 1.0])
_OPEN = -1.0


class _Plan(NamedTuple):
    """What one sub-task would do now, in every environment."""

    move: Float64[np.ndarray, "env 3"]
    grip: Float64[np.ndarray, " env"]
    done: Bool[np.ndarray, " env"]


class Script:
    """Plays one episode of every environment; `act` is called once per step, in order."""

    def __init__(
        self,
        scene: Float64[np.ndarray, "env 8"],
        rngs: Sequence[np.random.Generator],
        horizon: int,
        noise: float,
    ):
        """`rngs`: of each environment, used up at once, so rows do not depend on each other."""
        self._noise = np.stack([noise * rng.standard_normal((horizon, 4)) for rng in rngs])
        self._choices = np.stack([rng.random(1 + REST) for rng in rngs])
        open_lego = scenes.has(scene, scenes.DRAWER) & scenes.has(scene, scenes.OPEN)
        there = [scenes.has(scene, scenes.HANDLE), scenes.has(scene, scenes.BUTTON), open_lego]
        there += [scenes.has(scene, scenes.OBJECT), np.ones(len(scene), bool)]
        self._left = np.stack(there, axis=1)
        self._num_choices = np.zeros(len(scene), int)
        self._chosen = np.zeros(len(scene), int)
        self._grip = np.full(len(scene), _OPEN)
        self._time = 0
        self.completed = np.zeros((len(scene), REST), bool)
        """Which sub-tasks are done."""
        self._choose(np.ones(len(scene), bool))

    def act(self, states: Float64[np.ndarray, "env state"]) -> Float64[np.ndarray, "env 4"]:
        """The actions."""
        plans = [
            _pull_handle(states),
            _press_button(states),
            _carry(states, states[:, scenes.LEGO], self._grip),
            _carry(states, states[:, scenes.OBJECT_AT], self._grip),
            _rest(states),
        ]
        every = np.arange(len(states))
        columns = zip(*plans, strict=True)
        move, grip, done = (np.stack(parts)[self._chosen, every] for parts in columns)
        self._grip = grip
        if done.any():
            self.completed[done, self._chosen[done]] = True
            self._left[done, self._chosen[done]] = False
            self._choose(done)
        action = np.concatenate([move, grip[:, None]], axis=1) + self._noise[:, self._time]
        self._time += 1
        return np.clip(action, -1.0, 1.0)

    def _choose(self, rows: Bool[np.ndarray, " env"]) -> None:
        """One of what is left, equally likely."""
        number = np.minimum(self._num_choices[rows], REST)
        rank = np.floor(self._choices[rows, number] * self._left[rows].sum(axis=1))
        position = np.cumsum(self._left[rows], axis=1) - 1
        self._chosen[rows] = np.argmax(self._left[rows] & (position == rank[:, None]), axis=1)
        self._num_choices[rows] += 1


def _plan(
    stages: Sequence[tuple[np.ndarray, np.ndarray]],
    last: np.ndarray,
    done: Bool[np.ndarray, " env"],
) -> _Plan:
    """The move of the first stage that applies, else `last`; the hand open."""
    conditions = [stage[:, None] for stage, _ in stages]
    moves = [np.broadcast_to(move, last.shape) for _, move in stages]
    return _Plan(np.select(conditions, moves, last), np.full(len(last), _OPEN), done)


def _pull_handle(states: Float64[np.ndarray, "env state"]) -> _Plan:
    """One finger behind the handle, then towards the goal."""
    scene, hand = states[:, scenes.SCENE], states[:, scenes.HAND]
    side = scene[:, scenes.SIDE]
    handle_y = states[:, scenes.HANDLE_Y] + 0.0255 * side
    at = np.stack([np.full(len(hand), scenes.STACK_X), handle_y, scenes.handle_z(scene)], axis=1)
    away, gap = at - hand, side * (handle_y - hand[:, 1])
    aligned = (np.abs(away[:, 0]) < 0.035) & (gap > 0) & (gap < 0.065)
    behind = gap < 0.017
    low = np.abs(away[:, 2]) < 0.01
    done = np.abs(states[:, scenes.GOAL] - states[:, scenes.HANDLE_Y]) < 0.05
    over = 6.0 * away * [1, 1, 0]
    over[:, 1] = np.where(behind, -2.0 * side, over[:, 1])
    down = 3.0 * (away - [0, 0, 0.03]) * [1, 1, 2]
    pull = np.zeros_like(away)
    pull[:, 1] = np.sign(states[:, scenes.GOAL] - hand[:, 1])
    stages = [
        (done, _UP),
        (~aligned & (hand[:, 2] < -0.105), _UP),
        (~aligned | behind, over),
        (~low, down),
    ]
    return _plan(stages, pull, done)


def _press_button(states: Float64[np.ndarray, "env state"]) -> _Plan:
    """Above it, then down."""
    hand = states[:, scenes.HAND]
    y = scenes.stack_y(states[:, scenes.SCENE])
    at = np.stack([np.full(len(hand), scenes.STACK_X), y, states[:, scenes.BUTTON_Z]], axis=1)
    away = at - hand
    near = np.linalg.norm(away[:, :2], axis=1) < 0.05
    press = away.copy()
    press[:, 2] = -1.0
    stages = [(~near & (hand[:, 2] < -0.101), _UP), (~near, 9.0 * away * [1, 1, 0])]
    return _plan(stages, press, states[:, scenes.USED] > 0)


def _carry(
    states: Float64[np.ndarray, "env state"],
    at: Float64[np.ndarray, "env 3"],
    grip: Float64[np.ndarray, " env"],
) -> _Plan:
    """Above it, down, grip, up, and to the place of the hand."""
    hand = states[:, scenes.HAND]
    away = at - hand
    near = np.linalg.norm(away[:, :2], axis=1) < 0.055
    low = np.abs(away[:, 2]) < 0.025
    done = np.linalg.norm(at[:, :2] - HAND_GOAL[:2], axis=1) < 0.05
    lifted = hand[:, 2] >= -0.125
    over = 9.0 * away * [1, 1, 0]
    down = 3.0 * (away - [0, 0, 0.03]) * [2, 2, 3]
    hold = 3.0 * away * [1, 1, 2]
    home = 6.0 * (HAND_GOAL - hand) * [1, 1, 0]
    held = grip >= 1.0
    stages = [
        (done, np.zeros(3)),
        (~near & ~lifted, _UP),
        (~near, over),
        (~low, down),
        (~held, hold),
        (~lifted, _UP),
    ]
    gripping = near & low & ~done
    return _plan(stages, home, done)._replace(
        grip=np.where(gripping, np.minimum(grip + 0.5, 1.0), _OPEN)
    )


def _rest(states: Float64[np.ndarray, "env state"]) -> _Plan:
    """To the place of the hand, for ever."""
    hand = states[:, scenes.HAND]
    stages = [(hand[:, 2] < -0.2, _UP)]
    return _plan(stages, 3.0 * (HAND_GOAL - hand), np.zeros(len(hand), bool))
