"""Whole runs of BOReL on a few grids: resumed, evaluated with the belief carried, refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from omrl import metatrain
from omrl.algos.dqn import DqnConfig
from omrl.cli import main
from omrl.config import from_json, to_json
from omrl.data.device import byte_budget
from omrl.data.sample import BatchSpec
from omrl.envs import registry
from omrl.envs.own_reward import with_reward
from omrl.errors import InputError
from omrl.logs import read_log
from omrl.presets import PRESETS, RunConfig
from omrl.results import EvalResult
from omrl.train import TrainConfig

PRESET = PRESETS["borel-gridnav-code"].config
VAE: dict[str, Any] = {"latent": 2, "gru": 4, "obs_features": 4, "reward_hidden": (4,)}
CONFIG = replace(
    PRESET,
    algo=replace(
        PRESET.algo,
        vae=replace(PRESET.algo.vae, **VAE),
        policy=DqnConfig(hidden=(8,)),
        episodes=2,
        vae_steps=4,
        vae_task_batch=2,
        rollouts=2,
        steps=4,
        task_batch=2,
        batch=BatchSpec("batch", 8),
    ),
    train=TrainConfig(seeds=2, checkpoint_every=2, keep=9, log_every=2),
    eval=replace(PRESET.eval, tasks=(0, 5)),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "grids"
    made = main(
        ["collect", "gridnav/borel-v1", "--agent", "random", "--steps", "75", "--out", str(path)]
    )
    assert not made
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, data) -> Path:
    path = tmp_path_factory.mktemp("run") / "borel"
    metatrain.start(CONFIG, data, path, report=lambda _: None, quiet=True)
    return path


@pytest.mark.parametrize("step", [2, 4, 6])
def test_resumed(run, tmp_path, step):
    """Within stage vae, at the start of stage policy, whose data is then prepared, within it."""
    path = shutil.copytree(run, tmp_path / "run")
    for checkpoint in (path / "checkpoints").iterdir():
        if checkpoint.name.isdigit() and int(checkpoint.name) > step:
            shutil.rmtree(checkpoint)
    options: dict[str, Any] = {"command": "again", "devices": jax.devices("cpu")[:1]}
    metatrain.go_on(path, data=None, report=lambda _: None, quiet=True, **options)
    ends = [metatrain.load_trained(folder) for folder in (run, path)]
    assert [end.step for end in ends] == [8, 8]
    for one, other in zip(*map(jax.tree.leaves, (end.states for end in ends)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_return_for_every_episode_of_a_task(run):
    (file,) = (run / "eval").iterdir()
    returns = EvalResult.load(file).returns
    assert returns.shape == (2, 2, 4, 1)  # [seed, task, episode with what was known, repetition]
    stages = {row["stage"] for row in read_log(run) if "stage" in row}
    assert stages == {"vae", "policy"}


def test_either_kind_of_policy_in_a_file():
    for name in ("borel-gridnav-code", "borel-cheetah-vel-code"):
        config = PRESETS[name].config
        assert from_json(RunConfig, to_json(config)) == config


def test_data_is_on_the_device_without_being_asked_for(data, tmp_path, monkeypatch):
    """Though it takes more than its share, or the policy could not learn; not if it cannot fit."""
    said = []
    problem = metatrain.open_problem(CONFIG, data)
    size = byte_budget(problem.view, problem.train_tasks)["total"]
    monkeypatch.setattr(metatrain, "free_memory", lambda device: int(1.5 * size))
    monkeypatch.setattr(metatrain, "train", lambda *_, **__: None)
    metatrain.start(CONFIG, data, tmp_path / "run", report=said.append)
    assert said[0].startswith("data on the device: 1 MB")
    monkeypatch.setattr(metatrain, "free_memory", lambda device: size // 2)
    with pytest.raises(InputError, match="placement: device, but the data takes"):
        metatrain.start(CONFIG, data, tmp_path / "other", report=said.append)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"placement": "host"}, "placement: stage policy prepares the data on the device"),
        ({"vae_task_batch": 22}, {}, "task_batch: stage vae draws 22 tasks per update"),
    ],
)
def test_what_cannot_run(data, tmp_path, changes, options, message):
    config = replace(CONFIG, algo=replace(CONFIG.algo, **changes))
    with pytest.raises(InputError, match=message):
        metatrain.start(config, data, tmp_path / "run", report=lambda _: None, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ((2, 5), r"entry 0 of its observations goes from 0 to 4, and the grid has 2 values"),
        ((5, 5, 1), r"entry 2 .* from 0 to 1, and the grid has 1 .*; give its sizes, 2 or more"),
    ],
)
def test_cells_that_observations_are_not_in_are_refused(data, cells, message):
    vae = replace(CONFIG.algo.vae, reward_cells=cells)
    with pytest.raises(InputError, match=f"algo.vae.reward_cells: .*{message}"):
        metatrain.open_problem(replace(CONFIG, algo=replace(CONFIG.algo, vae=vae)), data)


def test_discrete_actions_are_not_chosen_where_they_are_continuous():
    other = replace(CONFIG, env="cheetah-vel/macaw-v1")
    with pytest.raises(
        InputError, match=r"algo.policy: DQN .* cheetah-vel/macaw-v1 are continuous"
    ):
        metatrain.open_problem(other, "bundled:cheetah-vel")


def test_a_reward_of_ones_own_leaves_actions_as_they_are():
    grid = registry.make("gridnav/borel-v1")
    own = with_reward(grid, lambda terms: terms[:, 0], "my-grid/right-v1", "x")
    assert own.discrete_actions
