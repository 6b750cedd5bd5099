"""A card per environment: all that its spec says, a picture of its tasks, and known returns.

    python -m omrl.envs.cards docs/environments

writes `docs/environments/<id>.md` and the pictures, from the specs and from `baselines.json` there.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from omrl.envs.base import EnvSpec, TaskEnv
from omrl.envs.baselines import MAX_PARAMETERS, Baselines, read, table
from omrl.envs.gym_hook import gymnasium_id
from omrl.envs.papers import data_of, used_by
from omrl.envs.registry import all_ids, make
from omrl.envs.task_pictures import task_picture
from omrl.errors import InputError
from omrl.files import atomic_write

BASELINES = "baselines.json"
COMMAND = "python -m omrl.envs.cards docs/environments"
_POSITIONS = {"qpos": "`qpos`: fresh kinematics", "none": "`none`: no absolute one is observed"}
_CONTACTS = {
    "rne": "`rne`: contact forces by MuJoCo's inverse dynamics",
    "none": "`none`: contact forces are neither observed nor rewarded",
}


def carded() -> tuple[str, ...]:
    """The ids that have a card: all but the hundred of ML1, which are alike."""
    return tuple(env_id for env_id in all_ids() if not env_id.startswith("ml1-"))


def files(baselines: Mapping[str, Baselines]) -> dict[str, bytes]:
    """Every card and picture by its path in the folder; equal pictures of a family only once."""
    pictures: dict[tuple[str, bytes], str] = {}
    written: dict[str, bytes] = {}
    for env_id in carded():
        env = make(env_id)
        content = task_picture(env)
        name = pictures.setdefault((_family(env.spec), content), f"{env_id}.svg")
        written[name] = content
        entry = baselines.get(env_id, Baselines(env.spec.hash))
        written[f"{env_id}.md"] = card(env, entry, Path(name).name).encode()
    return written


def card(env: TaskEnv, baselines: Baselines, picture: str) -> str:
    """The card in Markdown; `picture`, beside it, is the one of its tasks."""
    spec = env.spec
    page = "meta-world" if env.extra == "metaworld" else _family(spec)
    sections = [
        f"<!-- Written by {COMMAND}: change the environment, not this file. -->",
        f"# {spec.id}",
        f"See [{page}](../{page}.md) for its other versions and what they differ in.",
        _summary(spec),
        f"## Reward\n\n```\n{spec.reward.replace('; ', chr(10))}\n```",
        f"Stored with the data: {_names(spec.term_names)}.",
        f"## Action\n\n{spec.act_dim} entries: {spec.action}.",
        f"## Reset and end\n\nReset: {spec.reset}.",
        f"Termination: {spec.termination}. Horizon: {spec.horizon} steps.",
        "## Constants",
        _rows(("name", "value"), ((f"`{name}`", f"{value:g}") for name, value in spec.constants)),
        f"## Tasks\n\n{_tasks(env, picture)}",
        *([f"## Data\n\n{data}"] if (data := data_of(spec.id)) else ()),
        f"## Returns\n\n{_returns(env, baselines)}",
        "## Observation",
        _rows(("entry", "name"), ((str(n), f"`{name}`") for n, name in enumerate(spec.obs_names))),
    ]
    return "\n\n".join(sections) + "\n"


def _summary(spec: EnvSpec) -> str:
    rows = [
        ("Gymnasium id", f"`{gymnasium_id(spec.id)}`"),
        ("spec hash", f"`{spec.hash}`"),
        ("papers", used_by(spec.id) or "none: an extra"),
        ("observation, action", f"{spec.obs_dim}, {spec.act_dim} entries"),
        ("horizon", f"{spec.horizon} steps"),
        ("engine", spec.engine),
    ]
    if spec.model_sha256:
        source = f"Gymnasium's `{spec.model_file}`" if spec.model_file else "omrl's own"
        if spec.engine.startswith("metaworld"):
            source = "sources and models of metaworld 3.0.0"
        rows += [
            ("model", f"{source}, sha256 `{spec.model_sha256}`"),
            ("step", f"{spec.dt:g} s: {spec.frame_skip} physics steps of {spec.timestep:g} s"),
            ("positions", _POSITIONS.get(spec.position_source, f"`{spec.position_source}`")),
            ("contacts", _CONTACTS.get(spec.contact_source, f"`{spec.contact_source}`")),
        ]
    return _rows(("", ""), rows)


def _tasks(env: TaskEnv, picture: str) -> str:
    spec = env.spec
    if len(spec.task_names) <= MAX_PARAMETERS:
        what = _names(spec.task_names)
    else:
        kinds = Counter(name.split(".")[0] for name in spec.task_names)
        what = ", ".join(f"{count} of `{kind}`" for kind, count in kinds.items())
        what = (
            f"{len(spec.task_names)} parameters ({what}; `omrl envs {spec.id} --json` prints them)"
        )
    changed = "the physics" if env.task_changes_physics else "the reward alone"
    splits = ((name, str(len(tasks)), _runs(tasks)) for name, tasks in env.split_table)
    return "\n\n".join(
        (
            f"{len(env.task_table)} tasks: {what}. A task changes {changed}.",
            f"Distribution: {spec.task_distribution}.",
            _rows(("split", "tasks", "indices"), splits),
            f"![The tasks of each split]({picture})",
        )
    )


def _returns(env: TaskEnv, baselines: Baselines) -> str:
    columns = {
        "random": baselines.random,
        "zero action": baselines.zero,
        "oracle": baselines.oracle,
    }
    rows = [
        (name, "not measured", "", "", "", "")
        if each is None
        else (
            name,
            each.policy,
            str(each.episodes),
            str(each.seed),
            f"`{each.command}`",
            each.hardware,
        )
        for name, each in columns.items()
    ]
    shared = "" if env.task_changes_physics else " Random and zero: all tasks share the episodes."
    header = ("policy", "what acts", "episodes per task", "seed", "command", "hardware")
    return "\n\n".join(
        (
            f"Mean undiscounted return of whole episodes, ± its standard error.{shared}",
            _rows(header, rows),
            table(env, baselines),
        )
    )


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _runs(indices: Sequence[int]) -> str:
    """0, 1, 2, 5 as `0 to 2, 5`."""
    runs = [
        [index for _, index in run]
        for _, run in groupby(enumerate(sorted(indices)), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _family(spec: EnvSpec) -> str:
    return spec.id.split("/")[0]


def main() -> None:
    """Write all cards and pictures."""
    parser = argparse.ArgumentParser(prog="python -m omrl.envs.cards")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    try:
        written = files(read(folder / BASELINES))
    except InputError as error:
        parser.exit(2, f"omrl: error: {error}\n")
    for name, content in written.items():
        with atomic_write(folder / name) as file:
            file.write(content)
    print(f"{folder}: {len(written)} files written")


if __name__ == "__main__":
    main()
