"""What the study leaves behind: raw accuracies, a table, JSON, a figure, one page of all."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from omrl import stats
from omrl.config import to_json
from omrl.drawing import image, interval_line, panels, run_colour, thousands
from omrl.experiments.declare import Scale
from omrl.experiments.folder import RESULTS, settle
from omrl.experiments.page import (
    Written,
    claim_to_json,
    write_file,
    write_numbers,
    write_table,
)
from omrl.files import atomic_write
from omrl.omniglot.learner import chance, num_parameters
from omrl.omniglot.settings import CLAIM, DEVIATES, ID, TITLE, Scaled
from omrl.omniglot.split import SIDES, TURNS, Split
from omrl.omniglot.study import Found, Problem, steps_to
from omrl.omniglot.training import slug
from omrl.report import figure, render
from omrl.results import estimate_to_json
from omrl.runs import read_sessions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS_HEADER = ["run", "meta-steps", "seconds", "folder"]


def write(
    out: Path, scale: Scale, plan: Scaled, problem: Problem, found: Sequence[Found], command: str
) -> Written:
    """Writes results/*.npz, table.md, results.json, figure.png, figure.svg and page.html."""
    header, cells = table(plan, found)
    lines = notes(scale, plan, problem, found)
    raw = {out / RESULTS / f"{slug(each.network.label)}.npz": each for each in found}
    for path, each in raw.items():
        _save(path, each)
    settle(out, raw)
    write_table(out, TITLE, header, cells, lines)
    described = {
        "experiment": ID,
        "scale": scale,
        "command": command,
        "claim": claim_to_json(CLAIM),
        "split": {**to_json(problem.split), "classes": problem.classes.counts},
        "rows": [to_object(plan, each) for each in found],
        "notes": lines,
    }
    write_numbers(out, described)
    drawn = [Curve(f.network.label, f.result.training.eval_steps, f.result.accuracy) for f in found]
    picture = curves(drawn, footer(problem.split))
    write_file(out / "figure.svg", picture)
    write_file(out / "figure.png", curves(drawn, footer(problem.split), png=True))
    write_file(
        out / "page.html",
        render(
            "experiment.html",
            experiment={"id": ID, "title": TITLE},
            claim=CLAIM,
            scale=scale,
            header=header,
            rows=cells,
            notes=lines,
            figures=[figure(picture, "Accuracy in episodes of classes of either side.")],
            sections=[],
            command=command,
            runs_header=RUNS_HEADER,
            runs=[_run(each) for each in found],
            facts=[_facts(each) for each in found],
            footnote="Accuracies are of the last meta-step; nothing was selected among "
            "checkpoints.",
        ).encode(),
    )
    return Written(header, cells, lines, described)


def _save(path: Path, found: Found) -> None:
    with atomic_write(path) as file:
        np.savez(
            file,
            accuracy=found.result.accuracy,
            steps=np.array(found.result.training.eval_steps),
            sides=np.array(SIDES),
        )


# --- Numbers ---


def at_end(found: Found, side: str) -> stats.Estimate:
    """Accuracy in per cent after the last meta-step, with its standard error over seeds."""
    return _estimate(found.result.at_end(side))


def _estimate(shares: Any) -> stats.Estimate:
    """Of shares [seed, episode]."""
    return stats.mean_standard_error(100 * shares[:, None])


def table(plan: Scaled, found: Sequence[Found]) -> tuple[list[str], list[list[str]]]:
    """Header and cells."""
    header = ["network", "parameters", "as the paper counts", "inner rate", "outer rate"]
    header += [f"{side} (%)" for side in SIDES]
    header += [f"meta-steps to {100 * target:g} %" for target in plan.targets]
    rows = []
    for each in found:
        start, learner = each.result.training.starts[0], each.network.learner
        row = [each.network.label, f"{num_parameters(learner):,}", f"{learner.num_weights:,}"]
        row += [f"{start.inner_lr:g}", f"{start.outer_lr:g}"]
        row += [str(at_end(each, side)) for side in SIDES]
        rows.append(row + [_reached(steps_to(each.result, target)) for target in plan.targets])
    return header, rows


def _reached(steps: Sequence[int | None]) -> str:
    there = [step for step in steps if step is not None]
    if not there:
        return "not reached"
    mean = f"{np.mean(there):,.0f}"
    return mean if len(there) == len(steps) else f"{mean} ({len(there)} of {len(steps)} seeds)"


def notes(scale: Scale, plan: Scaled, problem: Problem, found: Sequence[Found]) -> list[str]:
    """What has to be read with the numbers, and what the paper says."""
    learner = found[0].network.learner
    split, counts = problem.split, problem.classes.counts
    evaluated = found[0].result.training
    lines = [
        f"{ID}, scale {scale}, {plan.steps:,} meta-steps of {learner.meta_batch} episodes, "
        f"{plan.seeds} seeds",
        *plan.notes,
        f"an episode has {learner.ways} classes, 1 drawing of each to adapt to in "
        f"{learner.inner_steps} inner step{'s' * (learner.inner_steps > 1)} and {learner.queries} "
        f"to be judged on; chance is {100 * chance(learner):.3g} %",
        *(
            f"{side}: {counts[side]:,} classes, {TURNS} turns of {counts[side] // TURNS} "
            f"characters, of {', '.join(getattr(split, side))}"
            for side in SIDES
        ),
        f"split by alphabet, not by the lists of Vinyals et al.: {split.rule}",
        f"train, validation, test: accuracy on {learner.eval_episodes} episodes of each side, the "
        f"same for all; {at_end(found[0], 'test').method}",
        f"meta-steps to an accuracy: on validation classes, first of the evaluations every "
        f"{evaluated.eval_every} meta-steps; mean over seeds",
        "rates: the best of " + _grid(plan) if found[0].search else "rates: as given, no search",
        *_edges(plan, found),
        *([f"inner rates are learned, from that value; {learner.lr_lr:g} is the Adam rate of their "
           "logarithms"] if learner.learn_inner_lr else []),
        f"paper: {CLAIM.words} ({CLAIM.source})",
        "as the paper counts: of weight-transform layers the numbers that weight matrices are made "
        "of, without those of biases and latents",
        f"deviates: {DEVIATES}",
    ]  # fmt: skip
    return lines


def _grid(plan: Scaled) -> str:
    inner, outer = (
        ", ".join(f"{r:g}" for r in rates) for rates in (plan.inner_lrs, plan.outer_lrs)
    )
    return (
        f"inner {inner} with outer {outer}, by accuracy on validation classes after "
        f"{plan.search_steps:,} meta-steps of another seed; the same for every network"
    )


def _edges(plan: Scaled, found: Sequence[Found]) -> list[str]:
    """Where a network might do better with rates that were not tried."""
    lines = []
    for each in found:
        start = each.result.training.starts[0]
        for name in ("inner", "outer"):
            tried, taken = getattr(plan, f"{name}_lrs"), getattr(start, f"{name}_lr")
            if len(tried) > 1 and taken in (min(tried), max(tried)):
                what = f"its {name} rate, {taken:g}, is at the end of those tried"
                lines.append(f"{each.network.label}: {what}")
    return lines


def to_object(plan: Scaled, found: Found) -> dict[str, Any]:
    """A row as JSON values."""
    result, learner = found.result, found.network.learner
    start = result.training.starts[0]
    return {
        "label": found.network.label,
        "run": str(result.folder),
        "learner": to_json(learner),
        "parameters": num_parameters(learner),
        "parameters_as_the_paper_counts": learner.num_weights,
        "inner_lr": start.inner_lr,
        "outer_lr": start.outer_lr,
        "search": [
            {"inner_lr": tried.inner_lr, "outer_lr": tried.outer_lr, "validation": accuracy}
            for tried, accuracy in found.search
        ],
        "seeds": [start.seed for start in result.training.starts],
        "meta_steps": result.training.steps,
        "percent": {side: estimate_to_json(at_end(found, side)) for side in SIDES},
        "steps_to": [
            {"validation": target, "meta_steps": steps_to(result, target)}
            for target in plan.targets
        ],
        "curve": {
            "meta_steps": list(result.training.eval_steps),
            **{
                side: result.accuracy[:, :, number].mean(-1).tolist()
                for number, side in enumerate(SIDES)
            },
        },
        "seconds": result.seconds,
    }


# --- Figure ---


@dataclass(frozen=True)
class Curve:
    """Of a network."""

    label: str
    steps: Sequence[int]
    """Meta-steps of its evaluations."""
    accuracy: Float32[np.ndarray, "seed point side episode"]


@image
def curves(found: Sequence[Curve], below: str) -> Figure:
    """Accuracy over meta-steps on test classes, and beside it on training classes."""
    picture, grid = panels(2, 2, share=True)
    picture.set_figheight(4.2)
    for panel, side in zip(grid, ("test", "train"), strict=True):
        for number, each in enumerate(found):
            shares = each.accuracy[:, :, SIDES.index(side)]
            estimates = [_estimate(shares[:, point]) for point in range(shares.shape[1])]
            colour = run_colour(number)
            interval_line(panel, each.steps, estimates, color=colour, label=each.label)
        panel.set_title("held-out classes" if side == "test" else "training classes", size=9)
        panel.set(xlabel="meta-steps")
        thousands(panel)
    grid[0].set(ylabel="accuracy (%)")
    handles, labels = grid[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    picture.supxlabel(textwrap.fill(below, 150), size=7, color="#5c6b7a")
    return picture


def footer(split: Split) -> str:
    """The split, which a picture alone would not tell."""
    return (
        f"Omniglot, split by alphabet ({split.rule}); test: {', '.join(split.test)}; validation: "
        f"{', '.join(split.validation)}; train: {', '.join(split.train)}. Mean ± standard error "
        "over seeds."
    )


# --- The page ---


def _run(found: Found) -> list[str]:
    result = found.result
    steps, seconds = f"{result.training.steps:,}", f"{result.seconds:,.0f}"
    return [found.network.label, steps, seconds, str(result.folder)]


def _facts(found: Found) -> dict[str, str]:
    parts = [to_json(found.result.training), read_sessions(found.result.folder)]
    text = "\n\n".join(json.dumps(part, indent=2) for part in parts)
    return {"title": f"{found.network.label}: settings, versions and devices", "text": text}
