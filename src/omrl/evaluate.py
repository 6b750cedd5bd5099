"""Meta-test: adapt every seed to every task, then run all of it in one batch of environments.

Shot s is `begin` followed by `adapt` s times on the same context. Episode e of a task starts in the
same state for every shot and every method, so differences are paired. That state, the context and
all noise are functions of (run seed, task index, episode), never of a position in a list: neither
the order of tasks nor which other seeds are evaluated changes a number. The random and the zero
policy start where run seed 0 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Float64, Int, UInt32

from omrl.algorithm import Algorithm
from omrl.context import Contexts, seed_task_keys
from omrl.envs.base import TaskEnv
from omrl.envs.engine import advance, available_cpus, initial_states
from omrl.errors import InputError, NonFiniteError
from omrl.protocol import EvalConfig, Protocol
from omrl.results import EvalResult, Provenance
from omrl.types import Batch

__all__ = ["Contexts", "EvalConfig", "EvalResult", "Protocol", "evaluate"]


def evaluate(
    algorithm: Algorithm,
    states: Any,
    env: TaskEnv,
    contexts: Contexts | None,
    config: EvalConfig,
    *,
    num_threads: int | None = None,
) -> EvalResult:
    """Returns of every seed on every task of `config`, before and after adaptation.

    Args:
        states: meta-trained states, leaves [seed, ...].
        contexts: drawn for this config. None is for `zero-shot`: run seeds are then 0, 1, ... and
            the baselines that are read from data are left out.
        num_threads: physics threads, by default one per core; results do not depend on it.

    Raises `InputError` where contexts, states and config do not belong together, `NonFiniteError`
    for an action that is not finite.
    """
    labels = _Labels(
        seeds=contexts.seeds if contexts else tuple(range(_num_seeds(states))),
        tasks=config.task_indices(env),
        shots=config.shots,
        num_episodes=config.episodes,
    )
    _check(algorithm, states, env, contexts, config, labels)
    adapted = adapt(
        algorithm,
        states,
        contexts.batch if contexts else None,
        seeds=labels.seeds,
        tasks=labels.tasks,
        shots=labels.shots,
        context_seed=config.context_seed,
    )
    policy = _Policy(algorithm, states, adapted, config, labels)
    outcome = _simulate(policy, env, config, labels, num_threads or available_cpus())
    unknown = np.full(len(labels.tasks), np.nan)
    return EvalResult(
        config=config,
        provenance=Provenance(
            env_id=env.spec.id,
            spec_hash=env.spec.hash,
            task_names=env.spec.task_names,
            dt=env.spec.dt,
            algorithm=type(algorithm).__name__,
            step=int(np.asarray(states.step).max()),
            seeds=labels.seeds,
            dataset=contexts.dataset if contexts else "",
            dataset_hash=contexts.dataset_hash if contexts else "",
        ),
        task_indices=np.array(labels.tasks, np.int64),
        task_parameters=env.tasks[list(labels.tasks)],
        returns=outcome.returns,
        random=outcome.random,
        zero=outcome.zero,
        behaviour=contexts.behaviour if contexts else unknown,
        oracle=contexts.oracle if contexts else unknown,
        traces=outcome.traces,
    )


@dataclass(frozen=True)
class _Labels:
    """What stands at each position of the axes [seed, task, shot, episode]."""

    seeds: tuple[int, ...]
    """Run seeds."""
    tasks: tuple[int, ...]
    """Indices into the environment's list."""
    shots: tuple[int, ...]
    num_episodes: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.seeds), len(self.tasks), len(self.shots), self.num_episodes


def _num_seeds(states: Any) -> int:
    return jax.tree.leaves(states)[0].shape[0]


def _check(
    algorithm: Algorithm,
    states: Any,
    env: TaskEnv,
    contexts: Contexts | None,
    config: EvalConfig,
    labels: _Labels,
) -> None:
    spec = env.spec
    if (algorithm.spec.obs_dim, algorithm.spec.act_dim) != (spec.obs_dim, spec.act_dim):
        raise InputError(
            f"the algorithm was built for observations of {algorithm.spec.obs_dim} and actions of "
            f"{algorithm.spec.act_dim}; {spec.id} has {spec.obs_dim} and {spec.act_dim}"
        )
    sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(states)}
    if sizes != {(len(labels.seeds),)}:
        raise InputError(
            f"states must have one leading axis of {len(labels.seeds)} seeds, not {sorted(sizes)}"
        )
    check_traces(config, env)
    if contexts is not None:
        contexts.check(env, config)
    elif config.protocol == "given":
        raise InputError("protocol 'given' needs contexts: draw them from a dataset")


