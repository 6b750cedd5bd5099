"""Is Sawyer Manipulation on MuJoCo like that of SMAC's authors? Their script on sampled tasks.

    python benchmarks/sawyer.py --tasks 1000 --seed 2    # docs/environments/sawyer-manip.md
    python benchmarks/sawyer.py --speed

Prints per aim how often the script succeeds, what it completed, and the largest velocities; with
`--speed` also steps per second of one batch with uniform actions.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from omrl.envs import registry, sawyer
from omrl.envs import sawyer_scene as scenes
from omrl.envs.engine import VectorEnv, available_cpus, script_rngs
from omrl.envs.sawyer_script import BUTTON, HANDLE, LEGO, OBJECT

TURNING = np.r_[11:14, 17:20]
"""Degrees of freedom that turn, of the block and the object."""
SLIDING = np.setdiff1d(np.arange(scenes.NV), TURNING)
MOST_SLIDING, MOST_TURNING = 10.0, 500.0
"""Velocities [m/s, rad/s] beyond which an episode counts as unstable; the hand has .75 m/s."""
_BODIES = {"handle": HANDLE, "button": BUTTON, "block": LEGO, "object": OBJECT}


@dataclass(frozen=True)
class Played:
    """Episodes of the script, one row each."""

    aims: np.ndarray
    reached: Bool[np.ndarray, "episode time"]
    completed: Bool[np.ndarray, "episode subtask"]
    velocity: Float64[np.ndarray, "episode dof"]
    """The largest of the episode."""


def play(env: sawyer.Sawyer, tasks: int, episodes: int, seed: int) -> Played:
    """`episodes` of each of `tasks` sampled tasks."""
    drawn = env.sample_tasks(np.random.Generator(np.random.Philox(key=seed)), tasks)
    rows = np.repeat(drawn, episodes, axis=0)
    script = env.script(rows, script_rngs(seed=seed, num_envs=len(rows), episode=0))
    reached = np.zeros((len(rows), env.spec.horizon), bool)
    velocity = np.zeros((len(rows), scenes.NV))
    with closing(VectorEnv(env, rows, seed=seed)) as vector:
        vector.reset()
        for time_step in range(env.spec.horizon):
            step = vector.step(script.act(vector.states))
            reached[:, time_step] = step.reward == 0.0
            now = np.abs(vector.states[:, 1 + scenes.NQ : scenes.USED])
            velocity = np.maximum(velocity, now)
    return Played(rows[:, 0].astype(int), reached, script.completed, velocity)


def report(played: Played) -> str:
    """The table, in Markdown."""
    lines = ["| aim | episodes | share of rewards 0 | at any step | at the last | by step 50 |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for aim in (None, *range(played.aims.max() + 1)):
        rows = np.ones(len(played.aims), bool) if aim is None else played.aims == aim
        chosen = played.reached[rows]
        ends = chosen.any(axis=1), chosen[:, -1], chosen[:, :50].any(axis=1)
        means = " | ".join(f"{each.mean():.3f}" for each in (chosen, *ends))
        name = "all" if aim is None else sawyer.AIMS[aim].name
        lines.append(f"| {name} | {rows.sum()} | {means} |")
    done = ", ".join(f"{name} {played.completed[:, n].mean():.2f}" for name, n in _BODIES.items())
    sliding, turning = played.velocity[:, SLIDING], played.velocity[:, TURNING]
    unstable = (sliding > MOST_SLIDING).any(axis=1) | (turning > MOST_TURNING).any(axis=1)
    lines += [
        "",
        f"completed per episode: {done}",
        f"unstable episodes: {unstable.sum()} of {len(unstable)}; largest velocities "
        f"{sliding.max():.1f} m/s, {turning.max():.0f} rad/s",
    ]
    return "\n".join(lines)


def speed(env: sawyer.Sawyer, num_envs: int, seconds: float) -> float:
    """Environment steps per second with uniform actions, resets included."""
    tasks = env.tasks[np.arange(num_envs) % len(env.tasks)]
    rng = np.random.default_rng(0)
    with closing(VectorEnv(env, tasks, seed=0)) as vector:
        vector.reset()
        vector.step(rng.uniform(-1, 1, (num_envs, 4)))  # compiles the models
        begin, steps, episode = time.perf_counter(), 0, 1
        while time.perf_counter() - begin < seconds:
            vector.reset(episode)
            for _ in range(env.spec.horizon):
                vector.step(rng.uniform(-1, 1, (num_envs, 4)))
            steps, episode = steps + env.spec.horizon * num_envs, episode + 1
        return steps / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="sawyer-manip/smac3-v1")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=2, help="per task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", action="store_true", help="also measure steps per second")
    args = parser.parse_args()
    env = registry.make(args.env)
    assert isinstance(env, sawyer.Sawyer)
    print(report(play(env, args.tasks, args.episodes, args.seed)))
    if args.speed:
        print(f"{speed(env, 64, 5.0):.0f} steps/s, 64 environments, {available_cpus()} cores")


if __name__ == "__main__":
    main()
