"""How fast environments step: in our batches, in Gymnasium's, and in MuJoCo alone."""

# MuJoCo ships no type stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from mujoco import rollout

from omrl.envs.engine import available_cpus, initial_states
from omrl.envs.gym_wrapper import GymVectorEnv
from omrl.envs.registry import make
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
    which all four take turns."""

    family: str
    num_envs: int
    threads: int
    omrl: float
    mujoco_rollout: float
    """`mujoco.rollout` alone: the same states, model, threads and physics steps, nothing else."""
    gymnasium_sync: float
    gymnasium_async: float
    """One worker process per core, whatever `num_envs` is."""

    @property
    def over_sync(self) -> float:
        """How many times Gymnasium's speed."""
        return self.omrl / self.gymnasium_sync

    @property
    def outside_mujoco(self) -> float:
        """Share of the time that is not MuJoCo's."""
        return 1.0 - self.omrl / self.mujoco_rollout


def bench_envs(
    families: Sequence[str], sizes: Sequence[int], *, seconds: float = 0.5
) -> list[EnvSpeed]:
    """Every family at every batch size; each of the four runs for about `seconds` per round."""
    return [_measure(family, size, seconds) for family in families for size in sizes]


def _measure(family: str, num_envs: int, seconds: float) -> EnvSpeed:
    env_id, gym_id, options = MATCHING[family]
    if importlib.util.find_spec("imageio") is None:
        raise InputError("Gymnasium's MuJoCo environments need imageio: pip install imageio")
    threads = min(available_cpus(), num_envs)
    single = (lambda: gymnasium.make(gym_id, **options),)
    batches = {
        "omrl": GymVectorEnv(env_id, num_envs, num_threads=threads),
        "gymnasium_sync": SyncVectorEnv(single * num_envs),
        "gymnasium_async": AsyncVectorEnv(single * available_cpus()),
    }
    steps = {name: _stepper(batch) for name, batch in batches.items()}
    steps["mujoco_rollout"] = _bare(env_id, num_envs, threads)
    lengths = {name: max(1, int(seconds / _time(step, 2) * 2)) for name, step in steps.items()}
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            size = batches[name].num_envs if name in batches else num_envs
            speeds[name].append(lengths[name] * size / _time(step, lengths[name]))
    for batch in batches.values():
        batch.close()
    medians = {name: float(np.median(values)) for name, values in speeds.items()}
    return EnvSpeed(family, num_envs, threads, **medians)


def _time(step: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - begin


def _stepper(batch: gymnasium.vector.VectorEnv) -> Callable[[], object]:
    batch.reset(seed=0)
    batch.action_space.seed(0)
    actions = [batch.action_space.sample() for _ in range(16)]
    turns = iter(range(10**9))
    return lambda: batch.step(actions[next(turns) % len(actions)])


def _bare(env_id: str, num_envs: int, threads: int) -> Callable[[], object]:
    env = make(env_id)
    physics = env.physics(threads)
    physics.close()
    model, frame_skip = physics.model, env.spec.frame_skip
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    pool = rollout.Rollout(nthread=threads if threads > 1 else 0)
    scratch = [mujoco.MjData(model) for _ in range(threads)]
    first = initial_states(env, seed=0, num_envs=num_envs, episode=0)[:, :size]
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (16, num_envs, 1, env.spec.act_dim))
    path = np.empty((num_envs, frame_skip, size))
    state, turn = first, 0

    def step() -> None:
        nonlocal state, turn
        pool.rollout(model, scratch, state, actions[turn % len(actions)], state=path)
        turn += 1
        state = first if turn % env.spec.horizon == 0 else path[:, -1].copy()

    return step