def check_traces(config: EvalConfig, env: TaskEnv) -> None:
    """Raises `InputError` for a trace that the environment does not have."""
    for name in config.traces:
        if name not in env.spec.term_names:
            raise InputError(
                f"eval.traces: {name!r} is not a term of {env.spec.id}: choose among "
                f"{', '.join(env.spec.term_names)}, or none (--eval.traces with nothing behind it)"
            )


# --- Adaptation ---


def adapt(
    algorithm: Algorithm,
    states: Any,
    support: Batch | None,
    *,
    seeds: Sequence[int],
    tasks: Sequence[int],
    shots: Sequence[int],
    context_seed: int,
) -> Any:
    """Adapted tasks, leaves [seed, task, shot, ...].

    `seeds` and `tasks` are the labels of these axes of `states` and of `support`, whose leaves are
    [seed, task, sample, ...]; None if `shots` is (0,). `shots` are ascending.
    """
    keys = seed_task_keys("adapt", context_seed, seeds, tasks)
    task = _begin(algorithm, states, keys)
    signature = _signature(task)
    kept = [task] if 0 in shots else []
    for number in range(1, shots[-1] + 1):
        assert support is not None
        task = _adapt_once(algorithm, states, task, support, keys, number)
        if _signature(task) != signature:
            raise TypeError(
                f"{type(algorithm).__name__}.adapt changed the Task: {signature} became "
                f"{_signature(task)}"
            )
        if number in shots:
            kept.append(task)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, 2), *kept)


@partial(jax.jit, static_argnames="algorithm")
def _begin(algorithm: Algorithm, states: Any, keys: UInt32[Array, "seed task 2"]) -> Any:
    return jax.vmap(jax.vmap(algorithm.begin, (None, 0)))(states, keys)


@partial(jax.jit, static_argnames="algorithm")
def _adapt_once(
    algorithm: Algorithm,
    states: Any,
    tasks: Any,
    support: Batch,
    keys: UInt32[Array, "seed task 2"],
    number: int | Int[Array, ""],
) -> Any:
    """One round for every seed and task; `support` leaves are [seed, task, sample, ...]."""

    def one(state: Any, task: Any, batch: Batch, key: Array) -> Any:
        return algorithm.adapt(state, task, batch, jax.random.fold_in(key, number))

    return jax.vmap(jax.vmap(one, (None, 0, 0, 0)))(states, tasks, support, keys)


def _signature(tree: Any) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]


# --- Acting ---


class _Policy:
    """The adapted policies as one function of all observations: compiled once, batched by vmap."""

    def __init__(
        self,
        algorithm: Algorithm,
        states: Any,
        tasks: Any,
        config: EvalConfig,
        labels: _Labels,
    ):
        per_task = seed_task_keys("act", config.episode_seed, labels.seeds, labels.tasks)
        fold_each = jax.vmap(jax.random.fold_in, (None, 0))
        episodes = jnp.arange(labels.num_episodes)
        keys = jax.vmap(jax.vmap(fold_each, (0, None)), (0, None))(per_task, episodes)
        self._labels = labels
        self._act_dim = algorithm.spec.act_dim
        self._act = partial(_act, algorithm, config.deterministic, states, tasks, keys)

    def __call__(
        self, obs: Float32[np.ndarray, "seed task shot episode obs"], time: int
    ) -> Float[np.ndarray, "seed task shot episode act"]:
        actions = np.asarray(self._act(obs, time))
        if actions.shape != (*self._labels.shape, self._act_dim):
            raise TypeError(f"act must return [{self._act_dim}], not {actions.shape[4:]}")
        finite = np.isfinite(actions).all(-1)
        if not finite.all():
            seed, task, shot, _ = np.argwhere(~finite)[0]
            raise NonFiniteError(
                f"action at step {time} is not finite: seed {self._labels.seeds[seed]}, "
                f"task {self._labels.tasks[task]}, shot {self._labels.shots[shot]}; adaptation "
                "diverged, or the algorithm is configured for fewer rounds"
            )
        return actions


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    algorithm: Algorithm,
    deterministic: bool,
    states: Any,
    tasks: Any,
    keys: UInt32[Array, "seed task episode 2"],
    obs: Float32[Array, "seed task shot episode obs"],
    time: int | Int[Array, ""],
) -> Float[Array, "seed task shot episode act"]:
    def one(state: Any, task: Any, obs: Array, key: Array) -> Array:
        return algorithm.act(state, task, obs, jax.random.fold_in(key, time), deterministic)

    over_episodes = jax.vmap(one, (None, None, 0, 0))
    over_shots = jax.vmap(over_episodes, (None, 0, 0, None))
    over_tasks = jax.vmap(over_shots, (None, 0, 0, 0))
    return jax.vmap(over_tasks)(states, tasks, obs, keys)


