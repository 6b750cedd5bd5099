"""The folder that an experiment writes its results into: whose it is, and what in it is ours.

A hidden file lists what the last results consisted of. Files that are not on it are never removed,
and a folder without it in which results would replace something is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from omrl.config import read_json
from omrl.errors import InputError
from omrl.experiments.declare import Scale
from omrl.files import atomic_write, check_writable

FILES = ("table.md", "results.json", "page.html", "figure.png", "figure.svg", "curves.png")
RESULTS = "results"
"""Folder of the raw returns."""
RAW = "diagnoses"
"""Folder of the raw numbers and figures of diagnoses."""
LIST = ".omrl-results.json"
_ANOTHER = "give another folder with --out"


def check_out(
    out: Path,
    experiment: str,
    scale: Scale,
    *,
    seeds: int | None,
    data: Mapping[str, str] | None = None,
) -> None:
    """Makes the folder `out` where there is none.

    Args:
        seeds: None where the run that collects is the only one.
        data: hashes of what the rows are trained on, by their labels.

    Raises `InputError` where it has results of another experiment, scale, number of seeds or data,
    or files that are not ours, which ours would replace, and where nothing can be written.
    """
    for folder in (out, out / RESULTS):
        check_writable(folder)
    for name in FILES:
        if (out / name).is_dir():
            raise InputError(f"{out / name}: is a folder, where a file is to be; remove it")
    path = out / "results.json"
    if path.exists():
        _check_results(path, out, (experiment, scale), seeds, data or {})
    elif not (out / LIST).exists():
        for path in _named_as_ours(out):
            raise InputError(
                f"{path}: is not of omrl reproduce, whose results would replace such files; move "
                f"it, or {_ANOTHER}"
            )
    if not (out / LIST).exists():
        _write_list(out, ())


def _check_results(
    path: Path,
    out: Path,
    wanted: tuple[str, str],
    seeds: int | None,
    data: Mapping[str, str],
) -> None:
    fix = f"remove it, or {_ANOTHER}"
    held: Any = read_json(path, fix)
    try:
        found = held["experiment"], held["scale"]
        rows = [dict(row) for row in held["rows"]]
        of_seeds = {len(row["seeds"]) for row in rows if not row.get("collects")}
    except (TypeError, KeyError, ValueError):
        raise InputError(f"{path}: not the results of an experiment; {fix}") from None
    if found != wanted or (seeds and of_seeds and of_seeds != {seeds}):
        told = " and ".join(map(str, sorted(of_seeds)))
        raise InputError(
            f"{out}: has results of {found[0]}, scale {found[1]}, {told or 'no'} seeds; {_ANOTHER} "
            f"(with --cache {out} it shares the runs)"
        )
    for row in rows:
        label, of = str(row.get("label")), row.get("data_hash")
        if label in data and of != data[label]:
            raise InputError(
                f"{out}: its row {label!r} is of other data ({str(of)[:12]}, now "
                f"{data[label][:12]}); {_ANOTHER}"
            )


def _named_as_ours(out: Path) -> Iterator[Path]:
    yield from (out / name for name in FILES if (out / name).exists())
    for folder in (RESULTS, RAW):
        yield from sorted(p for p in (out / folder).glob("*") if p.suffix in (".npz", ".png"))


def settle(out: Path, written: Iterable[Path]) -> None:
    """Removes what earlier results consisted of and these, which are `written`, do not."""
    now = {path.relative_to(out).as_posix() for path in written}
    path = out / LIST
    before = read_json(path, "remove it") if path.exists() else []
    if not (isinstance(before, list) and all(isinstance(name, str) for name in before)):
        raise InputError(f"{path}: is no list of files; remove it")
    for name in set(before) - now:
        if Path(name).parent.as_posix() in (RESULTS, RAW):
            (out / name).unlink(missing_ok=True)
    _write_list(out, now)


def _write_list(out: Path, names: Iterable[str]) -> None:
    with atomic_write(out / LIST) as file:
        file.write((json.dumps(sorted(names)) + "\n").encode())
