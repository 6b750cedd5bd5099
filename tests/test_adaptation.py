"""Adaptation that diverges for some seeds and tasks leaves them as they were, and is told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from fake_studies import make_study
from omrl import marks
from omrl.adaptation import adapt
from omrl.context import draw_contexts, without_data
from omrl.data.dataset import Dataset
from omrl.errors import InputError
from omrl.evaluate import EvalConfig, EvalResult, evaluate
from omrl.protocol import ExploreConfig
from omrl.results import circumstances
from omrl.studies.results import describe
from test_evaluate import (
    CONFIG,
    DISCOUNT,
    ENV,
    RUN_SEEDS,
    SPEC,
    STATES,
    TASKS,
    GoalSeeker,
    write_walks,
)

SHOTS = (0, 1, 2, 3)
NOTE = "ADAPTATION DIVERGED for 1 of 6 seeds and tasks (seed 7, task 80 in round 2): the outcome"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write_walks(tmp_path_factory.mktemp("data") / "walks")


@dataclass(frozen=True)
class Overshooter(GoalSeeker):
    """Every round brings its Task half of the way to the goal; where it begins at `hot` and goes to
    the goal of task 80 the second one divides by 0, and so would all later ones."""

    hot: float = float(STATES.guess[1, 0])
    everywhere: bool = False

    def begin(self, state, key):
        return jnp.append(state.guess, 0.0)

    def adapt(self, state, task, support, key):
        goal = GoalSeeker.adapt(self, state, task, support, key)
        near = jnp.abs(goal - jnp.asarray(ENV.tasks[80])).max() < 1e-3
        unstable = (near & (state.guess[0] == self.hot)) | self.everywhere
        growth = jnp.where(unstable & (task[2] > 0), jnp.inf, 1.0)
        return jnp.append(growth * (task[:2] + goal) / 2, task[2] + 1)

    def act(self, state, task, obs, key, deterministic):
        return GoalSeeker.act(self, state, task[:2], obs, key, deterministic)


def run(dataset: Dataset, algorithm: GoalSeeker, **changes) -> EvalResult:
    config = dataclasses.replace(CONFIG, **{"shots": SHOTS, **changes})
    contexts = draw_contexts(dataset, ENV, config, seeds=RUN_SEEDS, discount=DISCOUNT)
    return evaluate(algorithm, STATES, ENV, contexts, config, num_threads=1)


@pytest.fixture(scope="module")
def diverged(dataset) -> EvalResult:
    return run(dataset, Overshooter(SPEC))


def test_what_was_there_before_acts_from_then_on(dataset, diverged):
    calm = run(dataset, Overshooter(SPEC, hot=np.inf))
    assert calm.rounds_taken is None
    assert diverged.rounds_taken is not None
    np.testing.assert_array_equal(diverged.rounds_taken, [[3, 3, 3], [3, 1, 3]])
    there = (slice(None), slice(None), slice(None)), (1, TASKS.index(80))
    others = np.ones((2, 3), bool)
    others[there[1]] = False
    np.testing.assert_array_equal(diverged.returns[others], calm.returns[others])
    stuck, going_on = diverged.returns[there[1]], calm.returns[there[1]]
    np.testing.assert_array_equal(stuck[:2], going_on[:2])
    np.testing.assert_array_equal(stuck[2:], np.broadcast_to(stuck[1], stuck[2:].shape))
    assert (going_on[3] > stuck[3]).all()


def test_it_is_told_wherever_numbers_are(diverged, tmp_path):
    assert sum(NOTE in line for line in circumstances(diverged)) == 1
    assert diverged.to_json()["rounds_taken"] == [[3, 3, 3], [3, 1, 3]]
    again = EvalResult.load(diverged.save(tmp_path / "given.npz"))
    np.testing.assert_array_equal(again.rounds_taken, diverged.rounds_taken)
    many = dataclasses.replace(diverged, rounds_taken=np.zeros((2, 3), np.int64))
    (line,) = [line for line in circumstances(many) if "DIVERGED" in line]
    assert "for 6 of 6" in line
    assert line.count(" in round 1") == 4
    assert "; ...)" in line


def test_a_study_tells_of_which_context():
    study = make_study("context-size", shots=(0, 20))
    taken = np.full((2, 3), 20)
    taken[1, 0] = 6
    before, *after = study.results
    marked = [dataclasses.replace(result, rounds_taken=taken) for result in after]
    lines = describe(dataclasses.replace(study, results=(before, *marked)))
    assert len(marked) > 1
    told = [line for line in lines if "DIVERGED" in line]
    assert len(told) == len(marked)
    context = marked[0].config.context
    assert told[0].startswith(f"{context}: ADAPTATION DIVERGED for 1 of 6 seeds and tasks (seed 1")
    assert told == dataclasses.replace(study, results=(before, *marked)).to_json()["marks"]
    assert not any("DIVERGED" in line for line in describe(study))


@pytest.mark.parametrize("taken", [-1, 3, 4])
def test_a_damaged_count_is_refused(diverged, tmp_path, taken):
    damaged = dataclasses.replace(diverged, rounds_taken=np.full((2, 3), taken))
    with pytest.raises(InputError, match="rounds_taken must be 0 to 3, and somewhere fewer"):
        EvalResult.load(damaged.save(tmp_path / "given.npz"))


def test_fewer_rounds_are_those_of_more(dataset, diverged):
    fewer = run(dataset, Overshooter(SPEC), shots=(0, 1))
    assert fewer.rounds_taken is None
    np.testing.assert_array_equal(fewer.returns, diverged.returns[:, :, :2])


def test_all_may_diverge(dataset):
    result = run(dataset, Overshooter(SPEC, everywhere=True))
    assert result.rounds_taken is not None
    np.testing.assert_array_equal(result.rounds_taken, np.ones((2, 3)))
    np.testing.assert_array_equal(result.shot(3), result.shot(1))


@dataclass(frozen=True)
class Giant(GoalSeeker):
    """Its second round is finite, and its actions are not."""

    def begin(self, state, key):
        return jnp.append(state.guess, 1.0)

    def adapt(self, state, task, support, key):
        goal = GoalSeeker.adapt(self, state, task, support, key)
        return jnp.append(goal, jnp.where(task[2] > 1, 1e38, 2.0))

    def act(self, state, task, obs, key, deterministic):
        action = GoalSeeker.act(self, state, task[:2], obs, key, deterministic)
        return action * (task[2] * 1e3 / (task[2] * 1e3))


def test_finite_outcomes_that_cannot_act_are_not_taken(dataset):
    result = run(dataset, Giant(SPEC))
    assert result.rounds_taken is not None
    np.testing.assert_array_equal(result.rounds_taken, np.ones((2, 3)))
    np.testing.assert_array_equal(result.shot(2), result.shot(1))
    assert (result.shot(1) != result.shot(0)).any()


def test_reports_name_the_updates(diverged):
    last = dataclasses.replace(diverged, rounds_taken=None)
    (line,) = marks.by_updates([diverged, last])
    assert line.startswith("after 11 updates: ADAPTATION DIVERGED for 1 of 6")
    assert marks.in_log(diverged) == {"diverged": 1.0}
    assert marks.in_log(last) == {}


def test_rounds_are_counted_without_a_context():
    adapted = adapt(
        Overshooter(SPEC),
        STATES,
        None,
        seeds=RUN_SEEDS,
        tasks=TASKS,
        shots=(0,),
        context_seed=0,
    )
    assert adapted.tasks.shape == (2, 3, 1, 3)
    np.testing.assert_array_equal(adapted.rounds, np.zeros((2, 3)))


def test_explored_batches_can_diverge_too(tmp_path):
    """Of one seed on one task, in every repetition; all others are as if nobody had."""
    config = EvalConfig(
        protocol="explore",
        tasks=TASKS,
        episodes=3,
        shots=(0, 2),
        explore=ExploreConfig(episodes=2, rounds=3),
    )
    contexts = without_data(ENV, config, seeds=RUN_SEEDS, discount=DISCOUNT)

    def explored(algorithm: GoalSeeker, rounds: int = 3) -> EvalResult:
        asked = dataclasses.replace(config.explore, rounds=rounds)
        of = dataclasses.replace(config, explore=asked)
        return evaluate(algorithm, STATES, ENV, contexts, of, num_threads=1)

    diverged = explored(Overshooter(SPEC))
    assert diverged.rounds_taken is not None
    np.testing.assert_array_equal(diverged.rounds_taken, [[3, 3, 3], [3, 1, 3]])
    assert sum(NOTE in line for line in circumstances(diverged)) == 1
    calm = explored(Overshooter(SPEC, hot=np.inf))
    assert calm.rounds_taken is None
    others = np.ones((2, 3), bool)
    others[1, TASKS.index(80)] = False
    np.testing.assert_array_equal(diverged.returns[others], calm.returns[others])
    once = explored(Overshooter(SPEC, hot=np.inf), rounds=1)
    np.testing.assert_array_equal(diverged.returns[~others], once.returns[~others])
    again = EvalResult.load(diverged.save(tmp_path / "explore.npz"))
    np.testing.assert_array_equal(again.rounds_taken, diverged.rounds_taken)
