"""Relabelling: the rewards that recorded transitions have under other tasks, or another reward.

Where a task changes the reward alone, the trajectories of one task are possible trajectories of
every other. The recorded `terms` are what the reward of any task needs, so their rewards are exact:
no model and no simulator.

    rewards         of one task's transitions under any parameters
    under_task      one task's data as another task would have recorded it, a view
    relabel         a new dataset: episodes of other tasks taken over with the rewards of the task
                    that takes them (BOReL, arXiv:2008.02598), another reward, or both

The environment given to each decides the reward. It is the one of the data, another of the same
physics, observations and terms, or one of `omrl.envs.own_reward.with_reward`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import ArrayLike

from omrl import config
from omrl.data import validate
from omrl.data.borrow import Borrowing, Plan, borrow, own_episodes, takers
from omrl.data.dataset import Dataset, TaskData
from omrl.data.finding import BLOCK_ROWS
from omrl.data.rounding import directions
from omrl.data.slice import Selection
from omrl.data.store import Writer, create, task_bytes, with_tasks_of
from omrl.envs.base import EnvSpec, TaskEnv
from omrl.envs.own_reward import OwnReward
from omrl.errors import InputError
from omrl.files import check_room

_OF_THE_REWARD = ("id", "reward", "task_distribution", "constants")
"""Fields of a spec in which two MDPs of the same transitions may differ."""


# --- Rewards of one task ---


def rewards(
    dataset: Dataset, env: TaskEnv, index: int, parameters: ArrayLike | None = None
) -> Float64[np.ndarray, " rows"]:
    """Rewards that the transitions of task `index` have in `env` under `parameters`.

    `parameters`, [parameter], may be of any task of `env`, in the data or not; without them those
    of the task itself. Exact for the terms as they were recorded; reads the columns in blocks.
    Raises `InputError` where `env` has other transitions or no such task, where the task has no
    terms, and where other parameters would have changed the physics.
    """
    return _under(dataset, env, dataset.task(index), parameters)[0]


def under_task(
    dataset: Dataset, env: TaskEnv, index: int, parameters: ArrayLike | None = None
) -> TaskData:
    """The data of task `index` with the rewards, the parameters and the returns of another task.

    A view: only the rewards are new, in the dtype of the data. It is for reading; data to train on
    is written by `relabel`. Raises `InputError` as `rewards` does.
    """
    task = dataset.task(index)
    whole = dataclasses.replace(task, selected=Selection(np.arange(task.record.episodes)))
    values, chosen = _under(dataset, env, whole, parameters)
    reward = values.astype(task.reward.dtype)
    returns = validate.episode_returns(reward, whole.episode_start)
    mean, low, high = validate.return_statistics(returns)
    record = dataclasses.replace(
        task.record,
        parameters=tuple(chosen.tolist()),
        return_mean=mean,
        return_min=low,
        return_max=high,
    )
    return dataclasses.replace(task, record=record, columns={**task.columns, "reward": reward})


def _under(
    dataset: Dataset, env: TaskEnv, task: TaskData, parameters: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards of a task's selected episodes, and the parameters that they are under."""
    _check_transitions(dataset, env)
    chosen = task.parameters if parameters is None else np.asarray(parameters)
    env.check_tasks(chosen[None])
    if not np.array_equal(chosen, task.parameters):
        _check_shared_physics(dataset, env)
    _check_terms(dataset, env, task)
    chosen = chosen.astype(np.float64)
    plan = own_episodes(task)
    blocks = [
        _block_rewards(env, chosen, _gather({task.record.index: task}, part, env.spec))
        for part in _parts(plan, env.spec)
    ]
    return np.concatenate(blocks), chosen


# --- A relabelled dataset ---


