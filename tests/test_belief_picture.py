"""`benchmarks/belief_picture.py` with networks that never learned: beliefs, cells and the file."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
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
from test_presets import spec_of

TASK, ENV = 18, "gridnav/borel-v1"


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark as a module."""
    path = Path(__file__).parents[1] / "benchmarks" / "belief_picture.py"
    spec = importlib.util.spec_from_file_location("belief_picture", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["belief_picture"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["belief_picture"]


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


def test_two_episodes_of_an_agent_that_knows_nothing(benchmark, trained):
    """Of zeros the first action is the best, to stay, and every cell is as likely as not,
    but for the one that it is sure of."""
    expected = np.full((5, 5), 0.5)
    expected[3, 1] = 1.0
    episodes = benchmark.believed(trained, TASK)
    assert [len(moments) for moments in episodes] == [HORIZON + 1] * 2
    for moments in episodes:
        for moment in moments:
            np.testing.assert_array_equal(moment.cell, [0, 0])
            np.testing.assert_allclose(moment.belief, expected, rtol=1e-5)


def test_a_file_with_a_picture(benchmark, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "load_trained", lambda run: trained)
    benchmark.main("run", str(TASK), str(tmp_path / "belief.png"))
    assert (tmp_path / "belief.png").read_bytes().startswith(b"\x89PNG")
