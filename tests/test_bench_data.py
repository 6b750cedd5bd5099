"""The benchmark of large data runs, and measures what it names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tiny_cheetah
from omrl import bench_data
from omrl.cli import main
from omrl.data.store import open_dataset
from omrl.presets import PRESETS


@pytest.fixture
def tiny(monkeypatch):
    preset = replace(PRESETS["macaw-cheetah-vel"], config=tiny_cheetah.config())
    monkeypatch.setattr(bench_data, "preset", lambda name: preset)


def test_it_writes_a_dataset_and_measures_it(tiny, tmp_path, capsys):
    folder = tmp_path / "large"
    arguments = ["bench", "data", "--folder", str(folder), "--transitions", "16000"]
    assert main([*arguments, "--seconds", "0.01", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["transitions"] == 16000
    assert found["ratio"] > 0.01
    assert found["anonymous_bytes"] > 2**26
    dataset = open_dataset(folder)
    assert dataset.manifest.validation["reward"] == "checked"
    assert found["bytes_on_disk"] == sum(
        column.num_bytes for task in dataset.manifest.tasks for column in task.columns.values()
    )
    assert main([*arguments, "--seconds", "0.01"]) == 0
    assert "16,000 transitions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        (".", "not a dataset"),
        ("bundled:cheetah", "did you mean bundled:cheetah-vel"),
        ("short", "task 0: batch 'inner' needs 256 rows"),
    ],
)
def test_data_that_cannot_be_trained_on(tmp_path, monkeypatch, capsys, folder, message):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "data", "--folder", folder, "--transitions", "8000"]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
