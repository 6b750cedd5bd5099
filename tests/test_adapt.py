"""`adapt_and_export`: the policy is the one that the evaluation measures, for any task's data."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import tiny_cheetah
from omrl import metatrain
from omrl.deploy import adapt_and_export
from omrl.envs import registry
from omrl.envs.engine import VectorEnv
from omrl.errors import InputError, NonFiniteError
from omrl.export import load_policy
from omrl.protocol import AdaptConfig, EvalConfig

ENV = tiny_cheetah.ENV
CONFIG = AdaptConfig(task=7, seed=1, rounds=2, context_size=16, context_seed=3)


@pytest.fixture(scope="module")
def trained(cheetah_run):
    return metatrain.load_trained(cheetah_run, shots=(0, 1, 2))


def speeds(policy, task: int, seed: int, steps: int = 10) -> np.ndarray:
    """Of one episode, from where the evaluation of run seed `seed` starts."""
    vector = VectorEnv(ENV, ENV.tasks[: task + 1], seed=seed)
    obs, found = vector.reset(), []
    for _ in range(steps):
        step = vector.step(policy(obs))
        obs = step.obs
        found.append(step.terms[task, 0])
    vector.close()
    return np.array(found)


def test_the_policy_is_the_one_that_is_evaluated(trained, cheetah_data, tmp_path):
    config = EvalConfig(
        tasks=(7,),
        shots=(0, 2),
        context_size=16,
        context_seed=3,
        episodes=1,
        traces=("x_velocity",),
    )
    result = metatrain.evaluate_trained(trained, cheetah_data, config)
    before, after = result.traces["x_velocity"][1, 0, :, :10]
    for rounds, expected, other in ((0, before, after), (2, after, before)):
        config = dataclasses.replace(CONFIG, rounds=rounds)
        path = adapt_and_export(trained, cheetah_data, tmp_path / str(rounds), config)
        found = speeds(load_policy(path), task=7, seed=1)
        # Rounding grows with every step of chaotic physics, so the first ones are compared.
        error = np.abs(found - expected).max()
        assert error < 1e-3
        assert error < np.abs(found - other).max() / 10


def test_defaults_are_the_first_task_and_seed(trained, cheetah_data, tmp_path):
    config = AdaptConfig(context_size=16)
    named = dataclasses.replace(config, task=0, seed=0)
    paths = [
        adapt_and_export(trained, cheetah_data, tmp_path / name, each)
        for name, each in (("default", config), ("named", named))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    others = [{"task": 1}, {"seed": 1}, {"context_seed": 1}, {"context_slice": "end"}]
    for number, change in enumerate(others):
        other = dataclasses.replace(named, **change)
        path = adapt_and_export(trained, cheetah_data, tmp_path / str(number), other)
        assert path.read_bytes() != paths[0].read_bytes(), change


def test_the_json_says_what_it_was_adapted_to(trained, cheetah_run, cheetah_data, tmp_path):
    path = adapt_and_export(trained, cheetah_data, tmp_path / "policy", CONFIG)
    metadata = json.loads(path.with_suffix(".json").read_text())
    assert metadata["env_id"] == "cheetah-vel/macaw-v1"
    assert metadata["spec_hash"] == ENV.spec.hash
    assert metadata["obs_mean"] == list(trained.record.spec.obs_mean)
    assert len(metadata["context"].pop("data_hash")) == 64
    assert metadata["context"] == {
        "run": str(cheetah_run),
        "step": 3,
        "seed": 1,
        "rounds": 2,
        "data": str(cheetah_data),
        "task": 7,
        "parameters": {"target_velocity": 0.6},
        "context": "16 transitions drawn i.i.d. without replacement from all",
        "context_seed": 3,
    }


def test_whole_trajectories(trained, cheetah_data, tmp_path):
    config = dataclasses.replace(CONFIG, context_size=2, context_unit="trajectories")
    path = adapt_and_export(trained, cheetah_data, tmp_path / "policy", config)
    context = load_policy(path).metadata["context"]["context"]
    assert context == "2 whole trajectories of all"


def test_data_of_a_task_that_nobody_knows(trained, tmp_path):
    own = ENV.with_tasks(np.array([[1.2345]]), {})
    tiny_cheetah.write_data(tmp_path / "logs", own)
    config = AdaptConfig(context_size=16)
    path = adapt_and_export(trained, tmp_path / "logs", tmp_path / "policy", config)
    assert load_policy(path).metadata["context"]["parameters"] == {"target_velocity": 1.2345}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": 40}, "no task 40"),
        ({"seed": 2}, "seed 2: .* has 0, 1"),
        (
            {"context_size": 281},
            "task 7: a context of 281 transitions from all, which has 280; .*context_size",
        ),
        ({"context_slice": "last-15"}, "has 14 episodes; ask for last-14"),
    ],
)
def test_what_is_not_there(trained, cheetah_data, tmp_path, change, message):
    config = dataclasses.replace(CONFIG, **change)
    with pytest.raises(InputError, match=message) as caught:
        adapt_and_export(trained, cheetah_data, tmp_path / "policy", config)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_fewer_rounds_than_were_asked_for_is_not_written(
    trained, cheetah_data, tmp_path
):
    meta = trained.states.meta
    wild = trained.states._replace(meta=meta._replace(policy_rates=meta.policy_rates + 1e30))
    diverging = dataclasses.replace(trained, states=wild)
    with pytest.raises(NonFiniteError, match=r"to task 7 diverges in round 1: .* \(--rounds 0\)"):
        adapt_and_export(diverging, cheetah_data, tmp_path / "policy", CONFIG)
    assert not list(tmp_path.iterdir())
    before = dataclasses.replace(CONFIG, rounds=0)
    path = adapt_and_export(diverging, cheetah_data, tmp_path / "before", before)
    assert path.exists()


def test_data_of_another_mdp(trained, tmp_path):
    other = registry.make("cheetah-vel/ood-0-1-v1")
    tiny_cheetah.write_data(tmp_path / "other", other)
    with pytest.raises(InputError, match="another MDP"):
        adapt_and_export(trained, tmp_path / "other", tmp_path / "policy", CONFIG)


def test_an_existing_policy_is_kept(trained, cheetah_data, tmp_path):
    path = adapt_and_export(trained, cheetah_data, tmp_path / "policy", CONFIG)
    before = path.read_bytes()
    other = dataclasses.replace(CONFIG, task=8)
    with pytest.raises(InputError, match="exists"):
        adapt_and_export(trained, cheetah_data, path, other)
    assert path.read_bytes() == before
    adapt_and_export(trained, cheetah_data, path, other, overwrite=True)
    assert path.read_bytes() != before
