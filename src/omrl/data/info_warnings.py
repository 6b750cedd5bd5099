"""What looks wrong with a dataset, in words and with what to do: the warnings of `omrl data info`.

Nothing here is an error. Data that `omrl data validate` finds fault with cannot be measured at all;
what is warned of can be trained on, and usually not with the result that was hoped for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from omrl.data.info import Info, TaskInfo
from omrl.data.info_sample import DEAD
from omrl.data.manifest import Manifest, TaskRecord

SHOWN = 8
"""Tasks and entries that are named; of more the rest is counted."""
FEW = 0.1
"""Of the median number of transitions."""
SATURATED = 0.9
REPEATED = 0.01
CUT_OFF = 0.1
NOISE = 0.5
"""Of the standard deviation of the reward; clean data of half-cheetahs stays below 0.25."""
NARROW = 0.05
SCALES = 1e4


@dataclass(frozen=True)
class Remark:
    """One thing that looks wrong."""

    kind: str
    tasks: tuple[int, ...]
    """Empty where the dataset as a whole is meant."""
    problem: str
    fix: str

    def __str__(self) -> str:
        where = f"{_tasks(self.tasks)}: " if self.tasks else ""
        return f"{where}{self.problem}; {self.fix}"


def of_manifest(manifest: Manifest) -> list[Remark]:
    """What the manifest alone tells."""
    found = [*_of_splits(manifest), *_of_equal_tasks(manifest)]
    rows = [task.transitions for task in manifest.tasks]
    short = [t.index for t in manifest.tasks if t.transitions < FEW * np.median(rows)]
    if short:
        problem = f"under a tenth of the usual {np.median(rows):,.0f} transitions"
        fix = "batches are drawn evenly over tasks and repeat theirs; leave them out or add data"
        found.append(Remark("few transitions", tuple(short), problem, fix))
    return found


def of_info(manifest: Manifest, info: Info) -> list[Remark]:
    """What the statistics tell."""
    found = []
    for kind, is_wrong, problem, fix in _OF_A_TASK:
        if wrong := tuple(task.index for task in info.tasks if is_wrong(task)):
            found.append(Remark(kind, wrong, problem, fix))
    return found + _of_obs(manifest, info)


# --- The manifest ---


def _of_splits(manifest: Manifest) -> list[Remark]:
    splits = {name: set(tasks) for name, tasks in manifest.splits.items()}
    found = []
    if both := splits.get("train", set()) & splits.get("test", set()):
        problem = "in both splits, train and test"
        fix = "results on the test split would flatter; write the dataset with other splits"
        found.append(Remark("test tasks in training", tuple(sorted(both)), problem, fix))
    # Contexts alone are of an encoder buffer; who is evaluated, the main one says.
    is_encoder = (manifest.source or {}).get("buffer") == "encoder"
    needed = ("train",) if is_encoder else ("train", "test")
    for name in [name for name in needed if name not in splits]:
        problem, fix = f"no split is called {name}", "name another one to training and evaluation"
        if name == "test":
            fix = (
                "name another one or tasks to evaluation; protocol explore takes the environment's"
            )
        found.append(Remark("missing split", (), problem, fix))
    unused = {task.index for task in manifest.tasks} - set().union(*splits.values())
    if unused:
        fix = "neither training nor evaluation will see them"
        found.append(Remark("unused tasks", tuple(sorted(unused)), "in no split", fix))
    return found


def _of_equal_tasks(manifest: Manifest) -> list[Remark]:
    def columns(task: TaskRecord, *left_out: str) -> tuple[tuple[str, str], ...]:
        return tuple((n, c.sha256) for n, c in task.columns.items() if n not in left_out)

    found, tasks = [], manifest.tasks
    for same in _groups(tasks, columns):
        problem, fix = "identical data", "check what was collected or imported for them"
        found.append(Remark("identical tasks", same, problem, fix))
    identical = {index for warning in found for index in warning.tasks}
    others = [task for task in tasks if task.index not in identical]
    for same in _groups(others, lambda task: columns(task, "reward")):
        problem = "the same transitions with other rewards"
        fix = "as relabelled data does; states do not tell these tasks apart"
        found.append(Remark("same transitions", same, problem, fix))
    for same in _groups(tasks, lambda task: task.parameters):
        problem, fix = "the same parameters", "check them, or merge what is one task"
        found.append(Remark("equal parameters", same, problem, fix))
    return found


def _groups(
    tasks: Iterable[TaskRecord], key: Callable[[TaskRecord], object]
) -> list[tuple[int, ...]]:
    """The indices of tasks that agree in `key`, two or more each."""
    groups: dict[object, list[int]] = {}
    for task in tasks:
        groups.setdefault(key(task), []).append(task.index)
    return [tuple(group) for group in groups.values() if len(group) > 1]


# --- The statistics ---

_OF_A_TASK: tuple[tuple[str, Callable[[TaskInfo], bool], str, str], ...] = (
    (
        "constant reward",
        lambda task: task.reward_low == task.reward_high,
        "the reward never changes",
        "there is nothing to learn from it; check the rewards, or leave the task out",
    ),
    (
        "equal returns",
        lambda task: (
            task.returns.minimum == task.returns.maximum
            and task.episodes > 1
            and task.reward_low != task.reward_high
        ),
        "all episodes have the same return",
        "returns tell no good episode from a bad one",
    ),
    (
        "saturated actions",
        lambda task: task.saturated >= SATURATED,
        f"{100 * SATURATED:.0f} % or more of the action entries are at a bound",
        "check that actions were scaled to [-1, 1] and not clipped",
    ),
    (
        "constant actions",
        lambda task: len(task.action.constant) > 0,
        "an entry of the action never changes",
        "its effect cannot be learned; check the order and scale of the actions",
    ),
    (
        "duplicate transitions",
        lambda task: task.duplicates.transitions > REPEATED,
        f"over {100 * REPEATED:.0f} % of the transitions occur again, bit for bit",
        "they count double, and a held-out part may hold copies; check for data written twice",
    ),
    (
        "duplicate episodes",
        lambda task: task.duplicates.episodes > REPEATED,
        f"over {100 * REPEATED:.0f} % of the episodes occur again, bit for bit",
        "check for files that were read twice",
    ),
    (
        "cut-off episodes",
        lambda task: task.ends.cut_off > CUT_OFF * task.episodes,
        f"over {100 * CUT_OFF:.0f} % of the episodes are truncated before the horizon",
        "their Monte-Carlo returns are of a part; was the end of the MDP recorded as a truncation?",
    ),
    (
        "time limit as an end",
        lambda task: (
            task.ends.time_limit == 0 and task.ends.terminated_at_horizon > task.episodes / 2
        ),
        "episodes that reach the horizon are recorded as terminated",
        "value functions take what follows for 0; a time limit is a truncation",
    ),
    (
        "reward noise",
        lambda task: (
            task.reward_noise is not None and task.reward_noise > NOISE * task.reward_std > 0
        ),
        f"over {100 * NOISE:.0f} % of the reward's spread may be noise, unexplained by (s, a, s')",
        "check that rewards belong to their rows and to this task",
    ),
    (
        "narrow coverage",
        lambda task: task.coverage < NARROW,
        f"under {100 * NARROW:.0f} % of the states that all tasks together visit",
        "what is learned elsewhere will not hold there; look at their returns",
    ),
)


def _of_obs(manifest: Manifest, info: Info) -> list[Remark]:
    found, names = [], entry_names(manifest, "obs")
    means = np.array([task.obs_mean for task in info.tasks])
    spread = np.array([task.obs_std for task in info.tasks])
    std = np.sqrt((spread**2).mean(0) + means.var(0))
    alive = np.flatnonzero(std > DEAD)
    if len(alive) and std[alive].max() > SCALES * std[alive].min():
        wide, narrow = alive[std[alive].argmax()], alive[std[alive].argmin()]
        problem = (
            f"obs scales differ by over {SCALES:,.0f}: {names[wide]} has standard deviation "
            f"{std[wide]:.2g}, {names[narrow]} {std[narrow]:.2g}"
        )
        found.append(Remark("obs scales", (), problem, "train with normalize_obs"))
    if manifest.dtype == "float16":
        ends = np.abs([[task.obs.low, task.obs.high] for task in info.tasks]).max((0, 1))
        coarse = alive[std[alive] < float16_step(ends)[alive]]
        if len(coarse):
            problem = f"float16 rounds off the spread of obs {few([names[n] for n in coarse])}"
            found.append(Remark("float16 rounding", (), problem, "write the data as float32"))
    return found


def float16_step(magnitude: ArrayLike) -> np.ndarray:
    """Distance of neighbouring float16 numbers of that size."""
    _, exponent = np.frexp(magnitude)
    return np.asarray(np.ldexp(1.0, np.maximum(exponent - 11, -24)))


def entry_names(manifest: Manifest, column: Literal["obs", "action"]) -> tuple[str, ...]:
    """Names of the entries of a column; their numbers where the spec has none."""
    spec = manifest.spec
    if column == "obs" and len(spec.obs_names) == spec.obs_dim:
        return spec.obs_names
    return tuple(str(n) for n in range(spec.obs_dim if column == "obs" else spec.act_dim))


def constant_entries(manifest: Manifest, info: Info) -> list[str]:
    """Entries that never change, in words, those of the same tasks together."""
    lines = []
    for column in ("obs", "action"):
        names = entry_names(manifest, column)
        of_tasks: dict[tuple[int, ...], list[str]] = {}
        for entry, name in enumerate(names):
            tasks = tuple(
                task.index for task in info.tasks if entry in getattr(task, column).constant
            )
            if tasks:
                of_tasks.setdefault(tasks, []).append(name)
        for tasks, entries in sorted(of_tasks.items(), key=lambda each: -len(each[0])):
            where = "all tasks" if len(tasks) == len(info.tasks) else _tasks(tasks)
            lines.append(f"{column} {few(entries)} in {where}")
    return lines


def few(items: Iterable[object]) -> str:
    """The first `SHOWN` items, and how many more there are."""
    items = list(items)
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(map(str, items[:SHOWN])) + more


def _tasks(tasks: tuple[int, ...]) -> str:
    return f"task{'s' if len(tasks) > 1 else ''} {few(tasks)}"