def relabel(
    dataset: Dataset,
    path: str | Path,
    env: TaskEnv,
    *,
    borrowing: Borrowing | None = None,
    command: str,
    overwrite: bool = False,
) -> Dataset:
    """Write the selected episodes of `dataset` with rewards of `env`, and episodes of other tasks.

    Rewards of a task's own episodes stay as they were recorded where `env` is the MDP of the data.
    With a reward that reads observations the new dataset has no terms, so its rewards cannot be
    checked. The description of a task's behaviour tells which episodes came from where.

    Stopped and repeated, it keeps the tasks that were complete; after an `InputError` nothing is
    left. Raises it as `rewards` does, and for a function whose rewards are not finite, tasks with
    too few episodes to give, or a full disk.
    """
    _check_transitions(dataset, env)
    same_mdp = env.spec.hash == dataset.spec.hash
    if same_mdp and borrowing is None:
        raise InputError(
            f"{dataset.path}: nothing to relabel with; say how many episodes tasks take over from "
            "others (share or per_task), or give another environment or a reward function"
        )
    env = with_tasks_of(dataset, env)
    tasks = {index: dataset.task(index) for index in dataset.task_indices}
    taking = takers(dataset, borrowing) if borrowing else ()
    if borrowing:
        _check_shared_physics(dataset, env)
    for index in taking if same_mdp else tasks:
        _check_terms(dataset, env, tasks[index])
    plans = {index: own_episodes(task) for index, task in tasks.items()}
    if borrowing:
        givers = {index: tasks[index] for index in taking}
        plans |= {index: borrow(borrowing, index, givers) for index in taking}
    check_room(Path(path), sum(_bytes(dataset, tasks, plan) for plan in plans.values()))
    job = _Job(env, tasks, same_mdp, dataset.manifest.dtype)
    for task in tasks.values():
        for name in task.columns:  # Or the hashes of the new data would vouch for damage.
            validate.check_hash(dataset.path, task.record, name)
    writer = create(
        path,
        env,
        command=command,
        overwrite=overwrite,
        dtype=dataset.manifest.dtype,
        source={
            "hash": dataset.manifest.hash,
            "slice": str(dataset.selection),
            "env": dataset.env_id,
            "borrowing": json.dumps(config.to_json(borrowing), sort_keys=True),
        },
        reads=[dataset.path],
    )
    try:
        for index, plan in plans.items():
            if not writer.is_complete(index):
                job.write(writer, index, plan)
    except InputError:
        shutil.rmtree(writer.partial)  # Made again in no time; and another reward may be tried.
        raise
    return writer.finish()


