"""The runs of an experiment, each trained and evaluated once, however often it is asked for.

A training is found by what it is of: its folder is named by the hash of its whole config and of
its data. So experiments that share a cache share their runs, a run that was killed goes on, and one
whose settings changed is another run, beside the old one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from omrl import metatrain
from omrl.algorithm import Stage
from omrl.checkpoint import Checkpoints
from omrl.config import differences, json_hash, to_json
from omrl.curve import unfinished
from omrl.data.store import are_tasks_of
from omrl.diagnostics.base import file_of
from omrl.diagnostics.kinds import KINDS, folder_of
from omrl.diagnostics.run import diagnose_checkpoints, kept_checkpoints
from omrl.envs import registry
from omrl.errors import InputError, Stopped, nearest
from omrl.evaluate import How
from omrl.experiments.declare import Planned
from omrl.experiments.holding import LOCKS, holding
from omrl.logs import read_log
from omrl.metatrain import Problem, Trained
from omrl.presets import RunRecord
from omrl.result_files import FIX
from omrl.results import EvalResult
from omrl.runs import open_run
from omrl.train import num_updates
from omrl.tuning import counted

ADDRESS = 12
"""Hexadecimal digits of a hash in the name of a folder."""

_AGAIN = "delete it and repeat the command"


@dataclass(frozen=True)
class Sources:
    """The datasets of an experiment, each a folder or bundled:NAME; empty: none."""

    main: str = ""
    encoder: str = ""
    """Of the encoder buffer."""
    relabelled: str = ""

    def of(self, planned: Planned) -> tuple[str, str]:
        """Dataset of a run and the one of its encoder buffer."""
        arm = planned.arm
        if arm.collects or arm.reads == "nothing":
            return "", ""
        main = self.relabelled if arm.reads == "relabelled" else self.main
        return main, self.encoder if planned.config.separate_encoder else ""


@dataclass(frozen=True)
class Outcome:
    """An arm that is trained and evaluated."""

    planned: Planned
    folder: Path
    """Of the run."""
    data_hash: str
    result: EvalResult
    curve: tuple[EvalResult, ...]
    """The run's own evaluations, during training and after it, up to `result`."""
    seconds: float | None
    """That training took, compilation and the run's own evaluations included; None: its log is
    gone."""
    updates_per_s: float | None
    """Of each seed, all trained together; median of the log."""
    diagnoses: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Of its checkpoints, at growing numbers of updates, by the name of the diagnosis."""


@dataclass(frozen=True)
class Workshop:
    """Where and how runs are made; none of it decides what comes out."""

    data: Sources
    runs: Path
    """Folder of the run folders."""
    devices: Sequence[Any]
    command: str
    say: Callable[[str], None]
    """Is told what happens next."""
    quiet: bool = False
    """No progress of the training."""


def check(shop: Workshop, planned: Planned) -> Problem:
    """Opens the data of a run. Raises `InputError` for whatever would stop it later."""
    data, encoder = shop.data.of(planned)
    with ExitStack() as stack:
        for path in (Path(each) for each in (data, encoder) if each):
            if path.parent == shop.runs.with_name("data"):
                stack.enter_context(made_here(path))
        problem = metatrain.open_problem(planned.config, data, encoder_data=encoder)
    _updates_at(planned, problem.stages)
    env = registry.make(planned.config.env)
    if planned.arm.split_of and not are_tasks_of(env, problem.dataset.manifest.tasks):
        raise InputError(
            f"{data}: its tasks are not those of {env.spec.id}, which the tasks of "
            f"{planned.arm.split_of} are numbered by; give data of the listed tasks"
        )
    return problem


def address(planned: Planned, problem: Problem) -> str:
    """The name of the folder that holds the run."""
    of = {"config": to_json(planned.config), "data": problem.data_hash}
    return f"{planned.preset}-{json_hash(of)[:ADDRESS]}"


def carry_out(shop: Workshop, planned: Planned, problem: Problem) -> Outcome:
    """Trains what is not trained yet, evaluates what is not evaluated yet.

    Raises what `metatrain.start` does; what was done by then is found again at the next call.
    """
    folder = train(shop, planned, problem)
    updates = _updates_at(planned, problem.stages)
    result = _evaluate(shop, planned, folder, updates)
    own = [_own(path, result) for path in sorted(folder.glob("eval/step-*.npz"))]
    log = read_log(folder)
    paces = [row["steps_per_s"] for row in log if "steps_per_s" in row]
    return Outcome(
        planned,
        folder,
        problem.data_hash,
        result,
        tuple(
            each
            for each in own
            if each.config == planned.config.eval and each.provenance.step <= updates
        ),
        seconds=max((row["seconds"] for row in log), default=None),
        updates_per_s=median(paces) if paces else None,
        diagnoses={
            name: _diagnose(shop, planned, folder, name, problem.stages)
            for name in planned.diagnose
        },
    )


def train(shop: Workshop, planned: Planned, problem: Problem) -> Path:
    """The folder of the run, with all of its updates made; by one process at a time."""
    folder = shop.runs / address(planned, problem)
    if (folder / "config.json").exists():
        _check_record(planned, problem, folder)
    if not _is_trained(folder):  # Else nothing is written: the cache may be read-only.
        with held(shop, folder.name):
            _train(shop, planned, problem, folder)
    return folder


def _check_record(planned: Planned, problem: Problem, folder: Path) -> None:
    """`InputError` for a folder that is of another run than its name says."""
    record = metatrain.read_record(open_run(folder))
    changed = [*differences(to_json(planned.config), to_json(record.run))]
    if record.data_hash != problem.data_hash:
        changed.append(f"data_hash: {problem.data_hash!r} is not {record.data_hash!r}")
    if changed:
        raise InputError(
            f"{folder / 'config.json'}: is of another run than the folder's name says "
            f"({changed[0]}); restore it, or delete the folder and repeat the command"
        )


def _train(shop: Workshop, planned: Planned, problem: Problem, folder: Path) -> None:
    label = planned.arm.label
    data, encoder = shop.data.of(planned)
    how: dict[str, Any] = {
        "command": shop.command,
        "devices": shop.devices,
        "report": lambda text: None,
        "quiet": shop.quiet,
    }
    _clear_stillborn(folder)
    if folder.exists() and not (folder / "config.json").exists():
        raise InputError(
            f"{folder}: has no config.json, which says what run it is; restore that file, or "
            "delete the folder and repeat the command to train it again"
        )
    with told_to_repeat(), made_here(folder):
        if not folder.exists():
            updates = sum(stage.steps for stage in problem.stages)
            seeds = counted(planned.config.train.seeds, "seed")
            shop.say(f"{label}: meta-training {updates:,} updates, {seeds}, in {folder}")
            metatrain.start(planned.config, data or None, folder, encoder_data=encoder, **how)
        record = metatrain.read_record(open_run(folder))
        done, total = _updates_made(folder), _updates_wanted(record)
        if done < total:
            shop.say(f"{label}: going on in {folder} from update {done:,} of {total:,}")
            moved = {"data": _path(data), "encoder_data": _path(encoder)}
            metatrain.go_on(folder, **moved, **how)


@contextmanager
def held(shop: Workshop, name: str) -> Iterator[None]:
    """Holds the lock of a stage, and sees what those before it left."""
    with holding(shop.runs.with_name(LOCKS) / name, shop.say):
        for folder in (shop.runs, shop.runs.with_name("data")):
            if folder.is_dir():
                os.listdir(folder)  # A client of NFS asks its server when a folder is opened.
        yield


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _evaluate(shop: Workshop, planned: Planned, folder: Path, updates: int) -> EvalResult:
    config = planned.evaluation
    name = f"step-{updates:08d}"
    if config != planned.config.eval:
        name = f"{config.protocol}-{json_hash(to_json(config))[:8]}-{updates:08d}"
    path = folder / "eval" / f"{name}.npz"
    if not path.exists():
        with held(shop, f"{folder.name}-{name}"):
            if not path.exists():
                shop.say(f"{planned.arm.label}: evaluating {folder}")
                _measure(shop, planned, folder, updates, path)
    result = _load(path)
    wanted = (metatrain.read_record(open_run(folder)).hash, updates, config)
    source = result.provenance
    if (source.run_hash, source.step, result.config) != wanted:
        raise InputError(
            f"{path}: is no evaluation of this run after {updates:,} updates; {_AGAIN}"
        )
    return result


def _own(path: Path, other: EvalResult) -> EvalResult:
    """An evaluation of the run that `other` is of."""
    result = _load(path)
    if result.provenance.run_hash != other.provenance.run_hash:
        raise InputError(f"{path}: is no evaluation of this run; move it elsewhere")
    return result


def _load(path: Path) -> EvalResult:
    try:
        return EvalResult.load(path)
    except InputError as error:
        what = str(error).removesuffix(f"; {FIX}")
        raise InputError(f"{what}; {_AGAIN}") from error


def _measure(shop: Workshop, planned: Planned, folder: Path, updates: int, path: Path) -> None:
    """Writes the evaluation `path`."""
    config = planned.evaluation
    with made_here(folder):
        trained = metatrain.load_trained(folder, shop.devices, step=updates, shots=config.rounds)
    how = How(unfinished=unfinished(path), report=shop.say)
    data, _ = shop.data.of(planned)
    metatrain.evaluate_trained(trained, data or None, config, how).save(path)
    unfinished(path).unlink(missing_ok=True)


def _diagnose(
    shop: Workshop, planned: Planned, folder: Path, name: str, stages: Sequence[Stage]
) -> tuple[Any, ...]:
    """At the ends of the stages, or at every checkpoint that the run has kept."""
    data, encoder = shop.data.of(planned)
    config = planned.diagnose[name]

    def load(step: int) -> Trained:
        with made_here(folder):
            trained = metatrain.load_trained(folder, shop.devices, step=step, shots=config.rounds)
        where = replace(trained.record, data=data, encoder_data=encoder)  # It may have moved.
        return replace(trained, record=where)

    out = folder / "eval" / folder_of(name)
    steps = kept_checkpoints(folder)
    if not KINDS[name].over_training:
        steps = [step for step in accumulate(s.steps for s in stages if s.steps) if step in steps]
    found = tuple(diagnose_checkpoints(load, steps, config, name=name, out=out, report=shop.say))
    run_hash = metatrain.read_record(open_run(folder)).hash
    for step, each in zip(steps, found, strict=True):
        if (each.provenance.run_hash, each.provenance.step) != (run_hash, step):
            raise InputError(
                f"{file_of(out, config, step)}: is no diagnosis of this run after {step:,} "
                f"updates; {_AGAIN}"
            )
    return found


def _updates_at(planned: Planned, stages: Sequence[Stage]) -> int:
    """Updates of a run at the end of the stage after which it is evaluated."""
    names = [stage.name for stage in stages]
    after = planned.arm.after or names[-1]
    if after not in names:
        raise InputError(f"{planned.arm.label}: has no stage {after!r}; {nearest(after, names)}")
    return sum(stage.steps for stage in stages[: names.index(after) + 1])


def _clear_stillborn(folder: Path) -> None:
    """Removes a run folder that a kill left before anything of the run was in it."""
    if folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir()):
        shutil.rmtree(folder)


def _is_trained(folder: Path) -> bool:
    """Whether all updates of the run are made."""
    if not (folder / "config.json").exists():
        return False
    record = metatrain.read_record(open_run(folder))
    return _updates_made(folder) >= _updates_wanted(record)


def _updates_made(folder: Path) -> int:
    """Of the newest checkpoint."""
    run = open_run(folder)
    if not run.checkpoints.is_dir():
        return 0
    checkpoints = Checkpoints(run.checkpoints, read_only=True)
    steps = checkpoints.steps
    checkpoints.close()
    return steps[-1] if steps else 0


def _updates_wanted(record: RunRecord) -> int:
    return num_updates(metatrain.build(record.run, record.spec))


@contextmanager
def made_here(folder: Path) -> Iterator[None]:
    """Has an error that names a folder of the cache say that it can be made again."""
    try:
        yield
    except InputError as error:
        if str(folder) not in str(error):
            raise
        raise InputError(
            f"{error} (omrl reproduce made {folder}, and makes it again if you delete it and "
            "repeat the command)"
        ) from None


@contextmanager
def told_to_repeat() -> Iterator[None]:
    """Has a stopped training say how an experiment goes on."""
    try:
        yield
    except Stopped as stopped:
        what, _, _ = str(stopped).partition("; ")
        raise Stopped(stopped.code, f"{what}; repeat the command to go on") from None
