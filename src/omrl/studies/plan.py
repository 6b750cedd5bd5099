"""A study as a value: which evaluations, and where each of their numbers stands in the picture.

Every evaluation is an ordinary `EvalConfig` derived from one that is given, so `omrl evaluate` with
the same settings repeats it bit for bit. Contexts are functions of (context seed, run seed, task):
of two sizes the larger context contains the smaller one (the first n draws of a shuffle do not
depend on how many follow), so the points of a study are paired.

* `steps`: return after each number of gradient steps. Source: MACAW's workshop version, Figure 2,
  where MACAW and multi-task AWR adapt to 8 transitions and PEARL to 256.
* `context-size`: return against the number of transitions or trajectories that are adapted to.
* `context-quality`: against the mean return of the part of the data that is adapted to.
* `distribution`: on the tasks that were trained on and on the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from omrl.data.slice import parse_view
from omrl.errors import InputError, at
from omrl.protocol import EvalConfig

StudyName = Literal["steps", "context-size", "context-quality", "distribution"]

ROUNDS = (0, 1, 2, 3, 5, 10, 20)
"""Shots of `steps` by default; 20 is what the paper grants multi-task AWR."""
SIZES = tuple(2**exponent for exponent in range(3, 13))
"""Transitions, from 8 to 4096."""
TRAJECTORIES = (1, 2, 3, 4, 5)
FIFTHS = tuple(f"part-{fifth / 5}-{(fifth + 1) / 5}" for fifth in range(5))
ENDS = ("first-500", "middle-500", "last-500")
_ONE = {"transitions": "transition", "trajectories": "trajectory"}
_SIZE = re.compile(r"([1-9][0-9]{0,8})(-trajectories)?")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a study."""

    config: EvalConfig
    data: str = ""
    """Dataset of the contexts; empty: that of the study."""


@dataclass(frozen=True)
class Point:
    """A number of one evaluation, and its place."""

    series: str
    """The line that it is on."""
    label: str
    """Its x in words."""
    x: float | None
    """None: the same for every x, a horizontal line."""
    evaluation: int
    """Which of the study's."""
    rounds: int
    """Which of its shots."""
    tasks: tuple[int, ...] = ()
    """The tasks it is over; empty: all of the evaluation."""


@dataclass(frozen=True)
class Study:
    """What is evaluated, and what is shown."""

    name: StudyName
    base: EvalConfig
    """What all of it was derived from."""
    x_label: str
    """With its unit."""
    log_x: bool
    evaluations: tuple[Evaluation, ...]
    points: tuple[Point, ...]
    trained_range: tuple[float, ...] = ()
    """Lowest and highest x of the tasks that were trained on."""
    left_out: tuple[str, ...] = ()
    """What this data or algorithm cannot give, and why."""


@dataclass(frozen=True)
class Part:
    """What a part of a dataset has for contexts of the tasks that are evaluated."""

    transitions: int
    """Of the task that has fewest."""
    trajectories: int
    """Likewise."""
    length: int
    """Transitions of a trajectory; 0 where they differ."""
    mean_return: float
    """Undiscounted, mean over tasks of the mean over episodes."""


@dataclass(frozen=True)
class Facts:
    """What a plan has to know of run and data."""

    gradient_steps: int
    """Of one adaptation round; 0 where adapting takes none."""
    task_names: tuple[str, ...]
    task_parameters: tuple[tuple[float, ...], ...]
    """Of all tasks, by index."""
    trained_on: tuple[int, ...]
    splits: Mapping[str, tuple[int, ...]]
    holdout: str
    """The split that was held out of the training tasks; empty: none."""
    part: Callable[[str, str], Part]
    """Of (dataset, slice), the dataset as in `Evaluation.data`."""


def plan(
    name: StudyName,
    config: EvalConfig,
    facts: Facts,
    *,
    points: Sequence[str] = (),
    more_data: Sequence[str] = (),
) -> Study:
    """The study `name` around `config`.

    Args:
        points: sizes (`64`, `2-trajectories`) or slices, in place of those of `context-size` or
            `context-quality`.
        more_data: further datasets of the same tasks, each a point of `context-quality`.

    Raises `InputError` where config, data or algorithm leave nothing to study.
    """
    if config.protocol != "given":
        raise InputError(
            f"study {name}: contexts are given to it, the protocol is {config.protocol!r}; use "
            "--protocol given"
        )
    if config.shots[-1] == 0:
        raise InputError(f"study {name}: with shots {config.shots} nothing is adapted; --shots 0 1")
    if points and name not in ("context-size", "context-quality"):
        fix = "its points are --shots" if name == "steps" else "choose among its tasks by --tasks"
        raise InputError(f"points: study {name} has none to choose; {fix}")
    if more_data and name != "context-quality":
        raise InputError(f"more_data: only context-quality compares datasets, not {name}")
    if name == "steps":
        return _steps(config, facts)
    if name == "context-size":
        return _context_size(config, facts, points)
    if name == "context-quality":
        return _context_quality(config, facts, points, more_data)
    return _distribution(config, facts)


