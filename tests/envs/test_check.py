"""`omrl envs check` finds what it is there to find; its own record holds for every environment."""

import dataclasses
import json

import numpy as np
import pytest

from omrl.cli import main
from omrl.envs import check
from omrl.envs.registry import ids, make

FAMILIES = tuple(dict.fromkeys(env_id.split("/")[0] for env_id in ids()))
POINT = make("point-robot/oyster-v1")


@pytest.mark.parametrize("env_id", ids())
def test_every_environment_passes(env_id):
    result = check.check(make(env_id))
    assert result.passed, result
    assert result.transitions == 1000


@pytest.mark.parametrize("family", FAMILIES)
def test_the_record_moves(family):
    recorded = check.read(family)
    assert recorded.env.spec.id.startswith(f"{family}/")
    assert recorded.states.shape[:2] == (51, 20)
    assert recorded.actions.shape[:2] == (50, 20)
    assert np.abs(np.diff(recorded.states, axis=0)).max(axis=-1).min() > 0


@dataclasses.dataclass(frozen=True)
class Precise(type(POINT)):
    """Its rewards need more digits than the stored terms have."""

    def reward(self, terms, action, task):
        return super().reward(terms, action, task) + 1e-3 * (terms.dtype == np.float64)


def test_rewards_that_do_not_follow_from_the_stored_terms_are_found():
    env = Precise(*(getattr(POINT, field.name) for field in dataclasses.fields(POINT)))
    result = check.check(env)
    assert result.reward > 1e-4
    assert not result.passed


def test_another_simulator_is_found(monkeypatch):
    recorded = check.read("point-robot")
    shifted = recorded.states.copy()
    shifted[3] += 1e-6
    monkeypatch.setattr(check, "read", lambda _: dataclasses.replace(recorded, states=shifted))
    result = check.check(POINT)
    assert result.state == pytest.approx(1e-6, rel=1e-3)
    assert not result.passed


def test_the_command(capsys, monkeypatch):
    assert main(["envs", "check", "point-robot/oyster-v1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["passed"]
    assert row["id"] == "point-robot/oyster-v1"
    monkeypatch.setattr(check, "STATE_TOLERANCE", -1.0)
    assert main(["envs", "check", "point-robot/oyster-v1"]) == 2
    captured = capsys.readouterr()
    assert "WRONG" in captured.out
    assert "1 of 1 environments step otherwise than recorded" in captured.err
    assert main(["envs", "check", "point-robot/oyster-v9"]) == 2
