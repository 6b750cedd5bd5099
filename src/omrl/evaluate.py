"""Meta-test: adapt every seed to every task, then run all of it in one batch of environments.

Shot s is `begin` followed by `adapt` s times on the same context. Episode e of a task starts in the
same state for every shot and every method, so differences are paired. That state, the context and
all noise are functions of (run seed, task index, episode), never of a position in a list: neither
the order of tasks nor which other seeds are evaluated changes a number. The random and the zero
policy start where run seed 0 does.

Of protocols `finetune` and `explore` the shots are numbers of online trajectories, and what happens
between them is in `omrl.finetune` and `omrl.explore`.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64

from omrl.adaptation import adapt
from omrl.algorithm import Algorithm
from omrl.config import to_json
from omrl.context import Contexts
from omrl.curve import Curve
from omrl.envs.base import TaskEnv
from omrl.envs.engine import available_cpus
from omrl.errors import InputError
from omrl.explore import explore, standard_keys
from omrl.finetune import How, Setting, check_tuning, fine_tune
from omrl.protocol import EvalConfig, Protocol
from omrl.result_files import Provenance
from omrl.results import EvalResult
from omrl.simulate import Labels, Outcome, Policies, measure, measured_keys

__all__ = ["Contexts", "EvalConfig", "EvalResult", "How", "Protocol", "evaluate"]

AS_FITS = How()


def evaluate(
    algorithm: Algorithm,
    states: Any,
    env: TaskEnv,
    contexts: Contexts | None,
    config: EvalConfig,
    *,
    num_threads: int | None = None,
    how: How = AS_FITS,
    run_hash: str = "",
) -> EvalResult:
    """Returns of every seed on every task of `config`, before and after adaptation.

    Args:
        states: meta-trained states, leaves [seed, ...].
        contexts: drawn for this config, or `context.without_data`. None is for `zero-shot`: run
            seeds are then 0, 1, ... and the baselines that are read from data are left out.
        num_threads: physics threads, by default one per core; results do not depend on it.
        how: of `finetune`, how it is carried out.
        run_hash: of the run that the states are of, `RunRecord.hash`.

    Raises `InputError` where contexts, states and config do not belong together, `NonFiniteError`
    for an action that is not finite.
    """
    labels = Labels(
        seeds=contexts.seeds if contexts else tuple(range(_num_seeds(states))),
        tasks=config.task_indices(env),
        shots=config.points,
        num_episodes=config.episodes,
    )
    _check(algorithm, states, env, contexts, config, labels)
    provenance = provenance_of(algorithm, states, env, contexts, labels, run_hash)
    discount = contexts.discount if contexts else 1.0
    setting = Setting(algorithm, states, env, config, discount, num_threads or available_cpus())
    outcome, rounds = _outcome(setting, contexts, labels, how, provenance)
    random, zero = outcome.baselines
    unknown = np.full(len(labels.tasks), np.nan)
    return EvalResult(
        config=config,
        provenance=provenance,
        task_indices=np.array(labels.tasks, np.int64),
        task_parameters=env.tasks[list(labels.tasks)],
        returns=outcome.returns,
        random=random,
        zero=zero,
        behaviour=contexts.behaviour if contexts else unknown,
        oracle=contexts.oracle if contexts else unknown,
        traces=outcome.traces,
        env_steps=outcome.env_steps if isinstance(outcome, Curve) else None,
        success=outcome.success,
        behaviour_success=contexts.behaviour_success if contexts and env.succeeds else None,
        rounds_taken=rounds,
    )


def _outcome(
    setting: Setting, contexts: Contexts | None, labels: Labels, how: How, provenance: Provenance
) -> tuple[Outcome | Curve, Int64[np.ndarray, "seed task"] | None]:
    """What the protocol measures, and the adaptation rounds that were taken, if not all."""
    config = setting.config
    if config.protocol == "explore":
        keys_of = standard_keys(config, labels, setting.env.spec.horizon)
        outcome, taken = explore(setting, labels, keys_of)
        return outcome, _if_not_all(taken, config)
    adapted, taken = adapt(
        setting.algorithm,
        setting.states,
        contexts.batch if contexts else None,
        seeds=labels.seeds,
        tasks=labels.tasks,
        shots=config.rounds,
        context_seed=config.context_seed,
    )
    rounds = _if_not_all(taken, config)
    if config.protocol == "finetune":
        assert contexts is not None
        identity = json.dumps([to_json(config), to_json(provenance)])
        return fine_tune(setting, adapted, contexts, labels, how, identity), rounds
    return _measured(setting, adapted, labels), rounds


def _if_not_all(
    taken: Int64[np.ndarray, "seed task"], config: EvalConfig
) -> Int64[np.ndarray, "seed task"] | None:
    return None if (taken == config.rounds[-1]).all() else taken


def _measured(setting: Setting, adapted: Any, labels: Labels) -> Outcome:
    config, env = setting.config, setting.env
    policies = Policies(
        setting.algorithm,
        setting.states,
        adapted,
        measured_keys(config, labels),
        labels,
        deterministic=config.deterministic,
    )
    num_threads = min(setting.num_threads, int(np.prod(labels.shape)))
    with closing(env.physics(num_threads)) as physics:
        return measure(policies, env, config, physics, baselines=True)


def provenance_of(
    algorithm: Algorithm,
    states: Any,
    env: TaskEnv,
    contexts: Contexts | None,
    labels: Labels,
    run_hash: str,
) -> Provenance:
    """Where numbers of these states on these tasks come from."""
    step = int(np.asarray(states.step).max())
    return Provenance(
        env_id=env.spec.id,
        spec_hash=env.spec.hash,
        task_names=env.spec.task_names,
        dt=env.spec.dt,
        algorithm=type(algorithm).__name__,
        step=step,
        seeds=labels.seeds,
        dataset=contexts.dataset if contexts else "",
        dataset_hash=contexts.dataset_hash if contexts else "",
        run_hash=run_hash,
        test_tasks=_explored_test_tasks(algorithm, step),
    )


def _explored_test_tasks(algorithm: Algorithm, step: int) -> Any:
    """How test tasks were explored in the first `step` updates; with rewards, if ever with them."""
    begins, found = 0, set()
    for stage in algorithm.stages():
        if stage.exploration is not None and step > begins:
            found.add(stage.exploration.of_test_tasks)
        begins += stage.steps
    return min(found - {""}, default="")


def _num_seeds(states: Any) -> int:
    return jax.tree.leaves(states)[0].shape[0]


def _check(
    algorithm: Algorithm,
    states: Any,
    env: TaskEnv,
    contexts: Contexts | None,
    config: EvalConfig,
    labels: Labels,
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
        if config.protocol == "finetune":
            check_tuning(algorithm, states, env, contexts, config)
    elif config.protocol == "explore":
        raise InputError(
            "protocol 'explore' needs the run's seeds and discount: contexts by without_data"
        )
    elif config.protocol != "zero-shot":
        raise InputError(f"protocol {config.protocol!r} needs contexts: draw them from a dataset")


def check_traces(config: EvalConfig, env: TaskEnv) -> None:
    """Raises `InputError` for a trace that the environment does not have."""
    for name in config.traces:
        if name not in env.spec.term_names:
            raise InputError(
                f"eval.traces: {name!r} is not a term of {env.spec.id}: choose among "
                f"{', '.join(env.spec.term_names)}, or none (--eval.traces with nothing behind it)"
            )
