"""One page, or one picture, of several runs: only what was measured alike stands side by side.

Evaluations are put into one table if they agree in environment (spec hash) and in all settings but
the number of rounds, which the table has; studies if they are of the same kind, environment,
protocol and tasks. Where contexts, episodes or data of studies differ, their lines say so. A run
that agrees with no other is refused, with the first thing in which it differs.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from omrl import figures, marks, stats
from omrl.config import differences, json_hash, to_json
from omrl.errors import InputError
from omrl.files import atomic_write, read_text
from omrl.report import (
    Evaluation,
    bars_told,
    figure,
    foreign,
    grouped,
    intervals_told,
    of_run,
    open_folder,
    render,
    study_section,
)
from omrl.result_files import Provenance
from omrl.results import (
    BASELINES,
    EvalResult,
    episodes_note,
    online_notes,
)
from omrl.studies import results as studies
from omrl.studies.figures import study_figure
from omrl.studies.plan import StudyName
from omrl.studies.results import StudyResult

PICTURES = (".png", ".svg")
FIRST = {
    "given": "before",
    "zero-shot": "before",
    "finetune": "before going online",
    "explore": "trajectory 1",
}
"""What shot 0 is, by protocol."""


@dataclass
class Source:
    """What there is of one run."""

    name: str
    """As it is called on the page."""
    run: Path
    """Its folder, as it was given or, of a study's own folder, when that was made."""
    evaluations: list[Evaluation] = field(default_factory=list)
    studies: dict[str, StudyResult] = field(default_factory=dict)
    command: str = ""
    """The command lines that made it."""

    @property
    def provenances(self) -> list[Provenance]:
        results = [one[-1] for one in self.evaluations]
        results += [study.results[0] for study in self.studies.values()]
        return [result.provenance for result in results]

    @property
    def preset(self) -> str:
        """The preset that the run began from; `-` where its command does not tell."""
        words: list[str] = []
        for text in (self.command, *self.command.splitlines()[:1]):
            with suppress(ValueError):  # A later line may be cut within quotes.
                words = shlex.split(text)
                break
        named = [word for word in words[2:3] if words[1] == "train" and not word.startswith("-")]
        return named[0] if named else "-"


def write_comparison(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    study: str | None = None,
    statistic: str = "mean",
) -> Path:
    """Writes the page, or with a name that ends in `.png` or `.svg` the picture of `study`.

    Args:
        paths: run folders, or folders of studies.
        study: only this one; by default all, and all evaluations.
        statistic: of the studies' figures and of the tables, by its name in `stats.STATISTICS`.

    Raises `InputError` for runs that cannot be compared, and for anything damaged.
    """
    out, left_out = Path(out), []
    if out.suffix not in (*PICTURES, ".html"):
        raise InputError(f"{out}: ends in none of .html, {', '.join(PICTURES)}; rename it")
    sources = _read(paths, study, left_out)
    environment = _environment(sources)
    compared = _studies(sources, study, left_out)
    if out.suffix in PICTURES:
        if len(compared) != 1:
            raise InputError(f"{out}: a picture is of one study; name it: --study {_kinds('|')}")
        drawn = study_figure(*compared.values(), statistic, png=out.suffix == ".png")
        with atomic_write(out) as file:
            file.write(drawn)
        return out
    tables = _tables(sources, left_out) if study is None else []
    _check_all_compared(sources, compared, tables)
    presets = {source.name: source.preset for source in sources}
    sections = [_section(runs, presets, statistic) for runs in tables]
    sections += [
        study_section(results, statistic, f"Study: {name}") for name, results in compared.items()
    ]
    page = render(
        "compare.html",
        title=" · ".join(source.name for source in sources),
        environment=environment,
        sections=sections,
        commands=[{"title": s.name, "text": s.command} for s in sources if s.command],
        left_out=left_out,
    )
    with atomic_write(out) as file:
        file.write(page.encode())
    return out


# --- Reading ---


