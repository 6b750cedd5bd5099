"""A trained seed in 10 MB: the meta-parameters without the optimiser, large matrices as float16.

    python -m omrl.bundle RUN OUT --seed 0

writes a folder that can be evaluated and adapted like a run, but not trained further:

    manifest.json    config and scales, hash of the training data, seed, step, the commands that
                     made it, library versions, and dtype, shape and sha256 of every leaf
    weights.npz      the leaves by name

Both are read as untrusted: no pickle, every hash and shape compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from omrl.arrays import read_npz
from omrl.checkpoint import leaf_names
from omrl.config import from_json, json_hash, read_json, to_json
from omrl.errors import InputError
from omrl.files import atomic_write, read_text
from omrl.presets import RunRecord
from omrl.runs import read_sessions

FORMAT = "omrl-bundle-1"
MANIFEST, WEIGHTS = "manifest.json", "weights.npz"
RESTORE = "copy it again from its source"
TRAINING_ONLY = "opt."
"""Leaves of a state that only an update reads."""
LARGE = 1000
"""Matrices of so many numbers are stored as float16; inner learning rates and vectors exactly."""


@dataclass(frozen=True)
class LeafRecord:
    """One array of `weights.npz`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of the bytes as stored."""


@dataclass(frozen=True)
class Manifest:
    """Contents of `manifest.json`."""

    format: str
    record: RunRecord
    """Of the run, as if its seed had been trained alone. `data` is where contexts are, `data_hash`
    that of the data it was trained on."""
    step: int
    """Updates made."""
    commands: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    """Libraries and device of the training."""
    leaves: tuple[LeafRecord, ...]

    @property
    def hash(self) -> str:
        """sha256 of all fields; stored beside them."""
        return json_hash(to_json(self))


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: every leaf is what its manifest says."""

    folder: Path
    manifest: Manifest
    leaves: dict[str, np.ndarray]

    def states(self, like: Any) -> Any:
        """The state of the one seed, leaves [1, ...]; zeros where only training reads.

        `like` has the shapes and dtypes that the algorithm makes of the config, without the seed's
        axis. Raises `InputError` where the bundle has others.
        """
        names, (shapes, tree) = leaf_names(like), jax.tree.flatten(like)
        wanted = {name for name in names if not name.startswith(TRAINING_ONLY)}
        if wanted != self.leaves.keys():
            other = ", ".join(sorted(wanted ^ self.leaves.keys())[:3])
            raise InputError(
                f"{self.folder}: holds other leaves than this version of omrl makes ({other}); "
                "use the version in its manifest"
            )
        leaves = []
        for name, shape in zip(names, shapes, strict=True):
            held = self.leaves.get(name, np.zeros(shape.shape, shape.dtype))
            if held.shape != shape.shape:
                raise InputError(
                    f"{self.folder}: leaf {name} is {held.shape}, its config makes {shape.shape}"
                )
            leaves.append(jnp.asarray(held[None], shape.dtype))
        return tree.unflatten(leaves)


