"""What a test task is adapted to: a part of its own logged data, drawn once for every run seed.

A context is a function of (context seed, run seed, task index). Tasks are read one at a time, by
index, so a context cannot hold another task's rows, and no task list can be mislabelled: the two
ways in which published evaluations went wrong (rlworkgroup/garage#1365, and the reference code of
MACAW, which prints test returns beside the wrong task).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, Int32, Int64, UInt32

from omrl import bundled
from omrl.data.host import open_host
from omrl.data.mixture import open_view
from omrl.data.sample import BatchSpec, sample_rows
from omrl.data.success import success_rate
from omrl.envs.base import TaskEnv
from omrl.errors import InputError
from omrl.protocol import EvalConfig
from omrl.types import Batch

if TYPE_CHECKING:
    from omrl.data.store import Dataset

_STREAMS = ("context", "adapt", "act", "collect", "tune", "explore")
"""Uses of randomness that must not share keys."""


@dataclass(frozen=True)
class Contexts:
    """Contexts of every run seed and task, with the returns that the data itself reached."""

    batch: Batch | None
    """Leaves [seed, task, sample, ...]; None for `zero-shot` and `explore`."""
    seeds: tuple[int, ...]
    """Run seeds, the labels of the seed axis."""
    tasks: tuple[int, ...]
    """Task indices, the labels of the task axis."""
    description: str
    """`EvalConfig.context` of the config it was drawn for."""
    seed: int
    discount: float
    """Of `Batch.mc_return`."""
    spec_hash: str
    dataset: str
    """Empty: none."""
    dataset_hash: str
    behaviour: Float64[np.ndarray, " task"]
    """Mean return over the task's lifetime."""
    oracle: Float64[np.ndarray, " task"]
    """Final return of the task's agent; NaN where the manifest does not tell."""
    behaviour_success: Float64[np.ndarray, " task"]
    """Share of the lifetime's episodes that succeed; NaN where that is not known."""

    def check(self, env: TaskEnv, config: EvalConfig) -> None:
        """Raises `InputError` unless these are contexts of that environment for that config."""
        if self.spec_hash != env.spec.hash:
            raise InputError(
                f"contexts of an MDP with spec {self.spec_hash[:12]}; {env.spec.id} has "
                f"{env.spec.hash[:12]}"
            )
        if self.batch is not None:
            lead = {leaf.shape[:2] for leaf in self.batch}
            if lead != {(len(self.seeds), len(self.tasks))}:
                raise InputError(
                    f"contexts must have leaves [{len(self.seeds)} seeds, {len(self.tasks)} tasks, "
                    f"...], not {sorted(lead)}"
                )
        drawn = (self.tasks, self.description, self.seed)
        wanted = (config.task_indices(env), config.context, config.context_seed)
        for name, has, needs in zip(
            ("tasks", "context", "context_seed"), drawn, wanted, strict=True
        ):
            if has != needs:
                raise InputError(f"contexts were drawn with {name} {has}, the config has {needs}")


def draw_contexts(
    dataset: Dataset,
    env: TaskEnv,
    config: EvalConfig,
    *,
    seeds: Sequence[int],
    discount: float,
) -> Contexts:
    """Contexts for `config` from `dataset`. `discount` is that of `Batch.mc_return`.

    Raises `InputError`: data of another MDP, a task that is not in it, a slice or context larger
    than what there is.
    """
    if dataset.spec.hash != env.spec.hash and not dataset.spec.is_longer(env.spec):
        raise InputError(
            f"{dataset.path} holds data of {dataset.env_id} (spec {dataset.spec.hash[:12]}), not "
            f"of {env.spec.id} (spec {env.spec.hash[:12]})"
        )
    contexts = _unread(env, config, seeds, discount)
    batch = None
    if config.needs_context:
        per_task = [
            task_contexts(dataset, config, index, seeds, discount) for index in contexts.tasks
        ]
        batch = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *per_task)
    # Where nothing is adapted to there may be tasks without data.
    records = {record.index: record for record in dataset.manifest.tasks}
    held = [records.get(index) for index in contexts.tasks]
    return replace(
        contexts,
        batch=batch,
        dataset=bundled.label(dataset.path),
        dataset_hash=dataset.manifest.hash,
        behaviour=np.array([record.return_mean if record else np.nan for record in held]),
        oracle=np.array([_final_return(record.behaviour if record else {}) for record in held]),
        behaviour_success=_success_rates(dataset, env, contexts.tasks),
    )


