"""From a `RunConfig` and a dataset to a trained run, and from a run back to its algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from omrl import bundle, bundled
from omrl.algorithm import Algorithm
from omrl.cautions import tell_cautions
from omrl.collector import Collector
from omrl.context import Contexts, draw_contexts, without_data
from omrl.data.buffers import Buffers, TrainingData
from omrl.data.dataset import Dataset
from omrl.data.device import byte_budget, free_memory, load
from omrl.data.host import open_host
from omrl.data.store import open_for_training, with_tasks_of
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.envs.optional import check_steppable
from omrl.errors import InputError
from omrl.evaluate import AS_FITS, How, evaluate
from omrl.exploration_setting import Setting
from omrl.exploration_setting import check as check_exploring
from omrl.exploration_setting import disk_bytes as collected_bytes
from omrl.layout import Layout
from omrl.marks import in_log
from omrl.presets import RunConfig, RunRecord
from omrl.problem import Problem, build, measure_spec, open_problem
from omrl.protocol import EvalConfig
from omrl.results import EvalResult
from omrl.runs import Run, check_new, create, open_run, resolve_devices, resume
from omrl.train import check_data, disk_bytes, load_states, train

__all__ = [
    "Problem",
    "Trained",
    "build",
    "evaluate_trained",
    "go_on",
    "load_trained",
    "measure_spec",
    "open_problem",
    "read_record",
    "record_of",
    "start",
    "tasks_of",
]

Placement = Literal["auto", "device", "host"]
"""Where the data of a training is: `auto` takes the device if there is ample room."""

DATA_SHARE = 0.5
"""Of the device's free memory, what data may take by default; loading it takes some more."""


def start(
    config: RunConfig,
    data: str | Path | None,
    out: str | Path,
    *,
    command: str = "omrl.metatrain.start",
    devices: Sequence[Any] | None = None,
    mix: str | Path = "",
    encoder_data: str | Path = "",
    placement: Placement = "auto",
    report: Callable[[str], None] = print,
    **options: Any,
) -> Run:
    """Meta-trains into the new run folder `out`, by default on what JAX prefers; see `train` for
    `options`. `data` is None for a run that collects all itself. `placement` decides where the data
    is, not what is learned from it."""
    devices = devices or resolve_devices("auto")
    check_new(Path(out))
    problem = open_problem(config, data or "", mix=mix, encoder_data=encoder_data)
    loaded = _load(problem, devices, placement, report)
    record = RunRecord(
        config,
        measure_spec(problem),
        str(data or ""),
        problem.data_hash,
        mix=str(mix),
        encoder_data=str(encoder_data),
    )
    algorithm = build(config, record.spec)
    _check_encoder(problem, algorithm)
    tell_cautions(record, problem.env, report)
    check_data(algorithm, loaded.data, np.array(problem.train_tasks))
    layout = Layout.of(devices, config.train.seeds)
    room = disk_bytes(algorithm, layout, config.train)
    if (setting := _setting(problem, algorithm, layout)) is not None:
        check_exploring(setting)
        room += collected_bytes(setting)
    run = create(Path(out), record, command=command, devices=devices, room=room)
    _train(run, record, problem, loaded, devices, options)
    return run


def go_on(
    path: Path,
    *,
    data: Path | None,
    mix: Path | None = None,
    encoder_data: Path | None = None,
    command: str,
    devices: Sequence[Any],
    placement: Placement = "auto",
    report: Callable[[str], None] = print,
    **options: Any,
) -> Run:
    """Goes on with the run in `path`; `data`, `mix` and `encoder_data` are where its data is now,
    if it was moved."""
    record = read_record(open_run(path))
    problem = open_problem(
        record.run,
        data or record.data,
        mix=mix or record.mix,
        encoder_data=encoder_data or record.encoder_data,
    )
    if problem.data_hash != record.data_hash:
        folders = "--data" + ", --mix" * bool(record.mix)
        folders += ", --encoder-data" * bool(record.encoder_data)
        raise InputError(
            f"{data or record.data}: not the data that {path} began with (hash "
            f"{problem.data_hash[:12]}, not {record.data_hash[:12]}); give its folder with "
            f"{folders}"
        )
    loaded = _load(problem, devices, placement, report)
    run = resume(path, record, command=command, devices=devices)
    _train(run, record, problem, loaded, devices, options)
    return run


