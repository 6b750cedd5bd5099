"""Distribution shift in z: contexts from data against contexts that a run explores itself.

An encoder that was trained on logged data meets other data at the test: what its own policy does
when it knows nothing of the task (SMAC, arXiv:2107.03974, section 4). For every run seed, task and
repetition:

    offline context   transitions that the encoder was trained on, of the encoder buffer where the
                      run had one, drawn as protocol `given` draws them
    online context    as many of those that the run's policy makes in `explore.episodes`
                      trajectories from the prior, with the environment's rewards

and for both KL(q(z|c) || N(0, 1)) (Figure 2, left), the return of the trajectory that follows
(Figure 2, right; the same initial state and noise for both), where it goes (Figures 6 and 7), and,
of a method with a reward decoder, its error on the transitions of both, told the offline context.
Contexts are of one size, because a KL grows with the number of transitions: where fewer were
explored than asked for, the offline context of the same row is cut to as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64

from omrl import bundle, bundled
from omrl.algorithm import Algorithm
from omrl.context import Contexts, draw_contexts
from omrl.data.dataset import Dataset
from omrl.data.mixture import open_view
from omrl.data.online import Trajectories
from omrl.data.store import open_for_training
from omrl.diagnostics.results import SETS, SOURCES, ShiftResult, file_of
from omrl.envs.base import TaskEnv
from omrl.envs.engine import Moment, available_cpus
from omrl.envs.positions import has_positions, positions
from omrl.errors import InputError
from omrl.evaluate import provenance_of
from omrl.explore import Agents, available, gathered, joined, of_rows, standard_keys
from omrl.finetune import Setting
from omrl.metatrain import Trained, tasks_of
from omrl.ops.latent import kl_to_prior
from omrl.protocol import EvalConfig
from omrl.runs import open_run
from omrl.simulate import Labels
from omrl.train import steps_of
from omrl.types import Batch, Key

MOST_TRAIN_TASKS = 10
"""Training tasks that are looked at beside the split, evenly spread over all."""

Report = Callable[[str], None]


def diagnose_shift(
    trained: Trained, config: EvalConfig, data: str | Path | None = None
) -> ShiftResult:
    """Measures the shift of one checkpoint.

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
    seeds = tuple(trained.seeds)
    labels = Labels(seeds, tasks, (config.explore.episodes,), config.episodes)
    discount = trained.record.run.discount
    setting = Setting(trained.algorithm, trained.states, env, config, discount, available_cpus())
    contexts = [_offline(dataset, setting, labels, number) for number in range(config.episodes)]
    # On these a decoder is tried.
    contexts.append(_offline(main, replace(setting, config=tried), labels, config.episodes))
    measured = _measure(setting, labels, contexts)
    of_run = trained.algorithm, trained.states, env, contexts[0], labels, trained.record.hash
    return ShiftResult(
        config=config,
        provenance=provenance_of(*of_run),
        task_indices=np.array(tasks, np.int64),
        task_parameters=env.tasks[list(tasks)],
        trained_on=np.isin(tasks, train_tasks),
        context_size=np.int64(measured.there.shape[-1]),
        used=measured.there.sum(-1),
        kl=measured.kl,
        returns=measured.returns,
        exploration=measured.exploration,
        decoder_error=measured.decoder_error,
        xy=_xy(setting, dataset, labels, measured.terms) if has_positions(env.spec) else None,
    )


def diagnose_checkpoints(
    load: Callable[[int], Trained],
    steps: Sequence[int],
    config: EvalConfig,
    *,
    data: str | Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    report: Report = lambda line: None,
) -> list[ShiftResult]:
    """Measures the shift of checkpoints, which `load` loads, and keeps each in the folder `out`.

    Of several those that are there are read in place of being measured again, unless `overwrite`.
    Raises `InputError` where these are of other data.
    """
    found = []
    for number, step in enumerate(steps, start=1):
        path = None if out is None else file_of(out, config, step)
        if path is not None and path.exists() and len(steps) > 1 and not overwrite:
            found.append(ShiftResult.load(path))
            report(f"diagnosis shift, {number} of {len(steps)}: {path} is there")
            continue
        report(f"diagnosis shift, {number} of {len(steps)}: checkpoint {step:,}")
        result = diagnose_shift(load(step), config, data)
        if path is not None:
            result.save(path)
        found.append(result)
    sources = [result.provenance for result in found]
    if len({(source.dataset_hash, source.run_hash) for source in sources}) > 1:
        raise InputError(
            f"{out}: holds a diagnosis of another run or with other data; replace it with "
            "--overwrite"
        )
    return found