def is_bundle(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file()


# --- Reading ---


def read(folder: Path) -> Bundle:
    """The bundle in `folder`. Raises `InputError` for anything missing, damaged or not finite."""
    manifest = read_manifest(folder)
    path = folder / WEIGHTS
    leaves = read_npz(path, RESTORE)
    other = leaves.keys() ^ {leaf.name for leaf in manifest.leaves}
    if other:
        raise InputError(f"{path}: leaf {min(other)} is missing or not in {MANIFEST}; {RESTORE}")
    for leaf in manifest.leaves:
        array = leaves[leaf.name]
        if _record(leaf.name, array) != leaf:
            raise InputError(f"{path}: leaf {leaf.name} is damaged; {RESTORE}")
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise InputError(f"{path}: leaf {leaf.name} has other than finite numbers")
    return Bundle(folder, manifest, leaves)


def read_manifest(folder: Path) -> Manifest:
    """What the bundle in `folder` says of itself. Raises `InputError` where that is damaged."""
    path = folder / MANIFEST
    fields = read_json(path, RESTORE)
    expected = fields.pop("sha256", None) if isinstance(fields, dict) else None
    manifest = from_json(Manifest, fields, str(path), RESTORE)
    if manifest.format != FORMAT:
        raise InputError(f"{path} has format {manifest.format!r}, this version reads {FORMAT!r}")
    if manifest.hash != expected:
        raise InputError(
            f"{path} was changed after it was written, its sha256 is now {manifest.hash}; {RESTORE}"
        )
    return manifest


def _record(name: str, array: np.ndarray) -> LeafRecord:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return LeafRecord(name, str(array.dtype), array.shape, digest)


# --- Writing ---


def write(
    folder: Path,
    record: RunRecord,
    states: Any,
    seed: int,
    *,
    data: str,
    commands: Sequence[str],
    versions: dict[str, Any],
) -> Path:
    """Writes the bundle of run seed `seed`, one of the seeds of `states` [seed, ...].

    `data` is the dataset that contexts come from by default. Raises `InputError` for a seed that
    the run does not have, an existing folder, or a number that float16 cannot hold.
    """
    seeds = record.run.train.seed_numbers.tolist()
    if seed not in seeds:
        raise InputError(f"seed {seed}: the run has {', '.join(map(str, seeds))}")
    if folder.exists():
        raise InputError(f"{folder}: exists; choose another folder")
    position = seeds.index(seed)
    leaves = {
        name: _compact(name, np.asarray(leaf[position]))
        for name, leaf in zip(leaf_names(states), jax.tree.leaves(states), strict=True)
        if not name.startswith(TRAINING_ONLY)
    }
    alone = replace(record.run, train=replace(record.run.train, seeds=1, first_seed=seed))
    manifest = Manifest(
        format=FORMAT,
        record=replace(record, run=alone, data=data),
        step=int(states.step[position]),
        commands=tuple(commands),
        versions=tuple((name, str(value)) for name, value in versions.items()),
        leaves=tuple(_record(name, leaf) for name, leaf in leaves.items()),
    )
    with atomic_write(folder / WEIGHTS) as file:
        np.savez(file, allow_pickle=False, **leaves)
    with atomic_write(folder / MANIFEST) as file:
        fields = to_json(manifest) | {"sha256": manifest.hash}
        file.write((json.dumps(fields, indent=1, allow_nan=False) + "\n").encode())
    return folder


def _compact(name: str, leaf: np.ndarray) -> np.ndarray:
    if leaf.ndim < 2 or leaf.size < LARGE:
        return leaf
    with np.errstate(over="ignore"):  # Found as an infinity.
        half = leaf.astype(np.float16)
    if not np.isfinite(half).all():
        raise InputError(f"leaf {name} has numbers beyond the range of float16")
    return half


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m omrl.bundle RUN OUT`; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser("python -m omrl.bundle", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("out", type=Path, help="folder of the new bundle")
    parser.add_argument("--seed", type=int, default=0, help="run seed to bundle")
    parser.add_argument("--step", type=int, help="checkpoint; by default the last")
    parser.add_argument(
        "--data", default="bundled:cheetah-vel", help="dataset that contexts come from by default"
    )
    options = parser.parse_args(arguments)
    from omrl import metatrain  # imports this module

    try:
        trained = metatrain.load_trained(options.run, jax.devices()[:1], step=options.step)
        commands = read_text(options.run / "command.txt").splitlines()
        write(
            options.out,
            trained.record,
            trained.states,
            options.seed,
            data=options.data,
            commands=[*commands, shlex.join(["python", "-m", "omrl.bundle", *arguments])],
            versions=read_sessions(options.run)[-1],
        )
    except InputError as error:
        print(f"omrl: error: {error}", file=sys.stderr)
        return 2
    size = sum(path.stat().st_size for path in options.out.iterdir())
    print(f"{options.out}: {size / 2**20:.2f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
