"""What a meta-training is about: environment, tasks and, unless it collects all itself, data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omrl.algorithm import Algorithm, Stage
from omrl.algos import registry as algorithms
from omrl.algos.borel_config import BorelConfig
from omrl.algos.dqn import DqnConfig
from omrl.config import json_hash
from omrl.data.dataset import Dataset
from omrl.data.mixture import DataView, check_tasks, open_view
from omrl.data.statistics import measure
from omrl.data.store import open_for_training, with_tasks_of
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.evaluate import check_traces
from omrl.presets import RunConfig
from omrl.types import Spec


@dataclass(frozen=True)
class Logged:
    """The data of a problem."""

    dataset: Dataset
    view: DataView
    """The part that is trained on."""
    encoder: DataView | None
    """Of batches of the encoder buffer; None: `view`."""


@dataclass(frozen=True)
class Problem:
    """An environment, checked for a config, and data beside it."""

    config: RunConfig
    env: TaskEnv
    """With the tasks and splits of the dataset if there is one."""
    train_tasks: tuple[int, ...]
    logged: Logged | None
    """None: nothing but what the run collects itself."""

    @property
    def needs_data(self) -> bool:
        """Whether any stage reads logged data."""
        return any(stage.needs_data for stage in self.stages)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those of the meta-training, as far as they do not depend on the data."""
        return build(self.config, _bare_spec(self)).stages()

    @property
    def dataset(self) -> Dataset:
        """Of a problem that has one, as `view` and `encoder`."""
        return self._logged.dataset

    @property
    def view(self) -> DataView:
        return self._logged.view

    @property
    def encoder(self) -> DataView | None:
        return self._logged.encoder

    @property
    def views(self) -> tuple[DataView, ...]:
        return (self.view,) if self.encoder is None else (self.view, self.encoder)

    @property
    def data_hash(self) -> str:
        """Of all that is trained on; empty without data."""
        if self.logged is None:
            return ""
        hashes = [view.hash for view in self.views]
        return hashes[0] if len(hashes) == 1 else json_hash(hashes)

    @property
    def _logged(self) -> Logged:
        assert self.logged is not None
        return self.logged


def open_problem(
    config: RunConfig,
    data: str | Path = "",
    *,
    mix: str | Path = "",
    encoder_data: str | Path = "",
) -> Problem:
    """Opens and checks the data. Raises `InputError` for whatever would stop the run later.

    Args:
        data: empty: none, for a config of which no stage reads any.
        mix: dataset of the second term of the mixture that `config.slice` is; empty: `data`.
        encoder_data: dataset of the encoder buffer; empty: `data`, unless `config` wants another.
    """
    env = registry.make(config.env)
    check_traces(config.eval, env)
    _check_actions(config, env)
    problem = (
        _open_logged(config, env, data, mix, encoder_data)
        if data
        else _without_data(config, env, bool(mix or encoder_data))
    )
    _check_explored(problem)
    return problem


def _open_logged(
    config: RunConfig, env: TaskEnv, data: str | Path, mix: str | Path, encoder_data: str | Path
) -> Problem:
    if config.separate_encoder and not encoder_data:
        raise InputError(
            "separate_encoder: contexts are of a dataset of their own, the second one of omrl data "
            "from-run; name it with --encoder-data, or take contexts of --data too: "
            "--no-separate-encoder"
        )
    evaluated = not config.eval.tasks and config.eval.needs_context
    splits = [
        "" if config.train_tasks else config.train_split,
        config.holdout,
        config.eval.split if evaluated else "",
    ]
    dataset = open_for_training(data, env, [name for name in splits if name])
    env = with_tasks_of(dataset, env)
    tasks = _train_tasks(config, env, dataset)
    view = open_view(config.slice, dataset, open_for_training(mix, env) if mix else None)
    _check_cells(config, view, tasks)
    encoder = None
    if config.encoder_slice or encoder_data:
        source = open_for_training(encoder_data, env) if encoder_data else dataset
        check_tasks(dataset, source, tasks)
        encoder = _encoder_view(config, source, tasks)
    return Problem(config, env, tasks, Logged(dataset, view, encoder))


def _encoder_view(config: RunConfig, source: Dataset, tasks: Sequence[int]) -> DataView:
    try:
        view = open_view(config.encoder_slice or config.slice, source)
        for index in tasks:
            view.task(index)  # Whether the slice fits.
    except InputError as error:
        as_main = "" if config.encoder_slice else "that of slice, for want of its own; "
        raise InputError(f"encoder_slice: {as_main}{error}") from error
    return view


