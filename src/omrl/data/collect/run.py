"""The collection of a whole dataset: groups of tasks one after another, resumed where it stopped.

In `OUT.partial`, which becomes OUT at the end, lie the transitions so far and the newest
checkpoint. Tasks that are done are on record in the manifest, and their results in the files of
`omrl.data.collect.results`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from omrl.config import Json
from omrl.console import of_progress
from omrl.data import store
from omrl.data.collect import results, storage
from omrl.data.collect.budget import budget, split_into_groups
from omrl.data.collect.config import CollectConfig, KeptConfig, OracleConfig
from omrl.data.collect.crew import make_crew
from omrl.data.collect.group import Group
from omrl.data.collect.oracle import solved
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import KeptPolicies
from omrl.data.collect.rounds import Round, Simulation
from omrl.data.collect.storage import Background, Checkpoint
from omrl.data.device import free_memory
from omrl.data.growing import GrowingTask
from omrl.data.manifest import task_folder
from omrl.data.store import Dataset, Writer
from omrl.envs.base import TaskEnv
from omrl.envs.optional import check_steppable
from omrl.envs.registry import make
from omrl.errors import InputError, Stopped
from omrl.files import check_room, named
from omrl.interrupt import Interrupt

Tasks = tuple[int, ...]


@dataclass(frozen=True)
class Collection:
    """What is collected, how, and where to."""

    config: CollectConfig
    env: TaskEnv
    kept: KeptPolicies | None
    writer: Writer

    @property
    def record(self) -> Json:
        """What decides the data."""
        return self.config.record() | {"spec_hash": self.env.spec.hash}

    def files(self, task: int) -> GrowingTask:
        return GrowingTask(self.writer.partial / task_folder(task), self.env.spec, "float32")


def collect(
    config: CollectConfig,
    out: str | Path,
    *,
    command: str,
    device: Any,
    resume: bool = False,
    kept: KeptPolicies | None = None,
    console: Console | None = None,
) -> Dataset:
    """Train one agent per task and write all they did to the dataset `out`.

    Args:
        command: recorded with the data; a resumed collection must give the same.
        device: the JAX device that the agents learn on.
        resume: go on with the collection that was begun at `out`.
        kept: the policies that collect, if `config.agent` says that some do.

    Raises:
        InputError: bad config; `out` is there, or an unfinished collection is there (or is not, to
            resume); too little memory or disk; a damaged checkpoint.
        Stopped: by SIGTERM or SIGINT, after a checkpoint.
        NonFiniteError: an agent diverged; names its task.
    """
    out = Path(out)
    console = console or of_progress()
    env = make(config.env)
    check_steppable(env)
    tasks = config.indices(env)
    _check_agent(config, env, kept, tasks)
    _check_place(out, resume)
    with jax.default_device(device):
        plan, room = budget(config, env.spec, kept), free_memory(device)
        split = partial(
            split_into_groups, needed=plan.device, room=room, group_size=config.group_size
        )
        console.print(
            f"{config.env}: {config.algorithm}, {len(tasks)} tasks x {config.steps:,} transitions",
            markup=False,
        )
        _tell_rounding(config, env, console)
        console.print(plan.describe(len(tasks), len(split(tasks)[0]), room), markup=False)
        if not resume:
            check_room(out, len(tasks) * plan.disk)
        collection = Collection(config, env, kept, store.create(out, env, command=command))
        groups = _groups(collection, tasks, split)
        each = config.most_steps(env.spec) if env.spec.termination == "never" else config.steps
        done = each * (len(tasks) - sum(len(group) for group, _ in groups)) + sum(
            int(checkpoint.transitions[-1].sum()) for _, checkpoint in groups if checkpoint
        )
        progress = CollectProgress(each * len(tasks), done, console=console)
        with progress, Interrupt() as interrupt:
            for group, checkpoint in groups:
                _collect_group(collection, group, checkpoint, progress, interrupt)
                if interrupt.signum:
                    raise _stopped(collection, interrupt)
    return _finish(collection)


def _tell_rounding(config: CollectConfig, env: TaskEnv, console: Console) -> None:
    """Where a task gets more transitions than were asked for."""
    most, spec = config.most_steps(env.spec), env.spec
    if most > config.steps:
        exact = "" if spec.termination == "never" else "up to "
        console.print(
            f"whole rounds of {config.envs} environments x {spec.horizon} steps: {exact}{most:,} "
            f"transitions per task, at least {config.steps:,}",
            markup=False,
        )


def _check_agent(
    config: CollectConfig, env: TaskEnv, kept: KeptPolicies | None, tasks: tuple[int, ...]
) -> None:
    if isinstance(config.agent, OracleConfig):
        solved(env)
    if isinstance(config.agent, KeptConfig):
        if kept is None:
            raise InputError("agent: kept policies need their folder, --from-agents FOLDER")
        if config.agent.source != kept.hash:
            raise InputError("agent.source: is of other policies than are given; leave it out")
        kept.check(config.agent.policies, tasks)


def _check_place(out: Path, resume: bool) -> None:
    unfinished = named(out).with_name(out.name + ".partial")
    if out.exists():
        raise InputError(f"{out}: exists; choose another folder")
    if resume and not unfinished.exists():
        raise InputError(f"{unfinished}: missing, there is nothing to resume; leave out --resume")
    if not resume and unfinished.exists():
        raise InputError(
            f"{unfinished}: an unfinished collection, or one that another command is making now; "
            "where none is, repeat this one with --resume, or delete it"
        )


def _groups(
    collection: Collection, tasks: Tasks, split: Callable[[Tasks], list[Tasks]]
) -> list[tuple[Tasks, Checkpoint | None]]:
    """The tasks still to do, in groups, the one that has a checkpoint first."""
    checkpoint = storage.load_checkpoint(collection.writer.partial, collection.record)
    pending = [task for task in tasks if not collection.writer.is_complete(task)]
    if checkpoint is None or not set(checkpoint.tasks) & set(pending):
        return [(group, None) for group in split(tuple(pending))]
    others = tuple(task for task in pending if task not in checkpoint.tasks)
    return [(checkpoint.tasks, checkpoint), *((group, None) for group in split(others))]


def _collect_group(
    collection: Collection,
    tasks: Tasks,
    checkpoint: Checkpoint | None,
    progress: CollectProgress,
    interrupt: Interrupt,
) -> None:
    """All of a group: from its checkpoint, if it has one, until its tasks are on record."""
    config, env, writer = collection.config, collection.env, collection.writer
    simulation = Simulation.start(
        env, tasks, num_envs=config.envs, seed=config.seed, threads=config.threads
    )
    try:
        crew = make_crew(config, env, tasks, collection.kept, progress)
        group = Group(config, simulation, crew, progress)
        crew.compile()
        episodes = group.episodes if checkpoint is None else checkpoint.episodes
        try:
            for task, number in zip(tasks, episodes, strict=True):
                writer.truncate(task, int(number))
        except ValueError as error:
            raise InputError(f"{error}; the checkpoint has more: collect again") from error
        if checkpoint is not None:
            group.restore(checkpoint, collection.files)
        progress.restart()
        with Background() as background:
            while group.active.any():
                _next_round(collection, group, background, interrupt)
            background.drain()
        _record_results(collection, group)
    finally:
        simulation.close()


def _next_round(
    collection: Collection, group: Group, background: Background, interrupt: Interrupt
) -> None:
    """Play a round, hand it to the writer's thread, checkpoint when due, stop when told to."""
    writer = collection.writer
    background.submit(partial(_append, writer, group.tasks, group.play_round()))
    due = group.rounds % collection.config.checkpoint_every == 0 or not group.active.any()
    if due or interrupt.signum:
        checkpoint = group.checkpoint(collection.record)
        background.submit(partial(_save, writer, checkpoint))
    if interrupt.signum:
        background.drain()
        raise _stopped(collection, interrupt)