def _steps(config: EvalConfig, facts: Facts) -> Study:
    """One evaluation; its shots are the points."""
    left_out: tuple[str, ...] = ()
    each = facts.gradient_steps
    if each == 0:
        config = replace(config, shots=(0, 1))
        left_out = ("more than one round: this algorithm adapts without gradient steps",)
        places = {0: ("before", 0.0), 1: ("adapted without gradient steps", None)}
    else:
        places = {rounds: (str(rounds * each), float(rounds * each)) for rounds in config.shots}
    return Study(
        name="steps",
        base=config,
        x_label="gradient steps of adaptation",
        log_x=False,
        evaluations=(Evaluation(config),),
        points=tuple(
            Point("return", label, x, evaluation=0, rounds=rounds)
            for rounds, (label, x) in places.items()
        ),
        left_out=left_out,
    )


def _context_size(config: EvalConfig, facts: Facts, chosen: Sequence[str]) -> Study:
    """One evaluation per size; trajectories stand at the transitions that they have."""
    part = facts.part("", config.context_slice)
    wanted, left_out = _sizes(chosen), []
    if not chosen:
        fits = [size for size in SIZES if size <= part.transitions]
        episodes = [n for n in TRAJECTORIES if part.length and n <= part.trajectories]
        wanted = [(n, "transitions") for n in fits] + [(n, "trajectories") for n in episodes]
        if len(fits) < len(SIZES):
            larger = SIZES[len(fits)]
            left_out.append(f"{larger} transitions or more: a task has {part.transitions}")
        if not part.length:
            left_out.append("whole trajectories: they are of different lengths")
        elif len(episodes) < len(TRAJECTORIES):
            left_out.append(f"more than {part.trajectories} trajectories: a task has no more")
    last = config.shots[-1]
    evaluations, points = [_without_context(config)], [_before()]
    for size, unit in wanted:
        _check_room("", part, replace(config, context_size=size, context_unit=unit))
        if unit == "trajectories" and not part.length:
            raise InputError(
                f"points: {size}-trajectories, but those of {config.context_slice} are of "
                "different lengths, so contexts would differ in size; ask for transitions"
            )
        transitions = size * (part.length if unit == "trajectories" else 1)
        series = "whole trajectories" if unit == "trajectories" else "single transitions"
        label = f"{size} {unit}" if size > 1 else f"1 {_ONE[unit]}"
        points.append(Point(series, label, float(transitions), len(evaluations), last))
        sized = replace(config, shots=(last,), context_size=size, context_unit=unit)
        evaluations.append(Evaluation(sized))
    return Study(
        name="context-size",
        base=config,
        x_label="context size (transitions)",
        log_x=True,
        evaluations=tuple(evaluations),
        points=tuple(points),
        left_out=tuple(left_out),
    )


def _sizes(chosen: Sequence[str]) -> list[tuple[int, Literal["transitions", "trajectories"]]]:
    sizes = []
    for name in chosen:
        match = _SIZE.fullmatch(name)
        if match is None:
            raise InputError(f"points: {name!r} is no size; give 64 or 2-trajectories")
        sizes.append((int(match[1]), "trajectories" if match[2] else "transitions"))
    _check_distinct(sizes)
    return sizes


def _context_quality(
    config: EvalConfig, facts: Facts, chosen: Sequence[str], more_data: Sequence[str]
) -> Study:
    """One evaluation per part of the data, all of one size; x is the mean return of the part."""
    left_out: list[str] = []
    if chosen:
        parts = [("parts of the lifetime", "", name) for name in chosen]
        _check_distinct(chosen)
        for name in chosen:
            _check_slice(name)
    else:
        parts = _parts(config, facts, left_out)
    _check_distinct(more_data)
    parts += [("other data", data, "all") for data in more_data]
    last = config.shots[-1]
    evaluations, points = [_without_context(config)], [_before()]
    for series, data, name in parts:
        part, sliced = facts.part(data, name), replace(config, shots=(last,), context_slice=name)
        _check_room(data, part, sliced)
        label = Path(data).name if data else name
        points.append(Point(series, label, part.mean_return, len(evaluations), last))
        evaluations.append(Evaluation(sliced, data=data))
    return Study(
        name="context-quality",
        base=config,
        x_label="mean return of the data adapted to (sum of rewards)",
        log_x=False,
        evaluations=tuple(evaluations),
        points=tuple(points),
        left_out=tuple(left_out),
    )