def kept_checkpoints(path: str | Path) -> list[int]:
    """Numbers of updates of all checkpoints of the run in `path`, or of a bundle, ascending."""
    folder = bundled.resolve(path)
    if bundle.is_bundle(folder):
        return [bundle.read_manifest(folder).step]
    steps = steps_of(open_run(folder))
    if not steps:
        raise InputError(f"{path}: has no checkpoint yet; train first")
    return steps


def _check_posterior(algorithm: Algorithm, states: Any) -> None:
    def posterior(state: Any, key: Key) -> Any:
        return algorithm.posterior(state, algorithm.begin(state, key))

    try:
        jax.eval_shape(posterior, jax.tree.map(lambda leaf: leaf[0], states), _KEY)
    except InputError as error:
        raise InputError(
            f"diagnose: {error}; diagnosis shift is for methods that infer one"
        ) from None


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


# --- Contexts ---


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


def _offline(dataset: Dataset, setting: Setting, labels: Labels, repetition: int) -> Contexts:
    """Of one repetition: those of protocol `given` with that much larger a context seed."""
    config = setting.config
    given = replace(
        config,
        protocol="given",
        shots=(0, 1),
        tasks=labels.tasks,
        context_seed=config.context_seed + repetition,
    )
    return draw_contexts(dataset, setting.env, given, seeds=labels.seeds, discount=setting.discount)


def _online(
    seen: list[Trajectories], setting: Setting, labels: Labels, size: int
) -> tuple[Batch, Bool[np.ndarray, "seed task repetition sample"]]:
    """At most `size` of the transitions of every row, drawn without replacement, in time order; and
    which of them there are."""
    whole, has = joined(seen, setting.discount), available(seen).sum(-1)
    rows = np.zeros((*has.shape, size), np.int64)
    there = np.arange(size) < has[..., None]
    for s, t, r in np.ndindex(has.shape):
        key = (setting.config.context_seed * 2**32 + labels.seeds[s], labels.tasks[t])
        generator = np.random.Generator(np.random.Philox(key=key, counter=r))
        chosen = np.sort(generator.permutation(has[s, t, r])[:size])
        rows[s, t, r, : len(chosen)] = chosen

    return jax.tree.map(partial(gathered, rows), whole), there


# --- Measuring ---


@dataclass(frozen=True)
class _Measured:
    kl: Float64[np.ndarray, "source seed task repetition"]
    returns: Float64[np.ndarray, "source seed task repetition"]
    exploration: Float64[np.ndarray, "seed task trajectory repetition"]
    decoder_error: Float64[np.ndarray, "source seed task"] | None
    there: Bool[np.ndarray, "seed task repetition sample"]
    """Which transitions both contexts of a row have, of as many as were asked for."""
    terms: dict[str, Float64[np.ndarray, "task repetition time term"]]
    """Of the first run seed, by set; NaN behind the end."""


def _measure(setting: Setting, labels: Labels, contexts: list[Contexts]) -> _Measured:
    """`contexts` of every repetition, and one more to try a decoder on."""
    config, env = setting.config, setting.env
    agents = Agents(setting, labels, standard_keys(config, labels, env.spec.horizon))
    terms, seen, explored = {}, [], []
    with closing(agents.physics()) as physics:
        for number in range(config.explore.episodes):
            watch = _Terms(env, labels)
            outcome, trajectories = agents.play(number, physics, watch)
            seen.append(trajectories)
            explored.append(outcome.returns[:, :, 0])
            terms.setdefault("exploration", watch.terms)
        batches = [context.batch for context in contexts]
        *told, spare = jax.tree.map(np.asarray, batches)
        offline = jax.tree.map(lambda *leaves: np.stack(leaves, 2), *told)
        online, there = _online(seen, setting, labels, offline.reward.shape[-1])
        kl, returns, error = [], [], None
        for source, batch in zip(SOURCES, (offline, online), strict=True):
            agents.known = agents.told(batch, there)
            kl.append(np.asarray(_kl(setting.algorithm, setting.states, agents.known), np.float64))
            if source == "offline":
                error = _decoder_error(setting, agents, spare, online, there)
            watch = _Terms(env, labels)
            outcome, _ = agents.play(config.explore.episodes, physics, watch)
            returns.append(outcome.returns[:, :, 0])
            terms[source] = watch.terms
    return _Measured(np.stack(kl), np.stack(returns), np.stack(explored, 2), error, there, terms)


