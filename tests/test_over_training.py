"""Experiments about success: table, curve and figures are of it, at every evaluated update."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fake_results import make_result
from omrl.errors import InputError
from omrl.experiments import over_training, page, rows
from omrl.experiments.declare import Arm, Claim, Experiment, Setting, plan
from omrl.experiments.stages import Outcome

STUDY = Experiment(
    id="success-study",
    title="A study of success",
    claim=Claim("It succeeds, then fails.", "nowhere"),
    arms=(Arm("A", "macaw-cheetah-vel"), Arm("B", "bc-cheetah-vel")),
    scales={"smoke": Setting("bundled:cheetah-vel", 2)},
    reference="A",
    measure="success",
)
AFTER = {"A": (0.0, 1.0, 0.5), "B": (0.0, 0.5, 0.5)}
"""Share of the two episodes that succeed after adaptation, after 1,000, 2,000, 3,000 updates."""


def at(step: int, share: float):
    """Before adaptation none succeeds."""
    result = make_result(step=step, succeeds=True)
    success = np.zeros_like(result.returns)
    success[:, :, 1, : round(2 * share)] = 1.0
    return replace(result, success=success)


@pytest.fixture
def made(cheetah_run):
    outcomes = []
    for each in plan(STUDY, "smoke"):
        shares = AFTER[each.arm.method]
        curve = tuple(at(1000 * (i + 1), share) for i, share in enumerate(shares))
        outcomes.append(Outcome(each, cheetah_run, "ef" * 32, curve[-1], curve, 12.0, 34.5))
    return rows.make_rows(STUDY, outcomes)


def test_the_table_is_of_success(made):
    header, cells = rows.table(STUDY, made)
    assert [cells[0][header.index(name)] for name in ("before", "after", "improvement")] == [
        "0.00 [0.00, 0.00]",
        "0.50 [0.50, 0.50]",
        "0.50 [0.50, 0.50]",
    ]
    text = "\n".join(rows.notes(STUDY, "smoke", made))
    assert "before, after: episodes that do at some step what their task asks for" in text


def test_the_whole_curve_is_told_and_how_it_falls(made):
    (section,) = over_training.sections(STUDY, made)
    assert section["header"] == ["updates", "A", "B"]
    assert [[cell.split(" ")[0] for cell in row] for row in section["rows"]] == [
        ["1,000", "0.00", "0.00"],
        ["2,000", "1.00", "0.50"],
        ["3,000", "0.50", "0.50"],
    ]
    falls, stays = section["notes"]
    assert falls.startswith("A: highest after 2,000 updates, 1.00")
    assert "at the end that plus -0.50 [-0.50, -0.50]" in falls
    assert stays == "B: highest after 3,000 updates, 0.50 [0.50, 0.50], its last"


def test_page_and_json_have_the_curve(made, tmp_path):
    found = page.write(tmp_path, STUDY, "smoke", made, "omrl reproduce success-study")
    assert found == json.loads((tmp_path / "results.json").read_text())
    assert found["measure"] == "success"
    curve = found["rows"][0]["curve"]
    assert [(point["updates"], point["after"]["value"]) for point in curve] == [
        (1000, 0.0),
        (2000, 1.0),
        (3000, 0.5),
    ]
    assert found["rows"][0]["behaviour_success"] == pytest.approx(0.3)
    title = "Success after adaptation over meta-training"
    assert title in (tmp_path / "page.html").read_text()
    assert f"## {title}" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "curves.png").exists()


def test_of_returns_and_of_a_single_evaluation_there_is_no_section(made):
    assert over_training.sections(replace(STUDY, measure="return"), made) == []
    single = [
        replace(row, outcome=replace(row.outcome, curve=row.outcome.curve[-1:])) for row in made
    ]
    assert over_training.sections(STUDY, single) == []


def test_success_where_there_is_none_is_an_error():
    with pytest.raises(InputError, match="cheetah-vel/macaw-v1: its tasks are not done or left"):
        make_result().measured("success", 1)
