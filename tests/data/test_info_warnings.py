"""Every warning of `omrl data info` fires on what it is for, and on nothing else."""

import dataclasses

import numpy as np
import pytest

from omrl.data import info
from omrl.data.info_warnings import (
    constant_entries,
    few,
    float16_step,
    of_info,
    of_manifest,
)

replace = dataclasses.replace


@pytest.fixture
def manifest(dataset):
    return dataset.manifest


@pytest.fixture
def clean(dataset, env):
    """The statistics of the dataset, which ends many episodes early by termination."""
    return info.measure(dataset, env)


def changed(found, index, **fields):
    """The statistics with other ones of task `index`."""
    tasks = [replace(t, **fields) if t.index == index else t for t in found.tasks]
    return replace(found, tasks=tuple(tasks))


def with_task(manifest, index, **fields):
    tasks = [replace(t, **fields) if t.index == index else t for t in manifest.tasks]
    return replace(manifest, tasks=tuple(tasks))


def fired(remarks):
    return {remark.kind: remark.tasks for remark in remarks}


def test_nothing_is_said_of_clean_data(manifest, clean):
    assert of_manifest(manifest) == of_info(manifest, clean) == []


EQUAL = info.Returns(-3.0, -3.0, -3.0, -3.0, (-3.0,), (4,))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("constant reward", {"reward_low": -1.0, "reward_high": -1.0}),
        ("equal returns", {"returns": EQUAL}),
        ("saturated actions", {"saturation": (0.9,)}),
        ("constant actions", {"action": info.Column((0.5,), (0.5,))}),
        ("duplicate transitions", {"duplicates": info.Duplicates(0.011, 0.0, 20)}),
        ("duplicate episodes", {"duplicates": info.Duplicates(0.0, 0.011, 20)}),
        ("cut-off episodes", {"ends": info.Ends(3, 1, 0, 0)}),
        ("time limit as an end", {"ends": info.Ends(0, 0, 4, 3)}),
        ("reward noise", {"reward_noise": 0.51, "reward_std": 1.0}),
        ("narrow coverage", {"coverage": 0.049}),
    ],
)
def test_a_task_that_looks_wrong_is_named(manifest, clean, kind, fields):
    remarks = of_info(manifest, changed(clean, 1, **fields))
    assert fired(remarks) == {kind: (1,)}
    assert str(remarks[0]).startswith("task 1: ")
    assert "; " in str(remarks[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"saturation": (0.89,)},
        {"duplicates": info.Duplicates(0.01, 0.01, 20)},
        {"ends": info.Ends(9, 1, 0, 0), "episodes": 10},
        {"ends": info.Ends(1, 0, 3, 3)},
        {"reward_noise": 0.5, "reward_std": 1.0},
        {"reward_noise": None},
        {"coverage": 0.05},
    ],
)
def test_what_is_just_right_is_not_named(manifest, clean, fields):
    assert of_info(manifest, changed(clean, 1, **fields)) == []


def test_scales_that_differ_are_told_by_name(manifest, clean):
    spec = replace(manifest.spec, obs_names=("slow", "fast"))
    named = replace(manifest, spec=spec)
    for factor, kinds in ((0.9e4, []), (1.1e4, ["obs scales"])):
        wide = clean
        for task in clean.tasks:
            wide = changed(wide, task.index, obs_mean=(0.0, 0.0), obs_std=(1.0, factor))
        remarks = of_info(named, wide)
        assert [remark.kind for remark in remarks] == kinds
    assert "fast has standard deviation" in str(remarks[0])
    assert str(remarks[0]).endswith("train with normalize_obs")
    assert "1 has standard deviation" in str(of_info(manifest, wide)[0])


def test_what_float16_rounds_off_is_told(manifest, clean):
    far = clean
    for task in clean.tasks:
        column = info.Column((0.0, 999.0), (1.0, 1000.0))
        far = changed(far, task.index, obs=column, obs_mean=(0.0, 999.5), obs_std=(0.3, 0.3))
    assert of_info(manifest, far) == []
    (remark,) = of_info(replace(manifest, dtype="float16"), far)
    assert (remark.kind, "obs 1" in remark.problem) == ("float16 rounding", True)


def test_steps_of_float16_are_those_of_numpy():
    numbers = np.array([6e-8, 1e-5, 0.3, 1.0, 1.5, 999.0, 65000.0])
    np.testing.assert_array_equal(float16_step(numbers), np.spacing(numbers.astype(np.float16)))
    assert float16_step(np.array([65504.0])) == 32


def test_constant_entries_are_named(manifest, clean):
    assert constant_entries(manifest, clean) == []
    still = clean
    for task in clean.tasks:
        still = changed(still, task.index, obs=info.Column((1.0, 0.0), (1.0, 2.0)))
    still = changed(still, 2, action=info.Column((0.5,), (0.5,)))
    named = replace(manifest, spec=replace(manifest.spec, obs_names=("x", "y")))
    assert constant_entries(named, still) == ["obs x in all tasks", "action 0 in task 2"]


def test_constant_entries_of_the_same_tasks_are_one_line(manifest, clean):
    """Meta-World has zeros where an object is absent: a line per task would be fifty."""
    still = clean
    for index in (0, 2):
        still = changed(still, index, obs=info.Column((1.0, 0.0), (1.0, 0.0)))
    still = changed(still, 1, obs=info.Column((1.0, 0.0), (1.0, 2.0)))
    found = constant_entries(manifest, still)
    first, second = found
    assert first == "obs 0 in all tasks"
    assert second == "obs 1 in tasks 0, 2"


# --- What the manifest tells ---


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ({"train": (0, 1), "test": (1, 2)}, {"test tasks in training": (1,)}),
        ({"train": (0,), "test": (2,)}, {"unused tasks": (1,)}),
        ({"all": (0, 1, 2), "train": (0,)}, {"missing split": ()}),
        ({"train": (0, 1), "validation": (1,), "test": (2,)}, {}),
    ],
)
def test_splits(manifest, splits, expected):
    assert fired(of_manifest(replace(manifest, splits=splits))) == expected


def test_an_encoder_buffer_needs_no_test_tasks(manifest):
    held = replace(manifest, splits={"train": (0, 1, 2)})
    (warning,) = of_manifest(held)
    assert "no split is called test" in str(warning)
    assert "protocol explore takes the environment's" in str(warning)
    assert fired(of_manifest(replace(held, source={"buffer": "main"}))) == {"missing split": ()}
    assert fired(of_manifest(replace(held, source={"buffer": "encoder"}))) == {}


@pytest.mark.parametrize(("rows", "expected"), [(1, {"few transitions": (2,)}), (2, {})])
def test_a_task_with_far_fewer_transitions(manifest, rows, expected):
    held = with_task(manifest, 2, transitions=rows, episodes=1)
    assert fired(of_manifest(held)) == expected  # The others have 40 and 20.


def test_equal_tasks(manifest):
    columns = manifest.record(0).columns
    same = with_task(manifest, 2, columns=columns)
    assert fired(of_manifest(same)) == {"identical tasks": (0, 2)}
    reward = manifest.record(2).columns["reward"]
    relabelled = with_task(manifest, 2, columns={**columns, "reward": reward})
    assert fired(of_manifest(relabelled)) == {"same transitions": (0, 2)}
    again = with_task(manifest, 2, parameters=manifest.record(1).parameters)
    assert fired(of_manifest(again)) == {"equal parameters": (1, 2)}


def test_many_items_are_counted():
    assert few(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert few(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