# --- Simulation ---


@dataclass(frozen=True)
class _Outcome:
    returns: Float64[np.ndarray, "seed task shot episode"]
    random: Float64[np.ndarray, "task episode"]
    zero: Float64[np.ndarray, "task episode"]
    traces: dict[str, Float64[np.ndarray, "seed task shot time"]]


def _simulate(
    policy: _Policy, env: TaskEnv, config: EvalConfig, labels: _Labels, num_threads: int
) -> _Outcome:
    """All episodes at once: those of the policies first, then random, then zero actions."""
    spec, shape = env.spec, labels.shape
    num_rows = int(np.prod(shape))
    states, tasks = _rows(env, config, labels)
    random_actions = _random_actions(env, config, labels)
    alive = np.ones(len(states), bool)
    returns = np.zeros(len(states))
    steps = np.zeros((*shape, spec.horizon), bool)
    traced = [spec.term_names.index(name) for name in config.traces]
    terms = np.zeros((*shape, spec.horizon, len(traced)))
    physics = env.physics(min(num_threads, len(states)))
    try:
        obs = env.observe(states)
        for time in range(spec.horizon):
            steps[..., time] = alive[:num_rows].reshape(shape)
            chosen = policy(obs[:num_rows].reshape(*shape, spec.obs_dim), time)
            random = random_actions[:, :, time].reshape(-1, spec.act_dim)
            actions = np.concatenate(
                [chosen.reshape(num_rows, spec.act_dim), random, np.zeros_like(random)]
            )
            after = advance(env, physics, states, actions, tasks, alive)
            returns += after.reward
            terms[..., time, :] = after.terms[:num_rows, traced].reshape(*shape, len(traced))
            states, obs, alive = after.states, after.obs, alive & ~after.terminated
    finally:
        physics.close()
    random_returns, zero_returns = returns[num_rows:].reshape(2, shape[1], shape[3])
    return _Outcome(
        returns[:num_rows].reshape(shape),
        random_returns,
        zero_returns,
        {
            name: _mean_over_alive(terms[..., position], steps)
            for position, name in enumerate(config.traces)
        },
    )


def _rows(
    env: TaskEnv, config: EvalConfig, labels: _Labels
) -> tuple[Float64[np.ndarray, "row state"], Float64[np.ndarray, "row parameter"]]:
    """Initial state and task parameters of every episode, in the order of `_simulate`."""
    starts = np.stack([_starts(env, config, labels, seed) for seed in labels.seeds])
    baseline = _starts(env, config, labels, run_seed=0)
    state_dim = baseline.shape[-1]
    methods = np.broadcast_to(starts[:, :, None], (*labels.shape, state_dim))
    baselines = np.broadcast_to(baseline, (2, *baseline.shape))
    parameters = env.tasks[list(labels.tasks)][:, None]
    tasks = [
        np.broadcast_to(parameters[:, None], (*labels.shape, parameters.shape[-1])),
        np.broadcast_to(parameters, (*baselines.shape[:-1], parameters.shape[-1])),
    ]
    return (
        np.concatenate([methods.reshape(-1, state_dim), baselines.reshape(-1, state_dim)]),
        np.concatenate([part.reshape(-1, parameters.shape[-1]) for part in tasks]),
    )


def _starts(
    env: TaskEnv, config: EvalConfig, labels: _Labels, run_seed: int
) -> Float64[np.ndarray, "task episode state"]:
    """Those of `VectorEnv(env, env.tasks, seed=episode_seed * 2^32 + run_seed)`."""
    seed = config.episode_seed * 2**32 + run_seed
    num_envs = max(labels.tasks) + 1
    episodes = [
        initial_states(env, seed=seed, num_envs=num_envs, episode=episode)[list(labels.tasks)]
        for episode in range(labels.num_episodes)
    ]
    return np.stack(episodes, axis=1)


def _random_actions(
    env: TaskEnv, config: EvalConfig, labels: _Labels
) -> Float64[np.ndarray, "task episode time act"]:
    """U(-1, 1), a function of (episode seed, task index, episode)."""
    size = (labels.num_episodes, env.spec.horizon, env.spec.act_dim)
    keys = ((config.episode_seed, task) for task in labels.tasks)
    generators = (np.random.Generator(np.random.Philox(key=key)) for key in keys)
    return np.stack([generator.uniform(-1.0, 1.0, size) for generator in generators])


def _mean_over_alive(
    values: Float64[np.ndarray, "seed task shot episode time"], alive: np.ndarray
) -> Float64[np.ndarray, "seed task shot time"]:
    """NaN where no episode is alive any more."""
    count = alive.sum(3)
    total = np.where(alive, values, 0.0).sum(3)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