def _check_encoder(problem: Problem, algorithm: Algorithm) -> None:
    """`InputError` for an encoder buffer that no batch is drawn from, and for a batch that was
    pointed at one where there is none. (A batch that is of it by default takes the main data.)"""
    specs = [spec for stage in algorithm.stages() for spec in stage.batches]
    if problem.logged is None:
        return
    if problem.encoder is None:
        for field in dataclasses.fields(problem.config.algo):
            if getattr(field.default, "buffer", "") != "main":
                continue
            if getattr(problem.config.algo, field.name).buffer == "encoder":
                raise InputError(
                    f"algo.{field.name}.buffer: encoder, and there is no encoder buffer; give its "
                    "data with --encoder-data, or a part of the data with --encoder-slice"
                )
    elif all(spec.buffer != "encoder" for spec in specs):
        raise InputError(
            f"encoder_slice, --encoder-data: {type(algorithm).__name__} draws no batch of the "
            f"encoder buffer, only {', '.join(spec.name for spec in specs)} of the main one; leave "
            "them out, or set the buffer of a batch to encoder"
        )


@dataclass(frozen=True)
class _Loaded:
    """All that a run reads from its dataset; every file was compared with its hash."""

    data: TrainingData | None
    """None: no stage reads any."""
    contexts: Contexts


def _load(
    problem: Problem,
    devices: Sequence[Any],
    placement: Placement,
    report: Callable[[str], None],
) -> _Loaded:
    config = problem.config
    check_steppable(problem.env)  # now, not at the first evaluation
    seeds = config.train.seed_numbers.tolist()
    if problem.logged is None:
        contexts = without_data(problem.env, config.eval, seeds=seeds, discount=config.discount)
        return _Loaded(None, contexts)
    contexts = draw_contexts(
        problem.dataset, problem.env, config.eval, seeds=seeds, discount=config.discount
    )
    if not problem.needs_data:
        report(
            f"none of {problem.dataset.path} is learned from, the run collects all that it draws; "
            "tasks, splits, scales and contexts of evaluations are of it"
        )
        return _Loaded(None, contexts)
    on_device = _fits(problem, devices, placement, report)
    read = load if on_device else open_host
    buffers = [read(v, problem.train_tasks, discount=config.discount) for v in problem.views]
    return _Loaded(buffers[0] if len(buffers) == 1 else Buffers(*buffers), contexts)


def _fits(
    problem: Problem,
    devices: Sequence[Any],
    placement: Placement,
    report: Callable[[str], None],
) -> bool:
    """Whether the data is to be on the devices; tells how many bytes that is."""
    budgets = [byte_budget(view, problem.train_tasks) for view in problem.views]
    budget = {name: sum(one[name] for one in budgets) for name in budgets[0]}
    total, free = budget.pop("total"), min(map(free_memory, devices))
    large = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in budget.items() if size > 5e5)
    needs = f"{total / 1e6:,.0f} MB ({large or 'all columns small'}) of {free / 1e6:,.0f} MB free"
    if placement == "auto" and any(stage.prepare is not None for stage in problem.stages):
        placement = "device"  # What is prepared stands beside the data.
    if placement == "host" or (placement == "auto" and total > DATA_SHARE * free):
        report(f"data on the disk; on the device it would take {needs}")
        return False
    if total > free:
        raise InputError(f"placement: device, but the data takes {needs}; use host or a slice")
    report(f"data on the device: {needs}")
    return True


def _train(
    run: Run,
    record: RunRecord,
    problem: Problem,
    loaded: _Loaded,
    devices: Sequence[Any],
    options: dict[str, Any],
) -> None:
    config = record.run
    algorithm, layout = build(config, record.spec), Layout.of(devices, config.train.seeds)
    setting = _setting(problem, algorithm, layout)
    train(
        run,
        algorithm,
        config.train,
        layout,
        loaded.data,
        np.array(problem.train_tasks),
        collector=None if setting is None else Collector(setting, run.path),
        evaluate=_evaluator(run, record, problem, loaded.contexts),
        **options,
    )


def _setting(problem: Problem, algorithm: Algorithm, layout: Layout) -> Setting | None:
    """Of a run that explores."""
    if all(stage.exploration is None for stage in algorithm.stages()):
        return None
    config, tasks = problem.config, np.array(problem.train_tasks)
    seeds = config.train.seed_numbers
    return Setting(algorithm, problem.env, layout, seeds, tasks, config.discount)


def _evaluator(
    run: Run, record: RunRecord, problem: Problem, contexts: Contexts
) -> Callable[[Any, int], dict[str, float]]:
    """Evaluates, keeps the raw returns in the run folder, and tells the means."""
    config = record.run
    algorithm = build(config, record.spec, shots=config.eval.rounds)

    def evaluate_states(states: Any, step: int) -> dict[str, float]:
        result = evaluate(
            algorithm, states, problem.env, contexts, config.eval, run_hash=record.hash
        )
        result.save(run.evaluation_file(step))
        return {
            result.shot_name(shot): float(result.shot(shot).mean()) for shot in config.eval.shots
        } | in_log(result)

    return evaluate_states


