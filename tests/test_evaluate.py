"""The evaluator on the point robot, whose every return has a closed form."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from omrl.algorithm import Algorithm, Stage
from omrl.context import draw_contexts
from omrl.data.store import Dataset, create, open_dataset
from omrl.envs.engine import VectorEnv
from omrl.envs.point_robot import STEP_SIZE, PointRobot
from omrl.envs.registry import make
from omrl.errors import InputError, NonFiniteError
from omrl.evaluate import EvalConfig, EvalResult, evaluate
from omrl.nets.mlp import Dense
from omrl.types import Batch, Spec

ENV = make("point-robot/oyster-v1")
HORIZON = ENV.spec.horizon
TASKS = (83, 80, 91)
EPISODES_OF_DATA = 6
RUN_SEEDS = (4, 7)
DISCOUNT = 0.9
CONFIG = EvalConfig(tasks=TASKS, episodes=3, context_size=40, context_seed=5, episode_seed=2)

TRACES = Counter()
"""How often `GoalSeeker.act` was traced."""


class State(NamedTuple):
    step: Array
    guess: Array
    """Where to go before anything is known, [2]."""


@dataclass(frozen=True)
class GoalSeeker(Algorithm):
    """Its Task is the goal; adapting finds it by least squares, acting walks straight to it.

    reward = -|s' - g|, so reward^2 - |s'|^2 = -2 s'.g + |g|^2 is linear in (g, |g|^2).
    """

    spec: Spec
    config: str = ""

    def init(self, key: Array) -> State:
        return State(jnp.int32(0), jax.random.uniform(key, (2,)))

    def stages(self) -> tuple[Stage, ...]:
        return ()

    def begin(self, state: State, key: Array) -> Array:
        return state.guess

    def adapt(self, state: State, task: Array, support: Batch, key: Array) -> Array:
        points = support.next_obs
        columns = jnp.concatenate([-2 * points, jnp.ones_like(points[:, :1])], 1)
        return jnp.linalg.lstsq(columns, support.reward**2 - jnp.sum(points**2, 1))[0][:2]

    def observe(self, state: State, task: Array, step: Any, key: Array) -> Array:
        return task

    def act(self, state: State, task: Array, obs: Array, key: Array, deterministic: bool) -> Array:
        TRACES[self.config] += 1
        noise = 0.0 if deterministic else 0.1 * jax.random.normal(key, obs.shape)
        return jnp.clip((task - obs) / STEP_SIZE, -1.0, 1.0) + noise

    def policy_layers(self, state: State, task: Array) -> tuple[Dense, ...]:
        raise AssertionError("it is not exported: clipping is no tanh")


SPEC = Spec(obs_dim=2, act_dim=2, num_train_tasks=80, horizon=HORIZON)
ALGORITHM = GoalSeeker(SPEC)
STATES = State(jnp.full(2, 11, jnp.int32), jnp.array([[0.3, -0.2], [-0.5, 0.9]]))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write_walks(tmp_path_factory.mktemp("data") / "walks")


def write_walks(
    path: Path, tasks: tuple[int, ...] = TASKS, episodes: int = EPISODES_OF_DATA
) -> Dataset:
    """Random walks; task 91 does not know its oracle."""
    writer = create(path, ENV, command="test")
    for index in tasks:
        rng = np.random.default_rng(index)
        shape = (episodes, HORIZON, 2)
        action = rng.uniform(-1, 1, shape).astype(np.float32)
        start = rng.uniform(-1, 1, (episodes, 1, 2))
        states = np.concatenate([start, start + STEP_SIZE * np.cumsum(action, 1)], 1)
        terms = states[:, 1:]
        ends = np.zeros(shape[:2], bool)
        ends[:, -1] = True
        writer.write_task(
            index,
            behaviour={} if index == 91 else {"final_return": -float(index)},
            obs=states.reshape(-1, 2).astype(np.float32),
            action=action.reshape(-1, 2),
            reward=ENV.reward(terms, action, ENV.tasks[index]).ravel().astype(np.float32),
            terms=terms.reshape(-1, 2),
            terminated=np.zeros(ends.size, bool),
            truncated=ends.ravel(),
            episode_start=np.arange(episodes + 1) * HORIZON,
        )
    return writer.finish()


def run(dataset: Dataset, config: EvalConfig = CONFIG, *, seeds=RUN_SEEDS, states=STATES):
    contexts = draw_contexts(dataset, ENV, config, seeds=seeds, discount=DISCOUNT)
    return evaluate(ALGORITHM, states, ENV, contexts, config, num_threads=1)


@pytest.fixture(scope="module")
def result(dataset) -> EvalResult:
    return run(dataset)


def start_of(run_seed: int, task: int, episode: int, episode_seed: int = 2) -> np.ndarray:
    """The documented initial state."""
    vector = VectorEnv(ENV, ENV.tasks, seed=episode_seed * 2**32 + run_seed)
    vector.reset(episode)
    return vector.states[task]


def walk_return(start: np.ndarray, target: np.ndarray, goal: np.ndarray) -> float:
    """Return of walking straight to `target`, .1 per step and axis, when the goal is `goal`."""
    steps = np.arange(1, HORIZON + 1)[:, None]
    offset = target - start
    position = start + np.sign(offset) * np.minimum(np.abs(offset), STEP_SIZE * steps)
    return -float(np.linalg.norm(position - goal, axis=1).sum())


# --- Numbers ---


def test_returns_before_and_after_are_those_of_the_closed_form(result):
    for s, run_seed in enumerate(RUN_SEEDS):
        for t, task in enumerate(TASKS):
            goal = ENV.tasks[task]
            for e in range(CONFIG.episodes):
                start = start_of(run_seed, task, e)
                before = walk_return(start, np.asarray(STATES.guess[s]), goal)
                after = walk_return(start, goal, goal)
                assert result.returns[s, t, :, e] == pytest.approx([before, after], abs=1e-4)
    assert result.shot(1).mean() > result.shot(0).mean() + 5


@dataclass(frozen=True)
class Halver(GoalSeeker):
    """Every round brings its Task half of the remaining way to the goal."""

    def adapt(self, state, task, support, key):
        return (task + GoalSeeker.adapt(self, state, task, support, key)) / 2


def test_rounds_build_on_each_other(dataset):
    config = dataclasses.replace(CONFIG, shots=(0, 1, 3), tasks=(80,), episodes=1)
    contexts = draw_contexts(dataset, ENV, config, seeds=RUN_SEEDS, discount=DISCOUNT)
    returns = evaluate(Halver(SPEC), STATES, ENV, contexts, config).returns
    goal, start = ENV.tasks[80], start_of(RUN_SEEDS[0], 80, 0)
    offset = np.asarray(STATES.guess[0]) - goal
    expected = [walk_return(start, goal + offset / 2**n, goal) for n in config.shots]
    assert returns[0, 0, :, 0] == pytest.approx(expected, abs=1e-4)


def test_baselines_are_those_of_the_closed_form(result, dataset):
    for t, task in enumerate(TASKS):
        goal = ENV.tasks[task]
        still = [-HORIZON * np.linalg.norm(start_of(0, task, e) - goal) for e in range(3)]
        assert result.zero[t] == pytest.approx(still, abs=1e-5)
        data = dataset.task(task).reward.astype(np.float64).sum() / EPISODES_OF_DATA
        assert result.behaviour[t] == pytest.approx(data)
    assert result.oracle[:2].tolist() == [-83.0, -80.0]
    assert np.isnan(result.oracle[2])
    # A random walk of 20 steps of deviation .058 stays within 1.5 of where it began.
    assert np.abs(result.random - result.zero).max() < HORIZON * 1.5
    assert (result.random != result.zero).all()


def test_provenance(result, dataset):
    source = result.provenance
    assert (source.env_id, source.spec_hash) == (ENV.spec.id, ENV.spec.hash)
    assert (source.algorithm, source.step, source.seeds) == ("GoalSeeker", 11, RUN_SEEDS)
    assert (source.dataset, source.dataset_hash) == (str(dataset.path), dataset.manifest.hash)
    assert (result.task_parameters == ENV.tasks[list(TASKS)]).all()


# --- What must not change a number ---


def test_order_of_tasks_changes_nothing_and_labels_stay(result, dataset):
    order = [2, 0, 1]
    permuted = run(dataset, dataclasses.replace(CONFIG, tasks=tuple(TASKS[t] for t in order)))
    assert permuted.task_indices.tolist() == [91, 83, 80]
    assert (permuted.returns == result.returns[:, order]).all()
    for name in ("task_parameters", "random", "zero", "behaviour", "oracle"):
        assert np.array_equal(getattr(permuted, name), getattr(result, name)[order], equal_nan=True)


def test_a_seed_alone_equals_itself_among_others(result, dataset):
    alone = run(dataset, seeds=RUN_SEEDS[1:], states=jax.tree.map(lambda leaf: leaf[1:], STATES))
    assert alone.returns == pytest.approx(result.returns[1:], abs=1e-5)
    assert (alone.random == result.random).all()


def test_more_shots_and_episodes_keep_the_first(result, dataset):
    more = run(dataset, dataclasses.replace(CONFIG, shots=(0, 1, 2), episodes=4))
    assert more.returns.shape == (2, 3, 3, 4)
    assert more.returns[:, :, :2, :3] == pytest.approx(result.returns, abs=1e-6)
    assert (more.random[:, :3] == result.random).all()


def test_zero_shot_is_the_shot_before(result, dataset):
    config = dataclasses.replace(CONFIG, protocol="zero-shot", shots=(0,))
    assert run(dataset, config).returns == pytest.approx(result.returns[:, :, :1], abs=1e-6)
    without_data = evaluate(ALGORITHM, STATES, ENV, None, config)
    assert without_data.provenance.seeds == (0, 1)
    assert np.isnan(without_data.behaviour).all()
    assert (without_data.random == result.random).all()


def test_seeds_of_context_and_episodes_matter(result, dataset):
    other = run(dataset, dataclasses.replace(CONFIG, episode_seed=3))
    assert (other.returns != result.returns).any(axis=(0, 2, 3)).all()
    contexts = [
        draw_contexts(dataset, ENV, config, seeds=(0,), discount=DISCOUNT).batch
        for config in (CONFIG, dataclasses.replace(CONFIG, context_seed=6))
    ]
    assert (contexts[0].obs != contexts[1].obs).any()


def test_sampled_actions_are_paired_over_shots(dataset):
    # Guess 0 is the goal of task 80: adapting changes nothing, so neither may the noise.
    goal = jnp.asarray(ENV.tasks[80], jnp.float32)
    states = State(STATES.step, jnp.stack([goal, STATES.guess[1]]))
    config = dataclasses.replace(CONFIG, tasks=(80,), deterministic=False)
    sampled = run(dataset, config, states=states)
    assert sampled.returns[0, 0, 0] == pytest.approx(sampled.returns[0, 0, 1], abs=1e-3)
    assert sampled.returns[0, 0, 0] != pytest.approx(
        run(dataset, dataclasses.replace(config, deterministic=True), states=states).returns[
            0, 0, 0
        ],
        abs=1e-2,
    )


def test_acting_is_compiled_once(dataset):
    algorithm = GoalSeeker(SPEC, "counted")
    contexts = draw_contexts(dataset, ENV, CONFIG, seeds=RUN_SEEDS, discount=DISCOUNT)
    for _ in range(2):
        evaluate(algorithm, STATES, ENV, contexts, CONFIG)
    assert TRACES["counted"] == 2  # To try what was adapted, and to play.


# --- Contexts ---


def rows_of(batch: Batch, seed: int, task: int) -> np.ndarray:
    """(obs, action, reward) of a context, one row each."""
    parts = (batch.obs[seed, task], batch.action[seed, task], batch.reward[seed, task][:, None])
    return np.concatenate([np.asarray(part) for part in parts], 1)


def test_a_context_holds_only_its_own_task(dataset):
    """As reported in rlworkgroup/garage#1365: adaptation on another buffer than the task's own."""
    for tasks in (TASKS, TASKS[::-1]):
        config = dataclasses.replace(CONFIG, tasks=tasks)
        contexts = draw_contexts(dataset, ENV, config, seeds=RUN_SEEDS, discount=DISCOUNT)
        assert contexts.tasks == tasks
        for t, task in enumerate(tasks):
            for other in TASKS:
                next_obs = np.asarray(contexts.batch.next_obs[:, t])
                expected = -np.linalg.norm(next_obs - ENV.tasks[other], axis=-1)
                matches = np.isclose(contexts.batch.reward[:, t], expected, atol=1e-6)
                assert matches.all() if other == task else not matches.any()