def _stopped(collection: Collection, interrupt: Interrupt) -> Stopped:
    folder = collection.writer.partial
    return Stopped(128 + interrupt.signum, f"{folder}: stopped, all is kept; go on with --resume")


def _append(writer: Writer, tasks: Tasks, played: Round) -> None:
    for position, task in enumerate(tasks):
        if played.length[position].any():
            writer.append(task, **played.columns(position))


def _save(writer: Writer, checkpoint: Checkpoint) -> None:
    for task in checkpoint.tasks:
        writer.sync(task)
    checkpoint.save(writer.partial)


def _record_results(collection: Collection, group: Group) -> None:
    """Evaluate the final agents, keep them and the curves, and put the tasks on record."""
    writer = collection.writer
    final_returns = group.evaluate()
    for name, arrays in group.crew.policies().items():
        results.add_tasks(writer.partial / name, arrays)
    curves = {
        "tasks": np.asarray(group.tasks),
        "returns": group.returns.T,
        "steps": np.where(np.isnan(group.returns), np.nan, group.transitions).T,
    }
    if final_returns is not None:
        curves["final_returns"] = final_returns
    results.add_tasks(writer.partial / results.CURVES, curves)
    for position, task in enumerate(group.tasks):
        transitions = group.transitions[:, position]
        outcome: dict[str, float] = {"env_steps": int(transitions[-1])}
        if final_returns is not None:
            outcome["final_return"] = float(final_returns[position].mean())
            outcome["final_episodes"] = final_returns.shape[1]
        account = group.crew.account(position, transitions)
        writer.complete(task, collection.record | outcome | account)


def _finish(collection: Collection) -> Dataset:
    folder = collection.writer.partial
    curves = results.load(folder / results.CURVES)
    results.draw_curves(curves, collection.env.spec.id, folder / results.FIGURE)
    (folder / storage.NAME).unlink(missing_ok=True)
    return collection.writer.finish()