class _Terms:
    """The reward terms of the first run seed's trajectories."""

    def __init__(self, env: TaskEnv, labels: Labels):
        _, tasks, _, repetitions = labels.shape
        self.terms = np.full(
            (tasks, repetitions, env.spec.horizon, len(env.spec.term_names)), np.nan
        )

    def __call__(self, agents: Agents, moment: Moment) -> None:
        rows = slice(self.terms.shape[0] * self.terms.shape[1])
        now = np.where(moment.alive[rows, None], moment.after.terms[rows], np.nan)
        self.terms[:, :, moment.time] = now.reshape(*self.terms.shape[:2], -1)


@partial(jax.jit, static_argnums=0)
def _kl(algorithm: Algorithm, states: Any, tasks: Any) -> Float[Array, "seed task repetition"]:
    def one(state: Any, task: Any) -> Array:
        return kl_to_prior(*algorithm.posterior(state, task))

    return of_rows(one, states, tasks)


def _decoder_error(
    setting: Setting, agents: Agents, spare: Batch, online: Batch, there: np.ndarray
) -> Float64[np.ndarray, "source seed task"] | None:
    """Mean squared error of predicted rewards on other transitions of the data and on explored
    ones, by what is known now; None for a method without a decoder."""
    algorithm, states = setting.algorithm, setting.states
    agents.start(setting.config.explore.episodes)
    agents.guess()
    repeated = jax.tree.map(lambda leaf: np.repeat(leaf[:, :, None], there.shape[2], axis=2), spare)
    errors = []
    try:
        for batch, has in ((repeated, np.ones(repeated.reward.shape, bool)), (online, there)):
            squared = np.asarray(_squared_errors(algorithm, states, agents.acting, batch))
            total = np.where(has, squared, 0.0).sum((2, 3), dtype=np.float64)
            errors.append(total / has.sum((2, 3)))
    except InputError:
        return None
    return np.stack(errors)


@partial(jax.jit, static_argnums=0)
def _squared_errors(
    algorithm: Algorithm, states: Any, tasks: Any, batch: Batch
) -> Float[Array, "seed task repetition sample"]:
    def one(state: Any, task: Any, batch: Batch) -> Array:
        predict = partial(algorithm.predict_reward, state, task)
        return jnp.square(jax.vmap(predict)(batch.obs, batch.action, batch.next_obs) - batch.reward)

    return of_rows(one, states, tasks, batch)


# --- Where trajectories go ---


def _xy(
    setting: Setting, dataset: Dataset, labels: Labels, terms: dict[str, np.ndarray]
) -> Float64[np.ndarray, "set task repetition time 2"]:
    """Positions of the sets in `SETS`: one trajectory per task and repetition, NaN behind its end
    and where the data has no terms."""
    spec = setting.env.spec
    logged = np.full_like(terms["offline"], np.nan)
    view = open_view(setting.config.context_slice, dataset)
    for t, index in enumerate(labels.tasks):
        task = view.task(index)
        if "terms" not in task.names:
            continue
        key = (setting.config.context_seed, index)
        order = np.random.Generator(np.random.Philox(key=key)).permutation(task.num_episodes)
        for r, episode in enumerate(order[: logged.shape[1]]):
            first, end = task.episode_start[episode : episode + 2]
            logged[t, r, : end - first] = task.terms[first:end]
    return np.stack([positions(spec, (terms | {"dataset": logged})[name]) for name in SETS])
