"""Data that are not of the MDP that they name, of Meta-World, whose transitions have many terms."""

import dataclasses
import itertools

import numpy as np
import pytest

from omrl.data import relabel, validate_mdp
from omrl.data.rounding import MOST_TERMS, directions
from omrl.envs import registry

REACH = registry.make("ml1-reach/continuous-v2-h150-v1")


def columns(dtype="float32"):
    """Five transitions whose rewards are those of their terms."""
    rng = np.random.default_rng(0)
    names = REACH.spec.term_names
    terms = rng.uniform(0.1, 1.0, (5, len(names))).astype(dtype)
    terms[:, names.index("success")] = [0, 1, 0, 0, 1]
    action = rng.uniform(-1, 1, (5, REACH.spec.act_dim)).astype(dtype)
    reward = REACH.reward(terms.astype(np.float64), action.astype(np.float64), REACH.tasks[0])
    return {"terms": terms, "action": action, "reward": np.asarray(reward).astype(dtype)}


def test_a_few_numbers_are_moved_in_all_ways_and_many_in_a_number_that_ends():
    assert directions(0).shape == (1, 0)
    for num in range(1, MOST_TERMS + 1):
        assert len(np.unique(directions(num), axis=0)) == 2**num
    many = directions(52)
    assert len(many) < 200
    three = {tuple(row) for row in many[:, [0, 17, 51]]}
    assert three >= set(itertools.product((-1.0, 1.0), repeat=3))
    np.testing.assert_array_equal(many, directions(52))


def test_a_wrong_reward_of_many_terms_is_found():
    data = columns()
    assert validate_mdp.reward_findings(REACH, 0, REACH.task_table[0], data) == []
    data["reward"][3] += 1
    (finding,) = validate_mdp.reward_findings(REACH, 0, REACH.task_table[0], data)
    assert (finding.file, finding.row) == ("task-000/reward.npy", 3)


def test_half_precision_of_many_terms_can_be_relabelled():
    data = columns("float16")
    unsure = relabel._unsure(REACH, REACH.tasks[0], data, data["reward"].astype(np.float64))
    assert not unsure.any()


@pytest.mark.parametrize("value", [7.0, 0.5, -1.0])
def test_a_success_that_is_neither_0_nor_1(value):
    data = columns()
    assert validate_mdp.success_findings(REACH.spec, 0, data) == []
    data["terms"][2, REACH.spec.term_names.index("success")] = value
    (finding,) = validate_mdp.success_findings(REACH.spec, 0, data)
    assert str(finding).startswith("task-000/terms.npy (task 0, success, row 2): success is ")
    without = dataclasses.replace(REACH.spec, term_names=())
    assert validate_mdp.success_findings(without, 0, data) == []


def test_parameters_that_no_task_has(dataset, env):
    (record, *_) = dataset.manifest.tasks
    assert validate_mdp.parameter_findings(env, record) == []
    wrong = dataclasses.replace(record, parameters=(9.0,) * len(REACH.spec.task_names))
    (finding,) = validate_mdp.parameter_findings(REACH, wrong)
    assert "parameters" in str(finding)
    assert "manifest.json" in str(finding)
