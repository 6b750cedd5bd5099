"""Returns of policies that know nothing, or everything, to print beside every other return.

On several tasks doing nothing beats acting at random, and a weak method beats neither. The oracle
is the best policy where that has a closed form, else each task's own agent at the end of
`omrl collect`, as the dataset has it on record.

    python -m omrl.envs.baselines cheetah-vel/macaw-v1 --episodes 100    # prints a table

With `--write docs/environments/baselines.json` the numbers are kept for the cards, and
`--oracle-from DATASET` reads an oracle instead of measuring anything; `--hardware` says what it was
collected on. An oracle that was on record stays for the tasks in which it is the better one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64

from omrl.config import from_json, read_json, to_json
from omrl.envs.base import SolvedEnv, TaskEnv
from omrl.envs.engine import VectorEnv, available_cpus
from omrl.envs.registry import all_ids, make
from omrl.errors import InputError
from omrl.files import atomic_write

Name = Literal["random", "zero", "oracle"]
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Actions [env, act] for states [env, state] and tasks [env, parameter]."""

POLICIES: dict[Name, str] = {
    "random": "actions independent and uniform over the box",
    "zero": "all actions 0",
    "oracle": "the best policy, in closed form",
}
MAX_PARAMETERS = 4
"""Tables show the parameters of tasks that have no more."""
_LEARNED_ORACLE = "each task's own agent at the end of `omrl collect`"
_ACTION_STREAM = 0x616374696F6E
"""Keeps actions apart from other uses of the seed."""


@dataclass(frozen=True)
class Measured:
    """Undiscounted returns of one policy on every canonical task."""

    policy: str
    """What acts."""
    mean: tuple[float | None, ...]
    """Per task; None where a dataset without that task is the source."""
    standard_error: tuple[float, ...] | None
    """Of `mean`; None where it is not on record."""
    episodes: int
    """Per task."""
    seed: int
    command: str
    hardware: str


@dataclass(frozen=True)
class Baselines:
    """What is known of one environment."""

    spec_hash: str
    random: Measured | None = None
    zero: Measured | None = None
    oracle: Measured | None = None


# --- Measuring ---------------------------------------------------------------------------------


def scripted(env: TaskEnv, name: Name, seed: int) -> Act:
    """The policy of that name. InputError for an oracle that has no closed form."""
    if seed < 0:
        raise InputError(f"seed must be 0 or more, not {seed}")
    rng = np.random.Generator(np.random.Philox(key=[seed, _ACTION_STREAM]))
    if name == "random":
        return lambda states, tasks: rng.uniform(-1.0, 1.0, (len(states), env.spec.act_dim))
    if name == "zero":
        return lambda states, tasks: np.zeros((len(states), env.spec.act_dim))
    if not isinstance(env, SolvedEnv):
        raise InputError(
            f"the best policy of {env.spec.id} has no closed form: choose random or zero"
        )
    return env.oracle_action


def baseline_returns(
    env: TaskEnv,
    policy: Name,
    tasks: Float[np.ndarray, "task parameter"],
    *,
    episodes: int,
    seed: int = 0,
    num_threads: int | None = None,
    shared: bool = False,
) -> Float64[np.ndarray, "task episode"]:
    """Undiscounted returns; `shared`: of the same episodes, those of the first task, for all tasks.

    Episodes can be shared where neither physics nor policy depend on the task.
    """
    if shared and (env.task_changes_physics or policy == "oracle"):
        raise ValueError(f"tasks of {env.spec.id} cannot share episodes of policy {policy}")
    if episodes < 1:
        raise InputError(f"episodes must be 1 or more, not {episodes}")
    act = scripted(env, policy, seed)
    rows = np.repeat(tasks[:1] if shared else tasks, episodes, axis=0)
    returns = np.zeros((len(tasks), episodes))
    with closing(VectorEnv(env, rows, seed=seed, num_threads=num_threads)) as vector:
        vector.reset()
        for _ in range(env.spec.horizon):
            alive = vector.alive
            action = act(vector.states, vector.tasks)
            step = vector.step(action)
            if shared:
                reward = env.reward(step.terms[None], action[None], tasks[:, None])
                returns += np.where(alive, reward, 0.0)
            else:
                returns += step.reward.reshape(returns.shape)
    return returns


