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

from omrl import bundled
from omrl.algos import registry as algorithms
from omrl.checkpoint import Checkpoints
from omrl.data.dataset import Dataset
from omrl.data.explored import Explored, ExploredFiles, concatenated
from omrl.data.manifest import OUT
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
        held = ", ".join(map(str, seeds))
        raise InputError(f"seed {seed}: {run} has {held}; give one of these: --seed")
    _check(record, run)
    checkpoints = Checkpoints(opened.checkpoints, read_only=True)
    if not checkpoints.steps:
        raise InputError(f"{run}: has no checkpoint yet; train on: omrl train --resume {run}")
    meta = checkpoints.read_meta(opened.config)
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
    source = {
        "run": Path(run).resolve().name,
        "env": record.run.env,
        "config": record.hash,
        "seed": str(seed),
        "updates": str(meta["step"]),
    }
    behaviour = {
        "algorithm": type(algorithms.build(record.run.algo, record.spec)).__name__,
        "seed": seed,
        "updates": meta["step"],
    }
    # What it trained on it needs to go on.
    reads = [opened.path, *(bundled.resolve(each) for each in _data_of(record))]
    writers: dict[str, Writer] = {}
    try:
        for name, path in _paths(Path(out)).items():
            writers[name] = _begin(path, problem.env, source | {"buffer": name}, overwrite, reads)
        parts = (part.only(part.seed == seeds.index(seed)) for part in files.read())
        _append(writers, problem, parts)
        return {
            name: _finish(writer, problem.train_tasks, behaviour | {"buffer": name})
            for name, writer in writers.items()
        }
    except InputError:
        for writer in writers.values():  # Made again in no time, and of another run too.
            shutil.rmtree(writer.partial, ignore_errors=True)
        raise


def _data_of(record: RunRecord) -> Iterable[str]:
    return filter(None, (record.data, record.mix, record.encoder_data))


def _paths(out: Path) -> dict[str, Path]:
    return {"main": named(out), "encoder": out.with_name(f"{out.name}-encoder")}


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


def _begin(
    out: Path, env: TaskEnv, source: dict[str, str], overwrite: bool, reads: list[Path]
) -> Writer:
    """A writer with nothing in it: what an interrupted one left may be of another run."""
    # In one spelling, since it is part of the dataset's hash: what `omrl` was told, without paths.
    words = ["omrl", "data", "from-run", source["run"], OUT, "--seed", source["seed"]]
    command = shlex.join(words)
    writer = create(out, env, command=command, source=source, overwrite=overwrite, reads=reads)
    for index in range(len(env.tasks)):
        writer.truncate(index, 0)
    return writer


def _append(writers: dict[str, Writer], problem: Problem, parts: Iterable[Explored]) -> None:
    """Writes both buffers; takes out the writer of the encoder buffer if nothing is in it."""
    held: dict[int, list[Explored]] = {}
    for part in parts:
        for position in np.unique(part.task).tolist():
            one, index = part.only(part.task == position), problem.train_tasks[position]
            writers["main"].append(index, **columns(one, problem.env.spec))
            before = held.get(index, [])
            cleared = np.flatnonzero(one.clears)
            if len(cleared):
                before, one = [], one.only(np.arange(len(one.length)) >= cleared[-1])
            held[index] = [*before, one.only(one.in_encoder)]
    filled = {n: [one for one in parts if len(one.length)] for n, parts in sorted(held.items())}
    if not any(filled.values()):
        shutil.rmtree(writers.pop("encoder").partial)
    for index, trajectories in filled.items():
        if trajectories:
            whole = columns(concatenated(trajectories), problem.env.spec)
            writers["encoder"].append(index, **whole)


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
