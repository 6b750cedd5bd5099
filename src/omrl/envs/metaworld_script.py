"""Meta-World's scripted policies, one for each of its 50 environments, with noise.

They see what an agent does not: the goal. Meta-World's policies remember nothing, so each acts on
the state alone.
"""

# Meta-World has no type stubs.
# pyright: reportMissingImports=false

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from omrl.envs.metaworld_state import ENVIRONMENT, GOAL, OBS
from omrl.envs.metaworld_tasks import NAMES


class MetaWorldScript:
    """Plays one episode of every environment; see `omrl.envs.base.Script`."""

    def __init__(self, rngs: Sequence[np.random.Generator], horizon: int, noise: float):
        """`rngs`: of each environment, used up at once, so rows do not depend on each other."""
        self._noise = np.stack([noise * rng.standard_normal((horizon, 4)) for rng in rngs])
        self._time = 0

    def act(self, states: Float64[np.ndarray, "env state"]) -> Float64[np.ndarray, "env 4"]:
        """The actions, clipped to the box before the noise and after it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that its responses are clipped
            best = np.stack([_best(state) for state in states])
        action = np.clip(best, -1.0, 1.0) + self._noise[:, self._time]
        self._time += 1
        return np.clip(action, -1.0, 1.0)


def _best(state: Float64[np.ndarray, " state"]) -> Float64[np.ndarray, " 4"]:
    seen = np.concatenate([state[OBS], state[GOAL]])
    return np.asarray(_policy(int(state[ENVIRONMENT])).get_action(seen), np.float64)


@cache
def _policy(number: int) -> Any:
    from metaworld.policies import ENV_POLICY_MAP

    return ENV_POLICY_MAP[f"{NAMES[number]}-v3"]()