def measure(env: TaskEnv, policy: Name, *, episodes: int, seed: int, command: str) -> Measured:
    """Returns on the canonical tasks; they share episodes where they can."""
    shared = policy != "oracle" and not env.task_changes_physics
    returns = baseline_returns(env, policy, env.tasks, episodes=episodes, seed=seed, shared=shared)
    error = returns.std(axis=1, ddof=1) / np.sqrt(episodes) if episodes > 1 else None
    return Measured(
        POLICIES[policy],
        _rounded(returns.mean(axis=1)),
        None if error is None else _rounded(error),
        episodes,
        seed,
        command,
        hardware(),
    )


def recorded_oracle(env: TaskEnv, dataset: str, command: str, hardware: str) -> Measured:
    """The final returns of the agents that collected `dataset`, some or all tasks of `env`."""
    # This module is needed without data.
    from omrl.data.manifest import check_mdp
    from omrl.data.store import are_tasks_of, open_dataset

    opened = open_dataset(dataset)
    # Ids that differ in their splits alone share their agents.
    named = {"id": env.spec.id, "task_distribution": env.spec.task_distribution}
    if dataclasses.replace(opened.spec, **named) != env.spec:
        check_mdp(opened.path, opened.manifest, env)
    if not are_tasks_of(env, opened.manifest.tasks):
        raise InputError(
            f"{dataset}: its tasks are not those of {env.spec.id}; give data of its own tasks"
        )
    mean: list[float | None] = [None] * len(env.tasks)
    for record in opened.manifest.tasks:
        for name in ("final_return", "final_episodes", "seed"):
            if not isinstance(record.behaviour.get(name), int | float):
                raise InputError(
                    f"{dataset}: task {record.index} has no {name} on record; only data of omrl "
                    "collect have an oracle"
                )
        mean[record.index] = round(record.behaviour["final_return"], 3)
    behaviour = opened.manifest.tasks[0].behaviour
    return Measured(
        _LEARNED_ORACLE,
        tuple(mean),
        None,
        int(behaviour["final_episodes"]),
        int(behaviour["seed"]),
        f"{opened.manifest.command} --out {dataset} && {command}",
        hardware,
    )


def better(old: Measured | None, new: Measured) -> Measured:
    """Per task the better of two learned oracles; commands and hardware of all that counts."""
    if old is None or not old.policy.startswith(_LEARNED_ORACLE):
        return new
    pairs = list(zip(old.mean, new.mean, strict=True))
    best = tuple(max((mean for mean in pair if mean is not None), default=None) for pair in pairs)
    for each in (old, new):
        if best == each.mean:
            return each
    counted = (old, new)
    return dataclasses.replace(
        new,
        policy=f"{_LEARNED_ORACLE}; of several runs the better",
        mean=best,
        command="; ".join(dict.fromkeys(each.command for each in counted)),
        hardware="; ".join(
            dict.fromkeys(part for each in counted for part in each.hardware.split("; "))
        ),
    )


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 3) for value in values)


def hardware() -> str:
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")  # Linux leaves platform.processor() empty
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].split(":", 1)[1].strip() if names else processor
    return f"{available_cpus()} cores, {processor}"


# --- The file ----------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Baselines]:
    """By id. What was measured of another MDP or task list than the present one is left out."""
    kept = {}
    for env_id, fields in read_json(path).items() if path.exists() else ():
        entry = from_json(Baselines, fields, f"{path}: {env_id}")
        if env_id in all_ids() and _is_current(make(env_id), entry):
            kept[env_id] = entry
    return kept


def _is_current(env: TaskEnv, entry: Baselines) -> bool:
    measured = [entry.random, entry.zero, entry.oracle]
    lengths = {len(each.mean) for each in measured if each is not None}
    return entry.spec_hash == env.spec.hash and lengths <= {len(env.tasks)}


