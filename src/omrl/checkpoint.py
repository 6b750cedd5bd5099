"""Checkpoints of a run: atomic, asynchronous, and never trusted without their hashes.

Orbax writes each checkpoint under a temporary name and renames it, so a kill leaves the last one
whole; but it does not notice a flipped bit. So each checkpoint has, beside the states, a JSON item
with the sha256 of every leaf of every seed, the config of its run and its own hash. By seed, so
that no process needs the seeds of another, and any number of devices can restore it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.tree_util import keystr, tree_flatten_with_path
from orbax.checkpoint.checkpoint_managers import preservation_policy

from omrl.config import differences, json_hash
from omrl.errors import InputError, reason

# Orbax warns of all that follows from `read_only`, and logs what it then raises, with tracebacks.
logging.getLogger("absl").addFilter(
    lambda record: (
        not record.exc_info and not re.search("read.only|[Mm]etadata file", str(record.msg))
    )
)

Hashes = dict[str, list[str]]
"""Per leaf, by its path: one sha256 in hex per seed."""


class Checkpoints:
    """The checkpoints in `folder`, by step; the newest `keep` of them stay, and those at the steps
    `always`.

    A reader (`read_only`) touches nothing, so it may look at a run that is being trained.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = 3,
        always: Collection[int] = (),
        read_only: bool = False,
    ):
        self.folder = folder.resolve()
        stay = preservation_policy.AnyPreservationPolicy(
            [preservation_policy.LatestN(keep), preservation_policy.CustomSteps(sorted(always))]
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=None if read_only else stay,
            create=not read_only,
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
        )
        self._manager = ocp.CheckpointManager(self.folder, options=options)
        self._written = 0

    @property
    def steps(self) -> list[int]:
        """The steps at which there is a whole checkpoint, ascending."""
        return sorted(self._manager.all_steps())

    def save(self, step: int, states: Any, config: Any, extra: Mapping[str, Any]) -> None:
        """Starts to write a checkpoint and returns before it is on the disk.

        Args:
            states: leaves [seed, ...].
            config: the whole config of the run, as JSON.
            extra: what else a resumed run needs, as JSON.
        """
        meta = {"step": step, "config": config, **extra, "sha256": leaf_hashes(states)}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(states),
            meta=ocp.args.JsonSave({**meta, "meta_sha256": json_hash(meta)}),
        )
        _hide_late_io()
        self.wait()  # As Orbax does itself, which would name this step if that one failed.
        self._written = step
        with self._writing():
            self._manager.save(step, args=items)

    def wait(self) -> None:
        """Returns when every checkpoint is on the disk."""
        with self._writing():
            self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns a failed write, most often a full disk, into one line."""
        try:
            yield
        except Exception as error:  # Orbax and tensorstore raise many kinds
            whole = [step for step in self.steps if step != self._written]
            begin = f"that of update {whole[-1]} is whole" if whole else "there is none before it"
            raise InputError(
                f"{self.folder / str(self._written)}: the checkpoint could not be written "
                f"({reason(error)}); {begin}: make room and resume"
            ) from error

    def restore(
        self, like: Any, config: Any, step: int | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The states and the JSON item of a checkpoint, checked against every hash.

        Args:
            like: `jax.ShapeDtypeStruct` with a sharding per leaf: where the states shall be, which
                need not be where they were.
            config: the config that the checkpoint must have been made with, as JSON.
            step: the newest if None.

        Raises:
            InputError: no such checkpoint, another config, or damaged; names a good one.
        """
        step = self._existing(step)
        try:
            return self._restore(like, config, step)
        except _DamagedError as damage:
            raise InputError(f"{damage}; {self._advice(like, config, step)}") from damage

    def read_meta(self, config: Any, step: int | None = None) -> dict[str, Any]:
        """The JSON item alone of a checkpoint, None: the newest. `InputError` as `restore`."""
        try:
            return self._read_meta(config, self._existing(step))
        except _DamagedError as damage:
            raise InputError(str(damage)) from damage

    def _existing(self, step: int | None) -> int:
        steps = self.steps
        step = (steps[-1] if steps else None) if step is None else step
        if step is None or step not in steps:
            raise InputError(
                f"{self.folder}: no checkpoint{'' if step is None else f' {step}'}; "
                f"there are {', '.join(map(str, steps)) or 'none: train it with --resume first'}"
            )
        return step

    def _restore(self, like: Any, config: Any, step: int) -> tuple[Any, dict[str, Any]]:
        meta = self._read_meta(config, step)
        path = self.folder / str(step)
        names = leaf_names(like)
        if list(meta["sha256"]) != names:
            other = sorted(set(meta["sha256"]) ^ set(names))
            raise InputError(
                f"{path}: holds other leaves than this version of omrl makes "
                f"({', '.join(other[:3])} …); use the version in the run's versions.json"
            )
        _hide_late_io()
        try:
            restored = self._manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(like))
            )
        except Exception as error:  # Orbax and tensorstore raise many kinds for a damaged file
            raise _DamagedError(f"{path}: cannot be read ({reason(error)})") from error
        for name, hashes in leaf_hashes(restored["state"]).items():
            for seed, (expected, actual) in enumerate(
                zip(meta["sha256"][name], hashes, strict=True)
            ):
                if expected != actual:
                    raise _DamagedError(f"{path}: leaf {name} of seed number {seed} is damaged")
        return restored["state"], meta

    def _read_meta(self, config: Any, step: int) -> dict[str, Any]:
        path = self.folder / str(step)
        try:
            item = ocp.args.Composite(meta=ocp.args.JsonRestore())
            meta = dict(self._manager.restore(step, args=item)["meta"])
            intact = meta.pop("meta_sha256") == json_hash(meta)
        except Exception as error:  # as above; and whatever a changed byte makes of JSON
            raise _DamagedError(f"{path}: meta cannot be read ({reason(error)})") from error
        if not intact:
            raise _DamagedError(f"{path}: meta is damaged")
        found = list(differences(meta["config"], config))
        if found:
            raise InputError(f"{path}: was made with another config: {'; '.join(found)}")
        return meta

    def _advice(self, like: Any, config: Any, damaged: int) -> str:
        for step in sorted((step for step in self.steps if step < damaged), reverse=True):
            try:
                self._restore(like, config, step)
            except (_DamagedError, InputError):
                continue
            return f"{step} is intact: remove {self.folder / str(damaged)} to continue from there"
        return "no earlier one is intact: start the run again in another folder"