def _read(paths: Sequence[str | Path], study: str | None, left_out: list[str]) -> list[Source]:
    """One per run folder; folders of different studies of one state are one run."""
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise InputError(f"{', '.join(map(str, paths))}: one of them is there twice; leave it out")
    sources: dict[str, Source] = {}
    of_state: dict[tuple[str, int], Source] = {}
    for path in map(Path, paths):
        if not studies.is_study(path):
            sources[str(path)] = _source(path, study, left_out)
            continue
        result = studies.load(path)
        name, state = result.study.name, (result.record.run, result.record.step)
        if state in of_state and name not in of_state[state].studies:
            of_state[state].studies[name] = result
        else:
            run = Path(result.record.run)
            of_state[state] = Source(run.name, run, studies={name: result})
            sources[str(path)] = of_state[state]
    for rename in (lambda path: Path(path).name, str):
        names = [source.name for source in sources.values()]
        for path, source in sources.items():
            if names.count(source.name) > 1:
                source.name = rename(path)
    return list(sources.values())


def _source(path: Path, study: str | None, left_out: list[str]) -> Source:
    run = open_folder(path)
    name = run.resolve().name
    own, others = of_run(run, grouped(run / "eval", left_out))
    left_out += [f"{name}: {foreign(results)}" for results in others]
    source = Source(name, run, evaluations=own)
    if (run / "command.txt").is_file():
        source.command = read_text(run / "command.txt")
    for name in get_args(StudyName) if study is None else (study,):
        folder = run / "eval" / f"study-{name}"
        if not studies.is_study(folder):
            continue
        try:
            source.studies[name] = studies.load(folder)
        except studies.UnfinishedError as error:
            left_out.append(str(error))
    return source


def _environment(sources: Sequence[Source]) -> str:
    """The environment of all. `InputError` where they are of several, or one was not measured."""
    found: dict[str, tuple[str, Provenance]] = {}
    for source in sources:
        if not source.provenances:
            raise InputError(
                f"{source.run}: no evaluation and no finished study; make one: omrl evaluate "
                f"{source.run}"
            )
        for provenance in source.provenances:
            found.setdefault(provenance.spec_hash, (source.name, provenance))
    told = [
        f"{name} is of {source.env_id} (spec {source.spec_hash[:12]})"
        for name, source in found.values()
    ]
    if len(told) > 1:
        raise InputError(f"{', '.join(told)}: returns of different MDPs cannot be compared")
    ((_, source),) = found.values()
    return f"{source.env_id}, spec {source.spec_hash[:12]}"


def _kinds(between: str) -> str:
    return between.join(get_args(StudyName))


# --- Studies ---


def _studies(
    sources: Sequence[Source], wanted: str | None, left_out: list[str]
) -> dict[str, dict[str, StudyResult]]:
    """The results to compare by study and by run, whose name says in what it differs."""
    compared = {}
    for name in get_args(StudyName) if wanted is None else (wanted,):
        having = {s.name: s.studies[name] for s in sources if name in s.studies}
        lacking = [source for source in sources if name not in source.studies]
        if wanted is not None and lacking:
            run = lacking[0].run
            raise InputError(
                f"{run}: has no finished study {name}; make one: omrl evaluate {run} --study {name}"
            )
        if len(having) < min(2, len(sources)):
            left_out += [f"study {name}: of {run} alone" for run in having]
            continue
        left_out += [f"study {name}: not of {source.name}" for source in lacking]
        results = list(having.values())
        studies.check_comparable(results)
        marks = studies.differing(results)
        marked = zip(having, marks, strict=True)
        names = [f"{run} ({mark})" if mark else run for run, mark in marked]
        compared[name] = dict(zip(names, results, strict=True))
    return compared


# --- Evaluations ---

Runs = dict[str, Evaluation]
"""The same evaluation of several runs, at growing numbers of updates."""


def _settings(result: EvalResult) -> dict[str, Any]:
    """All that is not in the table, or says nothing of the returns."""
    fields = to_json(result.config) | {"tasks": result.task_indices.tolist()}
    protocol = result.config.protocol
    skipped = ["shots", "traces", "split"]
    skipped += [name for name in ("finetune", "explore") if protocol != name]
    if protocol == "explore":
        skipped += [name for name in fields if name.startswith("context_")]
    return {name: value for name, value in fields.items() if name not in skipped}


