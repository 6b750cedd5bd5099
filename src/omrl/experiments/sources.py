"""The data of experiments whose data is from a meta-training of its own, made once.

SMAC's paper learns from what an online PEARL run collected. So there is a chain before the arms:
that run, datasets of both its buffers, and where an arm wants it one of them relabelled. All are
found again by what they are of, as runs are.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omrl import bundled
from omrl.config import json_hash
from omrl.data.manifest import OUT
from omrl.data.relabel import relabel
from omrl.data.slice import Slice
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.errors import InputError
from omrl.experiments import stages
from omrl.experiments.declare import Experiment, FromRun, Planned, Relabelled, Scale, collecting
from omrl.experiments.stages import ADDRESS, Sources, Workshop, held, told_to_repeat

ENCODER = "-encoder"
"""Behind the name of a dataset that of the encoder buffer beside it, as from-run writes them."""


def named(data: str, planned: Sequence[Planned]) -> Sources:
    """The dataset `data`, and the one of the encoder buffer beside it if a run reads one.

    Raises `InputError` where that is not there.
    """
    if not data or not any(each.config.separate_encoder for each in planned if reads(each)):
        return Sources(data)
    if not bundled.resolve(data + ENCODER).exists():
        raise InputError(
            f"{data}{ENCODER}: is not there, the dataset of the contexts of {data}; omrl data "
            "from-run writes both"
        )
    return Sources(data, data + ENCODER)


def reads(planned: Planned) -> bool:
    """Whether a run reads any dataset."""
    return not planned.arm.collects and planned.arm.reads != "nothing"


def provide(
    shop: Workshop, experiment: Experiment, scale: Scale, planned: Sequence[Planned], folder: Path
) -> Workshop:
    """`shop` with all data that the runs `planned` read; what is not there is made in `folder`.

    Raises what `stages.train` does; what was made by then is found again at the next call.
    """
    source, data = experiment.scales[scale].data, shop.data
    if not isinstance(source, FromRun):
        return shop
    if not data.main and any(map(reads, planned)):
        data = _of_run(shop, collecting(experiment, scale), folder)
    if source.relabelled and any(each.arm.reads == "relabelled" for each in planned):
        data = replace(data, relabelled=_relabelled(shop, source.relabelled, data.main, folder))
    return replace(shop, data=data)


def _of_run(shop: Workshop, planned: Planned, folder: Path) -> Sources:
    """Both buffers of the run `planned` as datasets."""
    from omrl.data.from_run import write_collected

    run = stages.train(shop, planned, stages.check(shop, planned))
    main = folder / run.name
    encoder = main.with_name(main.name + ENCODER)

    def there() -> bool:
        return main.exists() and encoder.exists()

    if not there():
        with held(shop, f"data-{main.name}"):
            if not there():
                shop.say(f"making datasets of {run}: {main}, {encoder}")
                write_collected(run, main, overwrite=True)
    return Sources(str(main), str(encoder))


def _relabelled(shop: Workshop, how: Relabelled, main: str, folder: Path) -> str:
    """The dataset `main` relabelled, named by the hash of what it is of."""
    source = open_dataset(main)
    fields = {field.name: field.default for field in dataclasses.fields(how.borrowing)}
    chosen = {name: getattr(how.borrowing, name) for name in fields}
    options = ["--slice", how.slice]
    for name in (name for name, default in fields.items() if chosen[name] != default):
        options += [f"--{name.replace('_', '-')}", str(chosen[name])]
    name = bundled.resolve(main).name
    out = folder / f"{name}-relabelled-{json_hash([source.manifest.hash, options])[:ADDRESS]}"
    command = shlex.join(["omrl", "data", "relabel", name, OUT, *options])
    if not out.exists():
        with told_to_repeat(), held(shop, f"data-{out.name}"):
            if not out.exists():
                shop.say(f"relabelling {main}: {out}")
                view, env = source.view(Slice.parse(how.slice)), registry.make(source.env_id)
                relabel(view, out, env, borrowing=how.borrowing, command=command)
    return str(out)