def read_record(run: Run) -> RunRecord:
    """What `config.json` of a run says."""
    return run.parse(RunRecord)


def record_of(path: str | Path) -> RunRecord:
    """The record of the run in `path`, or of a bundle, which may be named `bundled:NAME`."""
    folder = bundled.resolve(path)
    if bundle.is_bundle(folder):
        return bundle.read_manifest(folder).record
    return read_record(open_run(folder))


@dataclass(frozen=True)
class Trained:
    """A checkpoint with all that is needed to use it."""

    record: RunRecord
    algorithm: Algorithm
    states: Any
    """Leaves [seed, ...]."""
    step: int
    env: TaskEnv
    source: str
    """The run folder or the bundle it is from."""

    @property
    def seeds(self) -> list[int]:
        """Run seeds, in the order of `states`."""
        return self.record.run.train.seed_numbers.tolist()

    def dataset(self, data: str | Path | None = None) -> str | Path:
        """`data`, or the dataset that was trained on; `InputError` where there was none."""
        if not data and not self.record.data:
            raise InputError(f"{self.source}: was trained without data; give some with --data")
        return data or self.record.data


def load_trained(
    path: str | Path,
    devices: Sequence[Any] | None = None,
    *,
    step: int | None = None,
    shots: Sequence[int] = (),
) -> Trained:
    """The checkpoint of the run in `path`, or a bundle, which may be named `bundled:NAME`.

    Args:
        devices: by default what JAX prefers.
        step: number of updates that it had made; by default the last checkpoint.
        shots: numbers of adaptation rounds that it shall have room for, beside those of its own
            evaluations.
    """
    folder = bundled.resolve(path)
    if bundle.is_bundle(folder):
        return _load_bundle(folder, step, shots)
    run = open_run(folder)
    record = read_record(run)
    algorithm = build(record.run, record.spec, shots=(*record.run.eval.rounds, *shots))
    layout = Layout.of((devices or resolve_devices("auto"))[:1], record.run.train.seeds)
    states, step = load_states(run, algorithm, record.run.train, layout, step)
    env = registry.make(record.run.env)
    return Trained(record, algorithm, states, step, env, str(path))


def _load_bundle(folder: Path, step: int | None, shots: Sequence[int]) -> Trained:
    held = bundle.read(folder)
    record, held_step = held.manifest.record, held.manifest.step
    if step not in (None, held_step):
        raise InputError(f"{folder}: no checkpoint {step}; a bundle has one, {held_step}")
    algorithm = build(record.run, record.spec, shots=(*record.run.eval.rounds, *shots))
    states = held.states(jax.eval_shape(algorithm.init, jax.random.PRNGKey(0)))
    env = registry.make(record.run.env)
    return Trained(record, algorithm, states, held_step, env, bundled.label(folder))


def evaluate_trained(
    trained: Trained,
    data: str | Path | None = None,
    config: EvalConfig | None = None,
    how: How = AS_FITS,
) -> EvalResult:
    """Evaluates a checkpoint by the protocol of `config`, by default that of its run.

    Contexts, tasks and splits are of `data`, by default the dataset that was trained on. Protocols
    that adapt to no data do without it where it is not there any more: tasks are then those of the
    environment, and returns of behaviour and oracle are not known.
    """
    record = trained.record
    config = config or record.run.eval
    seeds, discount = trained.seeds, record.run.discount
    env, dataset = tasks_of(trained, data, config)
    if dataset is None:
        contexts = without_data(env, config, seeds=seeds, discount=discount)
    else:
        contexts = draw_contexts(dataset, env, config, seeds=seeds, discount=discount)
    states, run_hash = trained.states, record.hash
    return evaluate(trained.algorithm, states, env, contexts, config, how=how, run_hash=run_hash)


def tasks_of(
    trained: Trained, data: str | Path | None, config: EvalConfig
) -> tuple[TaskEnv, Dataset | None]:
    """The environment with the tasks that `config` is about, and the dataset that names them: None
    where the one that was trained on is not there and `config` needs none."""
    source = data or trained.record.data
    missing = not source or not bundled.resolve(source).exists()
    if data is None and missing and not config.needs_context:
        return trained.env, None
    source = trained.dataset(data)
    # Where nothing is adapted to there may be tasks without data.
    splits = [] if config.tasks or not config.needs_context else [config.split]
    dataset = open_for_training(source, trained.env, splits, options="--split, --tasks")
    return with_tasks_of(dataset, trained.env), dataset