def test_a_context_has_no_row_twice_and_spans_the_lifetime(dataset):
    num_rows = EPISODES_OF_DATA * HORIZON
    config = dataclasses.replace(CONFIG, context_size=num_rows)
    contexts = draw_contexts(dataset, ENV, config, seeds=RUN_SEEDS, discount=DISCOUNT)
    task = dataset.task(TASKS[0])
    obs = np.delete(task.obs, np.arange(1, EPISODES_OF_DATA + 1) * (HORIZON + 1) - 1, axis=0)
    whole = np.concatenate([obs, task.action, task.reward[:, None]], 1)
    drawn = rows_of(contexts.batch, 1, 0)
    assert (np.unique(drawn, axis=0) == np.unique(whole, axis=0)).all()
    assert (drawn != whole).any()


def test_contexts_differ_between_run_seeds(dataset):
    contexts = draw_contexts(dataset, ENV, CONFIG, seeds=(0, 1), discount=DISCOUNT)
    assert (rows_of(contexts.batch, 0, 0) != rows_of(contexts.batch, 1, 0)).any()


def test_whole_trajectories_in_time_order(dataset):
    config = dataclasses.replace(CONFIG, context_unit="trajectories", context_size=2)
    batch = draw_contexts(dataset, ENV, config, seeds=RUN_SEEDS, discount=DISCOUNT).batch
    assert batch.reward.shape == (2, 3, 2 * HORIZON)
    episodes = np.asarray(batch.next_obs).reshape(2, 3, 2, HORIZON, 2)
    obs = np.asarray(batch.obs).reshape(2, 3, 2, HORIZON, 2)
    assert (episodes[..., :-1, :] == obs[..., 1:, :]).all()
    assert (obs[:, :, 0] != obs[:, :, 1]).any()
    # Monte-Carlo returns run to the end of the recorded episode: the last is its reward.
    assert np.asarray(batch.mc_return)[..., HORIZON - 1] == pytest.approx(
        np.asarray(batch.reward)[..., HORIZON - 1]
    )


