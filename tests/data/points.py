"""A one-dimensional point to move, so that data tests need no simulator, and what they compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
        raise AssertionError("the data store must never simulate")


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
BEHAVIOUR = {"policy": "random", "seed": 0}


def assert_holds(dataset, columns):
    for index, task in columns.items():
        read = dataset.task(index)
        for name, column in task.items():
            actual = read.episode_start if name == "episode_start" else read.column(name)
            expected = column.astype(np.float32) if column.dtype.kind == "f" else column
            assert actual.dtype == expected.dtype, name
            np.testing.assert_array_equal(actual, expected, err_msg=name)


def episodes_of(task, first, stop):
    """The columns of episodes first to stop - 1, counted from their own first row."""
    starts = task["episode_start"]
    rows, obs = (
        slice(starts[first], starts[stop]),
        slice(starts[first] + first, starts[stop] + stop),
    )
    part = {name: column[obs if name == "obs" else rows] for name, column in task.items()}
    return part | {"episode_start": starts[first : stop + 1] - starts[first]}


def files_of(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
