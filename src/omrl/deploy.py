"""From a trained run and logged transitions of one task to a policy that runs on its own.

The task need not be one that the run or the environment knows: only the MDP has to be the same.
Adaptation is that of `omrl.evaluate`, draws included, so the policy is the one it measures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from omrl import bundled
from omrl.adaptation import adapt
from omrl.context import task_contexts
from omrl.data.dataset import Dataset
from omrl.data.store import open_for_training
from omrl.errors import InputError, NonFiniteError
from omrl.export import Layer, export_policy
from omrl.metatrain import Trained
from omrl.protocol import AdaptConfig, EvalConfig


def adapt_and_export(
    trained: Trained,
    context: str | Path,
    out: str | Path,
    config: AdaptConfig | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Adapts to data of the dataset `context` and writes the policy; returns its path.

    `config`: by default what the run's own evaluations adapt to. `trained` must have been loaded
    with room for the rounds. Raises `InputError`: data of another MDP, a task or seed that is not
    there, too few transitions, an existing `out`; `NonFiniteError`: a round diverges.
    """
    config = config or AdaptConfig.like(trained.record.run.eval)
    dataset = open_for_training(context, trained.env)
    task = dataset.task_indices[0] if config.task is None else config.task
    seed = trained.seeds[0] if config.seed is None else config.seed
    if seed not in trained.seeds:
        have = ", ".join(map(str, trained.seeds))
        raise InputError(f"seed {seed}: {trained.source} has {have}")
    evaluated = config.evaluated(task)
    layers = _adapted_layers(trained, dataset, evaluated, seed)
    algorithm = trained.algorithm
    scales: dict[str, Any] = {}
    if algorithm.config.normalize_obs:
        scales = {"obs_mean": algorithm.spec.obs_mean, "obs_std": algorithm.spec.obs_std}
    parameters = dataset.manifest.record(task).parameters
    return export_policy(
        out,
        layers,
        env_id=trained.env.spec.id,
        spec_hash=trained.env.spec.hash,
        context={
            "run": trained.source,
            "step": trained.step,
            "seed": seed,
            "rounds": config.rounds,
            "data": bundled.label(dataset.path),
            "data_hash": dataset.manifest.hash,
            "task": task,
            "parameters": dict(zip(trained.env.spec.task_names, parameters, strict=True)),
            "context": evaluated.context,
            "context_seed": config.context_seed,
        },
        overwrite=overwrite,
        **scales,
    )


def _adapted_layers(
    trained: Trained, dataset: Dataset, config: EvalConfig, seed: int
) -> list[Layer]:
    """The dense layers of run seed `seed`, adapted to the one task of `config`."""
    position = trained.seeds.index(seed)
    states = jax.tree.map(lambda leaf: leaf[position : position + 1], trained.states)
    discount = trained.record.run.discount
    support = task_contexts(dataset, config, config.tasks[0], (seed,), discount)
    adapted, rounds = adapt(
        trained.algorithm,
        states,
        jax.tree.map(lambda leaf: leaf[:, None], support),
        seeds=(seed,),
        tasks=config.tasks,
        shots=config.shots,
        context_seed=config.context_seed,
    )
    if rounds.item() < config.rounds[-1]:
        raise NonFiniteError(
            f"adaptation to task {config.tasks[0]} diverges in round {rounds.item() + 1}: ask for "
            f"fewer (--rounds {rounds.item()})"
        )
    state = jax.tree.map(lambda leaf: leaf[0], states)
    task = jax.tree.map(lambda leaf: leaf[0, 0, 0], adapted)
    layers = trained.algorithm.policy_layers(state, task)
    return [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in layers]