@dataclass(frozen=True)
class _Job:
    env: TaskEnv
    tasks: Mapping[int, TaskData]
    same_mdp: bool
    """Whether the rewards of own episodes are those that were recorded."""
    dtype: str
    """Of floating-point columns in the new dataset."""

    def write(self, writer: Writer, index: int, plan: Plan) -> None:
        """Task `index`: the episodes of `plan`, with its rewards."""
        task, unsure = self.env.tasks[index], 0
        writer.truncate(index, 0)
        for part in _parts(plan, self.env.spec):
            columns = _gather(self.tasks, part, self.env.spec)
            kept = np.repeat(
                self.same_mdp & (part[:, 0] == index), np.diff(columns["episode_start"])
            )
            if not kept.all():
                reward = _block_rewards(self.env, task, columns)
                self._check_finite(index, reward, kept)
                unsure += int((_unsure(self.env, task, columns, reward) & ~kept).sum())
                columns["reward"] = np.where(kept, columns["reward"], reward)
            if isinstance(self.env, OwnReward) and self.env.reads_obs:
                columns.pop("terms", None)
            writer.append(index, **columns)
        writer.complete(index, self._behaviour(index, plan, unsure))

    def _check_finite(self, index: int, reward: np.ndarray, kept: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            stored = reward.astype(self.dtype)
        wrong = np.flatnonzero(~np.isfinite(stored) & ~kept)
        if wrong.size:
            raise InputError(
                f"{self.env.spec.id}: the reward of a transition under task {index} is "
                f"{reward[wrong[0]]} ({wrong.size} such rows); it must be finite in {self.dtype}"
            )

    def _behaviour(self, index: int, plan: Plan, unsure: int) -> dict[str, Any]:
        """What the record of the source says, and what was done here."""
        before = dict(self.tasks[index].record.behaviour)
        taken = plan[:, 0] != index
        if self.same_mdp and not taken.any():
            return before
        done: dict[str, Any] = {
            "episodes_from": {
                str(giver): {
                    "episodes": plan[plan[:, 0] == giver, 1].tolist(),
                    "at": np.flatnonzero(plan[:, 0] == giver).tolist(),
                }
                for giver in np.unique(plan[taken, 0]).tolist()
            },
            "rounded_at_a_border": unsure,
        }
        if not self.same_mdp:  # Its returns, such as that of a final agent, are of another reward.
            return {"relabelled": done, "source": before}
        if "relabelled" in before:
            done["before"] = before["relabelled"]
        return {**before, "relabelled": done}


def _bytes(dataset: Dataset, tasks: Mapping[int, TaskData], plan: Plan) -> int:
    rows = sum(
        int(np.diff(tasks[index].columns["episode_start"])[plan[plan[:, 0] == index, 1]].sum())
        for index in np.unique(plan[:, 0]).tolist()
    )
    return task_bytes(dataset.spec, rows, len(plan), dataset.manifest.dtype)


# --- Blocks of whole episodes ---


def _parts(plan: Plan, spec: EnvSpec) -> list[Plan]:
    """`plan` in parts of which each fits in memory."""
    size = max(1, BLOCK_ROWS // spec.horizon)
    return [plan[first : first + size] for first in range(0, len(plan), size)]


def _gather(tasks: Mapping[int, TaskData], plan: Plan, spec: EnvSpec) -> dict[str, np.ndarray]:
    """The columns of the episodes in `plan`."""
    givers = [tasks[index].columns for index in np.unique(plan[:, 0]).tolist()]
    names = set(givers[0]).intersection(*givers) - {"episode_start"}
    pieces: dict[str, list[np.ndarray]] = {name: [] for name in names}
    lengths = []
    for index, episode in plan.tolist():
        columns = tasks[index].columns
        first, stop = columns["episode_start"][episode : episode + 2].tolist()
        lengths.append(stop - first)
        for name in names:
            # An episode has one observation more than transitions.
            obs = name == "obs"
            rows = slice(first + episode * obs, stop + (episode + 1) * obs)
            pieces[name].append(columns[name][rows])
    gathered = {name: np.concatenate(parts) for name, parts in pieces.items()}
    return gathered | {"episode_start": np.concatenate([[0], np.cumsum(lengths)])}


def _block_rewards(
    env: TaskEnv, task: Float64[np.ndarray, " parameter"], columns: Mapping[str, np.ndarray]
) -> Float64[np.ndarray, " rows"]:
    action = columns["action"].astype(np.float64)
    terms = _terms(columns)
    if not (isinstance(env, OwnReward) and env.reads_obs):
        return np.asarray(env.reward(terms, action, task), np.float64)
    obs, starts = columns["obs"].astype(np.float64), columns["episode_start"]
    episode = np.arange(len(starts) - 1)
    return env.rewards(
        terms=terms,
        action=action,
        task=np.broadcast_to(task, (len(action), len(task))),
        obs=np.delete(obs, starts[1:] + episode, axis=0),
        next_obs=np.delete(obs, starts[:-1] + episode, axis=0),
    )


def _terms(columns: Mapping[str, np.ndarray]) -> Float64[np.ndarray, "rows term"]:
    """The recorded terms, in full width; none where there are none."""
    return columns.get("terms", np.zeros((len(columns["action"]), 0))).astype(np.float64)


def _unsure(
    env: TaskEnv,
    task: Float64[np.ndarray, " parameter"],
    columns: Mapping[str, np.ndarray],
    reward: Float64[np.ndarray, " rows"],
) -> Bool[np.ndarray, " rows"]:
    """Where rounding of the terms to half precision may have moved them across a border.

    There the reward jumps as the terms move by half a unit in their last place, as that of a sparse
    task does at the radius of its goal. Terms in single precision lie on the right side of it.
    """
    unsure = np.zeros(len(reward), bool)
    stored = columns.get("terms")
    if stored is None or stored.dtype != np.float16 or getattr(env, "reads_obs", False):
        return unsure
    action, terms = columns["action"].astype(np.float64), _terms(columns)
    half = np.spacing(np.abs(stored)).astype(np.float64) / 2
    scale = np.maximum(np.abs(terms).max(axis=1, initial=1.0), np.abs(reward))
    tolerance = 16 * float(np.finfo(np.float16).eps) * scale  # As in a validation.
    for move in directions(terms.shape[1]):
        moved = np.asarray(env.reward(terms + move * half, action, task))
        unsure |= np.abs(moved - reward) > tolerance
    return unsure


# --- What cannot be relabelled ---


def _check_transitions(dataset: Dataset, env: TaskEnv) -> None:
    """`InputError` unless `env` has the transitions of the data, whatever its reward is."""
    ours, theirs = dataclasses.asdict(dataset.spec), dataclasses.asdict(env.spec)
    other = [name for name in ours if ours[name] != theirs[name] and name not in _OF_THE_REWARD]
    numbers, others = dict(dataset.spec.constants), dict(env.spec.constants)
    other += [
        name
        for name in numbers.keys() & others.keys()
        if numbers[name] != others[name] and not name.endswith("_reward")
    ]
    if other:
        raise InputError(
            f"{dataset.path}: data of {dataset.env_id}; {env.spec.id} has other transitions "
            f"({', '.join(sorted(other))}); give an environment that differs in its reward alone"
        )


def _check_shared_physics(dataset: Dataset, env: TaskEnv) -> None:
    if env.task_changes_physics:
        raise InputError(
            f"{dataset.path}: a task of {env.spec.id} changes the physics: a transition of one "
            "task is not one of another, so only the reward function can be replaced"
        )


def _check_terms(dataset: Dataset, env: TaskEnv, task: TaskData) -> None:
    """`InputError` where the reward of `env` needs terms that were not recorded."""
    needed = "terms" in env.arguments if isinstance(env, OwnReward) else env.spec.term_names
    if needed and "terms" not in task.columns:
        raise InputError(
            f"{dataset.path}: task {task.record.index} has no terms, from which {env.spec.id} "
            "computes rewards; give a reward function of obs, action, next_obs and task"
        )
