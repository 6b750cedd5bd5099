"""Checks this library against golden files: arrays that the papers' reference code produced.

    python tests/golden/check.py DIR...

Reads every `golden_<family>_<set>[_<kind>].npz` of the folders, whatever its sizes and set,
computes its outputs with the functions that training uses, and prints per file how many of its
output arrays were compared and the worst error: max |x - ref| / max |ref|, absolute where ref is
all zero. Exits 1 for an error above the bar (float64 1e-6, float32 1e-4, integers equal) or an
output that was not compared, 2 for a folder or file that cannot be read.

A family of files is a module with `is_input(name)`, and `groups(file)`, which computes the outputs;
`LEFT_OUT`, if it has it, says which outputs are not compared, and why.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from golden_file import GoldenFile, Group

from omrl.errors import InputError

FAMILIES = {
    "borel": "borel_cases",
    "macaw": "macaw_cases",
    "pearl": "pearl_cases",
    "smac": "smac_cases",
}
BARS = {"float64": 1e-6, "float32": 1e-4}
ZERO = 1e-12
"""The most by which something may miss a zero."""
MAX_LINES = 10
"""Of every kind of finding that are printed for one file."""


@dataclass
class Result:
    """Findings on one file."""

    outputs: list[str]
    missing: list[str] = field(default_factory=list)
    """Outputs that were not compared, with the group that should have computed them."""
    errors: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Of every compared output the worst error, and in which group."""
    bars: dict[str, float] = field(default_factory=dict)
    not_zero: list[str] = field(default_factory=list)
    """What the reference leaves out as zero and ours is not."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Numbers of outputs that nobody was to compare, by the reason."""

    @property
    def bad(self) -> list[str]:
        return [name for name, (error, _) in self.errors.items() if not error <= self.bars[name]]

    @property
    def passed(self) -> bool:
        return not (self.missing or self.bad or self.not_zero)

    def add(self, group: Group, name: str, reference: np.ndarray) -> None:
        if name not in group.arrays:
            self.missing.append(f"{name} ({group.label})")
            return
        error = array_error(np.asarray(group.arrays[name]), reference)
        if name not in self.errors or not error <= self.errors[name][0]:
            self.errors[name] = error, group.label
        self.bars[name] = 0.0 if reference.dtype.kind in "iub" else BARS[reference.dtype.name]

    def lines(self, title: str) -> list[str]:
        compared = len(set(self.outputs) & set(self.errors))
        line = f"{title}: {compared} of {len(self.outputs)} arrays"
        if self.errors:
            worst = max(self.errors, key=lambda name: self.errors[name][0])
            error, label = self.errors[worst]
            line += f", worst error {error:.1e} ({worst}, {label})"
        lines = [line + ("" if self.passed else "  FAILED")]
        lines += [f"  not compared: {name}" for name in self.missing[:MAX_LINES]]
        for name in self.bad[:MAX_LINES]:
            error, label = self.errors[name]
            lines.append(f"  {name}: error {error:.1e} above {self.bars[name]:g} ({label})")
        lines += [f"  {name}: not zero" for name in self.not_zero[:MAX_LINES]]
        lines += [f"  left out: {number} arrays, {why}" for why, number in self.left_out.items()]
        return lines


def array_error(ours: np.ndarray, reference: np.ndarray) -> float:
    """max |x - ref| / max |ref|, absolute where ref is all zero; infinite where it
    has another shape or is not finite.

    Axes of length 1 are no difference. Integers are equal or infinitely wrong.
    """
    if ours.squeeze().shape != reference.squeeze().shape:
        return math.inf
    ours = ours.reshape(reference.shape)
    if reference.dtype.kind in "iub":
        return 0.0 if np.array_equal(ours, reference) else math.inf
    if reference.size == 0:
        return 0.0
    if not (np.isfinite(ours).all() and np.isfinite(reference).all()):
        return math.inf
    difference = np.max(np.abs(ours - reference))
    scale = np.max(np.abs(reference))
    return float(difference / scale if scale else difference)


def check_file(file: GoldenFile) -> Result:
    """Compare all outputs of a file; in 64 bits, whatever the process is set to."""
    family = importlib.import_module(FAMILIES[file.family])
    result = Result([name for name in file.arrays if not family.is_input(name)])
    for prefix, reason in getattr(family, "LEFT_OUT", {}).items():
        kept = [name for name in result.outputs if not name.startswith(prefix)]
        if len(kept) < len(result.outputs):
            result.left_out[f"{prefix} ({reason})"] = len(result.outputs) - len(kept)
        result.outputs = kept
    for name in result.outputs:
        kind = file.arrays[name].dtype
        if kind.kind not in "iub" and kind.name not in BARS:
            raise InputError(f"{file.path}: {name} is {kind}, not float64, float32 or integer")
    computed: set[str] = set()
    with jax.enable_x64(True):
        for group in family.groups(file):
            names = [name for name in result.outputs if group.covers(name)]
            for name in names:
                result.add(group, name, file.arrays[name])
            computed.update(names)
            zero = {name: np.max(np.abs(array)) for name, array in group.zero.items()}
            result.not_zero += [name for name, size in zero.items() if not size <= ZERO]
    result.missing += [name for name in result.outputs if name not in computed]
    return result


def golden_files(folder: Path) -> list[GoldenFile]:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    files = [GoldenFile(path) for path in sorted(folder.glob("*.npz"))]
    if not files:
        raise InputError(f"{folder} holds no golden_<family>_<set>[_<kind>].npz")
    return files


def check(folders: Iterable[Path]) -> bool:
    """Check and print every file; whether all passed."""
    passed = True
    for file in [file for folder in folders for file in golden_files(folder)]:
        if file.family not in FAMILIES:
            known = ", ".join(FAMILIES)
            print(f"{file.path}: NOT CHECKED, no checks for family {file.family!r} (only {known})")
            passed = False
            continue
        result = check_file(file)
        print("\n".join(result.lines(str(file.path))), flush=True)
        passed = passed and result.passed
    return passed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check golden files against this library.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    try:
        passed = check(parser.parse_args(arguments).folders)
    except InputError as error:
        print(f"check.py: error: {error}", file=sys.stderr)
        return 2
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    # Small problems in 64 bits: an accelerator would only add time.
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
