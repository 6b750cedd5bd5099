"""The study from the archives to its table: rates by a search, then the curves of every network.

All networks get the same search: each pair of rates of one grid trains a learner for the same
number of meta-steps from `SEARCH_SEED`, and the pair with the best accuracy on validation classes
at its end is taken. Test classes are drawn from in the evaluations alone and choose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from omrl.config import json_hash, to_json
from omrl.errors import InputError, nearest
from omrl.experiments.declare import Scale
from omrl.omniglot import training
from omrl.omniglot.images import read_images
from omrl.omniglot.learner import Data
from omrl.omniglot.settings import (
    ID,
    SCALES,
    SEARCH_SEED,
    Choices,
    Learner,
    Network,
    Scaled,
    Start,
    Training,
)
from omrl.omniglot.split import Classes, Split, make_classes, split_alphabets
from omrl.omniglot.training import Result


@dataclass(frozen=True)
class Found:
    """What came out for a network."""

    network: Network
    search: tuple[tuple[Start, float], ...]
    """Pairs of rates with their accuracy on validation classes; empty: they were given."""
    result: Result


def planned(scale: Scale, choices: Choices) -> Scaled:
    """The scale's settings with what was chosen. Raises `InputError` for what there is not."""
    if scale not in SCALES:
        raise InputError(
            f"{ID} has no scale {scale}, only {', '.join(SCALES)}: the paper tells neither rates "
            "nor steps"
        )
    of_scale = SCALES[scale]
    labels = [network.label for network in of_scale.networks]
    for name in choices.only:
        if name not in labels:
            raise InputError(f"--only: {ID} has no {name!r}; {nearest(name, labels)}")
    of_learner = _given(choices, "meta_batch", "inner_steps", "queries")
    steps = choices.steps or of_scale.steps
    changed: dict[str, Any] = _given(choices, "seeds")
    if choices.target is not None:
        changed["targets"] = choices.target
    for name in ("inner_lr", "outer_lr"):
        if (rate := getattr(choices, name)) is not None:
            changed[f"{name}s"] = (rate,)
    return replace(
        of_scale,
        networks=tuple(
            replace(each, learner=replace(each.learner, **of_learner))
            for each in of_scale.networks
            if each.label in (choices.only or labels)
        ),
        steps=steps,
        search_steps=min(choices.search_steps or of_scale.search_steps, steps),
        **changed,
    )


def _given(choices: Choices, *names: str) -> dict[str, Any]:
    values = {name: getattr(choices, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Problem:
    """The images, ready for episodes."""

    split: Split
    classes: Classes
    hash: str
    """Of images and split."""


def open_problem(folder: Path, learner: Learner) -> Problem:
    """Reads the archives in `folder`. Raises what `read_images`, `split_alphabets` and
    `make_classes` do."""
    images = read_images(folder)
    split = split_alphabets(images)
    classes = make_classes(images, split, ways=learner.ways, drawings=1 + learner.queries)
    return Problem(split, classes, json_hash([images.hash, to_json(split)]))


def carry_out(
    plan: Scaled,
    problem: Problem,
    folder: Path,
    devices: Sequence[Any],
    *,
    command: str,
    say: Callable[[str], None],
    quiet: bool = False,
) -> list[Found]:
    """Searches and trains what is not done yet; runs are below `folder`.

    Raises what `training.train` does; the same call goes on.
    """
    data = Data(*map(jnp.asarray, (problem.classes.pixels, problem.classes.on_side)))
    train = partial(
        training.train, data=data, folder=folder, devices=devices, command=command, quiet=quiet
    )
    return [_one_network(plan, network, problem, train, say) for network in plan.networks]


def _one_network(
    plan: Scaled,
    network: Network,
    problem: Problem,
    train: Callable[..., Result],
    say: Callable[[str], None],
) -> Found:
    search: tuple[tuple[Start, float], ...] = ()
    best = Start(SEARCH_SEED, plan.inner_lrs[0], plan.outer_lrs[0])
    if len(plan.inner_lrs) * len(plan.outer_lrs) > 1:
        search = _search(plan, network, problem, train, say)
        best = max(search, key=lambda tried: tried[1])[0]
    say(
        f"{network.label}: {plan.steps:,} meta-steps, {plan.seeds} seeds, inner rate "
        f"{best.inner_lr:g}, outer rate {best.outer_lr:g}"
    )
    wanted = Training(
        network.learner,
        tuple(replace(best, seed=seed) for seed in range(plan.seeds)),
        steps=plan.steps,
        eval_every=plan.eval_every,
        checkpoint_every=plan.checkpoint_every,
        data=problem.hash,
    )
    return Found(network, search, train(wanted, network.label))


def _search(
    plan: Scaled,
    network: Network,
    problem: Problem,
    train: Callable[..., Result],
    say: Callable[[str], None],
) -> tuple[tuple[Start, float], ...]:
    """Accuracy on validation classes of every pair of rates. One training per outer rate: wide
    networks with all pairs side by side could need more memory than there is."""
    pairs = len(plan.inner_lrs) * len(plan.outer_lrs)
    say(f"{network.label}: {pairs} pairs of rates, {plan.search_steps:,} meta-steps each")
    found: list[tuple[Start, float]] = []
    for outer_lr in plan.outer_lrs:
        wanted = Training(
            network.learner,
            tuple(Start(SEARCH_SEED, inner_lr, outer_lr) for inner_lr in plan.inner_lrs),
            steps=plan.search_steps,
            eval_every=plan.search_steps,
            checkpoint_every=plan.checkpoint_every,
            data=problem.hash,
        )
        result = train(wanted, f"search {network.label}", may_diverge=True)
        means = result.at_end("validation").mean(1).tolist()
        found += zip(wanted.starts, means, strict=True)
    return tuple(found)


def steps_to(result: Result, target: float) -> list[int | None]:
    """Of every seed the meta-steps to the first evaluation with that accuracy on validation
    classes or more; None where there is none."""
    from omrl.omniglot.split import SIDES

    means = result.accuracy[:, :, SIDES.index("validation")].mean(-1)
    steps = result.training.eval_steps
    return [
        steps[int(np.argmax(reached))] if reached.any() else None for reached in means >= target
    ]
