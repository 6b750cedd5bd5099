"""The stages of an experiment as a graph of tasks: collect, datasets of a run, train, evaluate.

Once all are made, `reproduce` finds whatever it would have made itself. So Ray decides where and
when a stage is made, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omrl.config import json_hash, to_json
from omrl.experiments import sources, stages
from omrl.experiments.crew import Crew
from omrl.experiments.declare import Experiment, FromRun, Planned, Scale, collecting
from omrl.experiments.folder import check_out
from omrl.experiments.holding import LOCKS
from omrl.experiments.reproduce import num_seeds
from omrl.experiments.sources import reads
from omrl.experiments.stages import Sources, Workshop, held

Say = Callable[[str], None]


def order(
    crew: Crew,
    shop: Workshop,
    experiment: Experiment,
    scale: Scale,
    planned: Sequence[Planned],
    out: Path,
    collect: Callable[[Say], str] | None = None,
) -> list[Any]:
    """Orders what is not ordered yet; the tasks at whose end all of `planned` is evaluated.

    Args:
        shop: with the datasets that are there.
        out: folder of the results.
        collect: makes the dataset that is not there, and says where.

    Raises `InputError` for data that is there and does not fit a run, and for a folder that cannot
    take the results.
    """
    source, data = experiment.scales[scale].data, shop.data
    how = source.relabelled if isinstance(source, FromRun) else None
    if not any(reads(each) and each.arm.reads == "relabelled" for each in planned):
        how = None
    of_run = isinstance(source, FromRun) and not data.main and any(map(reads, planned))
    if collect is None and how is None and not of_run:
        for each in planned:
            stages.check(shop, each)
    check_out(out, experiment.id, scale, seeds=num_seeds(planned))
    locks = shop.runs.parent / LOCKS
    locks.mkdir(parents=True, exist_ok=True)
    shop = replace(shop, devices=(), say=print)

    def add(key: Hashable, name: str, stage: Any, *inputs: Any, computes: bool = True) -> Any:
        return crew.order(key, name, stage, shop, *inputs, shared=locks, computes=computes)

    def train(each: Planned, data: Any, read: Hashable) -> Any:
        key, name = ("train", each.config, read), f"{each.arm.label}: training"
        return add(key, name, _trained, each, data)

    origin: Hashable = (data.main, data.encoder)  # What the data is of.
    if collect is not None:
        origin = ("collected", str(source))
        data = add(origin, f"collecting {source}", _collected, str(source), planned, collect)
    before = []
    if of_run:
        run = collecting(experiment, scale)
        origin = ("of", run.config)
        before = [train(run, Sources(), None)]
    if of_run or how is not None:
        inputs = (experiment, scale, tuple(planned), json_hash(str(origin)), *before)
        data = add((origin, how), "datasets", _provided, *inputs, computes=False)
    tasks = []
    for each in planned:
        of_arm = {"data": origin, "relabelled": (origin, how), "nothing": None}
        read = of_arm[each.arm.reads] if reads(each) else None
        given = data if reads(each) else Sources()
        trained = train(each, given, read)
        diagnosed = tuple(each.diagnose.items())
        key = ("evaluate", each.config, each.evaluation, diagnosed, each.arm.after, read)
        name = f"{each.arm.label}: evaluation"
        tasks.append(add(key, name, _evaluated, each, given, trained))
    return tasks


def order_collection(crew: Crew, shop: Workshop, name: str, collect: Callable[[Say], str]) -> Any:
    """The task that makes a collection, the same one whatever experiment orders it first."""
    locks = shop.runs.parent / LOCKS
    locks.mkdir(parents=True, exist_ok=True)
    shop = replace(shop, devices=(), say=print)
    key, title = ("collected", name), f"collecting {name}"
    return crew.order(key, title, _collected, shop, name, (), collect, shared=locks)


# --- In the process of a stage: devices, say, then its inputs ---


def _collected(
    devices: Sequence[Any],
    say: Say,
    shop: Workshop,
    name: str,
    planned: Sequence[Planned],
    collect: Callable[[Say], str],
) -> Sources:
    with held(replace(shop, say=say), f"collect-{name}"):
        return sources.named(collect(say), planned)


def _provided(
    devices: Sequence[Any],
    say: Say,
    shop: Workshop,
    experiment: Experiment,
    scale: Scale,
    planned: Sequence[Planned],
    origin: str,
    *before: Path,
) -> Sources:
    shop = replace(shop, devices=devices, say=say)
    with held(shop, f"data-{origin[: stages.ADDRESS]}"):
        folder = shop.runs.with_name("data")
        return sources.provide(shop, experiment, scale, planned, folder).data


def _trained(
    devices: Sequence[Any], say: Say, shop: Workshop, planned: Planned, data: Sources
) -> Path:
    shop = replace(shop, devices=devices, say=say, data=data)
    problem = stages.check(shop, planned)
    return stages.train(shop, planned, problem)


def _evaluated(
    devices: Sequence[Any],
    say: Say,
    shop: Workshop,
    planned: Planned,
    data: Sources,
    run: Path,
) -> Path:
    shop = replace(shop, devices=devices, say=say, data=data)
    problem = stages.check(shop, planned)
    of = json_hash([to_json(planned.evaluation), planned.arm.after])[: stages.ADDRESS]
    with held(shop, f"{stages.address(planned, problem)}-{of}"):
        return stages.carry_out(shop, planned, problem).folder
