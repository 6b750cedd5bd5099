"""Returns of policies that know nothing, to print beside every other return.

On several tasks doing nothing beats acting at random, and a weak method beats neither.

    python -m omrl.envs.baselines cheetah-vel/macaw-v1 --episodes 100
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from omrl.envs.base import TaskEnv
from omrl.envs.engine import VectorEnv
from omrl.envs.registry import make

_ACTION_STREAM = 0x616374696F6E
"""Keeps actions apart from other uses of the seed."""


def baseline_returns(
    env: TaskEnv,
    policy: Literal["random", "zero"],
    tasks: Float[np.ndarray, "task parameter"],
    *,
    episodes: int,
    seed: int = 0,
    num_threads: int | None = None,
) -> Float64[np.ndarray, "task episode"]:
    """Undiscounted returns: actions independent and U(-1, 1), or all 0."""
    rng = np.random.Generator(np.random.Philox(key=[seed, _ACTION_STREAM]))
    repeated = np.repeat(tasks, episodes, axis=0)
    returns = np.zeros(len(repeated))
    with closing(VectorEnv(env, repeated, seed=seed, num_threads=num_threads)) as vector:
        vector.reset()
        shape = (vector.num_envs, env.spec.act_dim)
        for _ in range(env.spec.horizon):
            action = rng.uniform(-1.0, 1.0, shape) if policy == "random" else np.zeros(shape)
            returns += vector.step(action).reward
    return returns.reshape(-1, episodes)


def main() -> None:
    """Print the mean return per task and over each split, as a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m omrl.envs.baselines")
    parser.add_argument("env_id")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    env = make(args.env_id)
    options = {"episodes": args.episodes, "seed": args.seed}
    random = baseline_returns(env, "random", env.tasks, **options).mean(axis=1)
    zero = baseline_returns(env, "zero", env.tasks, **options).mean(axis=1)
    print(f"{args.env_id} {env.spec.hash[:12]}: mean return of {args.episodes} episodes")
    names = _joined(list(env.spec.task_names))
    print(f"| task | {names} | random | zero action |\n|---|---|---|---|")
    for index, parameters in enumerate(env.tasks):
        values = _joined([f"{value:.4g}" for value in parameters])
        print(f"| {index} | {values} | {random[index]:.1f} | {zero[index]:.1f} |")
    for name, indices in env.splits.items():
        rows = list(indices)
        print(
            f"| {name} | {len(rows)} tasks | {random[rows].mean():.1f} | {zero[rows].mean():.1f} |"
        )


def _joined(values: list[str], limit: int = 4) -> str:
    return ", ".join(values[:limit] + ["..."] * (len(values) > limit))


if __name__ == "__main__":
    main()