def _without_data(config: RunConfig, env: TaskEnv, others: bool) -> Problem:
    if others:
        raise InputError("--mix, --encoder-data: need --data, the dataset that they go with")
    if config.slice != "all" or config.encoder_slice:
        raise InputError("slice, encoder_slice: are of logged data; give it with --data")
    if config.eval.needs_context:
        raise InputError(
            f"eval.protocol: {config.eval.protocol} adapts to logged data of the test tasks; give "
            "it with --data, or evaluate otherwise: --eval.protocol explore --eval.shots 0 1 2"
        )
    if config.algo.normalize_obs:
        raise InputError(
            "algo.normalize_obs: there is no data to measure scales on; switch it off, or give "
            "some with --data"
        )
    problem = Problem(config, env, _train_tasks(config, env, None), None)
    for stage in problem.stages:
        if stage.needs_data:
            raise InputError(
                f"--data: stage {stage.name} learns from logged data; name the folder of a dataset"
            )
    return problem


def _train_tasks(config: RunConfig, env: TaskEnv, dataset: Dataset | None) -> tuple[int, ...]:
    where = env.spec.id if dataset is None else dataset.path
    for name in filter(None, (config.train_split, config.holdout)):
        if name not in env.splits:
            raise InputError(f"split {name!r} is not one of {where}: {', '.join(env.splits)}")
    chosen = config.train_tasks or env.splits[config.train_split]
    held = range(len(env.tasks)) if dataset is None else dataset.task_indices
    for index in config.train_tasks:
        if index not in held:
            raise InputError(
                f"train_tasks: {where} has no task {index}; it has {len(held)}, from "
                f"{held[0]} to {held[-1]}"
            )
    left_out = env.splits[config.holdout] if config.holdout else ()
    tasks = tuple(index for index in chosen if index not in left_out)
    env.check_training(tasks)
    if algorithms.draws_distinct_tasks(config.algo) and len(tasks) < config.algo.task_batch:
        of = "train_tasks" if config.train_tasks else f"split {config.train_split!r}"
        without = f" without {config.holdout!r}" if config.holdout else ""
        raise InputError(
            f"algo.task_batch is {config.algo.task_batch}; {where} has {len(tasks)} tasks "
            f"in {of}{without}; take at most that many: --algo.task-batch"
        )
    return tasks


def _check_actions(config: RunConfig, env: TaskEnv) -> None:
    """`InputError` where a method of discrete actions would take numbers for choices."""
    discrete = isinstance(config.algo, BorelConfig) and isinstance(config.algo.policy, DqnConfig)
    if discrete and not env.discrete_actions:
        raise InputError(
            f"algo.policy: DQN chooses among discrete actions, and those of {env.spec.id} are "
            "continuous; take a preset with SAC (an environment of your own says "
            "discrete_actions = True)"
        )


def _check_cells(config: RunConfig, view: DataView, tasks: Sequence[int]) -> None:
    """`InputError` where observations are in no cell of the grid that the settings describe."""
    sizes = config.algo.vae.reward_cells if isinstance(config.algo, BorelConfig) else ()
    for index in tasks if sizes else ():
        obs = view.task(index).obs
        for entry, size in enumerate(sizes[: obs.shape[1]]):
            low, high = float(obs[:, entry].min()), float(obs[:, entry].max())
            if round(low) < 0 or round(high) >= size:
                raise InputError(
                    f"algo.vae.reward_cells: {view.path}, task {index}: entry {entry} of its "
                    f"observations goes from {low:g} to {high:g}, and the grid has {size} values "
                    f"of it, from 0; give its sizes, {round(high) + 1} or more, or none"
                )


def _check_explored(problem: Problem) -> None:
    """`InputError` where a run would explore test tasks without saying so."""
    splits = problem.env.splits
    hidden = set(splits.get("test", ())) - set(splits.get("train", ()))
    tests = [task for task in problem.train_tasks if task in hidden]
    if not tests:
        return
    for stage in problem.stages:
        if stage.exploration is not None and not stage.exploration.test_tasks:
            raise InputError(
                f"train_tasks: stage {stage.name} would explore task {tests[0]}, a test task of "
                f"{problem.env.spec.id}; leave it out, or say so: exploration.test_tasks"
            )


def measure_spec(problem: Problem) -> Spec:
    """Dimensions of the problem, and scales of observations and returns over the training tasks if
    there is data."""
    if problem.logged is None:
        return _bare_spec(problem)
    return measure(problem.view, problem.train_tasks, problem.config.discount)


def _bare_spec(problem: Problem) -> Spec:
    spec = problem.env.spec
    return Spec(spec.obs_dim, spec.act_dim, len(problem.train_tasks), spec.horizon)


def build(config: RunConfig, spec: Spec, *, shots: Sequence[int] = ()) -> Algorithm:
    """The algorithm of a config; `shots`: numbers of adaptation rounds it must have room for."""
    return algorithms.build(config.algo, spec, rounds=max(shots, default=0))
