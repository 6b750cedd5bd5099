"""What a run collected itself as datasets: one of its main buffer, one of its encoder buffer.

Both hold whole trajectories in the order in which they were collected, so that slices such as
first-1200-transitions mean what they say.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from omrl.algos import registry as algorithms
from omrl.checkpoint import Checkpoints
from omrl.data.dataset import Dataset
from omrl.data.explored import Explored, ExploredFiles, concatenated
from omrl.data.store import Writer, create
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError
from omrl.files import named
from omrl.metatrain import read_record
from omrl.presets import RunRecord
from omrl.problem import Problem, open_problem
from omrl.runs import open_run


def write_collected(
    run: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    overwrite: bool = False,
) -> dict[str, Dataset]:
    """The datasets of the main buffer, `out`, and beside it of the encoder buffer, `out`-encoder,
    if there is anything in it: by the names main and encoder. Tasks of which nothing was collected
    are not in them. Their manifests say which run they are of.

    Args:
        run: folder of a run that explores; its last checkpoint says what it has collected.
        seed: run seed; by default the first.

    Raises:
        InputError: no such run or seed, damaged files, nothing collected, or rewards that are
            labels, since those of a dataset are its environment's.
    """
    opened = open_run(Path(run))
    record = read_record(opened)
    seeds = record.run.train.seed_numbers.tolist()
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        raise InputError(f"seed {seed}: {run} has {seeds[0]} to {seeds[-1]}")
    _check(record, run)
    checkpoints = Checkpoints(opened.checkpoints, read_only=True)
    meta = checkpoints.read_meta()
    checkpoints.close()
    files = ExploredFiles.of_checkpoint(Path(run), meta["collected"])
    if not files.sha256:
        raise InputError(
            f"{run}: had collected nothing at its last checkpoint, after {meta['step']} updates; "
            f"train on: omrl train --resume {run}"
        )
    problem = open_problem(
        record.run, record.data, mix=record.mix, encoder_data=record.encoder_data
    )
    out = named(Path(out))
    paths = {"main": out, "encoder": out.with_name(f"{out.name}-encoder")}
    source = {
        "run": Path(run).resolve().name,
        "env": record.run.env,
        "config": record.hash,
        "seed": str(seed),
        "updates": str(meta["step"]),
    }
    writers = {
        name: _begin(path, problem.env, source | {"buffer": name}, overwrite)
        for name, path in paths.items()
    }
    parts = (part.only(part.seed == seeds.index(seed)) for part in files.read())
    held = _append(writers["main"], problem, parts)
    for index, trajectories in held.items():
        writers["encoder"].append(index, **columns(concatenated(trajectories), problem.env.spec))
    if not held:
        shutil.rmtree(writers.pop("encoder").partial)
    behaviour = {
        "algorithm": type(algorithms.build(record.run.algo, record.spec)).__name__,
        "seed": seed,
        "updates": meta["step"],
    }
    return {
        name: _finish(writer, problem.train_tasks, behaviour | {"buffer": name})
        for name, writer in writers.items()
    }


def _check(record: RunRecord, run: str | Path) -> None:
    stages = algorithms.build(record.run.algo, record.spec).stages()
    explorations = [stage.exploration for stage in stages if stage.exploration is not None]
    if not explorations:
        raise InputError(f"{run}: learned from logged data, {record.data}; it collected none")
    if any(exploration.label_context for exploration in explorations):
        raise InputError(
            f"{run}: its rewards are labels of the algorithm, not those of {record.run.env}, which "
            "a dataset has to have; export a run without exploration.label_context"
        )


def _begin(out: Path, env: TaskEnv, source: dict[str, str], overwrite: bool) -> Writer:
    """A writer with nothing in it: what an interrupted one left may be of another run."""
    # In one spelling, since it is part of the dataset's hash: what `omrl` was told, without paths.
    command = shlex.join(["omrl", "data", "from-run", source["run"], "--seed", source["seed"]])
    writer = create(out, env, command=command, source=source, overwrite=overwrite)
    for index in range(len(env.tasks)):
        writer.truncate(index, 0)
    return writer


def _append(
    writer: Writer, problem: Problem, parts: Iterable[Explored]
) -> dict[int, list[Explored]]:
    """Writes the main buffer; of every task, by its number, what the encoder buffer holds."""
    held: dict[int, list[Explored]] = {}
    for part in parts:
        for position in np.unique(part.task).tolist():
            one, index = part.only(part.task == position), problem.train_tasks[position]
            writer.append(index, **columns(one, problem.env.spec))
            before = held.get(index, [])
            cleared = np.flatnonzero(one.clears)
            if len(cleared):
                before, one = [], one.only(np.arange(len(one.length)) >= cleared[-1])
            held[index] = [*before, one.only(one.in_encoder)]
    filled = {n: [one for one in parts if len(one.length)] for n, parts in sorted(held.items())}
    return {index: parts for index, parts in filled.items() if parts}


def columns(explored: Explored, spec: EnvSpec) -> dict[str, Any]:
    """As those of a dataset."""
    ends, last = explored.starts[1:] - 1, np.zeros(len(explored.reward), bool)
    last[ends] = True
    terminated = np.zeros_like(last)
    terminated[ends] = explored.terminated
    given: dict[str, Any] = {
        "obs": explored.obs,
        "action": explored.action,
        "reward": explored.reward,
        "terminated": terminated,
        "truncated": last & ~terminated,
        "episode_start": explored.starts,
    }
    return given | {"terms": explored.terms} if spec.term_names else given


def _finish(writer: Writer, tasks: Iterable[int], behaviour: dict[str, Any]) -> Dataset:
    for index in tasks:
        if writer.episodes(index):
            writer.complete(index, behaviour)
    return writer.finish()
