"""Contexts from data and contexts that a run explores itself, for all diagnoses.

For every run seed, task and repetition:

    offline context   transitions that the encoder was trained on, of the encoder buffer where the
                      run had one, drawn as protocol `given` draws them
    online context    as many of those that the run's policy makes in `explore.episodes`
                      trajectories from the prior, with the environment's rewards

Contexts are of one size, because a posterior narrows with the number of transitions: where fewer
were explored than asked for, the offline context of the same row is cut to as many.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from omrl.algorithm import Algorithm
from omrl.context import Contexts, draw_contexts
from omrl.data.dataset import Dataset
from omrl.data.online import Trajectories
from omrl.data.store import open_for_training
from omrl.diagnostics.base import SOURCES
from omrl.envs.base import TaskEnv
from omrl.envs.engine import available_cpus
from omrl.errors import InputError
from omrl.evaluate import provenance_of
from omrl.explore import Agents, Watch, available, gathered, joined, standard_keys
from omrl.finetune import Setting
from omrl.metatrain import Trained, tasks_of
from omrl.protocol import EvalConfig
from omrl.simulate import Labels, Outcome
from omrl.types import Batch, Key

MOST_TRAIN_TASKS = 10
"""Training tasks that are looked at beside the split, evenly spread over all."""


@dataclass(frozen=True)
class Case:
    """A checkpoint that is diagnosed."""

    trained: Trained
    setting: Setting
    """Its config is that of the offline contexts."""
    labels: Labels
    main: Dataset
    """What a decoder is tried on."""
    tried: EvalConfig
    """Of these."""
    dataset: Dataset
    """Of the offline contexts."""
    trained_on: Bool[np.ndarray, " task"]

    @property
    def config(self) -> EvalConfig:
        return self.setting.config

    @property
    def shape(self) -> tuple[int, int, int]:
        """Seeds, tasks, repetitions."""
        seeds, tasks, _, repetitions = self.labels.shape
        return seeds, tasks, repetitions

    def agents(self) -> Agents:
        """Of whose tasks nothing is known yet."""
        env = self.setting.env
        keys = standard_keys(self.config, self.labels, env.spec.horizon)
        return Agents(self.setting, self.labels, keys)

    def head(self, contexts: Contexts) -> dict[str, Any]:
        """The fields that all results have, but those of the contexts' size."""
        trained, env, tasks = self.trained, self.setting.env, list(self.labels.tasks)
        of_run = (trained.algorithm, trained.states, env, contexts, self.labels)
        return {
            "config": self.config,
            "provenance": provenance_of(*of_run, trained.record.hash),
            "task_indices": np.array(tasks, np.int64),
            "task_parameters": env.tasks[tasks],
            "trained_on": self.trained_on,
        }


def open_case(trained: Trained, config: EvalConfig, data: str | Path | None = None) -> Case:
    """
    Args:
        config: of protocol `explore`; its `context_…` fields are those of the offline context, its
            `episodes` the repetitions. Beside the tasks of its split training tasks are looked at;
            if it names tasks, they alone.
        data: dataset of the offline contexts and of the transitions that a decoder is tried on, by
            default what each was trained on: datasets and, unless `config.context_slice` is another
            than all, slices.

    Raises `InputError` for a method without a posterior and for data that does not fit.
    """
    _check_posterior(trained.algorithm, trained.states)
    env, main = tasks_of(trained, trained.dataset(data), config)
    assert main is not None
    tried, dataset = config, main
    if data is None:
        tried = _sliced(trained, config, trained.record.run.slice)
        config, dataset = _of_encoder(trained, config, main)
    train_tasks = _train_tasks(trained, env)
    tasks = config.task_indices(env)
    if not config.tasks:
        held = [task for task in train_tasks if task not in tasks]
        tasks = (*tasks, *_spread(held, MOST_TRAIN_TASKS))
    labels = Labels(tuple(trained.seeds), tasks, (config.explore.episodes,), config.episodes)
    discount = trained.record.run.discount
    setting = Setting(trained.algorithm, trained.states, env, config, discount, available_cpus())
    return Case(trained, setting, labels, main, tried, dataset, np.isin(tasks, train_tasks))


def _check_posterior(algorithm: Algorithm, states: Any) -> None:
    def posterior(state: Any, key: Key) -> Any:
        return algorithm.posterior(state, algorithm.begin(state, key))

    try:
        jax.eval_shape(posterior, jax.tree.map(lambda leaf: leaf[0], states), _KEY)
    except InputError as error:
        raise InputError(f"diagnose: {error}; it is for methods that infer one") from None


_KEY = np.zeros(2, np.uint32)


