"""`benchmarks/belief_picture.py` and `belief_drift.py` with networks that never learned."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from omrl.algos.dqn import DqnConfig
from omrl.algos.registry import build
from omrl.envs import registry
from omrl.envs.gridnav import HORIZON
from omrl.presets import PRESETS
from scripts import benchmark
from test_presets import spec_of

TASK, ENV = 18, "gridnav/borel-v1"


@pytest.fixture(scope="module")
def picture():
    with benchmark("belief_picture") as module:
        yield module


@pytest.fixture(scope="module")
def drift():
    with benchmark("belief_drift") as module:
        yield module


@pytest.fixture(scope="module")
def trained() -> Any:
    """What `load_trained` gives, with networks of zeros, but that (3, 1) is surely the goal."""
    algo: Any = PRESETS["borel-gridnav"].config.algo
    vae = replace(algo.vae, gru=4, latent=2, obs_features=4, reward_hidden=(4,))
    algorithm = build(replace(algo, vae=vae, policy=DqnConfig(hidden=(4,))), spec_of(ENV))
    shapes = jax.eval_shape(algorithm.init, jax.random.PRNGKey(0))
    states = jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), shapes)
    *_, last = jax.tree.leaves(states.model.vae.rewards)  # Its last row is the bias of 25 cells.
    last[0, -1, 5 * 3 + 1] = 100.0
    return SimpleNamespace(algorithm=algorithm, states=states, env=registry.make(ENV))


def test_two_episodes_of_an_agent_that_knows_nothing(picture, trained):
    """Of zeros the first action is the best, to stay, and every cell is as likely as not,
    but for the one that it is sure of."""
    expected = np.full((5, 5), 0.5)
    expected[3, 1] = 1.0
    episodes = picture.believed(trained, TASK)
    assert [len(moments) for moments in episodes] == [HORIZON + 1] * 2
    for moments in episodes:
        for moment in moments:
            np.testing.assert_array_equal(moment.cell, [0, 0])
            np.testing.assert_allclose(moment.belief, expected, rtol=1e-5)


def test_a_file_with_a_picture(picture, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "load_trained", lambda run: trained)
    picture.main("run", str(TASK), str(tmp_path / "belief.png"))
    assert (tmp_path / "belief.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_decoded_follows_the_belief_until_it_stays(drift, trained):
    """Agents of zeros stay in their cell, so that nothing but the belief changes there."""
    model = trained.algorithm.init(jax.random.PRNGKey(7)).model
    states = trained.states._replace(model=jax.tree.map(lambda leaf: leaf[None], model))
    learned = SimpleNamespace(**{**vars(trained), "states": states})
    tasks = trained.env.tasks[[TASK, 2]]
    whole, part = (drift.walk(learned, 0, tasks, until) for until in (45, 6))
    assert whole.reward.shape == (2, 3 * HORIZON)
    np.testing.assert_array_equal(whole.reward, part.reward)
    np.testing.assert_array_equal(part.decoded[:, :7], whole.decoded[:, :7])
    assert (part.decoded[:, 6:] == part.decoded[:, 6:7]).all()
    assert (np.diff(whole.decoded) != 0).all()


def test_lines_of_numbers(drift, trained, monkeypatch, capsys):
    """Half a chance of 1 in place of -0.1, in a cell that is not the goal, is wrong by 0.55."""
    named = SimpleNamespace(**vars(trained), seeds=[0])
    monkeypatch.setattr(drift, "load_trained", lambda run: named)
    monkeypatch.setattr(drift, "BLOCK", HORIZON)
    monkeypatch.setattr(drift, "UNTIL", (None, 3))
    drift.main("run")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["until"] for line in lines] == [None, 3]
    for line in lines:
        assert line["returns"] == pytest.approx([-1.5] * 3)
        assert line["reward"] == pytest.approx([-0.1] * 3)
        assert line["decoded_rms"] == pytest.approx([0.55] * 3)
