"""Runs that explore test tasks: in whose physics, with whose rewards, and the mark they get."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fake_results import make_result
from omrl.chunk import init_states
from omrl.collector import Collector
from omrl.envs.point_robot import PointPhysics, PointRobot
from omrl.errors import InputError
from omrl.evaluate import provenance_of
from omrl.exploration import Exploration
from omrl.results import EvalResult, describe
from omrl.simulate import Labels
from omrl.train import TrainConfig
from scout import SHORT, Scout, ScoutConfig, ScoutRun, point_robot, setting
from toy import make_data

UNSEEN = replace(
    SHORT, draw="union", initial_steps=0, into_encoder="none", label_context=4, physics="test"
)
RUN = ScoutRun(ScoutConfig(exploration=UNSEEN), TrainConfig(seeds=2, first_seed=3))
HORIZON = 20


class Drift(PointPhysics):
    """Everything moves a little by where its task lies."""

    def step(self, states, actions, tasks, active):
        moved = super().step(states, actions, tasks, active)
        return np.where(active[:, None], moved + 0.01 * tasks, moved)


class Drifting(PointRobot):
    task_changes_physics = True

    def physics(self, num_threads):
        return Drift()


def drifting(splits=None):
    base = point_robot()
    env = Drifting(base.spec, base.task_table, splits or base.split_table)
    return replace(setting(RUN), env=env)


def explored(path):
    of_all = drifting()
    states = init_states(of_all.algorithm, of_all.layout, of_all.seeds)
    data = make_data(of_all.algorithm.spec, num_tasks=5)
    # Rewards tell the position of the task, and the scout predicts a context's mean reward.
    reward = jnp.broadcast_to(jnp.arange(5.0)[:, None], data.reward.shape)
    collector = Collector(of_all, path)
    collector.explore(UNSEEN, states, data._replace(reward=reward), step=6, first=True)
    return next(collector.files.read())


def test_each_trajectory_is_in_the_physics_of_a_test_task(tmp_path):
    """Labels and buffers are of the task that is explored."""
    found, again = explored(tmp_path / "one"), explored(tmp_path / "other")
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)
    means = found.reward - found.action.sum(-1)
    np.testing.assert_allclose(means, np.repeat(found.task, found.length), atol=1e-5)

    tasks, starts = point_robot().tasks, found.starts[:-1]
    obs = found.obs.reshape(len(starts), HORIZON + 1, 2)
    drift = (obs[:, 1] - obs[:, 0] - 0.1 * found.action[starts]) / 0.01
    distance = np.abs(drift[:, None] - tasks).max(-1)
    assert distance.min(1).max() < 1e-3
    played = distance.argmin(1)
    assert set(played.tolist()) <= set(point_robot().splits["test"])
    assert len(starts) == 40
    assert len(set(played.tolist())) > 10
    # What the log tells is the return that the environment gave.
    true = -np.linalg.norm(obs[:, 1:] - tasks[played][:, None], axis=-1).sum(1)
    np.testing.assert_allclose(found.returned, true, rtol=1e-5)


@pytest.mark.parametrize(
    ("of_all", "message"),
    [
        (setting(RUN), "all tasks of point-robot/oyster-v1 have the same physics"),
        (drifting((("train", (0, 1)),)), "point-robot/oyster-v1 has no split of test tasks"),
    ],
)
def test_physics_that_change_nothing_or_are_of_no_task(of_all, message, tmp_path):
    with pytest.raises(InputError, match=f"exploration.physics: {message}"):
        Collector(of_all, tmp_path)


@pytest.mark.parametrize(
    ("exploration", "mark"),
    [
        (replace(UNSEEN, physics="own"), ""),
        (UNSEEN, "without their rewards"),
        (replace(UNSEEN, physics="own", test_tasks=True), "without their rewards"),
        (replace(SHORT, test_tasks=True), "with their rewards"),
    ],
)
def test_results_tell_how_test_tasks_were_explored(exploration: Exploration, mark, tmp_path):
    """Those after the first update behind an exploration; before it nothing was learned from."""
    algorithm = Scout(ScoutConfig(offline=5, exploration=exploration))
    states = jax.vmap(algorithm.init)(jax.random.split(jax.random.PRNGKey(0), 2))
    before, provenance = (
        provenance_of(
            algorithm,
            states._replace(step=jnp.full(2, step)),
            point_robot(),
            None,
            Labels((0, 1), (80,), (0,), 1),
            "",
        )
        for step in (5, 6)
    )
    assert before.test_tasks == ""
    assert provenance.test_tasks == mark
    result = make_result()
    source = replace(result.provenance, test_tasks=provenance.test_tasks)
    path = replace(result, provenance=source).save(tmp_path / "result.npz")
    notes = describe(EvalResult.load(path))
    marks = [note for note in notes if note.startswith("META-TRAINED IN TEST TASKS")]
    assert marks == [f"META-TRAINED IN TEST TASKS, {mark}"] * bool(mark)
