"""What an experiment is: a frozen declaration, and the run configs that it stands for.

A run of it, an `Arm`, is a preset with overrides. An override is a path in the JSON of a
`RunConfig` with its value, `{"algo.outer_batch.start": 0.0}`, read as strictly as a config file is.
Later ones win: the preset's value, the scale's for all runs, the scale's for the algorithm, the
arm's, the arm's at the scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, get_args

import numpy as np

from omrl.config import Json, from_json, to_json
from omrl.data.borrow import Borrowing
from omrl.envs import registry
from omrl.errors import InputError, nearest
from omrl.presets import RunConfig, preset
from omrl.protocol import EvalConfig, Measure

Scale = Literal["smoke", "gpu", "paper"]
"""Minutes on two cores; pieces of ten minutes on one GPU; as the paper did it."""
SCALES: tuple[Scale, ...] = get_args(Scale)
NOT_SMOKE: tuple[Scale, ...] = ("gpu", "paper")
"""Of what takes long on two cores."""
Overrides = Mapping[str, Json]
Config = TypeVar("Config", RunConfig, EvalConfig)


@dataclass(frozen=True)
class Number:
    """A number that a paper prints."""

    value: float
    error: float | None = None
    """What the paper has behind ±."""

    def __str__(self) -> str:
        return f"{self.value:.1f}" if self.error is None else f"{self.value:.1f} ± {self.error:.1f}"


@dataclass(frozen=True)
class Claim:
    """What the paper says came out."""

    words: str
    source: str
    """Paper, figure or table, and where the setting is described."""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """Return after adaptation by the label of an arm; empty: the paper has a figure alone."""
    spread: str = ""
    """What ± is in the paper."""


@dataclass(frozen=True)
class Arm:
    """One meta-training and its evaluation."""

    method: str
    """Name in tables; arms of one method are one colour."""
    preset: str
    group: str = ""
    """What is varied beside the method; empty: nothing is."""
    overrides: Overrides = field(default_factory=dict)
    split_of: str = ""
    """Environment whose train and test split replace those of the data; its tasks are the same.
    Where it has fewer training tasks than the preset has per update, all make an update."""
    presets: Mapping[Scale, str] = field(default_factory=dict)
    """Another preset at a scale."""
    at: Mapping[Scale, Overrides] = field(default_factory=dict)
    """Further overrides at a scale."""
    scales: tuple[Scale, ...] = SCALES
    """Where it is run; elsewhere it would take too long."""
    evaluate: Overrides = field(default_factory=dict)
    """Of `EvalConfig`: an evaluation other than the run's own. Arms that differ in nothing else
    share one training."""
    after: str = ""
    """Stage of the meta-training at whose end it is evaluated; empty: the last. Arms that differ in
    nothing else share one training."""
    reads: Literal["data", "relabelled", "nothing"] = "data"
    """The data of the setting, what it has relabelled of it, or nothing but what it collects. The
    second dataset, of the encoder buffer, is read where the config says `separate_encoder`."""
    collects: bool = False
    """It is the run that the others' data is from (`FromRun`), with the settings of that."""

    @property
    def label(self) -> str:
        return f"{self.method}, {self.group}" if self.group else self.method


@dataclass(frozen=True)
class Relabelled:
    """A dataset in which tasks take over episodes of others: `omrl data relabel`."""

    slice: str
    """Part of every lifetime that is relabelled."""
    borrowing: Borrowing


@dataclass(frozen=True)
class FromRun:
    """Data that a meta-training collects itself: both buffers of its first seed, as datasets
    (`omrl data from-run`)."""

    preset: str
    overrides: Overrides = field(default_factory=dict)
    relabelled: Relabelled | None = None
    """Of its main buffer."""


@dataclass(frozen=True)
class Setting:
    """What a scale means for an experiment."""

    data: str | FromRun
    """Preset of `omrl collect`, `bundled:NAME`, or a run that collects."""
    seeds: int
    """Of every run but the one that collects."""
    overrides: Overrides = field(default_factory=dict)
    """Of every run but the one that collects."""
    of_algorithm: Mapping[str, Overrides] = field(default_factory=dict)
    """Of the runs of one algorithm, by its name in configs."""
    diagnose: Mapping[str, Overrides] = field(default_factory=dict)
    """Of the evaluation's `EvalConfig`, by the name of a diagnosis (`omrl evaluate --diagnose`)
    that is made with it of every run."""
    note: str = ""
    """What is said first of all that comes out."""


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper."""

    id: str
    title: str
    claim: Claim
    arms: tuple[Arm, ...]
    scales: Mapping[Scale, Setting]
    reference: str
    """Method that every other one of its group is compared with."""
    statistic: Literal["mean", "iqm"] = "mean"
    """Over seeds and tasks, in table and figure."""
    measure: Measure = "return"
    """What table and figure are of; of success they show the whole training, too."""
    figure: Literal["bars", "lines"] = "bars"
    """Bars of every method, in groups; or a line per method over the groups."""
    pictures: tuple[str, ...] = ()
    """Names of the figures of its diagnoses that are drawn; none: all."""
    better_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods of which the paper takes the better one, by what it calls that."""
    deviates: str = ""
    """What differs from the paper at every scale, and why."""

    def __post_init__(self) -> None:
        labels, methods = [arm.label for arm in self.arms], {arm.method for arm in self.arms}
        for method in (each for some in self.better_of.values() for each in some):
            if method not in methods:
                raise InputError(f"{self.id}: the better of {method!r}; {nearest(method, methods)}")
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"{self.id}: two arms are called {label!r}")
        for label in self.claim.numbers:
            if label not in labels:
                raise InputError(f"{self.id}: a number of {label!r}; {nearest(label, labels)}")


