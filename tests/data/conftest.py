"""A one-dimensional point to move, so that data tests need no simulator."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

import numpy as np
import pytest

from omrl.data.store import create
from omrl.envs.base import EnvSpec, TaskEnv

HORIZON = 5
SPEC = EnvSpec(
    id="test-point/test-v1",
    obs_dim=2,
    act_dim=1,
    horizon=HORIZON,
    dt=1.0,
    term_names=("position",),
    task_names=("goal",),
)


@dataclass(frozen=True)
class PointEnv(TaskEnv):
    """The term is the position that a step reaches, the reward its distance to the goal below 0."""

    spec: EnvSpec = SPEC
    task_table: tuple[tuple[float, ...], ...] = ((0.0,), (0.5,), (1.0,))
    split_table: tuple[tuple[str, tuple[int, ...]], ...] = (("train", (0, 1)), ("test", (2,)))

    def sample_tasks(self, rng, num):
        return rng.uniform(0, 1, (num, 1))

    def reset(self, rng):
        return rng.uniform(-1, 1, 2)

    def observe(self, state):
        return state.astype(np.float32)

    def terms(self, state, action, next_state):
        return next_state[..., :1]

    def reward(self, terms, action, task):
        return -np.abs(terms[..., 0] - task[..., 0])

    def terminated(self, state):
        return state[..., 0] > 2

    def physics(self, num_threads):
        raise NotImplementedError


def lifetime(env, index, lengths, seed=0):
    """The columns of episodes of these lengths with actions of a random policy."""
    rng = np.random.Generator(np.random.Philox(key=[seed, index]))
    obs, action = [], []
    for length in lengths:
        state, actions = env.reset(rng), rng.uniform(-1, 1, (length, 1))
        states = state + np.concatenate([np.zeros((1, 1)), np.cumsum(actions, axis=0)])
        obs.append(states.astype(np.float32))
        action.append(actions.astype(np.float32))
    terms = np.concatenate([states[1:, :1] for states in obs])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    last = np.isin(np.arange(starts[-1]), starts[1:] - 1)
    return {
        "obs": np.concatenate(obs),
        "action": np.concatenate(action),
        "reward": env.reward(terms.astype(np.float64), action, env.tasks[index]),
        "terms": terms,
        "terminated": last & (np.repeat(lengths, lengths) < HORIZON),
        "truncated": last & (np.repeat(lengths, lengths) == HORIZON),
        "episode_start": starts,
    }


LENGTHS = {0: [5, 3, 5, 1, 5, 5, 2, 5, 5, 4], 1: [5, 5, 5, 5], 2: [2, 5, 3, 4, 5, 1, 5]}
"""Episode lengths of the three tasks of the dataset that most tests use."""


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Waiting for the disk is most of the time of these tests."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def env():
    return PointEnv()


@pytest.fixture
def other_env(env):
    """The same id and tasks, but another MDP."""
    return dataclasses.replace(env, spec=dataclasses.replace(env.spec, dt=0.5))


@pytest.fixture
def columns(env):
    """The columns of each task, as they were given to the writer."""
    return {index: lifetime(env, index, lengths) for index, lengths in LENGTHS.items()}


@pytest.fixture
def dataset(tmp_path, env, columns):
    """The dataset `points` of three tasks."""
    writer = create(tmp_path / "points", env, command="test")
    for index, task in columns.items():
        writer.write_task(index, behaviour={"policy": "random", "seed": 0}, **task)
    return writer.finish()


@pytest.fixture
def make_lifetime(env):
    """`(index, lengths)` to columns, for lifetimes other than those of `columns`."""
    return lambda index, lengths: lifetime(env, index, lengths)
