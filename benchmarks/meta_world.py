"""How often do Meta-World's scripted policies succeed in 150 steps? In all 50 environments.

    python benchmarks/meta_world.py --episodes 10 --write docs/environments/metaworld-scripted.json
    python benchmarks/meta_world.py --table docs/environments/metaworld-scripted.json
    python benchmarks/meta_world.py --speed 64

Start vectors are drawn from the whole box at every reset. Prints a table; `--write` keeps the
numbers with command and hardware, `--table` prints those that were kept, `--speed N` measures N
environments with uniform actions instead.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from omrl.envs import metaworld, registry
from omrl.envs.baselines import hardware
from omrl.envs.engine import VectorEnv, available_cpus, script_rngs
from omrl.envs.metaworld_state import REWARDS
from omrl.envs.metaworld_tasks import NAMES

ENV = "ml45/continuous-v2-h150-v1"
_COLUMN = {name: metaworld.TERM_NAMES.index(name) for name in ("success", *REWARDS)}
HEADER = ("environment", "split", "any step", "last step", "first step", "return v2", "return v1")


def measure(episodes: int, noise: float, seed: int) -> dict[str, dict[str, Any]]:
    """By environment: shares of episodes, median step of the first success, mean returns."""
    env = registry.make(ENV)
    rows = np.repeat(env.tasks, episodes, axis=0)
    terms = np.zeros((env.spec.horizon, len(rows), len(env.spec.term_names)))
    script = env.script(rows, script_rngs(seed=seed, num_envs=len(rows), episode=0), noise)
    with closing(VectorEnv(env, rows, seed=seed)) as vector:
        vector.reset()
        for step in range(env.spec.horizon):
            terms[step] = vector.step(script.act(vector.states)).terms
    by_task = terms.reshape(env.spec.horizon, len(env.tasks), episodes, -1)
    return {
        NAMES[int(task[0])]: _summary(by_task[:, number]) for number, task in enumerate(env.tasks)
    }


def _summary(terms: np.ndarray) -> dict[str, Any]:
    """Of one environment, [time, episode, term]."""
    success = terms[..., _COLUMN["success"]] > 0
    reached = success.any(axis=0)
    first = np.argmax(success, axis=0)[reached] + 1
    return {
        "any": round(float(reached.mean()), 3),
        "last": round(float(success[-1].mean()), 3),
        "first": float(np.median(first)) if reached.any() else None,
        **{name: round(float(terms[..., _COLUMN[name]].sum(axis=0).mean()), 1) for name in REWARDS},
    }


def table(kept: dict[str, Any]) -> str:
    """In Markdown, with the means over the splits of ML45."""
    env, found = registry.make(ENV), kept["environments"]
    order = [NAMES[int(task[0])] for task in env.tasks]
    rows = [HEADER, ("---", "---", *["---:"] * 5)]
    for split, tasks in env.split_table:
        for name in (order[task] for task in tasks):
            each = found[name]
            first = "" if each["first"] is None else f"{each['first']:g}"
            shares = (f"{each['any']:.2f}", f"{each['last']:.2f}", first)
            rows.append(
                (name, split, *shares, f"{each['reward_v2']:.0f}", f"{each['reward_v1']:.0f}")
            )
    for split, tasks in env.split_table:
        own = [found[order[task]] for task in tasks]
        means = [f"{np.mean([each[name] for each in own]):.2f}" for name in ("any", "last")]
        rows.append((f"mean of {len(tasks)}", split, *means, "", "", ""))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def speed(num_envs: int) -> str:
    """Of one episode with uniform actions, after one that makes all environments."""
    env, rng = registry.make(ENV), np.random.default_rng(0)
    tasks = env.tasks[np.arange(num_envs) % len(env.tasks)]
    with closing(VectorEnv(env, tasks, seed=0)) as vector:
        for episode in range(2):
            begin = time.perf_counter()
            vector.reset(episode)
            for _ in range(env.spec.horizon):
                vector.step(rng.uniform(-1, 1, (num_envs, 4)))
        per_second = num_envs * env.spec.horizon / (time.perf_counter() - begin)
    return f"{per_second:.0f} steps/s, resets included, {num_envs} environments, {hardware()}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=10, help="per environment")
    parser.add_argument("--noise", type=float, default=0.0, help="standard deviation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--speed", type=int, metavar="N")
    args = parser.parse_args()
    if args.speed:
        print(speed(args.speed))
        return
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return
    begin = time.perf_counter()
    kept = {
        "command": f"python benchmarks/meta_world.py --episodes {args.episodes}"
        + (f" --noise {args.noise:g}" if args.noise else "")
        + (f" --seed {args.seed}" if args.seed else ""),
        "hardware": hardware(),
        "seconds": 0.0,
        "env": ENV,
        "spec_hash": registry.make(ENV).spec.hash,
        "environments": measure(args.episodes, args.noise, args.seed),
    }
    kept["seconds"] = round(time.perf_counter() - begin, 1)
    if args.write:
        args.write.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"{table(kept)}\n\n{kept['seconds']:.0f} s, {available_cpus()} cores")


if __name__ == "__main__":
    main()
