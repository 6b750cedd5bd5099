"""MACAW on SMAC's data: presets that fit its short lifetimes, and protocol `explore` from them."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from omrl import explore, metatrain
from omrl.algos.macaw_config import MacawConfig
from omrl.algos.registry import build
from omrl.data import store
from omrl.data.sample import BatchSpec, check_sizes
from omrl.envs import registry
from omrl.errors import InputError
from omrl.preset_macaw_smac import KINDS, MATCHED, ORIGINAL, PROBLEMS
from omrl.presets import PRESETS
from omrl.protocol import EXPLORE
from test_presets import spec_of

COMPARED = [f"macaw-smac-{problem}-{kind}" for problem in PROBLEMS for kind in KINDS]
OURS = ["macaw-self-supervised-cheetah-vel", "macaw-self-supervised-ant-dir"]
LIFETIME = 1200
EPISODES, LENGTH = 8, 160
"""Of the made-up data; a slice of 1,200 transitions cuts the last one off."""


@pytest.mark.parametrize("name", COMPARED)
def test_environment_data_and_evaluation_are_those_of_smac(name):
    config, kind = PRESETS[name].config, name.rsplit("-", 1)[1]
    smac = PRESETS[name.removeprefix("macaw-").removesuffix(kind) + "paper"].config
    same = ("env", "discount", "train_split", "holdout", "slice")
    assert [getattr(config, field) for field in same] == [getattr(smac, field) for field in same]
    assert config.algo == KINDS[kind]
    assert (config.eval.protocol, config.eval.shots, config.eval.episodes) == (
        "explore",
        (0, 1, 2),
        4,
    )
    assert config.eval.explore == EXPLORE["explore-paper"]["explore"]


def test_what_is_original_and_what_is_matched():
    assert PRESETS["macaw-cheetah-vel-paper"].config.algo == ORIGINAL
    smac = PRESETS["smac-cheetah-vel-paper"].config.algo
    assert MATCHED.hidden == MATCHED.value_widths == smac.hidden == (300, 300, 300)
    assert MATCHED.policy_lr == MATCHED.value_lr == smac.policy_lr == smac.critic_lr == 3e-4
    assert MATCHED.inner_lr == 3e-4
    assert MATCHED.inner_batch.size == MATCHED.outer_batch.size == smac.batch.size == 256
    assert (MATCHED.task_batch, MATCHED.steps) == (smac.task_batch, smac.steps) == (4, 50_000)
    same = {"hidden": ORIGINAL.hidden, "policy_lr": 1e-4, "value_lr": 1e-5, "inner_lr": 1e-3}
    assert replace(MATCHED, task_batch=5, steps=100_000, **same) == ORIGINAL


@pytest.mark.parametrize("name", OURS)
def test_encoder_and_decoder_are_those_of_smac(name):
    algo = PRESETS[name].config.algo
    smac = PRESETS[name.replace("macaw-self-supervised", "smac")].config.algo
    of_smac = [getattr(smac, field.name) for field in fields(algo.rewards)]
    assert [getattr(algo.rewards, field.name) for field in fields(algo.rewards)] == of_smac
    assert algo.rewards.kl_weight == 0.02
    assert (algo.batch, algo.context) == (smac.batch, smac.context)


@pytest.mark.parametrize("name", [*COMPARED, *OURS])
def test_batches_fit_into_lifetimes_of_smac(name):
    config = PRESETS[name].config
    for stage in build(config.algo, spec_of(config.env)).stages():
        main = tuple(spec for spec in stage.batches if spec.buffer == "main")
        encoder = tuple(spec for spec in stage.batches if spec.buffer == "encoder")
        check_sizes(main, [LIFETIME])
        check_sizes(encoder, [400 if config.encoder_slice else LIFETIME])


def test_batches_that_do_not_fit_are_told():
    code = PRESETS["macaw-cheetah-vel-code"].config.algo
    assert isinstance(code, MacawConfig)
    told = r"batch 'inner' needs 1786 rows from 0 to 1 of the lifetime, there are 1200 .*stride"
    with pytest.raises(InputError, match=told):
        check_sizes((code.inner_batch, code.outer_batch), [LIFETIME])


# --- End to end ---


@pytest.fixture(scope="module")
def hoppers(tmp_path_factory) -> Path:
    """Made-up lifetimes of a few hoppers."""
    env = registry.make("hopper-params/smac-v1")
    few = replace(env, task_table=env.task_table[:6])
    path = tmp_path_factory.mktemp("hoppers") / "data"
    writer = store.create(path, few, command="tests")
    rows, spec = EPISODES * LENGTH, env.spec
    start = np.arange(0, rows + 1, LENGTH)
    for task, parameters in enumerate(few.tasks):
        rng = np.random.Generator(np.random.Philox(key=[0, task]))
        action = rng.uniform(-1, 1, (rows, spec.act_dim)).astype(np.float32)
        terms = rng.uniform(0, 1, (rows, len(spec.term_names))).astype(np.float32)
        writer.write_task(
            task,
            obs=rng.normal(size=(rows + EPISODES, spec.obs_dim)),
            action=action,
            reward=env.reward(terms.astype(np.float64), action, parameters),
            terms=terms,
            terminated=np.zeros(rows, bool),
            truncated=np.isin(np.arange(rows), start[1:] - 1),
            episode_start=start,
            behaviour={},
        )
    return writer.finish().path


@pytest.mark.slow
def test_it_adapts_to_what_it_explored_with_the_returns_of_each_trajectory(
    hoppers, tmp_path, monkeypatch
):
    """Hoppers fall, so trajectories are of different lengths, and none may leak into another."""
    config = PRESETS["macaw-smac-hopper-params-original"].config
    small = {"hidden": (8,), "latent": 4, "head_hidden": (4,), "steps": 1, "task_batch": 2}
    config = replace(
        config,
        algo=replace(config.algo, **small),
        train_tasks=(0, 1, 2),
        eval=replace(config.eval, tasks=(4, 5)),
    )
    seen, adaptations = [], []
    whole = explore.joined

    def watched(trajectories, discount):
        batch = whole(trajectories, discount)
        seen.append([list(trajectories), batch])
        return batch

    monkeypatch.setattr(explore, "joined", watched)
    adapted = explore.adapted
    monkeypatch.setattr(
        explore, "adapted", lambda *given: adaptations.append(given) or adapted(*given)
    )
    metatrain.start(config, hoppers, tmp_path / "run", quiet=True)
    returns = metatrain.evaluate_trained(metatrain.load_trained(tmp_path / "run")).returns
    assert returns.shape == (1, 2, 3, 4)
    assert np.isfinite(returns).all()
    trajectories, batch = seen[-1]
    assert adaptations[-1][3] is batch
    assert batch.mc_return.shape == (1, 2, 4, 400)
    lengths = np.stack([one.length for one in trajectories])
    assert lengths.max() < 200
    assert len(np.unique(lengths)) > 3
    for at in np.ndindex(lengths.shape[1:]):
        expected = np.concatenate([discounted(one, at, config.discount) for one in trajectories])
        np.testing.assert_allclose(
            batch.mc_return[at], np.resize(expected, 400), rtol=1e-4, err_msg=str(at)
        )
        sums = [one.reward[at][: one.length[at]].sum() for one in trajectories]
        np.testing.assert_allclose(returns[(*at[:2], slice(2), at[2])], sums, rtol=1e-4)


def discounted(trajectories, at: tuple[int, ...], discount: float) -> np.ndarray:
    """Sums to the end of one trajectory, by their definition."""
    reward = trajectories.reward[at][: trajectories.length[at]].astype(np.float64)
    powers = discount ** np.arange(len(reward))
    return np.array([reward[t:] @ powers[: len(reward) - t] for t in range(len(reward))])


def test_a_lifetime_that_is_too_short_is_told_before_anything_is_trained(hoppers, tmp_path):
    config = PRESETS["macaw-smac-hopper-params-original"].config
    inner = BatchSpec("inner", 256, "contiguous", stride=7)
    config = replace(
        config,
        algo=replace(config.algo, inner_batch=inner, task_batch=2),
        train_tasks=(0, 1, 2),
        eval=replace(config.eval, tasks=(4,)),
    )
    with pytest.raises(InputError, match="task 0: batch 'inner' needs 1786 rows"):
        metatrain.start(config, hoppers, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
