"""`omrl envs [check | render]`: the environments, one in full, whether they are what their ids
say, or a film of one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from omrl.cli.options import parse, print_json
from omrl.errors import InputError
from omrl.ranges import Count, Natural, Size

if TYPE_CHECKING:
    from omrl.envs.base import TaskEnv


@dataclass(frozen=True)
class EnvsOptions:
    """List the environments, or describe one.

    `omrl envs check` compares them with the record, `omrl envs render` films an episode."""

    id: tyro.conf.Positional[str | None] = None
    """Environment to describe."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class CheckOptions:
    """Step environments and compare with recorded transitions, stored terms and Gymnasium."""

    ids: tyro.conf.Positional[tuple[str, ...]] = ()
    """Environments to check; all without any."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class RenderOptions:
    """Film episodes of one environment in real time."""

    id: tyro.conf.Positional[str]
    """Environment."""
    out: Path
    """Film to write: .mp4 or .gif."""
    task: Natural | None = None
    """Index in the environment's list; without it the task that the policy was adapted to, or 0."""
    policy: str = "random"
    """random, zero, oracle (point robots, gridnav), scripted (sawyer-manip), or a file of
    `omrl adapt`."""
    episodes: Size = 1
    steps: Count | None = None
    """Per episode; without it until its end."""
    seed: Natural = 0
    """Of initial states and random actions."""
    width: Size = 480
    """In pixels, even, as the height."""
    height: Size = 360
    overwrite: bool = False
    """Replace an existing film."""


def render(options: RenderOptions) -> None:
    """Write a film."""
    from omrl.envs import registry
    from omrl.envs.render import film, task_of

    env, task = registry.make(options.id), options.task
    if task is None:
        env, task = task_of(env, options.policy)
    frames, rate = film(
        env,
        task,
        options.policy,
        options.out,
        episodes=options.episodes,
        steps=options.steps,
        seed=options.seed,
        size=(options.width, options.height),
        overwrite=options.overwrite,
    )
    print(f"{options.out}: {frames} frames, {rate:.4g} per second")


def check(options: CheckOptions) -> None:
    """Print the largest differences; `InputError` if one is too large."""
    from omrl.envs import registry
    from omrl.envs.check import check as check_env

    results = [check_env(registry.make(env_id)) for env_id in options.ids or registry.ids()]
    if options.json:
        print_json([{**dataclasses.asdict(each), "passed": each.passed} for each in results])
    else:
        print(f"{'':<36} {'transitions':>11} {'state':>9} {'reward':>9} {'gymnasium':>9}")
        for each in results:
            print(
                f"{each.id:<36} {each.transitions:>11} {each.state:>9.1e} {each.reward:>9.1e} "
                f"{each.gymnasium:>9.1e}  {'ok' if each.passed else 'WRONG'}"
            )
    wrong = [each.id for each in results if not each.passed]
    if wrong:
        raise InputError(
            f"{len(wrong)} of {len(results)} environments step otherwise than recorded, first "
            f"{wrong[0]}: install the versions of constraints.txt"
        )


def main(arguments: Sequence[str], command: str) -> None:
    """`omrl envs [ID]`, `omrl envs check [ID …]` and `omrl envs render ID --out FILE`."""
    if arguments and arguments[0] == "check":
        check(parse(CheckOptions, "envs check", arguments[1:]))
    elif arguments and arguments[0] == "render":
        render(parse(RenderOptions, "envs render", arguments[1:]))
    else:
        show(parse(EnvsOptions, "envs", arguments))


def show(options: EnvsOptions) -> None:
    """List the environments, or describe one."""
    from omrl.envs import optional, registry

    if options.id is not None:
        env = registry.make(options.id)
        if not options.json:
            print(summary(env))
            return
        print_json(
            {
                "spec": json.loads(env.spec.to_json()),
                "hash": env.spec.hash,
                "tasks": env.tasks.tolist(),
                "splits": {name: list(tasks) for name, tasks in env.splits.items()},
            }
        )
        return
    rows, missing = [], {}
    for env_id in registry.all_ids():
        env = registry.make(env_id)
        if env.extra and not optional.is_installed(env.extra):
            missing.setdefault(env.extra, []).append(env_id)
        rows.append(
            {
                "id": env_id,
                "hash": env.spec.hash,
                "obs": env.spec.obs_dim,
                "act": env.spec.act_dim,
                "horizon": env.spec.horizon,
                "tasks": len(env.tasks),
                "splits": {name: len(tasks) for name, tasks in env.splits.items()},
                "extra": env.extra,
            }
        )
    if options.json:
        print_json(rows)
        return
    for row in rows:
        print(
            f"{row['id']:<48} obs {row['obs']:>3}  act {row['act']:>2}  "
            f"horizon {row['horizon']:>3}  tasks {row['tasks']:>3} ({_counts(row['splits'])})  "
            f"{row['hash'][:12]}"
        )
    for extra, env_ids in missing.items():
        print(
            f"the {len(env_ids)} from {env_ids[0]} to {env_ids[-1]} cannot be stepped without "
            f"{extra}: {optional.install_line(extra)}"
        )


def summary(env: TaskEnv) -> str:
    """One environment for a person: a line per property."""
    from omrl.envs.baselines import MAX_PARAMETERS
    from omrl.envs.gym_hook import gymnasium_id
    from omrl.envs.optional import install_line
    from omrl.envs.papers import used_by

    spec = env.spec
    parameters = ", ".join(spec.task_names)
    if len(spec.task_names) > MAX_PARAMETERS:
        parameters = f"{len(spec.task_names)} parameters"
    changed = "the physics" if env.task_changes_physics else "the reward alone"
    rows = {"extra": install_line(env.extra)} if env.extra else {}
    rows |= {
        "gymnasium": gymnasium_id(spec.id),
        "obs": f"{spec.obs_dim} entries",
        "act": f"{spec.act_dim} entries: {spec.action}",
        "horizon": f"{spec.horizon} steps of {spec.dt:g} s",
        "reward": spec.reward.replace("; ", f"\n{'':<12}"),
        "reset": spec.reset,
        "termination": spec.termination,
        "tasks": f"{len(env.task_table)} ({_counts({n: len(t) for n, t in env.split_table})})",
        "task": f"{parameters}; changes {changed}",
        "drawn from": spec.task_distribution,
        "papers": used_by(spec.id) or "none",
        "hash": spec.hash,
    }
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    return "\n".join([spec.id, *lines, f"omrl envs {spec.id} --json has every number"])


def _counts(splits: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in splits.items())
