"""`omrl adapt RUN`: adapt a trained run to logged transitions and export the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from omrl.cli.options import DeviceOptions, parse_for_run, print_json
from omrl.protocol import AdaptConfig
from omrl.ranges import Natural
from omrl.tables import parameter_cells, parameter_names


@dataclass(frozen=True)
class AdaptOptions:
    """Adapt a run to transitions of one task and write a policy that needs numpy alone. Rounds and
    context are by default those of the run's own evaluations, see `omrl adapt RUN --help`."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or bundled:NAME."""
    context: Path
    """Dataset with transitions of the task: any task of the same MDP. Or bundled:NAME."""
    out: Path
    """File of the policy; .safetensors is added if absent, and a .json written beside it."""
    config: Annotated[AdaptConfig, tyro.conf.arg(name="")]
    step: Natural | None = None
    """Checkpoint to adapt; without it the last."""
    overwrite: bool = False
    """Replace an existing policy."""
    compute: Annotated[DeviceOptions, tyro.conf.arg(name="")] = field(default_factory=DeviceOptions)
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str], command: str) -> None:
    options = parse_for_run(AdaptOptions, "adapt", arguments, AdaptConfig.like)
    from omrl import metatrain
    from omrl.deploy import adapt_and_export
    from omrl.export import load_policy

    trained = metatrain.load_trained(
        options.run,
        options.compute.resolve(),
        step=options.step,
        shots=(options.config.rounds,),
    )
    path = adapt_and_export(
        trained, options.context, options.out, options.config, overwrite=options.overwrite
    )
    metadata = dict(load_policy(path).metadata)
    if options.json:
        print_json({"file": str(path)} | metadata)
        return
    context = metadata["context"]
    names = parameter_names(list(context["parameters"]))
    cells = parameter_cells(list(context["parameters"].values()))
    parameters = ", ".join(f"{name} {cell}" for name, cell in zip(names, cells, strict=True))
    print(
        f"{path}: {context['run']} adapted to task {context['task']} ({parameters}) of "
        f"{context['data']}; rounds: {context['rounds']}, context: {context['context']}\n"
        f'read it with omrl.export.load_policy("{path}")'
    )