def without_data(
    env: TaskEnv, config: EvalConfig, *, seeds: Sequence[int], discount: float
) -> Contexts:
    """What an evaluation that reads no data needs of a run, for tasks of `env`. Returns of
    behaviour and oracle are not known. `InputError` for a protocol whose contexts are data."""
    if config.needs_context:
        raise InputError(
            f"protocol {config.protocol!r} needs contexts: draw them from a dataset (--data)"
        )
    return _unread(env, config, seeds, discount)


def _unread(env: TaskEnv, config: EvalConfig, seeds: Sequence[int], discount: float) -> Contexts:
    """Who is measured, before any data of the tasks was read."""
    tasks = config.task_indices(env)
    unknown = np.full(len(tasks), np.nan)
    return Contexts(
        batch=None,
        seeds=tuple(int(seed) for seed in seeds),
        tasks=tasks,
        description=config.context,
        seed=config.context_seed,
        discount=discount,
        spec_hash=env.spec.hash,
        dataset="",
        dataset_hash="",
        behaviour=unknown,
        oracle=unknown,
        behaviour_success=unknown,
    )


def seed_task_keys(
    stream: str, seed: int, run_seeds: Sequence[int], tasks: Sequence[int]
) -> UInt32[Array, "seed task 2"]:
    """A key per run seed and task index, for one of `_STREAMS`."""
    fold_each = jax.vmap(jax.random.fold_in, (None, 0))
    root = jax.random.fold_in(jax.random.PRNGKey(seed), _STREAMS.index(stream))
    per_seed = fold_each(root, jnp.asarray(run_seeds, jnp.uint32))
    return jax.vmap(fold_each, (0, None))(per_seed, jnp.asarray(tasks, jnp.uint32))


def task_contexts(
    dataset: Dataset, config: EvalConfig, index: int, seeds: Sequence[int], discount: float
) -> Batch:
    """Contexts of one task for every run seed, leaves [seed, sample, ...]."""
    part = open_view(config.context_slice, dataset)
    task = part.task(index)
    if config.context_unit == "trajectories":
        starts = task.episode_start
        rows = np.stack([_trajectories(starts, config, index, seed) for seed in seeds])
    else:
        if config.context_size > task.num_rows:
            raise InputError(
                f"task {index}: a context of {config.context_size} transitions from "
                f"{config.context_slice}, which has {task.num_rows}; ask for fewer "
                "(context_size), or give more data"
            )
        spec = BatchSpec("context", config.context_size, "without_replacement")
        keys = seed_task_keys("context", config.context_seed, seeds, (index,))[:, 0]
        rows = _sample(spec, jnp.int32(task.num_rows), keys)
    lifetime = open_host(part, (index,), discount=discount, cache=False).tasks[0]
    return jax.tree.map(jnp.asarray, lifetime.gather(np.asarray(rows)))


@partial(jax.jit, static_argnames="spec")
def _sample(
    spec: BatchSpec, num_rows: Int32[Array, ""], keys: UInt32[Array, "seed 2"]
) -> Int32[Array, "seed sample"]:
    return jax.vmap(lambda key: sample_rows(spec, num_rows, key))(keys)


def _trajectories(
    starts: Int64[np.ndarray, " bounds"], config: EvalConfig, index: int, run_seed: int
) -> Int64[np.ndarray, " sample"]:
    """Rows of whole episodes drawn without replacement, in time order."""
    lengths = np.diff(starts)
    if config.context_size > len(lengths):
        raise InputError(
            f"task {index}: a context of {config.context_size} trajectories from "
            f"{config.context_slice}, which has {len(lengths)}; ask for fewer (context_size)"
        )
    if len(set(lengths.tolist())) > 1:
        raise InputError(
            f"task {index}: its trajectories have {lengths.min()} to {lengths.max()} steps, so "
            f"contexts differ in size; use context_unit 'transitions'"
        )
    key = (config.context_seed * 2**32 + run_seed, index)
    generator = np.random.Generator(np.random.Philox(key=key))
    chosen = np.sort(generator.permutation(len(lengths))[: config.context_size])
    return (starts[chosen][:, None] + np.arange(lengths[0])).reshape(-1)


def _success_rates(
    dataset: Dataset, env: TaskEnv, tasks: Sequence[int]
) -> Float64[np.ndarray, " task"]:
    """NaN of tasks of which there is no data, or of which it does not tell."""
    rates = [
        success_rate(dataset.task(index), env) if index in dataset.task_indices else None
        for index in tasks
    ]
    return np.array(rates, np.float64)


def _final_return(behaviour: Any) -> float:
    """The oracle, where the collector recorded it."""
    value = behaviour.get("final_return")
    return float(value) if isinstance(value, int | float) else float("nan")