def test_slice_is_the_named_part(dataset):
    config = dataclasses.replace(CONFIG, context_slice="last-1", context_size=HORIZON)
    contexts = draw_contexts(dataset, ENV, config, seeds=(0,), discount=DISCOUNT)
    last = dataset.task(TASKS[1]).obs[-HORIZON - 1 : -1]
    assert (np.sort(contexts.batch.obs[0, 1], axis=0) == np.sort(last, axis=0)).all()


# --- Traces and ends ---


@dataclass(frozen=True)
class Fence(PointRobot):
    """A point robot whose episode ends where x exceeds .5."""

    def terminated(self, state):
        return state[..., 0] > 0.5


def test_trace_is_the_term_over_time():
    # To x = 2 from x0: x0 + .1 t, whatever the goal; mean over three episodes.
    config = EvalConfig(
        protocol="zero-shot", shots=(0,), tasks=TASKS, episodes=3, traces=("next_x", "next_y")
    )
    states = State(jnp.zeros(1, jnp.int32), jnp.array([[4.0, 0.0]]))
    result = evaluate(ALGORITHM, states, ENV, None, config)
    assert set(result.traces) == {"next_x", "next_y"}
    starts = [start_of(0, 83, episode, episode_seed=0)[0] for episode in range(3)]
    expected = np.mean(starts) + STEP_SIZE * np.arange(1, HORIZON + 1)
    assert result.traces["next_x"][0, 0, 0] == pytest.approx(expected, abs=1e-5)