def write(path: Path, entries: Mapping[str, Baselines]) -> None:
    """In the order of the registry, an id per line."""
    rows = [
        f"{json.dumps(env_id)}: {json.dumps(to_json(entries[env_id]))}"
        for env_id in all_ids()
        if env_id in entries
    ]
    with atomic_write(path) as file:
        file.write(("{\n" + ",\n".join(rows) + "\n}\n").encode())


# --- The table ---------------------------------------------------------------------------------


def table(env: TaskEnv, entry: Baselines) -> str:
    """Returns per task and means over the splits, in Markdown."""
    names = env.spec.task_names if len(env.spec.task_names) <= MAX_PARAMETERS else ()
    header = ["task", "split", *names, "random", "zero action", "oracle"]
    measured = (entry.random, entry.zero, entry.oracle)
    rows = [header, ["---"] * len(header)]
    for index, parameters in enumerate(env.task_table):
        splits = ", ".join(name for name, tasks in env.split_table if index in tasks)
        shown = [f"{value:.4g}" for value in parameters[: len(names)]]
        rows.append([str(index), splits, *shown, *(_cell(each, index) for each in measured)])
    for name, tasks in env.split_table:
        means = [_mean(each, tasks) for each in measured]
        rows.append([f"mean of {len(tasks)}", name, *([""] * len(names)), *means])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(measured: Measured | None, index: int) -> str:
    mean = None if measured is None else measured.mean[index]
    if measured is None or mean is None:
        return ""
    if measured.standard_error is None:
        return _number(mean)
    return f"{_number(mean)} ± {_number(measured.standard_error[index])}"


def _mean(measured: Measured | None, tasks: Sequence[int]) -> str:
    """Over the tasks that were measured; says how many if not all."""
    means = [] if measured is None else [measured.mean[task] for task in tasks]
    known = [mean for mean in means if mean is not None]
    if not known:
        return ""
    only = "" if len(known) == len(tasks) else f" (of {len(known)})"
    return _number(float(np.mean(known))) + only


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # + 0.0: no minus zero


def main() -> None:
    """Print the returns of environments as Markdown tables, and keep them if asked to."""
    parser = argparse.ArgumentParser(prog="python -m omrl.envs.baselines")
    parser.add_argument("env_ids", nargs="+", metavar="ID")
    parser.add_argument("--episodes", type=int, default=100, help="per task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--oracle-from", metavar="DATASET", help="read the oracle, measure nothing")
    parser.add_argument(
        "--hardware", default="not on record", help="what the oracle was collected on"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="update this JSON file")
    args = parser.parse_args()
    try:
        for env_id in args.env_ids:
            env = make(env_id)
            known = {} if args.write is None else read(args.write)
            entry = known.get(env_id, Baselines(env.spec.hash))
            found = _found(env, args)
            if args.oracle_from is not None:
                found["oracle"] = better(entry.oracle, found["oracle"])
            entry = dataclasses.replace(entry, **found)
            if args.write is not None:
                write(args.write, known | {env_id: entry})
            print(f"{env_id} {env.spec.hash[:12]}\n{table(env, entry)}")
    except InputError as error:
        parser.exit(2, f"omrl: error: {error}\n")


def _found(env: TaskEnv, args: argparse.Namespace) -> dict[Name, Measured]:
    command = f"python -m omrl.envs.baselines {env.spec.id}"
    if args.oracle_from is not None:
        command += f" --oracle-from {args.oracle_from}"
        return {"oracle": recorded_oracle(env, args.oracle_from, command, args.hardware)}
    command += f" --episodes {args.episodes}" + (f" --seed {args.seed}" if args.seed else "")
    names: list[Name] = [
        name for name in POLICIES if name != "oracle" or isinstance(env, SolvedEnv)
    ]
    return {
        name: measure(env, name, episodes=args.episodes, seed=args.seed, command=command)
        for name in names
    }


if __name__ == "__main__":
    main()
