"""A tiny algorithm that explores, and a run, of it or of another, that tests can kill and resume.

What it knows of a task is the mean action of a context, which it acts around. It learns one
vector, from all that its batches hold, so that whatever a batch had in it is in the state. Compiles
in about a second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from omrl import metatrain, runs
from omrl.algorithm import Algorithm, Stage
from omrl.collector import Collector
from omrl.config import from_json
from omrl.data.explored import ExploredFiles
from omrl.data.sample import BatchSpec
from omrl.envs import registry
from omrl.envs.point_robot import PointRobot
from omrl.exploration import Exploration
from omrl.exploration_setting import Setting
from omrl.layout import Layout
from omrl.presets import RunConfig
from omrl.train import TrainConfig, train
from omrl.types import Batch, Spec

TASKS = np.array([3, 1, 7, 9, 20])
SPEC = Spec(obs_dim=2, act_dim=2, num_train_tasks=5, horizon=20)
SHORT = Exploration(
    every=6, explored_tasks=4, initial_steps=30, prior_steps=30, posterior_steps=50, context_size=7
)


@dataclass(frozen=True)
class Leaving(PointRobot):
    """The episode is over where the robot leaves a box."""

    def terminated(self, state):
        return np.abs(state).max(-1) > 1.2


def point_robot() -> PointRobot:
    env = registry.make("point-robot/oyster-v1")
    assert isinstance(env, PointRobot)
    return env


def leaving() -> Leaving:
    base = point_robot()
    spec = replace(base.spec, id="point-robot/leaving-v1", termination="|s| > 1.2")
    return Leaving(spec, base.task_table, base.split_table)


class ScoutTask(NamedTuple):
    mean: jax.Array
    reward: jax.Array
    """Mean of the context's."""
    guess: jax.Array
    weight: jax.Array
    """Of the state as it is."""


class ScoutState(NamedTuple):
    weight: jax.Array
    step: jax.Array


@dataclass(frozen=True)
class ScoutConfig:
    offline: int = 0
    """Updates of a stage before, on logged data alone."""
    steps: int = 20
    exploration: Exploration = field(default_factory=lambda: SHORT)
    mode: str = "iid"
    normalize_obs: bool = False


@dataclass(frozen=True)
class Scout(Algorithm[ScoutState, ScoutTask]):
    config: ScoutConfig = field(default_factory=ScoutConfig)
    spec: Spec = SPEC

    def init(self, key):
        weight = 0.3 * jax.random.normal(key, (self.spec.act_dim,))
        return ScoutState(weight, jnp.zeros((), jnp.int32))

    def stages(self):
        batches = BatchSpec("batch", 8), BatchSpec("context", 4, buffer="encoder")
        online = Stage(
            "online", self.config.steps, 3, batches, self._update, True, True,
            self.config.exploration,
        )  # fmt: skip
        if not self.config.offline:
            return (online,)
        offline = replace(online, name="offline", steps=self.config.offline, exploration=None)
        return offline, online

    def begin(self, state, key):
        nothing = jnp.zeros(self.spec.act_dim)
        return ScoutTask(nothing, jnp.zeros(()), nothing, state.weight)

    def adapt(self, state, task, support, key):
        mean = jnp.mean(support.action, axis=0)
        return task._replace(mean=mean, reward=jnp.mean(support.reward))

    def observe(self, state, task, step, key):
        return task

    def resample(self, state, task, key):
        return task._replace(guess=task.mean + jax.random.normal(key, task.mean.shape))

    def act(self, state, task, obs, key, deterministic):
        noise = 0.1 * jax.random.normal(key, obs.shape)
        return jnp.clip(jnp.tanh(task.guess + task.weight + 0.1 * obs + noise), -1.0, 1.0)

    def policy_layers(self, state, task):
        raise AssertionError("it is not exported")

    def predict_reward(self, state, task, obs, action, next_obs):
        return task.reward + jnp.sum(action)

    def _update(self, state, batches, key, tasks):
        told = sum(_digest(batch, tasks) for batch in batches.values())
        weight = 0.9 * state.weight + 0.1 * jnp.tanh(told)
        metrics = {"loss": batches["batch"].reward.mean(1), "context": told[0]}
        return ScoutState(weight, state.step + 1), metrics


def _digest(batch: Batch, tasks: jax.Array) -> Any:
    """A number that depends on all of a batch."""
    columns = (
        batch.obs.sum(-1), batch.action.sum(-1), batch.reward, 2 * batch.next_obs.sum(-1),
        batch.terminated.astype(jnp.float32), batch.mc_return, batch.terminal_obs.sum(-1),
        batch.terminal_discount,
    )  # fmt: skip
    each = sum(column * 0.7**n for n, column in enumerate(columns))
    return jnp.mean(each * (1 + tasks[:, None])) * jnp.ones(2) + batch.action.mean((0, 1))


# --- A run ---


@dataclass(frozen=True)
class ScoutRun:
    algo: ScoutConfig
    train: TrainConfig
    ends_early: bool = False


def setting(config: ScoutRun, num_devices: int = 1) -> Setting:
    layout = Layout.of(jax.devices("cpu")[:num_devices], config.train.seeds)
    env = leaving() if config.ends_early else point_robot()
    return Setting(Scout(config.algo), env, layout, config.train.seed_numbers, TASKS, 0.9)


def run_scout(
    path: Path,
    config: ScoutRun,
    *,
    resume: bool = False,
    data: Any = None,
    num_devices: int = 1,
    side_by_side: bool = False,
) -> tuple[Any, Collector]:
    """The final states, and what was collected."""
    devices = runs.resolve_devices("cpu", num_devices)
    of_all = setting(config, num_devices)
    of_all = replace(of_all, layout=replace(of_all.layout, side_by_side=side_by_side))
    run = (runs.resume if resume else runs.create)(path, config, command="scout", devices=devices)
    collector = Collector(of_all, path)
    states = train(
        run, of_all.algorithm, config.train, of_all.layout, data, TASKS,
        collector=collector, quiet=True,
    )  # fmt: skip
    return states, collector


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("config", type=json.loads)
    parser.add_argument("--kill-behind", type=int, help="SIGKILL once so many files are there")
    parser.add_argument("--num-devices", type=int, default=1)
    parser.add_argument("--data", default="", help="the config is of a run on this dataset")
    parser.add_argument("--encoder-data", default="")
    given = parser.parse_args()
    if given.kill_behind:
        add = ExploredFiles.add

        def add_and_die(self, explored):
            add(self, explored)
            if len(self.sha256) == given.kill_behind:
                os.kill(os.getpid(), signal.SIGKILL)

        ExploredFiles.add = add_and_die
    if given.data:
        config = from_json(RunConfig, given.config)
        metatrain.start(config, given.data, given.path, encoder_data=given.encoder_data, quiet=True)
        return
    config = from_json(ScoutRun, given.config)
    states, collector = run_scout(given.path, config, num_devices=given.num_devices)
    leaves = jax.tree.leaves((states, collector.buffers))
    np.savez(given.path / "end.npz", *map(np.asarray, leaves))


if __name__ == "__main__":
    sys.exit(main())
