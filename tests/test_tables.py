"""What is printed loses no number on a narrow terminal, and drowns nobody in parameters."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from fake_results import TASKS, make_result
from omrl import figures
from omrl.cli import data_info, main
from omrl.data.store import open_dataset
from omrl.results import table
from omrl.tables import parameter_cells, parameter_names

NAMES = tuple(f"body_mass_{number}" for number in range(65))
VALUES = np.linspace(0.5, 1.5, 65)


@pytest.mark.parametrize(
    "command", ["envs", "presets", "data info {data}", "envs check point-robot/oyster-v1"]
)
def test_a_narrow_terminal_loses_nothing(command, cheetah_data, monkeypatch, capsys):
    printed = []
    for columns in ("20", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(command.format(data=cheetah_data).split()) == 0
        printed.append(re.findall(r"[\w.-]+", capsys.readouterr().out))
    assert len(printed[0]) > 5
    assert printed[0] == printed[1]


# --- Many parameters ---


@pytest.fixture
def result():
    """Of tasks with 65 parameters."""
    made = make_result()
    provenance = dataclasses.replace(made.provenance, task_names=NAMES)
    parameters = np.tile(VALUES, (len(TASKS), 1))
    return dataclasses.replace(made, provenance=provenance, task_parameters=parameters)


def test_few_parameters_are_shown_and_many_are_counted():
    assert parameter_names(["goal_x", "goal_y"]) == ["goal_x", "goal_y"]
    assert parameter_cells([0.5, 2.0]) == ["0.5", "2"]
    assert parameter_names(NAMES) == ["65 parameters"]
    assert parameter_cells(VALUES.tolist()) == ["0.5, 0.5156, 0.5312, … 62 more"]


def test_the_table_of_an_evaluation_counts_them_and_json_has_all(result):
    header, rows, summary = table(result)
    assert header[:3] == ["task", "65 parameters", "before"]
    assert {len(row) for row in [header, *rows, *summary]} == {len(header)}
    (first, *_) = result.to_json()["tasks"]
    assert list(first["parameters"].values()) == VALUES.tolist()


def test_the_figures_name_tasks_in_place_of_their_parameters(result):
    (axes,) = figures.per_task_bars.__wrapped__(result).axes
    assert axes.get_xlabel() == "task: 65 parameters"
    assert {label.get_text() for label in axes.get_xticklabels()} == {f"task {t}" for t in TASKS}
    panels = figures.speed_over_time.__wrapped__(result).axes
    assert panels[0].get_title() == "task 7: 0.5, 0.5156, 0.5312, … 62 more"


def test_data_info_counts_them_and_json_has_all(cheetah_data, capsys):
    manifest = open_dataset(cheetah_data).manifest
    spec = dataclasses.replace(manifest.spec, task_names=NAMES)
    tasks = tuple(
        dataclasses.replace(task, parameters=tuple(VALUES.tolist())) for task in manifest.tasks
    )
    manifest = dataclasses.replace(manifest, spec=spec, tasks=tasks)
    data_info.print_manifest(cheetah_data, manifest, False)
    text = capsys.readouterr().out
    assert "65 parameters" in text
    assert "0.5, 0.5156, 0.5312, … 62 more" in text
    assert "0.5469" not in text
    data_info.print_manifest(cheetah_data, manifest, True)
    assert json.loads(capsys.readouterr().out)["tasks"][0]["parameters"] == VALUES.tolist()
