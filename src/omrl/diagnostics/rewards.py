"""How well rewards are predicted: on what a decoder was trained on, and on what it labels later.

SMAC (arXiv:2107.03974, appendix B, Reward Accuracy Dependence) tells the decoder's loss on training
and test tasks. In its online phase the decoder, told a context of logged data, labels transitions
that the policy explored. So here it is told either kind of context of `omrl.diagnostics.contexts`,
and predicts, by one draw of z per seed, task and repetition, as a trajectory is labelled by,

    trained-on   transitions of the training tasks' data that the run was trained on
    held-out     logged transitions that it was not: of training tasks those outside its slice of
                 the main data, of other tasks all
    explored     one more trajectory from the prior, which is in no context

Tasks without data have an online context alone, and none but explored transitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int64

from omrl.data.dataset import TaskData
from omrl.data.host import open_host
from omrl.data.online import Trajectories
from omrl.data.slice import Slice, parse_view
from omrl.diagnostics.base import SOURCES
from omrl.diagnostics.contexts import (
    Case,
    batches_of,
    offline_contexts,
    online_contexts,
    open_case,
)
from omrl.diagnostics.rewards_results import LOGGED, TRANSITIONS, RewardsResult
from omrl.diagnostics.shift import squared_errors
from omrl.errors import InputError
from omrl.explore import Agents, available, joined
from omrl.metatrain import Trained
from omrl.protocol import EvalConfig
from omrl.types import Batch

There = Bool[np.ndarray, "seed task repetition sample"]


def diagnose_rewards(
    trained: Trained, config: EvalConfig, data: str | Path | None = None
) -> RewardsResult:
    """Measures the decoder of one checkpoint; arguments and errors are those of `open_case`, and
    `InputError` for a method that predicts no rewards."""
    case = open_case(trained, config, data)
    tasks = case.labels.tasks
    held = np.isin(tasks, case.dataset.task_indices) & np.isin(tasks, case.main.task_indices)
    if not held.any():
        raise InputError(
            f"{case.dataset.path}: has no data of the tasks {', '.join(map(str, tasks))}, so "
            "nothing can be told of logged rewards; name tasks of its own: --tasks"
        )
    with_data = tuple(task for task, there in zip(tasks, held, strict=True) if there)
    contexts = offline_contexts(case, with_data)
    given = batches_of(contexts)
    agents, seen = _explored(case)
    online, there = online_contexts(seen[:-1], case, given.reward.shape[-1])
    offline = jax.tree.map(np.zeros_like, online)
    for whole, part in zip(offline, given, strict=True):
        whole[:, held] = part
    of_source = {"offline": (offline, there & held[:, None, None]), "online": (online, there)}
    tried = dict(_logged(case, held, online))
    tried["explored"] = joined(seen[-1:], case.setting.discount), available(seen[-1:])
    errors = np.full((len(SOURCES), len(TRANSITIONS), *case.shape), np.nan)
    for source, (batch, has) in of_source.items():
        agents.known = agents.told(batch, has)
        agents.start(len(seen))
        agents.guess()
        for name, (transitions, those) in tried.items():
            squared = _squared(case, agents, transitions)
            found = _mean(squared, those & has.any(-1)[..., None])
            errors[SOURCES.index(source), TRANSITIONS.index(name)] = found
    return RewardsResult(
        **case.head(contexts[0]),
        context_size=np.int64(there.shape[-1]),
        used=there.sum(-1),
        error=errors,
        constant=np.stack([_of_constant(*tried[name]) for name in TRANSITIONS]),
        tried=np.stack([tried[name][1].sum(-1) for name in TRANSITIONS]),
    )


def _explored(case: Case) -> tuple[Agents, list[Trajectories]]:
    """Trajectories from the prior, one more than a context is of."""
    config = case.config
    episodes = config.explore.episodes + 1
    longer = replace(config, shots=(episodes,), explore=replace(config.explore, episodes=episodes))
    agents = replace(case, setting=replace(case.setting, config=longer)).agents()
    with closing(agents.physics()) as physics:
        return agents, [agents.play(number, physics)[1] for number in range(episodes)]


def _squared(case: Case, agents: Agents, batch: Batch) -> np.ndarray:
    try:
        return squared_errors(case, agents.acting, batch)
    except InputError as error:
        raise InputError(f"diagnose: {error}; it is for methods that predict rewards") from None


def _mean(values: np.ndarray, there: There) -> np.ndarray:
    """Over the samples that are there; NaN where there are none."""
    count = there.sum(-1)
    total = np.where(there, values, 0.0).sum(-1, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _of_constant(batch: Batch, there: There) -> np.ndarray:
    """The error of the best constant of a seed and task: one for all repetitions, so that it does
    not know how a single trajectory went."""
    rewards = np.asarray(batch.reward, np.float64)
    together = (*rewards.shape[:2], 1, -1)
    middle = np.nan_to_num(_mean(rewards.reshape(together), there.reshape(together)))
    return _mean((rewards - middle[..., None]) ** 2, there)


# --- Logged transitions ---


def _logged(
    case: Case, held: Bool[np.ndarray, " task"], like: Batch
) -> Iterator[tuple[str, tuple[Batch, There]]]:
    """Of both kinds of `LOGGED` at most as many transitions as a context, drawn without
    replacement, and which there are."""
    for number, name in enumerate(LOGGED, start=1):
        batch: Any = jax.tree.map(np.zeros_like, like)
        there = np.zeros(like.reward.shape, bool)
        for t in np.flatnonzero(held):
            task = case.main.task(case.labels.tasks[t])
            inside = _inside(task, case.tried.context_slice) & case.trained_on[t]
            rows = np.flatnonzero(inside == (name == "trained-on"))
            chosen, there[:, t] = _draw(case, int(t), number, rows, there.shape[-1])
            host = open_host(
                case.main, (case.labels.tasks[t],), discount=case.setting.discount, cache=False
            )
            for whole, part in zip(batch, host.tasks[0].gather(chosen), strict=True):
                whole[:, t] = part
        yield name, (batch, there)


def _inside(task: TaskData, name: str) -> Bool[np.ndarray, " row"]:
    """Which transitions of a lifetime a slice has; of a mixture any may be among them."""
    view = parse_view(name)
    inside = np.zeros(task.num_rows, bool)
    if not isinstance(view, Slice):
        return ~inside
    part = replace(task, selected=view.select(task.lengths, task.returns))
    for first, stop in zip(*part.rows("action"), strict=True):
        inside[first:stop] = True
    return inside


def _draw(
    case: Case, t: int, number: int, rows: Int64[np.ndarray, " row"], size: int
) -> tuple[Int64[np.ndarray, "seed repetition sample"], Bool[np.ndarray, "seed repetition sample"]]:
    seeds, _, repetitions = case.shape
    chosen = np.zeros((seeds, repetitions, size), np.int64)
    for s, r in np.ndindex(seeds, repetitions):
        key = (case.config.context_seed * 2**32 + case.labels.seeds[s], case.labels.tasks[t])
        generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, r, number]))
        drawn = np.sort(generator.permutation(rows)[:size])
        chosen[s, r, : len(drawn)] = drawn
    there = np.arange(size) < min(size, len(rows))
    return chosen, np.broadcast_to(there, chosen.shape)
