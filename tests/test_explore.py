"""Protocol `explore` on the point robot, by methods that tell in their actions what they know."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import tiny_macaw
from omrl.algorithm import Algorithm
from omrl.context import Contexts, draw_contexts, without_data
from omrl.data.online import Trajectories
from omrl.envs import registry
from omrl.envs.point_robot import STEP_SIZE
from omrl.errors import InputError
from omrl.evaluate import EvalConfig, EvalResult, evaluate
from omrl.explore import NEXT_TRAJECTORY, joined
from omrl.protocol import EXPLORE, ExploreConfig, exploring
from omrl.results import describe
from omrl.types import Spec
from test_evaluate import (
    DISCOUNT,
    ENV,
    HORIZON,
    RUN_SEEDS,
    SPEC,
    STATES,
    TASKS,
    Fence,
    GoalSeeker,
    start_of,
    walk_return,
    write_walks,
)

CONFIG = EvalConfig(protocol="explore", tasks=TASKS, episodes=3, shots=(0, 2), episode_seed=2)
WITNESSED = dataclasses.replace(
    CONFIG, tasks=TASKS[:1], episodes=1, shots=(0, 3), traces=("next_x", "next_y")
)


def nothing(config: EvalConfig, env: Any = ENV) -> Contexts:
    return without_data(env, config, seeds=RUN_SEEDS, discount=DISCOUNT)


def run(algorithm: Algorithm, config: EvalConfig, env: Any = ENV) -> EvalResult:
    return evaluate(algorithm, STATES, env, nothing(config, env), config, num_threads=1)


# --- A method that tells what it knows ---


class Account(NamedTuple):
    draws: Array
    seen: Array
    """Transitions."""


@dataclass(frozen=True)
class Witness(Algorithm):
    """Moves by a thousandth of a step along x per draw and along y per transition it has seen."""

    spec: Spec
    config: str = ""

    def init(self, key: Array) -> Any:
        raise AssertionError("its states are given")

    def stages(self) -> tuple[()]:
        return ()

    def begin(self, state: Any, key: Array) -> Account:
        return Account(jnp.float32(0), jnp.float32(0))

    def adapt(self, state: Any, task: Account, support: Any, key: Array) -> Account:
        return task._replace(seen=task.seen + support.reward.shape[0])

    def observe(self, state: Any, task: Account, step: Any, key: Array) -> Account:
        return task._replace(seen=task.seen + 1)

    def resample(self, state: Any, task: Account, key: Array) -> Account:
        return task._replace(draws=task.draws + 1)

    def act(self, state: Any, task: Account, obs: Array, key: Array, deterministic: bool) -> Array:
        sampled = 0.0 if deterministic else 0.5
        return jnp.stack([task.draws, task.seen]) / 1000 + sampled

    def policy_layers(self, state: Any, task: Any) -> Any:
        raise AssertionError("it is not exported")


@dataclass(frozen=True)
class ByTrajectory(Witness):
    online_context: ClassVar = "trajectory"


@dataclass(frozen=True)
class ByStep(Witness):
    online_context: ClassVar = "step"


def accounts(result: EvalResult) -> np.ndarray:
    """(draws, seen) at every step of every trajectory, of the first seed: [trajectory, time, 2].
    Sampled actions have 500 more of both."""
    starts = [
        start_of(RUN_SEEDS[0], TASKS[0], number * NEXT_TRAJECTORY)
        for number in range(result.returns.shape[2])
    ]
    after = np.stack([result.traces[name][0, 0] for name in ("next_x", "next_y")], -1)
    at = np.concatenate([np.stack(starts)[:, None], after], 1)
    return np.round(np.diff(at, axis=1) / STEP_SIZE * 1000, 2)


def steps(first: float, change: float = 0.0) -> np.ndarray:
    return first + change * np.arange(HORIZON)


def expected(*columns: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.stack([np.stack(pair, -1) for pair in columns])


def test_a_posterior_is_refreshed_after_every_trajectory_beyond_those_of_exploration():
    by_trajectory = accounts(run(ByTrajectory(SPEC), WITNESSED))
    seen = (0, 0, 2 * HORIZON, 3 * HORIZON)
    each = expected(*((steps(1), steps(number)) for number in seen))
    np.testing.assert_allclose(by_trajectory, each, atol=0.02)


def test_a_guess_is_drawn_before_every_step_if_so_asked():
    every = dataclasses.replace(WITNESSED, explore=ExploreConfig(resample_every="step"))
    seen = (0, 0, 2 * HORIZON, 3 * HORIZON)
    each = expected(*((steps(1, 1), steps(number)) for number in seen))
    np.testing.assert_allclose(accounts(run(ByTrajectory(SPEC), every)), each, atol=0.02)


def test_a_method_that_learns_at_once_carries_its_task_on():
    each = expected(*((steps(n + 1), steps(n * HORIZON, 1)) for n in range(4)))
    np.testing.assert_allclose(accounts(run(ByStep(SPEC), WITNESSED)), each, atol=0.02)


def test_a_method_of_batches_explores_with_sampled_actions_and_adapts_to_all_in_rounds():
    twice = dataclasses.replace(WITNESSED, explore=ExploreConfig(rounds=2))
    found = accounts(run(Witness(SPEC), twice))
    seen = (500, 500, 2 * 2 * HORIZON, 2 * 3 * HORIZON)
    draws = (501, 501, 1, 1)
    each = expected(*((steps(d), steps(s)) for d, s in zip(draws, seen, strict=True)))
    np.testing.assert_allclose(found, each, atol=0.02)


@pytest.mark.parametrize(
    ("explore", "deterministic", "sampled"),
    [("sampled", True, (1, 1, 0, 0)), ("deterministic", False, (0, 0, 1, 1))],
)
def test_actions_before_and_after_adaptation_can_be_chosen(explore, deterministic, sampled):
    config = dataclasses.replace(
        WITNESSED, deterministic=deterministic, explore=ExploreConfig(actions=explore)
    )
    draws = accounts(run(ByTrajectory(SPEC), config))[:, 0, 0]
    np.testing.assert_allclose(draws, 1 + 500 * np.array(sampled), atol=0.02)


def test_what_ended_early_is_not_seen():
    env = Fence(ENV.spec, ENV.task_table, ENV.split_table)
    config = dataclasses.replace(WITNESSED, explore=ExploreConfig(actions="sampled"))
    found = accounts(run(ByTrajectory(SPEC), config, env))
    lengths = np.isfinite(found[..., 0]).sum(1)
    assert lengths[0] < HORIZON
    np.testing.assert_allclose(found[2, 0, 1], lengths[:2].sum(), atol=0.02)
    np.testing.assert_allclose(found[3, 0, 1], lengths[:3].sum(), atol=0.02)


# --- Numbers ---


@pytest.fixture(scope="module")
def result() -> EvalResult:
    return run(GoalSeeker(SPEC), CONFIG)


def test_returns_are_those_of_the_closed_form(result):
    """What is explored suffices to find the goal exactly; then the robot walks straight to it."""
    config = dataclasses.replace(CONFIG, explore=ExploreConfig(actions="deterministic", episodes=1))
    straight = run(GoalSeeker(SPEC), config)
    for s, run_seed in enumerate(RUN_SEEDS):
        for t, task in enumerate(TASKS):
            goal = ENV.tasks[task]
            for e in range(CONFIG.episodes):
                first, *_, last = (
                    start_of(run_seed, task, n * NEXT_TRAJECTORY + e) for n in range(3)
                )
                best = walk_return(last, goal, goal)
                assert result.returns[s, t, 2, e] == pytest.approx(best, abs=1e-2)
                guess = np.asarray(STATES.guess[s])
                unknown = walk_return(first, guess, goal)
                assert straight.returns[s, t, 0, e] == pytest.approx(unknown, abs=1e-4)
    assert (result.returns[:, :, :2] != straight.returns[:, :, :2]).all()
    assert (result.shot(2) == result.returns[:, :, 2]).all()


def test_success_is_known_of_every_trajectory():
    env = registry.make("sparse-point-robot/borel-v1")
    config = dataclasses.replace(CONFIG, tasks=(0, 5))
    found = run(GoalSeeker(SPEC), config, env)
    assert found.success is not None
    assert found.success.shape == found.returns.shape
    np.testing.assert_array_equal(found.success == 1, found.returns > 0)


def test_a_part_of_an_evaluation_repeats_its_numbers(result):
    """Of seeds, tasks, repetitions and trajectories, in another order."""
    config = dataclasses.replace(CONFIG, tasks=TASKS[::-1][:2], episodes=2, shots=(3,))
    states = jax.tree.map(lambda leaf: leaf[1:], STATES)
    contexts = without_data(ENV, config, seeds=RUN_SEEDS[1:], discount=DISCOUNT)
    part = evaluate(GoalSeeker(SPEC), states, ENV, contexts, config, num_threads=1)
    np.testing.assert_array_equal(part.returns[0, :, :2], result.returns[1, ::-1][:2, :2, :2])
    np.testing.assert_allclose(part.returns[0, :, 2], result.returns[1, ::-1][:2, 2, :2], rtol=1e-4)


def test_baselines_are_those_of_the_other_protocols(result):
    zero_shot = EvalConfig(
        protocol="zero-shot", shots=(0,), tasks=TASKS, episodes=3, episode_seed=2
    )
    other = evaluate(GoalSeeker(SPEC), STATES, ENV, nothing(zero_shot), zero_shot, num_threads=1)
    np.testing.assert_array_equal(result.random, other.random)
    np.testing.assert_array_equal(result.zero, other.zero)
    assert np.isnan(result.behaviour).all()


def test_data_adds_behaviour_and_nothing_else(result, tmp_path):
    data = write_walks(tmp_path / "walks")
    contexts = draw_contexts(data, ENV, CONFIG, seeds=RUN_SEEDS, discount=DISCOUNT)
    assert contexts.batch is None
    with_data = evaluate(GoalSeeker(SPEC), STATES, ENV, contexts, CONFIG, num_threads=1)
    np.testing.assert_array_equal(with_data.returns, result.returns)
    assert np.isfinite(with_data.behaviour).all()
    assert any("behaviour and oracle of data" in line for line in describe(with_data))


@pytest.mark.parametrize(
    "make",
    [tiny_macaw.make, tiny_macaw.make_mt_awr, tiny_macaw.make_meta_bc, tiny_macaw.make_pearl],
    ids=["macaw", "mt-awr", "meta-bc", "pearl"],
)
def test_every_method_can(make):
    algorithm = make(Spec(obs_dim=2, act_dim=2, num_train_tasks=80, horizon=HORIZON))
    states = jax.vmap(algorithm.init)(jax.random.split(jax.random.PRNGKey(0), 2))
    config = dataclasses.replace(CONFIG, episodes=2)
    found = evaluate(algorithm, states, ENV, nothing(config), config, num_threads=1)
    assert found.returns.shape == (2, 3, 3, 2)
    assert np.isfinite(found.returns).all()
    same_start = dataclasses.replace(config, explore=ExploreConfig(episodes=1))
    sooner = evaluate(algorithm, states, ENV, nothing(same_start), same_start, num_threads=1)
    np.testing.assert_array_equal(sooner.returns[:, :, 0], found.returns[:, :, 0])
    assert (sooner.returns[:, :, 1] != found.returns[:, :, 1]).any()


# --- What was seen, as a batch ---


def test_a_batch_is_filled_with_what_there_is():
    def trajectories(first: float, length: int) -> Trajectories:
        obs = first + np.arange(4, dtype=np.float32)
        return Trajectories(
            obs=obs[None, None, None, :, None],
            action=obs[None, None, None, :3, None],
            reward=obs[None, None, None, :3],
            length=np.full((1, 1, 1), length),
            terminated=np.full((1, 1, 1), length < 3),
        )

    batch = joined([trajectories(0, 2), trajectories(10, 3)], 1.0)
    np.testing.assert_array_equal(batch.reward[0, 0, 0], [0, 1, 10, 11, 12, 0])
    np.testing.assert_array_equal(batch.next_obs[0, 0, 0, :, 0], [1, 2, 11, 12, 13, 1])
    np.testing.assert_array_equal(batch.mc_return[0, 0, 0], [1, 1, 33, 23, 12, 1])
    np.testing.assert_array_equal(batch.terminated[0, 0, 0], [0, 1, 0, 0, 0, 0])


# --- Settings, words, files ---


def test_paper_and_code_differ_in_when_a_guess_is_drawn():
    own = EvalConfig(tasks=(3,), traces=("next_x",), context_size=9)
    paper, code = (exploring(name, own) for name in EXPLORE)
    assert dataclasses.replace(paper, explore=code.explore) == code
    assert (paper.explore.resample_every, code.explore.resample_every) == ("trajectory", "step")
    assert (code.tasks, code.shots, code.episodes, code.rounds) == ((3,), (0, 1, 2), 4, (1,))
    with pytest.raises(InputError, match=r"no settings 'explore-ode'.*explore-code"):
        exploring("explore-ode", own)


def test_what_was_done_is_told_and_kept(result, tmp_path):
    told = "\n".join(describe(result))
    assert "protocol explore; context: 2 trajectories of its own (sampled actions if" in told
    assert "guesses of the task are drawn every trajectory" in told
    assert "trajectory 3: IQM" in told
    loaded = EvalResult.load(result.save(tmp_path / "explore.npz"))
    assert loaded.config == CONFIG
    np.testing.assert_array_equal(loaded.returns, result.returns)
    assert loaded.to_json()["summary"].keys() == {"0", "2"}


def test_bad_settings_are_one_line():
    with pytest.raises(InputError, match=r"needs the run's seeds and discount.*without_data"):
        evaluate(GoalSeeker(SPEC), STATES, ENV, None, CONFIG)
    with pytest.raises(InputError, match="'given' needs contexts"):
        nothing(EvalConfig(tasks=TASKS))
