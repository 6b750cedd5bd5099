"""The golden checker: it passes on the reference's numbers, and it can fail."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import check
import jax
import macaw_cases
import numpy as np
import pytest
from golden_file import GoldenFile, Group
from synthetic_macaw import write_set

HERE = Path(__file__).parent
REFERENCE = sorted(path for family in check.FAMILIES for path in (HERE / family).glob("*.npz"))
pytestmark = pytest.mark.usefixtures("own_programs")


@pytest.mark.slow
@pytest.mark.parametrize("path", REFERENCE, ids=lambda path: path.stem.removeprefix("golden_"))
def test_reference(path):
    result = check.check_file(GoldenFile(path))
    assert result.passed, "\n".join(result.lines(path.name))
    assert len(result.errors) == len(result.outputs) > 0


@pytest.fixture(scope="session")
def other_set(tmp_path_factory) -> Path:
    """A folder with a set of another letter and other sizes, of our own making."""
    folder = tmp_path_factory.mktemp("golden")
    write_set(folder, "Q7")
    return folder


def test_no_size_or_set_is_built_in(other_set, capsys):
    assert check.main([str(other_set)]) == 0
    *lines, verdict = capsys.readouterr().out.splitlines()
    assert verdict == "passed"
    assert len(lines) == len(list(other_set.iterdir())) == 5


def test_every_output_is_sensitive(other_set):
    """A relative change of 2e-4 in any single array is found, and of integers a change of 1."""
    for path in sorted(other_set.iterdir()):
        file = GoldenFile(path)
        with jax.enable_x64(True):
            groups = list(macaw_cases.groups(file))
        for name, stored in file.arrays.items():
            if macaw_cases.is_input(name):
                continue
            additive = stored.dtype.kind in "iu" or not stored.any()
            changed = stored + 1 if additive else stored * (1 + 2e-4)
            for group in groups:
                if name.startswith(group.prefix):
                    ours = np.asarray(group.arrays[name])
                    assert check.array_error(ours, stored) <= 1e-6, name
                    assert check.array_error(ours, changed) > 1e-4, name


def changed_copy(source: Path, folder: Path, name: str, change) -> Path:
    with np.load(source, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    arrays[name] = change(arrays.get(name))
    np.savez(folder / source.name, **arrays)
    return folder


def layers_file(folder: Path) -> Path:
    (path,) = folder.glob("*_layers.npz")
    return path


def test_one_wrong_array_fails(other_set, tmp_path, capsys):
    copy = changed_copy(layers_file(other_set), tmp_path, "wl_p/grad_z", lambda x: x * (1 + 1e-4))
    assert check.main([str(copy)]) == 1
    out = capsys.readouterr().out
    assert "wl_p/grad_z: error 1.0e-04 above 1e-06 (wl_p)" in out
    assert out.count("above") == 1
    assert out.endswith("FAILED\n")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_references_fail(other_set, tmp_path, value):
    copy = changed_copy(layers_file(other_set), tmp_path, "wl_p/y", lambda x: x * value)
    assert check.main([str(copy)]) == 1


def test_an_array_nobody_computes_fails(other_set, tmp_path, capsys):
    for name in ("wl_p/grad_unknown", "other/loss"):
        copy = changed_copy(layers_file(other_set), tmp_path, name, lambda _: np.ones(3))
        assert check.main([str(copy)]) == 1
        assert f"not compared: {name}" in capsys.readouterr().out


def test_a_dropped_comparison_fails(other_set, monkeypatch, capsys):
    computed = macaw_cases.groups

    def without_one(file):
        for group in computed(file):
            kept = {name: x for name, x in group.arrays.items() if not name.endswith("grad_x")}
            yield Group(group.label, group.prefix, kept)

    monkeypatch.setattr(macaw_cases, "groups", without_one)
    result = check.check_file(GoldenFile(layers_file(other_set)))
    assert not result.passed
    assert result.missing == ["wl_p/grad_x (wl_p)", "bl/grad_x (bl)"]


def test_both_forms_must_cover_an_array(other_set, monkeypatch):
    """What only the plain form computes counts as not compared."""
    (path,) = other_set.glob("*_wlinear_k3.npz")
    computed = macaw_cases.groups
    dropped = "k3/meta_grad/policy_outer/lr_raw_policy/L0/z"

    def without_one(file):
        for group in computed(file):
            kept = dict(group.arrays)
            if "low_rank" in group.label:
                del kept[dropped]
            yield Group(group.label, group.prefix, kept)

    monkeypatch.setattr(macaw_cases, "groups", without_one)
    result = check.check_file(GoldenFile(path))
    assert result.missing == [f"{dropped} (k3 low_rank)"]
    assert not result.passed


def test_what_the_reference_leaves_out_as_zero_has_to_be_zero(other_set, monkeypatch):
    computed, sizes = macaw_cases.groups, iter((1e-13, 1e-4, np.nan))

    def with_zero(file):
        (first, *rest) = computed(file)
        yield replace(first, zero={"wl/grad_none": np.array([0.0, -next(sizes)])})
        yield from rest

    monkeypatch.setattr(macaw_cases, "groups", with_zero)
    file = GoldenFile(layers_file(other_set))
    assert check.check_file(file).passed
    for _ in range(2):
        result = check.check_file(file)
        assert not result.passed
        assert "  wl/grad_none: not zero" in result.lines("title")


def test_what_is_left_out_is_told_with_its_reason(other_set, monkeypatch):
    monkeypatch.setattr(macaw_cases, "LEFT_OUT", {"wl": "too heavy"}, raising=False)
    result = check.check_file(GoldenFile(layers_file(other_set)))
    assert result.passed
    assert not any(name.startswith("wl") for name in result.outputs)
    assert result.lines("title")[-1].endswith("arrays, wl (too heavy)")


def test_error_is_relative_to_the_largest_reference():
    reference = np.array([0.0, -4.0])
    assert check.array_error(np.array([0.1, -4.0]), reference) == pytest.approx(0.1 / 4)
    assert check.array_error(np.array([0.1, 0.0]), np.zeros(2)) == pytest.approx(0.1)
    assert check.array_error(np.array([[0.0], [-4.0]]), reference) == 0.0
    assert check.array_error(np.array([0.0, -4.0, 0.0]), reference) == np.inf
    assert check.array_error(np.array([np.nan, -4.0]), reference) == np.inf
    assert check.array_error(np.array([1, 2]), np.array([1, 3])) == np.inf
    assert check.array_error(np.array([True]), np.array([1])) == 0.0


# --- What cannot be read ---


def assert_refused(capsys, folder, *words):
    assert check.main([str(folder)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith("check.py: error: ")
    for word in words:
        assert word in line


def test_missing_and_empty_folders(tmp_path, capsys):
    assert_refused(capsys, tmp_path / "absent", "absent", "not a folder")
    assert_refused(capsys, tmp_path, "holds no golden_")


def test_unreadable_files(tmp_path, other_set, capsys):
    path = tmp_path / "golden_macaw_Z_layers.npz"
    path.write_bytes(layers_file(other_set).read_bytes()[:500])
    assert_refused(capsys, tmp_path, path.name)
    pickled: dict[str, Any] = {"wl/x": np.array([{}], dtype=object)}
    np.savez(path, **pickled)
    assert_refused(capsys, tmp_path, path.name)
    path.rename(tmp_path / "notes.npz")
    assert_refused(capsys, tmp_path, "notes.npz", "name is not")


def test_missing_input(tmp_path, other_set, capsys):
    (case,) = other_set.glob("*_wlinear_k3.npz")
    (tmp_path / case.name).write_bytes(case.read_bytes())
    assert_refused(capsys, tmp_path, "wlinear_problem")
    inputs: dict[str, Any] = {"wl/z": np.ones(2), "wl/x": np.ones((1, 1))}
    np.savez(tmp_path / case.name, **inputs)
    assert_refused(capsys, tmp_path, "lacks the input 'wl/cot'")


def test_unknown_family_is_named_and_fails(tmp_path, capsys):
    np.savez(tmp_path / "golden_other_A.npz", loss=np.ones(1))
    assert check.main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "NOT CHECKED, no checks for family 'other' (only borel, macaw, pearl, smac)" in out


def test_as_a_program(tmp_path, other_set):
    source = layers_file(other_set)
    (tmp_path / source.name).write_bytes(source.read_bytes())
    command = [sys.executable, str(HERE / "check.py"), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "11 of 11 arrays" in run.stdout
