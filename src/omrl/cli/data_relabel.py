"""`omrl data relabel`: rewards of other tasks, of another environment, or of a function."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from omrl.cli.options import as_options, as_typed
from omrl.data.borrow import Borrowing
from omrl.data.dataset import Dataset
from omrl.data.manifest import OUT
from omrl.data.relabel import relabel
from omrl.data.slice import GRAMMAR, Slice
from omrl.data.store import open_dataset
from omrl.envs import registry
from omrl.envs.base import TaskEnv
from omrl.envs.own_reward import with_reward
from omrl.errors import InputError, reason
from omrl.files import read_bytes
from omrl.ranges import Count, Natural, Positive

_BORROWING = tuple(field.name for field in dataclasses.fields(Borrowing))


@dataclass(frozen=True)
class RelabelOptions:
    """Write a dataset with rewards of other tasks or another reward: docs/relabelling.md."""

    source: Positional[Path]
    """Folder of the dataset to relabel."""
    out: Positional[Path]
    """Folder of the new dataset."""
    share: Positive | None = None
    """Episodes that a task takes over from other tasks in all, relative to its own; with
    --trajectory to those of its own that can be replaced."""
    per_task: Count | None = None
    """Instead: episodes that a task takes over from every other task."""
    mode: Literal["extend", "replace"] = Borrowing.mode
    """Keep all episodes of a task's own, or drop as many as are taken over."""
    split: str = Borrowing.split
    """Only tasks of this split give and take; the others are copied as they are."""
    holdout: str = Borrowing.holdout
    """Split of tasks that neither give nor take, though the other split names them."""
    trajectory: Count = Borrowing.trajectory
    """Episodes that an agent plays in a row; of these only the first half gives and is replaced."""
    seed: Natural = Borrowing.seed
    """Decides which episodes are taken over."""
    env: str = ""
    """Another environment with the same transitions, whose rewards to compute."""
    reward: str = ""
    """FILE.py:FUNCTION that computes the rewards. The file is run: it must be one of your own."""
    id: str = ""
    """Of the environment with the rewards of the function: my-cheetah/fast-v1."""
    slice: Annotated[str, tyro.conf.arg(help=f"{GRAMMAR}.")] = "all"
    overwrite: bool = False
    """Replace the dataset at `out`, if there is one, once the new one is whole."""
    json: bool = False
    """Print one JSON object instead of a table."""


def run_relabel(options: RelabelOptions) -> Dataset:
    """Write the dataset; on standard error, how many rewards rounding leaves in doubt."""
    if "+" in options.slice:
        raise InputError(
            f"slice: {options.slice!r} is a mixture; write it first with omrl data slice, and then "
            "relabel it"
        )
    selection = Slice.parse(options.slice)
    source = open_dataset(options.source).view(selection)
    env = _environment(options, source)
    # In one spelling, since it is part of the dataset's hash.
    values = {name: getattr(options, name) for name in (*_BORROWING, "env", "reward", "id")}
    values["slice"] = str(selection)
    if options.reward:
        path, name = _parts(options.reward)
        values["reward"] = f"{as_typed(path)}:{name}"
    defaults = {field.name: field.default for field in dataclasses.fields(RelabelOptions)}
    words = ["omrl", "data", "relabel", as_typed(options.source), OUT]
    result = relabel(
        source,
        options.out,
        env,
        borrowing=_borrowing(options),
        command=shlex.join([*words, *as_options(values, defaults)]),
        overwrite=options.overwrite,
    )
    done = [task.behaviour.get("relabelled", {}) for task in result.manifest.tasks]
    if unsure := sum(each.get("rounded_at_a_border", 0) for each in done):
        print(
            f"omrl: {unsure} rewards are of transitions at a border, such as that of a goal, which "
            "terms in half precision may lie on either side of",
            file=sys.stderr,
        )
    return result


def _borrowing(options: RelabelOptions) -> Borrowing | None:
    values = {name: getattr(options, name) for name in _BORROWING}
    if options.share is not None or options.per_task is not None:
        return Borrowing(**values)
    for name, value in values.items():
        if value != getattr(Borrowing, name):
            raise InputError(f"{name}: needs --share or --per-task, which episodes to take over")
    return None


def _environment(options: RelabelOptions, source: Dataset) -> TaskEnv:
    if options.reward and (options.env or not options.id):
        raise InputError("reward: needs --id NAME/VERSION for the new MDP, and no --env")
    if options.id and not options.reward:
        raise InputError("id: is for the rewards of a function; needs --reward FILE.py:FUNCTION")
    env = registry.make(options.env or source.env_id)
    if not options.reward:
        return env
    path, name = _parts(options.reward)
    # The text is hashed with the spec: rewards of another file are those of another MDP.
    digest = hashlib.sha256(read_bytes(path)).hexdigest()
    text = f"{name} of {path.name}, sha256 {digest}"
    return with_reward(env, _load(path, name), options.id, text)


def _parts(text: str) -> tuple[Path, str]:
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"reward: {text!r} is not FILE.py:FUNCTION")
    return Path(path), name


def _load(path: Path, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file, which is run."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: Python cannot load it; give a .py file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path}: {type(error).__name__}: {reason(error)}; correct it") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path}: has no function {name!r}; name one that it defines")
    return function
