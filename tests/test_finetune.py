"""Online fine-tuning on the point robot, where a learner's every return has a closed form."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from omrl.algorithm import Algorithm
from omrl.context import Contexts, draw_contexts
from omrl.data.store import Dataset
from omrl.errors import InputError
from omrl.evaluate import EvalConfig, EvalResult, How, evaluate
from omrl.protocol import finetuning
from omrl.tuning import FinetuneConfig
from omrl.types import Batch
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
    State,
    start_of,
    walk_return,
    write_walks,
)
from test_evaluate import TRACES as EVALUATE_TRACES

TRACES = Counter()
"""How often `tune` was traced."""

SETTINGS = FinetuneConfig(
    rounds=0, burn_in=3, value_steps=5, policy_steps=5, batch_size=16, eval_every=0
)
CONFIG = EvalConfig(
    protocol="finetune",
    tasks=TASKS,
    episodes=2,
    shots=(0, 2, 3, 6),
    context_size=40,
    context_seed=5,
    episode_seed=2,
    finetune=SETTINGS,
)


class Tuning(NamedTuple):
    guess: Array
    marked: Array
    """Whether a batch held a transition of a marked context."""


@dataclass(frozen=True)
class OnlineSeeker(GoalSeeker):
    """Every step brings the guess a tenth of the way to the goal: the value's along x, the policy's
    along y. The goal is found by least squares in the batch, exactly in any that is not on a line.
    """

    def begin_tuning(self, state: Any, task: Array, key: Array) -> Tuning:
        return Tuning(task, jnp.bool_(False))

    def tune(self, state: Any, tuning: Tuning, batch: Batch, key: Array) -> Tuning:
        TRACES[self.config] += 1
        return self._towards(tuning, batch, jnp.array([0.1, 0.1]))

    def tune_value(self, state: Any, tuning: Tuning, batch: Batch, key: Array) -> Tuning:
        return self._towards(tuning, batch, jnp.array([0.1, 0.0]))

    def tune_policy(self, state: Any, tuning: Tuning, batch: Batch, key: Array) -> Tuning:
        return self._towards(tuning, batch, jnp.array([0.0, 0.1]))

    def tuned(self, state: Any, tuning: Tuning) -> Array:
        return tuning.guess

    def _towards(self, tuning: Tuning, batch: Batch, share: Array) -> Tuning:
        goal = GoalSeeker.adapt(self, None, tuning.guess, batch, None)
        marked = tuning.marked | jnp.any(batch.terminal_discount > 1)
        return Tuning(tuning.guess + share * (goal - tuning.guess), marked)


@dataclass(frozen=True)
class Drifter(OnlineSeeker):
    """Walks to where its batches are, and a little beside it: all that is random changes it."""

    def tune(self, state: Any, tuning: Tuning, batch: Batch, key: Array) -> Tuning:
        beside = 0.01 * jax.random.normal(key, (2,))
        return tuning._replace(guess=jnp.mean(batch.next_obs, 0) + beside)


@dataclass(frozen=True)
class Witness(OnlineSeeker):
    """Walks to (3, 3) once it has seen a marked context, else to the origin."""

    def tuned(self, state: Any, tuning: Tuning) -> Array:
        return jnp.where(tuning.marked, 3.0, 0.0) * jnp.ones(2)


LEARNER = OnlineSeeker(SPEC)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write_walks(tmp_path_factory.mktemp("data") / "walks")


def contexts_of(data: Dataset, config: EvalConfig, seeds=RUN_SEEDS) -> Contexts:
    return draw_contexts(data, ENV, config, seeds=seeds, discount=DISCOUNT)


def run(data: Dataset, config: EvalConfig = CONFIG, learner=LEARNER, **how: Any) -> EvalResult:
    contexts = contexts_of(data, config)
    return evaluate(learner, STATES, ENV, contexts, config, num_threads=1, how=How(**how))


def changed(**settings: Any) -> EvalConfig:
    return dataclasses.replace(CONFIG, finetune=dataclasses.replace(SETTINGS, **settings))


@pytest.fixture(scope="module")
def result(dataset) -> EvalResult:
    return run(dataset)


def expected(steps: tuple[int, int], seed: int, task: int, episode: int) -> float:
    """Return after so many steps along x and y."""
    goal, guess = ENV.tasks[TASKS[task]], np.asarray(STATES.guess[seed])
    target = goal + (guess - goal) * 0.9 ** np.array(steps)
    return walk_return(start_of(RUN_SEEDS[seed], TASKS[task], episode), target, goal)


# --- Numbers ---


def check(result: EvalResult, steps: list[tuple[int, int]]) -> None:
    for seed, task, episode in np.ndindex(2, 3, 2):
        returns = [expected(n, seed, task, episode) for n in steps]
        assert result.returns[seed, task, :, episode] == pytest.approx(returns, abs=1e-2)


def test_the_curve_is_the_closed_form_with_so_many_steps_and_none_before_the_burn_in(result):
    # 5 steps with every trajectory from the third on.
    check(result, [(0, 0), (0, 0), (5, 5), (20, 20)])
    assert result.shot(6).mean() > result.shot(0).mean() + 5


@pytest.mark.parametrize("interleaved", [False, True])
def test_value_and_policy_may_have_other_numbers_of_steps(dataset, interleaved):
    config = changed(interleaved=interleaved, value_steps=3, policy_steps=7, burn_in=0)
    config = dataclasses.replace(config, shots=(0, 1, 2))
    check(run(dataset, config), [(0, 0), (3, 7), (6, 14)])


def test_offline_rounds_come_first(dataset):
    config = dataclasses.replace(changed(rounds=1), shots=(0,))
    given = dataclasses.replace(CONFIG, protocol="given", shots=(1,))
    assert run(dataset, config).returns == pytest.approx(run(dataset, given).returns, abs=1e-5)


def test_environment_steps_are_counted_and_name_the_shots(result):
    assert (result.env_steps == HORIZON * np.array([0, 2, 3, 6])).all()
    assert list(map(result.shot_name, CONFIG.shots)) == [
        "0 steps",
        "40 steps",
        "60 steps",
        "120 steps",
    ]
    assert np.isfinite(result.random).all()
    assert np.isfinite(result.zero).all()


def test_the_curve_has_points_between_the_shots(dataset, result):
    curve = run(dataset, dataclasses.replace(changed(eval_every=2), shots=(0, 3, 6)))
    assert curve.config.points == (0, 2, 3, 4, 6)
    for number in (0, 2, 3, 6):
        assert curve.shot(number) == pytest.approx(result.shot(number), abs=1e-5)
    as_json = curve.to_json()
    assert list(as_json["summary"]) == ["0", "3", "6"]
    assert [point["env_steps"] for point in as_json["curve"]] == [0, 40, 60, 80, 120]
    assert as_json["curve"][3]["mean"]["value"] == pytest.approx(curve.shot(4).mean())


# --- What must not change a number ---


@pytest.fixture(scope="module")
def drifted(dataset) -> EvalResult:
    return run(dataset, learner=Drifter(SPEC))


def test_a_subset_of_tasks_and_seeds_gives_the_same(dataset, drifted):
    config = dataclasses.replace(CONFIG, tasks=TASKS[:0:-1])
    contexts = contexts_of(dataset, config, RUN_SEEDS[1:])
    states = jax.tree.map(lambda leaf: leaf[1:], STATES)
    part = evaluate(Drifter(SPEC), states, ENV, contexts, config)
    assert part.returns == pytest.approx(drifted.returns[1:, :0:-1], abs=1e-4)
    assert (part.random == drifted.random[:0:-1]).all()


def test_groups_of_tasks_give_the_same(dataset, drifted):
    for tasks_at_once in (1, 2):
        lines = []
        how = {"tasks_at_once": tasks_at_once, "report": lines.append}
        grouped = run(dataset, learner=Drifter(SPEC), **how)
        assert grouped.returns == pytest.approx(drifted.returns, abs=1e-4)
        assert (grouped.env_steps == drifted.env_steps).all()
        assert (grouped.zero == drifted.zero).all()
        groups = -(-len(TASKS) // tasks_at_once)
        assert len(lines) == groups * len(CONFIG.shots)
        assert f"group {groups} of {groups}, tasks 91: 6 of 6 trajectories, ETA 0:00" in lines[-1]


def test_learners_side_by_side_as_on_a_gpu_give_the_same(dataset, drifted, monkeypatch):
    monkeypatch.setattr("omrl.learner.side_by_side", lambda states: True)
    assert run(dataset, learner=Drifter(SPEC)).returns == pytest.approx(drifted.returns, abs=1e-4)
    config = dataclasses.replace(changed(batch_size=61, sampling="without_replacement"))
    check(run(dataset, dataclasses.replace(config, shots=(1, 3))), [(0, 0), (5, 5)])


def test_fewer_trajectories_and_other_points_give_the_same(dataset, drifted):
    config = dataclasses.replace(changed(eval_every=1), shots=(0, 3), episodes=1)
    part = run(dataset, config, Drifter(SPEC))
    assert part.shot(3) == pytest.approx(drifted.shot(3)[..., :1], abs=1e-4)


def test_seeds_tasks_and_evaluation_seeds_matter(dataset, drifted):
    other = run(dataset, dataclasses.replace(CONFIG, episode_seed=3, shots=(0, 3)), Drifter(SPEC))
    assert (other.shot(3) != drifted.shot(3)).all()
    # One seed and task more than once would learn the same.
    last = drifted.shot(6)[..., 0].ravel()
    assert len(set(last.round(3).tolist())) == last.size


def test_other_trajectories_are_collected_than_measured_and_each_is_another(dataset):
    seen = []

    @dataclass(frozen=True)
    class Recorder(OnlineSeeker):
        def act(self, state, task, obs, key, deterministic):
            if not deterministic:
                jax.debug.callback(lambda key, obs: seen.append((key, obs)), key, obs)
            return OnlineSeeker.act(self, state, task, obs, key, deterministic)

    run(dataset, dataclasses.replace(CONFIG, shots=(0, 2)), Recorder(SPEC))
    assert len(seen) == 2 * len(RUN_SEEDS) * len(TASKS) * HORIZON
    assert len({tuple(np.asarray(key).tolist()) for key, _ in seen}) == len(seen)
    starts = {tuple(start_of(s, t, e).tolist()) for s in RUN_SEEDS for t in TASKS for e in range(2)}
    observed = {tuple(np.asarray(obs, np.float64).round(5).tolist()) for _, obs in seen}
    assert not observed & {tuple(np.round(start, 5)) for start in starts}


def test_every_gradient_step_has_randomness_of_its_own(dataset):
    keys = []

    @dataclass(frozen=True)
    class Recorder(OnlineSeeker):
        def tune(self, state, tuning, batch, key):
            record = lambda key, obs: keys.append((*key.tolist(), *obs.tolist()))  # noqa: E731
            jax.debug.callback(record, key, batch.obs.ravel())
            return OnlineSeeker.tune(self, state, tuning, batch, key)

    run(dataset, CONFIG, Recorder(SPEC))
    # 5 steps with each of trajectories 3 to 6.
    assert len(keys) == len(RUN_SEEDS) * len(TASKS) * 5 * 4
    assert len({key[:2] for key in keys}) == len({key[2:] for key in keys}) == len(keys)


def test_nothing_is_compiled_again_for_another_trajectory(dataset):
    learner = OnlineSeeker(SPEC, "counted")
    for _ in range(2):
        run(dataset, CONFIG, learner)
    assert TRACES["counted"] == 1 + 2  # each evaluation traces one step to see that it can
    assert EVALUATE_TRACES["counted"] == 2  # with and without noise


# --- The buffer ---


def marked(dataset: Dataset, config: EvalConfig) -> bool:
    """Whether the learners saw the context, which has to be the same for all."""
    contexts = contexts_of(dataset, config)
    context = contexts.batch._replace(terminal_discount=7 + 0 * contexts.batch.reward)
    contexts = dataclasses.replace(contexts, batch=context)
    last = evaluate(Witness(SPEC), STATES, ENV, contexts, config).returns[:, :, -1, 0]
    places = [
        [
            [
                walk_return(start_of(seed, task, 0), np.full(2, place), ENV.tasks[task])
                for task in TASKS
            ]
            for seed in RUN_SEEDS
        ]
        for place in (0.0, 3.0)
    ]
    saw_none, saw = (last == pytest.approx(np.array(each), abs=1e-3) for each in places)
    assert saw_none != saw
    return saw


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, True),
        ({"keep_context": False}, False),
        # 40 of the context, then 20 with every trajectory: room for the last two of them.
        ({"buffer_size": 40, "burn_in": 1}, True),
        ({"buffer_size": 40, "burn_in": 2}, False),
        ({"buffer_size": 45, "burn_in": 2}, True),
        # With fewer transitions than a batch no step is taken: the last trajectory makes it full.
        ({"batch_size": 100, "sampling": "without_replacement"}, True),
    ],
)
def test_the_context_is_learned_from_while_it_is_in_the_buffer(dataset, settings, seen):
    config = dataclasses.replace(changed(**settings), shots=(3,), episodes=1)
    assert marked(dataset, config) == seen


# --- Early ends ---


def test_a_trajectory_that_ends_early_has_its_length(dataset):
    env = Fence(ENV.spec, ENV.task_table, ENV.split_table)
    config = dataclasses.replace(changed(burn_in=100), shots=(0, 1), episodes=1)
    states = State(STATES.step, jnp.array([[4.0, 0.0], [-4.0, 0.0]]))
    result = evaluate(LEARNER, states, env, contexts_of(dataset, config), config)
    # Straight to x = 4 the fence at .5 is passed in at most 15 steps, with noise in a few more;
    # to x = -4 it never is.
    assert (result.env_steps[0, :, 1] < HORIZON).all()
    assert (result.env_steps[1, :, 1] == HORIZON).all()
    steps = result.env_steps[:, :, 1].mean()
    assert result.shot_name(1) == f"about {steps:,.0f} steps"


# --- Interruptions ---


class BreakError(Exception):
    pass


def test_finished_tasks_are_not_done_again(dataset, result, tmp_path):
    file = tmp_path / "result.npz.unfinished"
    lines = []

    def stops(line: str) -> None:
        lines.append(line)
        if "group 2 of 3" in line and "3 of 6" in line:
            raise BreakError

    with pytest.raises(BreakError):
        run(dataset, tasks_at_once=1, unfinished=file, report=stops)
    again = []
    whole = run(dataset, tasks_at_once=1, unfinished=file, report=again.append)
    assert whole.returns == pytest.approx(result.returns, abs=1e-4)
    assert (whole.env_steps == result.env_steps).all()
    assert (whole.random == result.random).all()
    assert "group 1 of 2, tasks 80: 0 of 6" in again[0]
    assert run(dataset, unfinished=file).returns == pytest.approx(whole.returns, abs=0)


def test_an_interruption_loses_nothing_that_was_measured(dataset, tmp_path):
    file = tmp_path / "part"

    def stops(line: str) -> None:
        if "3 of 6" in line:
            raise BreakError

    with pytest.raises(BreakError):
        run(dataset, unfinished=file, report=stops)
    with np.load(file, allow_pickle=False) as arrays:
        assert np.isfinite(arrays["returns"][:, :, :3]).all()
        assert np.isnan(arrays["returns"][:, :, 3]).all()


def test_what_is_unfinished_of_something_else_is_refused(dataset, tmp_path):
    file = tmp_path / "part"
    run(dataset, unfinished=file)
    with pytest.raises(InputError, match="unfinished evaluation of something else; delete it"):
        run(dataset, changed(burn_in=4), unfinished=file)
    file.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"part: damaged .*; delete it to begin again"):
        run(dataset, unfinished=file)


# --- Settings ---


def test_named_settings_are_those_of_paper_and_code():
    own = EvalConfig(tasks=(3,), episodes=1, shots=(0, 1), context_size=8, deterministic=False)
    paper, code = (finetuning(name, own) for name in ("finetune-paper", "finetune-code"))
    for config in (paper, code):
        assert (config.protocol, config.tasks, config.context_size) == ("finetune", (3,), 256)
        assert config.deterministic
        assert config.rounds == (1,)
    assert paper.shots == (0, 50, 100, 1000)  # 0, 10k, 20k and 200k steps of 200 a trajectory
    assert paper.episodes == 10
    assert len(paper.points) == 101
    assert (paper.finetune.burn_in, paper.finetune.value_steps) == (5, 100)
    assert (paper.finetune.keep_context, paper.finetune.buffer_size) == (True, 0)
    assert code.finetune == FinetuneConfig(
        rounds=1,
        burn_in=27,  # eval_step > 25, after trajectory eval_step, from 0, was stored
        value_steps=100,
        policy_steps=200,
        interleaved=False,
        batch_size=256,
        sampling="without_replacement",
        keep_context=False,
        buffer_size=50_000,
        eval_every=1,
        value_lr=1e-5,
        policy_lr=1e-5,
    )
    assert (code.episodes, code.shots[-1], len(code.points)) == (3, 500, 501)
    with pytest.raises(InputError, match="no settings 'finetune-papers'; did you mean"):
        finetuning("finetune-papers", own)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buffer_size": 8}, "buffer_size: 8 holds no batch of 16; take more"),
        ({"burn_in": -1}, "burn_in: -1 is not a whole number from 0"),
        ({"value_lr": 0.0}, "value_lr: 0.0 is not a number from"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        changed(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "5 gradient steps per trajectory from the 3rd on, on batches of 16 from context and"),
        ({"value_steps": 1}, "1 value step and 5 policy steps by turns per trajectory"),
        ({"interleaved": False, "burn_in": 0}, "5 value steps, then 5 policy steps per trajectory"),
        ({"keep_context": False}, "from all trajectories"),
        ({"buffer_size": 5000}, "from the last 5,000 transitions of context and all trajectories"),
        ({"burn_in": 27}, "from the 27th on"),
        (
            {"parameters": "generated", "policy_lr": 1e-5},
            "; of generated weights these alone move; rate of the policy 1e-05",
        ),
        ({"advantage_head": True, "value_lr": 0.1}, "head's term; rate of the value 0.1"),
    ],
)
def test_settings_in_words(settings, words):
    assert words in changed(**settings).finetune.schedule


def test_shots_are_ascending_numbers_of_trajectories():
    with pytest.raises(InputError, match="ascending numbers of trajectories"):
        dataclasses.replace(CONFIG, shots=(3, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buffer_size": 39}, "39 does not hold .* the context of 40 .*; take 40 or more"),
        (
            {"batch_size": 5000, "sampling": "without_replacement"},
            "batch_size: 5000 transitions without replacement, and the buffer never holds more",
        ),
        ({"buffer_size": 19, "keep_context": False}, "hold a trajectory of 20"),
        ({"value_lr": 0.1}, "finetune.value_lr: OnlineSeeker has no such choice; leave it at None"),
        ({"parameters": "generated"}, "finetune.parameters: .* leave it at all"),
    ],
)
def test_what_algorithm_or_data_cannot_do_is_refused(dataset, settings, message):
    with pytest.raises(InputError, match=message) as caught:
        run(dataset, changed(**settings))
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Joint(OnlineSeeker):
    """Has no separate steps."""

    tune_value = Algorithm.tune_value


def test_an_algorithm_that_cannot_is_refused(dataset):
    with pytest.raises(InputError, match="GoalSeeker cannot go on learning online"):
        run(dataset, CONFIG, GoalSeeker(SPEC))
    with pytest.raises(InputError, match=r"Joint .* separate steps; leave finetune.interleaved on"):
        run(dataset, changed(interleaved=False), Joint(SPEC))
    with pytest.raises(InputError, match="needs contexts"):
        evaluate(LEARNER, STATES, ENV, None, CONFIG)