def _parts(config: EvalConfig, facts: Facts, left_out: list[str]) -> list[tuple[str, str, str]]:
    """(series, dataset, slice) of the whole lifetime, its fifths, its first, middle, last 500."""
    whole = facts.part("", "all")
    parts = [("whole lifetime", "", "all")]
    if whole.trajectories < len(FIFTHS):
        left_out.append(f"fifths: a task has {whole.trajectories} trajectories")
    else:
        held = {name: facts.part("", name) for name in FIFTHS}
        for name, part in held.items():
            size = getattr(part, config.context_unit)
            if size >= config.context_size:
                parts.append(("fifths of the lifetime", "", name))
            else:
                wanted = f"{config.context_size} {config.context_unit}"
                left_out.append(f"{name}: {wanted}, and a task has {size} there")
    if whole.trajectories >= 500 * len(ENDS):
        parts += [("500 trajectories", "", name) for name in ENDS]
    else:
        left_out.append(
            f"{', '.join(ENDS)}: a task has {whole.trajectories} trajectories, so they overlap"
        )
    return parts


def _check_room(data: str, part: Part, config: EvalConfig) -> None:
    """Before anything is evaluated, so that no folder holds a plan that cannot come true."""
    held = getattr(part, config.context_unit)
    if config.context_size > held:
        raise InputError(
            f"study: a context of {config.context_size} {config.context_unit} of "
            f"{config.context_slice}{f' of {data}' if data else ''}, where a task has {held}; ask "
            "for fewer"
        )


def _check_slice(name: str) -> None:
    try:
        parse_view(name)
    except InputError as error:
        raise InputError(at("points", str(error))) from None


def _check_distinct(points: Sequence[object]) -> None:
    for point in points:
        if points.count(point) > 1:
            shown = "-".join(map(str, point)) if isinstance(point, tuple) else point
            raise InputError(f"points: {shown} is there twice; leave one out")


def _distribution(config: EvalConfig, facts: Facts) -> Study:
    """One evaluation of all tasks; its points are every task, and the mean of every group."""
    others = {*facts.splits.get(config.split, ()), *facts.splits.get(facts.holdout, ())}
    tasks = tuple(config.tasks or sorted({*facts.trained_on, *others}))
    groups: dict[str, list[int]] = {}
    for task in tasks:
        groups.setdefault(_group(task, facts), []).append(task)
    if len(groups) < 2:
        raise InputError(
            f"study distribution: all of its {len(tasks)} tasks are {next(iter(groups))}; it "
            "compares those that were trained on with others (--split, --tasks)"
        )
    shots = tuple(dict.fromkeys((config.shots[0], config.shots[-1])))
    points = []
    one_parameter = len(facts.task_names) == 1
    for group, members in groups.items():
        counted = f"{len(members)} task{'s' * (len(members) > 1)}"
        for rounds in shots:
            series = f"{group}, {'before' if rounds == 0 else f'after {rounds}'}"
            points.append(Point(series, counted, None, 0, rounds, tuple(members)))
            for task in members if one_parameter else ():
                (x,) = facts.task_parameters[task]
                points.append(Point(series, f"task {task}", x, 0, rounds, (task,)))
    trained = [facts.task_parameters[task][0] for task in facts.trained_on]
    return Study(
        name="distribution",
        base=config,
        x_label=facts.task_names[0] if one_parameter else "",
        log_x=False,
        evaluations=(Evaluation(replace(config, tasks=tasks, shots=shots)),),
        points=tuple(points),
        trained_range=(min(trained), max(trained)) if one_parameter else (),
    )


def _group(task: int, facts: Facts) -> str:
    if task in facts.trained_on:
        return "training tasks"
    named = (name for name, members in facts.splits.items() if task in members and name != "train")
    return f"{next(named, 'other')} tasks"


def _without_context(config: EvalConfig) -> Evaluation:
    return Evaluation(replace(config, protocol="zero-shot", shots=(0,)))


def _before() -> Point:
    return Point("before adaptation", "none", None, evaluation=0, rounds=0)