def steps_in(folder: Path) -> list[int]:
    """The steps at which there is a whole checkpoint, ascending."""
    checkpoints = Checkpoints(folder, read_only=True)
    steps = checkpoints.steps
    checkpoints.close()
    return steps


@cache
def _hide_late_io() -> None:
    """Has what goes on after a failed restore or save report nothing.

    Orbax gives up, and closes its event loop, at the first array that fails. Those that
    TensorStore's threads still read or write, and tasks that nobody awaits any more, would each
    print a traceback, before or after the one line that says what is wrong.
    """
    report = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        what = str(unraisable.exc_value)
        late = what == "Event loop is closed" or "was never awaited" in what
        if not late and "_read_array_index" not in repr(unraisable.object):
            report(unraisable)

    sys.unraisablehook = hook
    warnings.filterwarnings("ignore", "coroutine 'Store.*was never awaited", RuntimeWarning)
    logging.getLogger("asyncio").addFilter(lambda record: "never retrieved" not in str(record.msg))


class _DamagedError(Exception):
    """A checkpoint that cannot be what was saved."""


def leaf_hashes(states: Any) -> Hashes:
    """sha256 of the bytes of every leaf and seed, the same on every process."""
    leaves = jax.tree.leaves(states)
    num_seeds = leaves[0].shape[0]
    digests = np.zeros((len(leaves), num_seeds, 32), np.uint8)
    for row, leaf in zip(digests, leaves, strict=True):
        for shard in leaf.addressable_shards:
            values = np.asarray(shard.data)
            seeds = range(num_seeds)[shard.index[0]]
            for seed, value in zip(seeds, values, strict=True):
                row[seed] = np.frombuffer(hashlib.sha256(value.tobytes()).digest(), np.uint8)
    if jax.process_count() > 1:
        digests = np.max(multihost_utils.process_allgather(digests), axis=0)
    return {
        name: [seed.tobytes().hex() for seed in row]
        for name, row in zip(leaf_names(states), digests, strict=True)
    }


def leaf_names(tree: Any) -> list[str]:
    return [leaf_name(path) for path, _ in tree_flatten_with_path(tree)[0]]


def leaf_name(path: Any) -> str:
    """A leaf's path as one would write it in code: `value.layers[0].kernel`."""
    return keystr(path).lstrip(".")
