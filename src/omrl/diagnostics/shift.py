"""Distribution shift in z: contexts from data against contexts that a run explores itself.

An encoder that was trained on logged data meets other data at the test: what its own policy does
when it knows nothing of the task (SMAC, arXiv:2107.03974, section 4). For both kinds of context of
`omrl.diagnostics.contexts`: KL(q(z|c) || N(0, 1)) (Figure 2, left), the return of the trajectory
that follows (Figure 2, right; the same initial state and noise for both), where it goes, and, of a
method with a reward decoder, its error on the transitions of both, told the offline context.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from omrl.adaptation import of_rows
from omrl.algorithm import Algorithm
from omrl.diagnostics.base import SOURCES
from omrl.diagnostics.contexts import Case, batches_of, draw, offline_contexts, open_case, play
from omrl.diagnostics.results import ShiftResult
from omrl.diagnostics.watching import Watchers
from omrl.envs.positions import has_positions
from omrl.errors import InputError
from omrl.explore import Agents
from omrl.metatrain import Trained
from omrl.ops.latent import kl_to_prior
from omrl.protocol import EvalConfig
from omrl.types import Batch


def diagnose_shift(
    trained: Trained, config: EvalConfig, data: str | Path | None = None
) -> ShiftResult:
    """Measures the shift of one checkpoint; arguments and errors are those of `open_case`."""
    case = open_case(trained, config, data)
    setting, tasks = case.setting, case.labels.tasks
    contexts = offline_contexts(case, tasks)
    # On these a decoder is tried.
    spare = draw(case, case.main, case.tried, case.shape[2], tasks)
    tried = jax.tree.map(np.asarray, spare.batch)
    watchers = Watchers(case) if has_positions(setting.env.spec) else None
    kl, error = {}, {}

    def told(source: str, agents: Agents, online: Batch, there: np.ndarray) -> None:
        kl[source] = np.asarray(_kl(setting.algorithm, setting.states, agents.known), np.float64)
        if source == "offline":
            error[source] = _decoder_error(case, agents, tried, online, there)

    played = play(case, batches_of(contexts), watchers, told)
    return ShiftResult(
        **case.head(contexts[0]),
        context_size=np.int64(played.there.shape[-1]),
        used=played.there.sum(-1),
        kl=np.stack([kl[source] for source in SOURCES]),
        returns=np.stack([played.after[source].returns[:, :, 0] for source in SOURCES]),
        exploration=np.stack([each.returns[:, :, 0] for each in played.exploration], 2),
        decoder_error=error["offline"],
        xy=watchers and watchers.states()[:, 0],
    )


@partial(jax.jit, static_argnums=0)
def _kl(algorithm: Algorithm, states: Any, tasks: Any) -> Float[Array, "seed task repetition"]:
    def one(state: Any, task: Any) -> Array:
        return kl_to_prior(*algorithm.posterior(state, task))

    return of_rows(one, states, tasks)


def _decoder_error(
    case: Case, agents: Agents, spare: Batch, online: Batch, there: np.ndarray
) -> Float64[np.ndarray, "source seed task"] | None:
    """Mean squared error of predicted rewards on other transitions of the data and on explored
    ones, by what is known now; None for a method without a decoder."""
    agents.start(case.config.explore.episodes)
    agents.guess()
    repeated = jax.tree.map(lambda leaf: np.repeat(leaf[:, :, None], there.shape[2], axis=2), spare)
    errors = []
    try:
        for batch, has in ((repeated, np.ones(repeated.reward.shape, bool)), (online, there)):
            squared = squared_errors(case, agents.acting, batch)
            total = np.where(has, squared, 0.0).sum((2, 3), dtype=np.float64)
            errors.append(total / has.sum((2, 3)))
    except InputError:
        return None
    return np.stack(errors)


def squared_errors(
    case: Case, tasks: Any, batch: Batch
) -> Float[np.ndarray, "seed task repetition sample"]:
    """Of predicted rewards; leaves of tasks and batch are [seed, task, repetition, ...].
    `InputError` for a method without a decoder."""
    setting = case.setting
    return np.asarray(_squared_errors(setting.algorithm, setting.states, tasks, batch))


@partial(jax.jit, static_argnums=0)
def _squared_errors(
    algorithm: Algorithm, states: Any, tasks: Any, batch: Batch
) -> Float[Array, "seed task repetition sample"]:
    def one(state: Any, task: Any, batch: Batch) -> Array:
        predict = partial(algorithm.predict_reward, state, task)
        return jnp.square(jax.vmap(predict)(batch.obs, batch.action, batch.next_obs) - batch.reward)

    return of_rows(one, states, tasks, batch)