def test_a_finished_episode_counts_no_more():
    env = Fence(ENV.spec, ENV.task_table, ENV.split_table)
    config = EvalConfig(
        protocol="zero-shot", shots=(0,), tasks=TASKS, episodes=1, traces=("next_x",)
    )
    states = State(jnp.zeros(1, jnp.int32), jnp.array([[4.0, 0.0]]))
    result = evaluate(ALGORITHM, states, env, None, config)
    for t, task in enumerate(TASKS):
        start = start_of(0, task, 0, episode_seed=0)
        x = start[0] + STEP_SIZE * np.arange(1, HORIZON + 1)
        steps = int((x <= 0.5).sum()) + 1  # the step that leaves is still rewarded
        y = start[1] - np.sign(start[1]) * np.minimum(
            abs(start[1]), STEP_SIZE * np.arange(1, HORIZON + 1)
        )
        distance = np.linalg.norm(np.stack([x, y], 1) - ENV.tasks[task], axis=1)
        assert result.returns[0, t, 0, 0] == pytest.approx(-distance[:steps].sum(), abs=1e-4)
        trace = result.traces["next_x"][0, t, 0]
        assert trace[:steps] == pytest.approx(x[:steps], abs=1e-5)
        assert np.isnan(trace[steps:]).all()


# --- Bad input ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "explore"}, r"shots: \(0, 1\) end before .* 2 trajectories.*--shots 0 2"),
        ({"protocol": "zero-shot"}, "it has only"),
        ({"shots": (1, 0)}, "ascending"),
        ({"shots": ()}, "ascending"),
        ({"tasks": (1, 1)}, "twice"),
        ({"context_slice": "begin"}, "context_slice: no slice 'begin'"),
    ],
)
def test_impossible_configs_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CONFIG, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": (), "split": "hidden"}, "split 'hidden' is not one of .*: train, test"),
        ({"tasks": (100,)}, "0 to 99"),
        ({"tasks": (5,)}, "no task 5"),
        ({"context_size": 121}, "120"),
        ({"context_unit": "trajectories", "context_size": 7}, "which has 6; ask for fewer"),
        ({"context_slice": "first-7"}, "has 6 episodes"),
        ({"traces": ("x_velocity",)}, "not a term of .*: choose .* next_x, next_y, or none"),
    ],
)
def test_what_the_data_cannot_give_is_refused(dataset, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        run(dataset, dataclasses.replace(CONFIG, **changes))
    assert "\n" not in str(caught.value)


def test_contexts_of_something_else_are_refused(dataset):
    contexts = draw_contexts(dataset, ENV, CONFIG, seeds=RUN_SEEDS, discount=DISCOUNT)

    def with_config(**changes):
        evaluate(ALGORITHM, STATES, ENV, contexts, dataclasses.replace(CONFIG, **changes))

    with pytest.raises(InputError, match="drawn with tasks"):
        with_config(tasks=TASKS[::-1])
    with pytest.raises(InputError, match="drawn with context 40 transitions"):
        with_config(context_size=41)
    with pytest.raises(InputError, match="drawn with context_seed 5"):
        with_config(context_seed=0)
    with pytest.raises(InputError, match="needs contexts"):
        evaluate(ALGORITHM, STATES, ENV, None, CONFIG)
    other = PointRobot(dataclasses.replace(ENV.spec, horizon=21), ENV.task_table, ENV.split_table)
    with pytest.raises(InputError, match="spec"):
        evaluate(ALGORITHM, STATES, other, contexts, CONFIG)
    with pytest.raises(InputError, match="spec"):
        draw_contexts(dataset, other, CONFIG, seeds=RUN_SEEDS, discount=DISCOUNT)


def test_states_that_do_not_fit_are_refused(dataset):
    contexts = draw_contexts(dataset, ENV, CONFIG, seeds=(0, 1, 2), discount=DISCOUNT)
    with pytest.raises(InputError, match="leading axis of 3 seeds"):
        evaluate(ALGORITHM, STATES, ENV, contexts, CONFIG)
    with pytest.raises(InputError, match="observations of 3"):
        evaluate(GoalSeeker(dataclasses.replace(SPEC, obs_dim=3)), STATES, ENV, contexts, CONFIG)


def test_an_action_that_is_not_finite_names_its_place(dataset):
    states = State(STATES.step, STATES.guess.at[1, 0].set(jnp.nan))
    with pytest.raises(NonFiniteError, match=r"step 0 .* seed 7, task 83, shot 0"):
        run(dataset, states=states)


@dataclass(frozen=True)
class Growing(GoalSeeker):
    def adapt(self, state, task, support, key):
        return jnp.concatenate([task, task])


def test_a_task_of_another_shape_is_refused(dataset):
    contexts = draw_contexts(dataset, ENV, CONFIG, seeds=RUN_SEEDS, discount=DISCOUNT)
    with pytest.raises(TypeError, match="adapt changed the Task"):
        evaluate(Growing(SPEC), STATES, ENV, contexts, CONFIG)


def test_reopened_data_gives_the_same_contexts(dataset):
    again = open_dataset(dataset.path)
    first, second = (
        draw_contexts(source, ENV, CONFIG, seeds=RUN_SEEDS, discount=DISCOUNT)
        for source in (dataset, again)
    )
    assert (first.batch.obs == second.batch.obs).all()
