"""Validation of rewards that jump at the border of a goal, with terms that were rounded."""

import numpy as np
import pytest

from omrl.data import validate_mdp
from omrl.envs import registry

SPARSE = (
    "sparse-point-robot/oyster-v1",
    "sparse-point-robot/borel-v1",
    "ant-semicircle/borel-sparse-v1",
)


def around_the_goal(env, offset):
    """Columns of task 0 with positions `offset` [m] outside of the goal's border, as float16."""
    task, rng = env.tasks[0], np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, len(offset))
    distance = (0.2 + offset)[:, None]
    terms = np.zeros((len(offset), len(env.spec.term_names)))
    terms[:, :2] = task + distance * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    terms = terms.astype(np.float32).astype(np.float64)
    action = np.zeros((len(offset), env.spec.act_dim))
    columns = {"terms": terms, "action": action, "reward": env.reward(terms, action, task)}
    return {name: column.astype(np.float16) for name, column in columns.items()}


@pytest.mark.parametrize("env_id", SPARSE)
def test_rounded_terms_may_lie_on_the_other_side_of_the_goals_border(env_id):
    env = registry.make(env_id)
    columns = around_the_goal(env, np.random.default_rng(1).uniform(-5e-4, 5e-4, 500))
    again = env.reward(*(columns[n].astype(np.float64) for n in ("terms", "action")), env.tasks[0])
    assert 20 < np.sum(np.abs(again - columns["reward"]) > 0.5) < 250
    assert validate_mdp.reward_findings(env, 0, env.task_table[0], columns) == []


@pytest.mark.parametrize("env_id", SPARSE)
@pytest.mark.parametrize("offset", [-0.003, 0.003])
def test_a_wrong_sparse_reward_away_from_the_border_is_found(env_id, offset):
    env = registry.make(env_id)
    columns = around_the_goal(env, np.full(10, offset))
    columns["reward"][4] = (0.8 if "oyster" in env_id else 1.0) if offset > 0 else 0.0
    (finding,) = validate_mdp.reward_findings(env, 0, env.task_table[0], columns)
    assert finding.row == 4
    assert "(differs in 1 of 10 rows)" in finding.problem


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_goal_that_is_one_cell_has_no_border(dtype):
    env = registry.make("gridnav/borel-v1")
    columns = {
        "terms": env.tasks[[0, 1]].astype(dtype),
        "action": np.zeros((2, 5), dtype),
        "reward": np.full(2, -0.1, dtype),
    }
    (finding,) = validate_mdp.reward_findings(env, 0, env.task_table[0], columns)
    assert finding.problem.endswith(" is 1 (differs in 1 of 2 rows)")