def _train_tasks(trained: Trained, env: TaskEnv) -> list[int]:
    run = trained.record.run
    held_out = env.splits.get(run.holdout, ()) if run.holdout else ()
    chosen = run.train_tasks or env.splits.get(run.train_split, ())
    return [task for task in chosen if task not in held_out]


def _spread(tasks: list[int], most: int) -> list[int]:
    """At most so many of them, evenly from first to last."""
    at = np.linspace(0, len(tasks) - 1, min(len(tasks), most)).round().astype(int)
    return [tasks[position] for position in at]


def _of_encoder(trained: Trained, config: EvalConfig, main: Dataset) -> tuple[EvalConfig, Dataset]:
    """Slice and dataset of the contexts that a run's encoder was trained on."""
    record = trained.record
    source = open_for_training(record.encoder_data, trained.env) if record.encoder_data else main
    return _sliced(trained, config, record.run.encoder_slice or record.run.slice), source


def _sliced(trained: Trained, config: EvalConfig, own: str) -> EvalConfig:
    """Of the slice `own` that a run was trained on, unless the config names one, or the run mixed
    another dataset in."""
    if config.context_slice != "all" or trained.record.mix:
        return config
    return replace(config, context_slice=own)


# --- Contexts ---


def offline_contexts(case: Case, tasks: tuple[int, ...]) -> list[Contexts]:
    """Of every repetition, for tasks that there is data of."""
    return [draw(case, case.dataset, case.config, number, tasks) for number in range(case.shape[2])]


def draw(
    case: Case, dataset: Dataset, config: EvalConfig, repetition: int, tasks: tuple[int, ...]
) -> Contexts:
    """Those of protocol `given` with that much larger a context seed."""
    given = replace(
        config,
        protocol="given",
        shots=(0, 1),
        tasks=tasks,
        context_seed=config.context_seed + repetition,
    )
    env, discount = case.setting.env, case.setting.discount
    return draw_contexts(dataset, env, given, seeds=case.labels.seeds, discount=discount)


def batches_of(contexts: list[Contexts]) -> Batch:
    """Of one per repetition, leaves [seed, task, repetition, sample, ...]."""
    told = [jax.tree.map(np.asarray, context.batch) for context in contexts]
    return jax.tree.map(lambda *leaves: np.stack(leaves, 2), *told)


def online_contexts(
    seen: list[Trajectories], case: Case, size: int
) -> tuple[Batch, Bool[np.ndarray, "seed task repetition sample"]]:
    """At most `size` of the transitions of every row, drawn without replacement, in time order; and
    which of them there are."""
    labels = case.labels
    whole, has = joined(seen, case.setting.discount), available(seen).sum(-1)
    rows = np.zeros((*has.shape, size), np.int64)
    there = np.arange(size) < has[..., None]
    for s, t, r in np.ndindex(has.shape):
        key = (case.config.context_seed * 2**32 + labels.seeds[s], labels.tasks[t])
        generator = np.random.Generator(np.random.Philox(key=key, counter=r))
        chosen = np.sort(generator.permutation(has[s, t, r])[:size])
        rows[s, t, r, : len(chosen)] = chosen

    return jax.tree.map(partial(gathered, rows), whole), there


# --- Playing ---


@dataclass(frozen=True)
class Played:
    """What was made on the way."""

    exploration: list[Outcome]
    after: dict[str, Outcome]
    """Of the trajectory after each kind of context."""
    there: Bool[np.ndarray, "seed task repetition sample"]
    """Which transitions both contexts of a row have, of as many as were asked for."""


def play(
    case: Case,
    offline: Batch,
    watch: Callable[[str], Watch] | None,
    told: Callable[[str, Agents, Batch, np.ndarray], None] = lambda *_: None,
) -> Played:
    """Explores, and follows each kind of context with a trajectory of the same initial state and
    noise.

    Args:
        watch: by name of a set, what is shown its trajectories; of those from the prior each.
        told: is given the kind of a context, agents who know it, the online context, and `there`.
    """
    agents, episodes = case.agents(), case.config.explore.episodes
    exploration, seen, after = [], [], {}
    with closing(agents.physics()) as physics:
        for number in range(episodes):
            outcome, trajectories = agents.play(number, physics, watch and watch("exploration"))
            exploration.append(outcome)
            seen.append(trajectories)
        online, there = online_contexts(seen, case, offline.reward.shape[-1])
        for source, batch in zip(SOURCES, (offline, online), strict=True):
            agents.known = agents.told(batch, there)
            told(source, agents, online, there)
            after[source], _ = agents.play(episodes, physics, watch and watch(source))
    return Played(exploration, after, there)
