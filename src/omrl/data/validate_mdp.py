"""Whether data are of the MDP that they name: its tasks, its rewards, its success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from omrl.data import manifest as manifests
from omrl.data.finding import RECREATE, Finding, file_of, where
from omrl.data.manifest import TaskRecord
from omrl.data.rounding import directions
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.errors import InputError


def parameter_findings(env: TaskEnv, task: TaskRecord) -> list[Finding]:
    try:
        env.check_tasks(np.asarray([task.parameters], np.float64))
    except InputError as error:
        return [Finding(manifests.NAME, task.index, "parameters", None, str(error), RECREATE)]
    return []


def success_findings(spec: EnvSpec, index: int, columns: Mapping[str, np.ndarray]) -> list[Finding]:
    """A recorded success is 0 or 1."""
    if "success" not in spec.term_names or "terms" not in columns:
        return []
    success = columns["terms"][:, spec.term_names.index("success")]
    rows = where(lambda values: ~np.isin(values, (0.0, 1.0)), success)
    if not len(rows):
        return []
    first = int(rows[0])
    problem = f"success is {success[first]:g}, must be 0 or 1"
    return [Finding(file_of(index, "terms"), index, "success", first, problem, RECREATE)]


def reward_findings(
    env: TaskEnv, index: int, parameters: Sequence[float], columns: Mapping[str, np.ndarray]
) -> list[Finding]:
    """Where `reward(terms, action, task)` is not the stored reward up to rounding.

    Sixteen units in the last place of the coarsest dtype, relative to the largest number involved:
    the sum of a few rounded terms stays below, the reward of another task does not. Where rounding
    may have moved the terms across the border of a goal, a sparse reward may be that of either
    side. Nothing is checked where no terms were recorded.
    """
    if env.spec.term_names and "terms" not in columns:
        return []
    names = [name for name in ("reward", "terms", "action") if name in columns]
    unit = max(float(np.finfo(columns[name].dtype).eps) for name in names)
    reward, action, task = columns["reward"], columns["action"], np.asarray(parameters)
    terms = columns.get("terms", np.zeros((len(reward), 0), np.float32))
    rows = where(partial(_wrong_rewards, env, task, 16 * unit), reward, terms, action)
    if not len(rows):
        return []
    first = int(rows[0])
    expected = env.reward(terms[first].astype(np.float64), action[first].astype(np.float64), task)
    problem = (
        f"stored {reward[first]:.6g}, but reward(terms, action, task) is {expected:.6g} "
        f"(differs in {len(rows)} of {len(reward)} rows)"
    )
    return [Finding(file_of(index, "reward"), index, "reward", first, problem, RECREATE)]


def _wrong_rewards(
    env: TaskEnv,
    task: np.ndarray,
    tolerance: float,
    reward: np.ndarray,
    terms: np.ndarray,
    action: np.ndarray,
) -> np.ndarray:
    """Whether the reward of each row is not that of its terms. False where a number is not finite:
    `column_findings` names these."""
    stored, wide, action = (column.astype(np.float64) for column in (reward, terms, action))

    def differs(rows: np.ndarray, terms: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            expected = np.asarray(env.reward(terms, action[rows], task))
            scale = np.maximum(np.abs(terms).max(axis=1, initial=1.0), np.abs(expected))
            return np.abs(stored[rows] - expected) > tolerance * scale

    wrong = differs(np.arange(len(stored)), wide)
    rows = np.flatnonzero(wrong)
    if len(rows) and terms.shape[1]:
        last_place = np.spacing(np.abs(terms[rows])).astype(np.float64)
        moves = directions(terms.shape[1])
        around = np.stack([differs(rows, wide[rows] + move * last_place) for move in moves])
        # One unit around, twice what rounding moves, a border has right and wrong terms; a wrong
        # reward is wrong for all of them.
        wrong[rows] = around.all(axis=0) | ~around.any(axis=0)
    return wrong
