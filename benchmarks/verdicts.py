"""What of the papers' claims holds here, by one rule, from the raw returns in results/: a page and
its figures.

    python benchmarks/verdicts.py docs/verdicts.md

Every claim that one method is above another is a paired difference: of returns of the same seed,
task and episode, with the 95 % stratified bootstrap interval. Its verdict is "reproduced" where the
whole interval is above 0, "not" where it is below, else "partly"; that of a figure is what all of
its differences have, else "partly".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from difference import RESULTS, Difference
from evidence import DRAWN, MEASURED
from not_run import WHY
from omrl import stats
from omrl.experiments.registry import BEHAVIOUR, EXPERIMENTS
from omrl.experiments.rows import DIGITS
from omrl.files import atomic_write
from omrl.omniglot import settings as omniglot
from omrl.results import EvalResult, episodes_note
from omrl.tables import markdown
from verdict_figures import Picture, Row, of_data, pictures, rows_of

Verdict = Literal["reproduced", "partly", "not"]


def verdict(estimate: stats.Estimate) -> Verdict:
    """Of a difference."""
    if estimate.low is None or estimate.high is None:
        return "partly"
    if estimate.low > 0:
        return "reproduced"
    return "not" if estimate.high < 0 else "partly"


def of_all(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Of a figure; None if it has no difference."""
    found = set(verdicts)
    if not found:
        return None
    return found.pop() if len(found) == 1 else "partly"


def page() -> tuple[str, dict[str, bytes]]:
    """The Markdown of docs/verdicts.md, and the figures beside it by name."""
    names = [name for name in (*EXPERIMENTS, omniglot.ID) if name in MEASURED]
    sections = [_section(name) for name in names]
    drawn = {name: of_data(name) for name in DRAWN}
    text = "\n".join(
        (
            "# What holds of the papers' claims",
            "",
            "<!-- Written by: python benchmarks/verdicts.py docs/verdicts.md -->",
            "",
            *_RULE,
            "",
            "| experiment | shows | rows that were run | by the rule |",
            "| --- | --- | --- | --- |",
            *(
                f"| [`{s.name}`](#{s.name}) | {s.title} | {s.rows} | {s.verdict} |"
                for s in sections
            ),
            "",
            *(line for section in sections for line in section.lines),
            "## Figures of data",
            "",
            "They compare nothing.",
            "",
            *(line for name, picture in drawn.items() for line in _of_data(name, picture)),
            "## Not run",
            "",
            "Every experiment was run at scale `gpu`; these rows were not, or not to the end. What",
            "there was no time for is a command each: `omrl reproduce ID --scale gpu --only ROW`.",
            "",
            "| experiment | rows | why |",
            "| --- | --- | --- |",
            *(
                f"| [`{name}`](#{name}) | {'; '.join(rows)} | {why} |"
                for name, whys in WHY.items()
                for why, rows in _by_value(whys).items()
            ),
            "",
            "## GPU time",
            "",
            f"The trainings whose logs and tables are in `results/` took {_hours():.1f} hours of "
            "wall time together, but for one of four GPUs each on one or, beside up to ten others, "
            "on a share of one; a few that two figures share are counted twice.",
            "",
        )
    )
    every = [*drawn.values(), *(each for section in sections for each in section.pictures)]
    return text, {each.name: each.content for each in every}


def _by_value(whys: Mapping[str, str]) -> dict[str, list[str]]:
    """Rows that share a reason."""
    return {why: [row for row in whys if whys[row] == why] for why in whys.values()}


_RULE = (
    "For every figure that was run at scale `gpu` what the paper says, ours, and one line for each",
    "claim that one method, or one phase, is above another: the paired difference of returns (of",
    "the same seed, task and episode; Omniglot: of test accuracies in percent; else of what the",
    "line says) after adaptation, with the 95 % stratified bootstrap interval. Figures and numbers",
    "are made of the raw returns in [results/](../results/README.md).",
    "",
    "The bootstrap resamples seeds within each task. Where a seed is better in all tasks alike the",
    "interval does not tell: it is too narrow where the four seeds differ as a whole. So a column",
    "has in how many of them the mean over tasks is above 0. A line of several runs with the same",
    "seeds, on other draws of the data or once more on the same, is of the means of each seed; how",
    "much draws differ is not in its interval.",
    "",
    "**The rule:** *reproduced* where the whole interval is above 0, *not* where it is below 0,",
    "else *partly*, also where nothing can be told from noise; a figure is what all of its lines",
    "are, else *partly*. A verdict is of the lines alone: what else a claim says, as how near an",
    "oracle is, stands in the linked section with the command and the hardware. Checkpoints are",
    "the last of a run, but where a line says how many updates. Environments and amounts of data",
    "are not the papers'; numbers of the papers are printed where they give any. Those of papers",
    "with other MDPs are anchors and give no verdict.",
)


@dataclass(frozen=True)
class Section:
    """An experiment on the page."""

    name: str
    title: str
    verdict: str
    rows: str
    """How many of them were run."""
    lines: list[str]
    pictures: list[Picture]


def _verdict_shown(verdict: Verdict | None) -> str:
    return f"**{verdict}**" if verdict else "anchors, no verdict"


