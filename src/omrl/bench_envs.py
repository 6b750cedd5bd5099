"""How fast environments step: in our batches, in MuJoCo's part of them, and in Gymnasium's."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from omrl.envs.engine import available_cpus
from omrl.envs.gym_wrapper import GymVectorEnv
from omrl.envs.mujoco_physics import MujocoPhysics
from omrl.errors import InputError

MATCHING = {
    "cheetah": ("cheetah-vel/macaw-v1", "HalfCheetah-v5", {}),
    "ant": ("ant-dir/macaw-v1", "Ant-v5", {}),
    # Its own default, walker2d_v5.xml, has another friction.
    "walker": ("walker-params/smac-v1", "Walker2d-v5", {"xml_file": "walker2d.xml"}),
    "hopper": ("hopper-params/smac-v1", "Hopper-v5", {}),
    "humanoid": ("humanoid-dir/smac-v1", "Humanoid-v5", {}),
}
"""Our environment and Gymnasium's, with its options, of the same model, time step and frame skip;
walkers and hoppers have Gymnasium's masses, damping and friction times the factors of a task."""

ROUNDS = 5


@dataclass(frozen=True)
class EnvSpeed:
    """Environment steps per second with uniform actions, resets included; medians of rounds in
    which the three batches take turns."""

    family: str
    num_envs: int
    threads: int
    omrl: float
    mujoco_rollout: float
    """Of `omrl`'s steps, if the time spent inside `mujoco.rollout` were all they took."""
    bare_rollout: float
    """Of a loop that calls `mujoco.rollout` with its defaults, so it checks and returns arrays, on
    models, states and controls of `omrl`'s steps."""
    gymnasium_sync: float
    gymnasium_async: float
    """One worker process per core, whatever `num_envs` is."""

    @property
    def over_sync(self) -> float:
        """How many times Gymnasium's speed."""
        return self.omrl / self.gymnasium_sync

    @property
    def over_bare(self) -> float:
        """Share of the speed of `mujoco.rollout` without an environment around it."""
        return self.omrl / self.bare_rollout

    @property
    def outside_mujoco(self) -> float:
        """Share of the time that is not MuJoCo's."""
        return 1.0 - self.omrl / self.mujoco_rollout


def bench_envs(
    families: Sequence[str], sizes: Sequence[int], *, seconds: float = 0.5
) -> list[EnvSpeed]:
    """Every family at every batch size; each batch runs for about `seconds` per round."""
    return [_measure(family, size, seconds) for family in families for size in sizes]


def _measure(family: str, num_envs: int, seconds: float) -> EnvSpeed:
    env_id, gym_id, options = MATCHING[family]
    if importlib.util.find_spec("imageio") is None:
        raise InputError("Gymnasium's MuJoCo environments need imageio: pip install imageio")
    threads = min(available_cpus(), num_envs)
    ours = GymVectorEnv(env_id, num_envs, num_threads=threads)
    horizon = ours.task_env.spec.horizon
    single = (lambda: gymnasium.make(gym_id, max_episode_steps=horizon, **options),)
    assert isinstance(ours.physics, MujocoPhysics)
    clock = ours.physics.pool = _Clock(ours.physics.pool)
    batches = {
        "omrl": ours,
        "gymnasium_sync": SyncVectorEnv(single * num_envs),
        "gymnasium_async": AsyncVectorEnv(single * available_cpus()),
    }
    steps = {name: _stepper(batch) for name, batch in batches.items()}
    lengths = {name: max(1, int(seconds / _time(step, 2) * 2)) for name, step in steps.items()}
    steps["bare_rollout"] = clock.record(steps["omrl"], lengths["omrl"])
    lengths["bare_rollout"] = lengths["omrl"]
    sizes = {name: batch.num_envs for name, batch in batches.items()} | {"bare_rollout": num_envs}
    speeds: dict[str, list[float]] = {name: [] for name in (*steps, "mujoco_rollout")}
    for _ in range(ROUNDS):
        clock.seconds = 0.0
        for name, step in steps.items():
            elapsed = _time(step, lengths[name])
            speeds[name].append(lengths[name] * sizes[name] / elapsed)
        speeds["mujoco_rollout"].append(lengths["omrl"] * num_envs / clock.seconds)
    for batch in batches.values():
        batch.close()
    medians = {name: float(np.median(values)) for name, values in speeds.items()}
    return EnvSpeed(family, num_envs, threads, **medians)


class _Clock:
    """A pool of `mujoco.rollout` that adds up the time of its calls [s]."""

    def __init__(self, pool: Any):
        self.seconds = 0.0
        self.close = pool.close
        self._rollout = pool.rollout
        self._calls: list[tuple[Any, ...]] = []
        self._recording = False

    def rollout(self, *arguments: Any, **options: Any) -> None:
        begin = time.perf_counter()
        self._rollout(*arguments, **options)
        self.seconds += time.perf_counter() - begin
        if self._recording:
            self._calls.append(arguments)

    def record(self, step: Callable[[], object], count: int) -> Callable[[], None]:
        """Makes `count` steps. What it returns repeats the calls of one of them, in turn."""
        self._recording, recorded = True, []
        for _ in range(count):
            self._calls = []
            step()
            recorded.append(self._calls)
        self._recording, turns = False, itertools.cycle(recorded)

        def bare() -> None:
            for call in next(turns):
                self._rollout(*call)

        return bare


def _time(step: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - begin


def _stepper(batch: gymnasium.vector.VectorEnv) -> Callable[[], object]:
    batch.reset(seed=0)
    batch.action_space.seed(0)
    actions = [batch.action_space.sample() for _ in range(16)]
    turns = itertools.cycle(actions)
    return lambda: batch.step(next(turns))
