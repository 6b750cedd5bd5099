"""A whole run of a method that is not MACAW: train, evaluate, load, bundle, adapt, export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from omrl import bundle, metatrain
from omrl.data.sample import BatchSpec
from omrl.deploy import adapt_and_export
from omrl.export import load_policy
from omrl.presets import PRESETS
from omrl.protocol import AdaptConfig
from omrl.results import EvalResult


def test_a_run_goes_all_the_way(cheetah_data, tmp_path):
    config = PRESETS["mt-awr-cheetah-vel"].config
    config = replace(
        config,
        algo=replace(config.algo, steps=2, hidden=(8,), batch=BatchSpec("batch", 16)),
        eval=replace(config.eval, episodes=1, context_size=16, shots=(0, 1)),
    )
    path = tmp_path / "run"
    metatrain.start(config, cheetah_data, path, quiet=True)
    result = EvalResult.load(path / "eval" / "step-00000002.npz")
    assert np.all(np.isfinite(result.returns))
    trained = metatrain.load_trained(path)
    assert trained.record.run == config
    folder = bundle.write(
        tmp_path / "bundle", trained.record, trained.states, 0, data="d", commands=(), versions={}
    )
    held = metatrain.load_trained(folder, shots=(2,))
    rounds = AdaptConfig(rounds=2, context_size=16)
    policies = [
        load_policy(adapt_and_export(each, cheetah_data, Path(tmp_path / name), rounds))
        for each, name in ((trained, "one"), (held, "other"))
    ]
    obs = np.asarray(jax.random.normal(jax.random.PRNGKey(0), (5, 20)))
    # Large matrices of a bundle are float16.
    np.testing.assert_allclose(policies[0](obs), policies[1](obs), atol=1e-2)
