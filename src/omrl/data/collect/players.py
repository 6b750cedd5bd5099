"""The two who play rounds: agents that explore and learn, and agents at their best."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float32

from omrl.data.collect.learner import Brain, Learner, Replay, Streams
from omrl.data.collect.progress import CollectProgress
from omrl.envs.engine import Transition


class Explorer:
    """Collects, and learns while the physics runs. Its state is that of the whole collection."""

    def __init__(
        self,
        learner: Learner,
        streams: Streams,
        brains: Brain,
        replay: Replay,
        progress: CollectProgress,
    ):
        self.brains = brains
        self.replay = replay
        self._learner = learner
        self._streams = streams
        self._progress = progress
        self._step = 0
        self._learns = False

    def start_round(self, step: int, learns: bool) -> None:
        """From `step` of the lifetimes on; without learning all actions are random."""
        self._step, self._learns = step, learns

    def begin(self, obs: Float32[np.ndarray, "task env obs"]) -> jax.Array:
        """See `Player.begin`."""
        self._obs = jax.device_put(obs)
        return self._choose()

    def meanwhile(self) -> None:
        """Dispatch the updates of this step; returns before they are done."""
        if self._learns:
            self.brains = self._learner.learn(
                self.brains, self._streams, self.replay, np.int32(self._step)
            )

    def see(
        self, after: Transition, alive: Bool[np.ndarray, " row"], shape: tuple[int, int]
    ) -> jax.Array:
        """See `Player.see`. One array goes to the device."""
        flags = np.stack([after.reward, after.terminated, alive], axis=1)
        packed = np.concatenate([after.obs, flags], axis=1, dtype=np.float32)
        self.replay, self._obs = self._learner.insert(
            self.replay, self._obs, self._action, packed.reshape(*shape, -1)
        )
        self._step += 1
        playing = alive.reshape(shape).any(axis=1).sum()
        self._progress.step(
            int(alive.sum()), int(playing) * self._learner.updates_per_step * self._learns
        )
        return self._choose()

    def _choose(self) -> jax.Array:
        mode = "explore" if self._learns else "random"
        self._action = self._learner.act(
            self.brains, self._streams, self._obs, np.int32(self._step), mode
        )
        return self._action


class Best:
    """Plays the deterministic policies of the agents."""

    def __init__(self, learner: Learner, streams: Streams, brains: Brain):
        self._learner, self._streams, self._brains = learner, streams, brains

    def begin(self, obs: Float32[np.ndarray, "task env obs"]) -> jax.Array:
        """See `Player.begin`."""
        return self._learner.act(self._brains, self._streams, obs, np.int32(0), "best")

    def meanwhile(self) -> None:
        """Nothing to learn."""

    def see(
        self, after: Transition, alive: Bool[np.ndarray, " row"], shape: tuple[int, int]
    ) -> Any:
        """See `Player.see`."""
        return self.begin(after.obs.reshape(*shape, -1))
