"""What an experiment leaves behind: raw returns, a table, JSON, figures, one page of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omrl import figures
from omrl.config import differences, to_json
from omrl.diagnostics.kinds import KINDS
from omrl.experiments import over_training
from omrl.experiments.declare import Claim, Experiment, Scale
from omrl.experiments.folder import RAW, RESULTS, settle
from omrl.experiments.rows import Row, notes, table, to_object
from omrl.figures import MethodPoint
from omrl.files import atomic_write
from omrl.presets import preset
from omrl.report import diagnosis_section, figure, pictures_of, render
from omrl.runs import read_sessions
from omrl.tables import markdown

RUNS_HEADER = ["run", "preset", "seeds", "updates", "updates/s of each seed", "seconds", "folder"]


@dataclass(frozen=True)
class Written:
    """The table, as it was written."""

    header: list[str]
    cells: list[list[str]]
    notes: list[str]
    found: dict[str, Any]
    """Contents of results.json."""


def write(
    out: Path, experiment: Experiment, scale: Scale, rows: Sequence[Row], command: str
) -> dict[str, Any]:
    """Writes results/*.npz, table.md, results.json, figure.png and page.html into `out`, and
    curves.png where runs were evaluated while they trained. Returns what is in results.json."""
    raw = {out / RESULTS / f"{row.outcome.planned.slug}.npz": row.outcome.result for row in rows}
    for path, result in raw.items():
        result.save(path)
    header, cells = table(experiment, rows)
    lines = notes(experiment, scale, rows)
    diagnosed, of_diagnoses = diagnosis_sections(out, experiment, rows)
    settle(out, {*raw, *of_diagnoses})
    sections = [*over_training.sections(experiment, rows), *diagnosed]
    write_table(out, experiment.title, header, cells, lines, sections)
    found = {
        "experiment": experiment.id,
        "scale": scale,
        "command": command,
        "claim": claim_to_json(experiment.claim),
        "measure": experiment.measure,
        "rows": [to_object(row) | over_training.to_object(experiment, row) for row in rows],
        "notes": lines,
    }
    write_numbers(out, found)
    drawn = _draw(out, experiment, rows)
    write_file(
        out / "page.html",
        render(
            "experiment.html",
            experiment=experiment,
            claim=experiment.claim,
            scale=scale,
            header=header,
            rows=cells,
            notes=lines,
            figures=drawn,
            sections=sections,
            command=command,
            runs_header=RUNS_HEADER,
            runs=[_run(row) for row in rows],
            facts=_facts(rows),
            footnote="Returns are undiscounted sums of rewards of the last states; nothing was "
            "selected among checkpoints.",
        ).encode(),
    )
    return found


def write_table(
    out: Path,
    title: str,
    header: list[str],
    cells: list[list[str]],
    lines: Sequence[str],
    sections: Sequence[Mapping[str, Any]] = (),
) -> None:
    """table.md: the table with its notes, and those of the sections."""

    def part(head: str, header: list[str], cells: list[list[str]], lines: Sequence[str]) -> str:
        listed = "\n".join(f"* {line}" for line in lines)
        return f"{head}\n\n{markdown(header, cells)}\n\n{listed}\n"

    parts = [part(f"# {title}", header, cells, lines)]
    parts += [part(f"## {s['title']}", s["header"], s["rows"], s["notes"]) for s in sections]
    write_file(out / "table.md", "\n".join(parts).encode())


def write_numbers(out: Path, found: Mapping[str, Any]) -> None:
    """results.json."""
    text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    write_file(out / "results.json", text.encode())


def diagnosis_sections(
    out: Path, experiment: Experiment, rows: Sequence[Row]
) -> tuple[list[dict[str, Any]], set[Path]]:
    """Table, notes and figures of every diagnosis of a run, and the files, of raw numbers and of
    figures, that were written into `out/diagnoses`."""
    sections: list[dict[str, Any]] = []
    written = set()
    for outcome in (row.outcome for row in rows):
        for name, results in outcome.diagnoses.items():
            section = diagnosis_section(name, results, experiment.pictures)
            method = outcome.planned.arm.method
            sections.append(section | {"title": f"{method}: {KINDS[name].title}"})
            slug = outcome.planned.slug
            for result in results:
                path = out / RAW / f"{slug}-{name}-{result.provenance.step:08d}.npz"
                written.add(result.save(path))
            for each in pictures_of(name, results, experiment.pictures):
                path = out / RAW / f"{slug}-{each.name}.png"
                write_file(path, each.draw(results, png=True))
                written.add(path)
    return sections, written


def claim_to_json(claim: Claim) -> dict[str, Any]:
    """The paper's side, as JSON values."""
    numbers = {
        label: {"value": number.value, "error": number.error}
        for label, number in claim.numbers.items()
    }
    return {
        "words": claim.words,
        "source": claim.source,
        "numbers": numbers,
        "spread": claim.spread,
    }


def _draw(out: Path, experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, str]]:
    """Writes the figures as PNG; returns them for the page."""
    arms = [row.outcome.planned.arm for row in rows]
    points = [
        MethodPoint(arm.method, arm.group, row.before, row.after)
        for arm, row in zip(arms, rows, strict=True)
    ]
    draw = figures.methods_lines if experiment.figure == "lines" else figures.methods_bars
    measure = experiment.measure
    write_file(out / "figure.png", draw(points, measure, png=True))
    caption = f"{measure.title()} after adaptation on the test tasks, 95 % intervals."
    shown = [figure(draw(points, measure), caption)]
    # What is evaluated at an earlier stage is a part of another's curve.
    outcomes = [row.outcome for row in rows if not row.outcome.planned.arm.after]
    curves = {outcome.planned.arm.label: outcome.curve for outcome in outcomes}
    if any(len(curve) > 1 for curve in curves.values()):
        write_file(out / "curves.png", figures.methods_over_updates(curves, measure, png=True))
        caption = "The same over meta-training. The score is that of the last point."
        shown.append(figure(figures.methods_over_updates(curves, measure), caption))
    return shown


def _run(row: Row) -> list[str]:
    outcome, planned = row.outcome, row.outcome.planned
    source = outcome.result.provenance
    return [
        planned.arm.label,
        planned.preset,
        str(len(source.seeds)),
        f"{source.step:,}",
        "-" if outcome.updates_per_s is None else f"{outcome.updates_per_s:,.1f}",
        "-" if outcome.seconds is None else f"{outcome.seconds:,.0f}",
        str(outcome.folder),
    ]


def _facts(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Where every run differs from its preset, and on what it was trained."""
    facts = []
    for row in rows:
        planned = row.outcome.planned
        before, after = to_json(preset(planned.preset).config), to_json(planned.config)
        changes = "\n".join(differences(after, before)) or "the preset as it is"
        sessions = json.dumps(read_sessions(row.outcome.folder), indent=2)
        title = f"{planned.arm.label}: changes to {planned.preset}, versions and devices"
        facts.append({"title": title, "text": f"{changes}\n\n{sessions}"})
    return facts


def write_file(path: Path, content: bytes) -> None:
    """Puts a whole file in the place of an old one."""
    with atomic_write(path) as file:
        file.write(content)