def _tables(sources: Sequence[Source], left_out: list[str]) -> list[Runs]:
    """What two runs or more have; of a run that has it several times, with the most updates."""
    tables: dict[str, Runs] = {}
    for source in sources:
        for results in source.evaluations:
            runs = tables.setdefault(json_hash(_settings(results[-1])), {})
            present = runs.get(source.name)
            if present is None or _rank(present) < _rank(results):
                runs[source.name] = results
    for runs in tables.values():
        if len(runs) == 1:
            left_out += [f"{_title(one[-1])}: of {run} alone" for run, one in runs.items()]
    return [runs for runs in tables.values() if len(runs) > 1]


def _rank(results: Evaluation) -> tuple[int, int, int]:
    return results[-1].provenance.step, len(results), len(results[-1].config.shots)


def _title(result: EvalResult) -> str:
    config, tasks = result.config, ", ".join(map(str, result.task_indices))
    context = "" if config.context == "none" else f", {config.context}"
    return f"{config.protocol}, tasks {tasks}{context}"


def _section(runs: Runs, presets: Mapping[str, str], statistic: str) -> dict[str, Any]:
    # Of the last states: the score is never a maximum over training.
    last = {name: results[-1] for name, results in runs.items()}
    first, *_ = last.values()
    config, every = first.config, [result for results in runs.values() for result in results]
    # Without contexts the data says but what behaved there, and how well.
    of_data = "contexts" if config.needs_context else "behaviour and oracle"
    rows, notes = [], [*online_notes(config), f"{episodes_note(config)}; the last evaluated states"]
    for name, result in last.items():
        source, shots = result.provenance, result.config.shots
        estimates = [stats.STATISTICS[statistic](result.shot(n)) for n in (shots[0], shots[-1])]
        rows.append(
            [
                name,
                source.algorithm,
                presets[name],
                f"{source.step:,}",
                str(len(source.seeds)),
                str(estimates[0]) if shots[0] == 0 else "-",
                str(estimates[1]) if shots[-1] > 0 else "-",
                result.shot_name(shots[-1]),
                *(_cell(float(result.baseline(baseline).mean())) for baseline in BASELINES),
            ]
        )
        notes.append(
            f"{name}: {estimates[1].method}; seeds {', '.join(map(str, source.seeds))}; {of_data} "
            f"of {source.dataset or 'no data'} ({source.dataset_hash[:12] or '-'})"
        )
        marked = [*marks.by_updates(runs[name][:-1]), *marks.marks(result)]
        notes += [f"{name}: {note}" for note in marked]
    if len({result.provenance.dataset_hash for result in last.values()}) > 1:
        notes.append(f"NOT OF THE SAME DATA: {of_data} of these runs are of different datasets")
    caption = f"Return per task after adaptation{bars_told(list(last.values()))}."
    shown = [figure(figures.bars_of_runs(last), caption)]
    if any(len(results) > 1 for results in runs.values()):
        caption = f"Return after adaptation over meta-training, {intervals_told(every)}."
        shown.append(figure(figures.methods_over_updates(runs), caption))
    return {
        "title": _title(first),
        "header": [
            *("run", "method", "preset", "updates", "seeds", FIRST[config.protocol], "after"),
            *("shot", *BASELINES),
        ],
        "rows": rows,
        "summary": [],
        "notes": notes,
        "figures": shown,
    }


def _cell(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"


def _check_all_compared(
    sources: Sequence[Source],
    compared: Mapping[str, Mapping[str, StudyResult]],
    tables: Sequence[Runs],
) -> None:
    """`InputError` for the first run that stands beside no other."""
    beside = {name for runs in tables for name in runs}
    beside |= {s.name for s in sources if not compared.keys().isdisjoint(s.studies)}
    for source in sources:
        if source.name in beside:
            continue
        others = [other for other in sources if other is not source and other.evaluations]
        if not source.evaluations or not others:
            raise InputError(
                f"{source.name}: no other of these runs has the same study or evaluation; make "
                "one: omrl evaluate"
            )
        other, found = min(
            (
                (other, list(differences(_settings(ours[-1]), _settings(theirs[-1]))))
                for ours in source.evaluations
                for other in others
                for theirs in other.evaluations
            ),
            key=lambda pair: len(pair[1]),
        )
        raise InputError(
            f"{source.name}: evaluated otherwise than {other.name} ({'; '.join(found)}); evaluate "
            "both with the same options of omrl evaluate"
        )
