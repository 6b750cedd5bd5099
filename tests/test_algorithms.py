"""Whole runs of methods that are not MACAW: train, evaluate, load, bundle, adapt, export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from omrl import bundle, metatrain
from omrl.data.sample import BatchSpec
from omrl.deploy import adapt_and_export
from omrl.export import load_policy
from omrl.presets import PRESETS
from omrl.protocol import AdaptConfig
from omrl.results import EvalResult
from omrl.tuning import FinetuneConfig

SMALL_LATENT = {
    "encoder_hidden": (8,),
    "task_batch": 3,
    "context": BatchSpec("context", 16, buffer="encoder"),
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mt-awr-cheetah-vel", {}),
        pytest.param(
            "smac-cheetah-vel", SMALL_LATENT | {"online_steps": 0}, marks=pytest.mark.slow
        ),
    ],
)
def test_a_run_goes_all_the_way(name, changes, cheetah_data, tmp_path):
    config = PRESETS[name].config
    config = replace(
        config,
        env="cheetah-vel/macaw-v1",
        algo=replace(config.algo, steps=2, hidden=(8,), batch=BatchSpec("batch", 16), **changes),
        eval=replace(config.eval, protocol="given", episodes=1, context_size=16, shots=(0, 1)),
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


@pytest.mark.slow
def test_pearl_of_two_buffers_goes_on_learning_online(cheetah_data, tmp_path):
    config = PRESETS["pearl-cheetah-vel"].config
    small = {
        "steps": 2,
        "hidden": (8,),
        "batch": BatchSpec("batch", 16),
        **SMALL_LATENT,
    }
    config = replace(
        config,
        encoder_slice="end",
        algo=replace(config.algo, **small),
        eval=replace(config.eval, episodes=1, context_size=16, tasks=(2, 7)),
    )
    path = tmp_path / "run"
    metatrain.start(config, cheetah_data, path, quiet=True)
    offline = EvalResult.load(path / "eval" / "step-00000002.npz").returns
    trained = metatrain.load_trained(path)
    steps = FinetuneConfig(burn_in=1, value_steps=2, policy_steps=2, batch_size=8, eval_every=0)
    online = replace(config.eval, protocol="finetune", finetune=steps, shots=(0, 2))
    returns = metatrain.evaluate_trained(trained, config=online).returns
    # [seed, task, shot, episode]: what it begins with is the adapted policy.
    np.testing.assert_allclose(returns[:, :, 0], offline[:, :, 1], rtol=1e-5)
    assert np.all(returns[:, :, 1] != returns[:, :, 0])
    policy = load_policy(adapt_and_export(trained, cheetah_data, tmp_path / "policy"))
    assert np.all(np.abs(policy(np.zeros((5, 20)))) < 1)