@dataclass(frozen=True)
class Planned:
    """An arm at a scale."""

    arm: Arm
    preset: str
    config: RunConfig
    """Of the training, and of the evaluation after it."""
    evaluation: EvalConfig
    """What the table shows; mostly `config.eval`."""
    diagnose: Mapping[str, EvalConfig] = field(default_factory=dict)
    """Of the diagnoses of its checkpoints, by their names."""

    @property
    def slug(self) -> str:
        """Its label as the name of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.arm.label.lower()).strip("-")


def plan(
    experiment: Experiment, scale: Scale, *, seeds: int | None = None, only: Sequence[str] = ()
) -> tuple[Planned, ...]:
    """The runs of an experiment at a scale, all of them or those of the methods or labels `only`.

    Raises `InputError` for an unknown one, and for a declaration whose presets, settings or tasks
    do not exist.
    """
    if scale not in experiment.scales:
        raise InputError(
            f"{experiment.id} has no scale {scale}, only {', '.join(experiment.scales)}"
        )
    arms = [arm for arm in experiment.arms if scale in arm.scales]
    names = {name for arm in arms for name in (arm.method, arm.label)}
    for name in only:
        if name not in names:
            raise InputError(
                f"--only: {experiment.id} has no {name!r} at scale {scale}; {nearest(name, names)}"
            )
    chosen = [arm for arm in arms if not only or {arm.method, arm.label} & set(only)]
    return tuple(_planned(experiment, arm, scale, seeds) for arm in chosen)


def extras(planned: Iterable[Planned]) -> tuple[str, ...]:
    """Packages that the environments of these runs need beside ours."""
    needed = {registry.make(each.config.env).extra for each in planned}
    return tuple(sorted(needed - {""}))


def collecting(experiment: Experiment, scale: Scale) -> Planned:
    """The run that the data of a scale is from. `InputError` where there is none."""
    data = experiment.scales[scale].data
    if not isinstance(data, FromRun):
        raise InputError(f"{experiment.id}: no run collects the data of scale {scale}")
    where = f"{experiment.id}, data"
    config = override(preset(data.preset).config, data.overrides, where)
    arm = Arm("data", data.preset, collects=True)
    return Planned(arm, data.preset, config, config.eval)


def _planned(experiment: Experiment, arm: Arm, scale: Scale, seeds: int | None) -> Planned:
    if arm.collects:
        return replace(collecting(experiment, scale), arm=arm)
    name = arm.presets.get(scale, arm.preset)
    config, setting = preset(name).config, experiment.scales[scale]
    of_algorithm = setting.of_algorithm.get(type(config.algo).TAG, {})
    changes = {"train.seeds": setting.seeds, **setting.overrides, **of_algorithm}
    changes |= {**_split(arm, config), **arm.overrides, **arm.at.get(scale, {})}
    if seeds is not None:
        changes["train.seeds"] = seeds
    if "train_tasks" in changes:
        per_update = changes.get("algo.task_batch", config.algo.task_batch)
        changes["algo.task_batch"] = min(per_update, len(changes["train_tasks"]))
    where = f"{experiment.id}, {arm.label}"
    config = override(config, changes, where)
    evaluation = override(config.eval, arm.evaluate, f"{where}, evaluate")
    diagnoses = {} if arm.after else setting.diagnose
    diagnose = {
        each: override(evaluation, changed, f"{where}, {each}")
        for each, changed in diagnoses.items()
    }
    return Planned(arm, name, config, evaluation, diagnose)


def override(config: Config, changes: Overrides, where: str = "config") -> Config:
    """`config` with other values at some paths; `InputError` for a path or value that is none."""
    values = to_json(config)
    for path, value in changes.items():
        *parents, name = path.split(".")
        inner = values
        for parent in parents:
            inner = inner.get(parent) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or name not in inner:
            raise InputError(f"{where}: {path}: no such setting of {type(config).__name__}")
        inner[name] = to_json(value)
    return from_json(type(config), values, where)


def _split(arm: Arm, config: RunConfig) -> Overrides:
    """The tasks that `arm.split_of` trains and tests on, by their numbers."""
    if not arm.split_of:
        return {}
    named, own = registry.make(arm.split_of), registry.make(config.env)
    if not np.array_equal(named.tasks, own.tasks):
        raise InputError(f"{arm.label}: {arm.split_of} has other tasks than {config.env}")
    return {"train_tasks": named.splits["train"], "eval.tasks": named.splits["test"]}