def _section(name: str) -> Section:
    measured = MEASURED[name]
    estimates = [each.estimate() for each in measured.differences]
    whole = _verdict_shown(of_all(map(verdict, estimates)))
    rows, missing = ([], []) if name == omniglot.ID else rows_of(name)
    drawn = list(pictures(name, rows))
    title = omniglot.TITLE if name == omniglot.ID else EXPERIMENTS[name].title
    lines = [
        f"## {name}",
        "",
        f"{title}: {whole}. Tables, commands, hardware: [{name}]({measured.section}).",
        "",
        f"The paper: {_claim(name)}",
        "",
        *(line for picture in drawn for line in _shown(picture)),
        *_table(name, rows, missing),
        *_compared(measured.differences, estimates),
        *([f"But {measured.remark}.", ""] if measured.remark else []),
        f"Deviates: {_deviates(name)}.",
        "",
    ]
    run = f"{len(rows)} of {len(rows) + len(missing)}" if rows else "all"
    if measured.diagnosis:
        run = f"{len(measured.checkpoints)} checkpoints of a run"
    return Section(name, title, whole, run, lines, drawn)


def _compared(
    differences: Sequence[Difference], estimates: Sequence[stats.Estimate]
) -> Iterator[str]:
    """A line for each."""
    if not differences:
        return
    yield from (
        "| the paper has above 0 | here | seeds above 0 | by the rule |",
        "| --- | ---: | ---: | --- |",
    )
    for difference, found in zip(differences, estimates, strict=True):
        number = found.shown(_digits(found.value))
        yield f"| {difference.name} | {number} | {difference.seeds_above()} | {verdict(found)} |"
    yield ""


def _digits(value: float) -> int:
    """Behind the point, so that something can be seen of it."""
    return 1 if abs(value) >= 1 else 2 if abs(value) >= 0.01 else 5


def _shown(picture: Picture) -> list[str]:
    return [f"![{picture.caption}]({FIGURES}/{picture.name}.svg)", "", picture.caption, ""]


def _of_data(name: str, picture: Picture) -> list[str]:
    claim = BEHAVIOUR[name].claim
    return [
        f"### {name}",
        "",
        f"{BEHAVIOUR[name].title}: [{name}]({DRAWN[name]}).",
        "",
        f"The paper: {claim.words} ({claim.source})",
        "",
        *_shown(picture),
        f"Deviates: {BEHAVIOUR[name].deviates}; {BEHAVIOUR[name].scales['gpu']}.",
        "",
    ]


def _table(name: str, rows: Sequence[Row], missing: Sequence[str]) -> list[str]:
    """What was run and how, and the paper's number where it prints one."""
    if not rows:
        return []
    experiment = EXPERIMENTS[name]
    digits, numbers = DIGITS[experiment.measure], experiment.claim.numbers
    digits += experiment.measure == "success"  # Of 200 episodes.
    columns = {
        "method": [row.point.method for row in rows],
        "": [row.point.group for row in rows],
        "before": [row.point.before.shown(digits) for row in rows],
        "after": [row.point.after.shown(digits) for row in rows],
        "paper": [str(numbers.get(row.label, "")) for row in rows],
        "updates": [f"{row.result.provenance.step:,}" for row in rows],
        "tasks": [str(len(row.result.task_indices)) for row in rows],
        "seeds": [str(len(row.result.provenance.seeds)) for row in rows],
        "data, hash": [row.result.provenance.dataset_hash[:12] for row in rows],
    }
    columns = {title: cells for title, cells in columns.items() if any(cells)}
    cells = [list(each) for each in zip(*columns.values(), strict=True)]
    told = "; ".join(dict.fromkeys(_how(row.result) for row in rows))
    others = f" Not run, or not to the end: {'; '.join(missing)}." if missing else ""
    return [markdown(list(columns), cells), "", f"{told}.{others}", ""]


def _how(result: EvalResult) -> str:
    """Returns were measured: environment, protocol, episodes."""
    config, source = result.config, result.provenance
    return (
        f"`{source.env_id}` (spec {source.spec_hash[:12]}), protocol `{config.protocol}`, "
        f"{episodes_note(config)}"
    )


def _claim(name: str) -> str:
    claim = omniglot.CLAIM if name == omniglot.ID else EXPERIMENTS[name].claim
    spread = f" ± of its numbers: {claim.spread}." if claim.spread else ""
    return f"{claim.words}{spread} ({claim.source})"


def _deviates(name: str) -> str:
    """From the paper, at scale gpu."""
    if name == omniglot.ID:
        return omniglot.DEVIATES
    experiment = EXPERIMENTS[name]
    note = experiment.scales["gpu"].note
    scale = _SCALE if MEASURED[name].differences else _ENGINE
    return "; ".join(filter(None, (scale, experiment.deviates, note)))


_ENGINE = "on MuJoCo 3"
_SCALE = f"less data and fewer updates than the paper's, {_ENGINE}"
FIGURES = "img/verdicts"
"""Folder of the figures, beside the page."""


def _hours() -> float:
    """Of the runs and tables that are kept."""
    seconds = 0.0
    for path in RESULTS.rglob("log.jsonl"):
        lines = path.read_text().splitlines()
        seconds += max((json.loads(line).get("seconds", 0.0) for line in lines), default=0.0)
    for path in RESULTS.rglob("results.json"):
        seconds += sum(row.get("seconds", 0.0) for row in json.loads(path.read_text())["rows"])
    return seconds / 3600


if __name__ == "__main__":
    written = Path(sys.argv[1])
    text, drawn = page()
    folder = written.parent / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(folder.glob("*.svg")) - {folder / f"{name}.svg" for name in drawn}:
        stale.unlink()
    for name, content in drawn.items():
        (folder / f"{name}.svg").write_bytes(content)
    with atomic_write(written) as file:
        file.write(text.encode())
