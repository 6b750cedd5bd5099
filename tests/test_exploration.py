"""Runs that explore: when, how long, who acts, what lands in which buffer, and that nothing else
than (seed, step, task, trajectory) decides it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl import explorers, runs
from omrl.algorithm import Algorithm
from omrl.chunk import MAX_UPDATES, init_states
from omrl.collector import Collector
from omrl.config import to_json
from omrl.data.buffers import joined
from omrl.data.explored import Explored, ExploredFiles, concatenated
from omrl.data.sample import gather
from omrl.errors import InputError
from omrl.exploration import Room, most_chosen, rooms, turns
from omrl.explorers import Given, Wave, trajectory_key
from omrl.layout import place_seeds
from omrl.logs import read_log
from omrl.pace import Pace
from omrl.train import TrainConfig, check_data, load_states
from scout import (
    SHORT,
    SPEC,
    TASKS,
    Scout,
    ScoutConfig,
    ScoutRun,
    leaving,
    point_robot,
    run_scout,
    setting,
)
from toy import make_data

RUN = ScoutRun(ScoutConfig(), TrainConfig(seeds=2, first_seed=3, log_every=5, checkpoint_every=7))
EARLY = replace(RUN, ends_early=True)
STEPS = 20
"""Updates of these runs: they explore after 0, 6, 12 and 18."""


def log_of(path: Path) -> Explored:
    """All that a run collected."""
    return concatenated(parts_of(path))


def parts_of(path: Path) -> list[Explored]:
    count = len(list((path / "collected").iterdir()))
    return [ExploredFiles(path).read_file(number) for number in range(count)]


def end_of(path: Path, config: ScoutRun):
    where = setting(config)
    return load_states(runs.open_run(path), where.algorithm, config.train, where.layout)


def assert_same_bits(left, right) -> None:
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def untimed(path: Path) -> list[dict]:
    rows = read_log(path)
    return [{n: v for n, v in row.items() if n not in ("seconds", "steps_per_s")} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder, final states and collector of a run in which no episode ends early."""
    path = tmp_path_factory.mktemp("finished") / "run"
    return path, *run_scout(path, RUN)


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    """The same where episodes end early."""
    path = tmp_path_factory.mktemp("early") / "run"
    return path, *run_scout(path, EARLY)


# --- The schedule ---


def test_it_explores_at_exact_steps(finished):
    path, states, _ = finished
    np.testing.assert_array_equal(states.step, [STEPS, STEPS])
    rows = [row for row in read_log(path) if "exploration" in row]
    assert [row["step"] for row in rows] == [0, 6, 12, 18]
    # 30 steps are 2 trajectories of 20, 50 are 3: 5 tasks x 40 at first, then 4 slots x 100.
    assert [row["exploration"]["env_steps"] for row in rows] == [600, 400, 400, 400]
    lengths = [part.length.sum() for part in parts_of(path)]
    assert lengths == [1200, 800, 800, 800]


def test_phases_act_on_prior_and_posterior_and_fill_their_buffers(finished):
    first, second, *_ = parts_of(finished[0])
    initial = first.only(np.arange(len(first.length)) < 2 * 5 * 2)
    assert sorted(set(zip(initial.seed, initial.task, strict=True))) == [
        (seed, task) for seed in (0, 1) for task in range(5)
    ]
    assert not initial.posterior.any()
    assert initial.in_encoder.all()
    for seed in (0, 1):
        of_seed = second.only(second.seed == seed)
        for task in np.unique(of_seed.task):
            one = of_seed.only(of_seed.task == task)
            visits = len(one.length) // 5
            # Two on the prior, then one more, then two on the posterior.
            np.testing.assert_array_equal(one.posterior, [False, False, False, True, True] * visits)
            np.testing.assert_array_equal(
                one.in_encoder, [True, True, False, False, False] * visits
            )
            np.testing.assert_array_equal(one.clears, [True, False, False, False, False] * visits)


def test_tasks_are_a_function_of_seed_and_step_and_uniform():
    assert SHORT.chosen(3, 12, 5).tolist() == SHORT.chosen(3, 12, 5).tolist()
    assert SHORT.chosen(3, 12, 50).tolist() != SHORT.chosen(4, 12, 50).tolist()
    assert SHORT.chosen(3, 12, 50).tolist() != SHORT.chosen(3, 18, 50).tolist()
    drawn = np.concatenate([SHORT.chosen(0, step, 5) for step in range(2000)])
    # 8,000 of 5 tasks: 1,600 each, standard deviation 36.
    assert np.all(np.abs(np.bincount(drawn, minlength=5) - 1600) < 4 * 36)


def test_a_task_chosen_twice_is_explored_twice_in_turn():
    masks = list(turns(np.array([[4, 2, 4, 4], [0, 1, 2, 3]])))
    np.testing.assert_array_equal(
        masks,
        [
            [[True, True, False, False], [True, True, True, True]],
            [[False, False, True, False], [False] * 4],
            [[False, False, False, True], [False] * 4],
        ],
    )


def test_room_for_all_that_will_be_collected():
    assert Room.of_phase(0, 20, False) == Room(0, 0)
    assert Room.of_phase(50, 20, False) == Room(60, 3)
    # 49 steps, of 1 each, and one whole trajectory.
    assert Room.of_phase(50, 20, True) == Room(69, 50)
    main, encoder = rooms(SHORT, 20, False, 7)
    assert (main, encoder) == (Room(40 + 7 * 100, 2 + 7 * 5), Room(40, 2))
    kept = replace(SHORT, clear_encoder=False, into_encoder="all")
    assert rooms(kept, 20, False, 7)[1] == main
    counts = np.zeros(5, int)
    for step in (10, 16, 22, 28):
        np.add.at(counts, SHORT.chosen(3, step, 5), 1)
    assert most_chosen(SHORT, np.array([3]), 10, 20, 5) == counts.max()
    # 4 explorations of 4 slots, 5 tasks.
    assert SHORT.least_chosen(20, 5) == 4 <= counts.max()


def test_far_too_much_is_refused_without_counting_it(tmp_path):
    of_run = setting(
        ScoutRun(ScoutConfig(steps=2**31 - 1, exploration=replace(SHORT, every=1)), RUN.train)
    )
    with pytest.raises(InputError, match=r"exploration: its buffers take .* explore less"):
        Collector(of_run, tmp_path)


def test_every_schedule_that_can_be_has_room_in_both_buffers():
    """A buffer without room for a single transition cannot be drawn from."""
    choices: dict[str, tuple[Any, ...]] = {
        "initial_steps": (0, 30),
        "prior_steps": (0, 30),
        "posterior_steps": (0, 50),
        "clear_encoder": (False, True),
        "into_encoder": ("prior", "all", "none"),
        "draw": ("collected", "union", "union-main"),
    }
    allowed = 0
    for values in itertools.product(*choices.values()):
        try:
            schedule = replace(SHORT, **dict(zip(choices, values, strict=True)))
        except InputError:
            continue
        allowed += 1
        for room in (*rooms(schedule, 20, False, 2), *rooms(schedule, 20, True, 2)):
            assert min(room.rows, room.trajectories) > 0, schedule
    assert allowed > 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior_steps": 0, "posterior_steps": 0}, "both are 0"),
        ({"initial_steps": 0}, "initial_steps: 0 leaves tasks without data"),
        ({"into_encoder": "none"}, "into_encoder: none needs logged data"),
        ({"prior_steps": 0}, "prior_steps: 0 with clear_encoder"),
        ({"label_context": 5}, "label_context: is drawn from logged data"),
        ({"physics": "test"}, "physics: test is without the rewards of test tasks"),
        ({"draw": "union-main", "initial_steps": 0}, "initial_steps: 0 leaves tasks without"),
        ({"draw": "union-main", "into_encoder": "none"}, "into_encoder: none needs logged data"),
        (
            {"draw": "union", "initial_steps": 0, "prior_steps": 0},
            "into_encoder: prior, and nothing acts on the prior.*take all or none",
        ),
    ],
)
def test_schedules_that_cannot_be(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SHORT, **changes)


# --- Buffers ---


def contents(collector, name: str, seed: int, task: int) -> dict[str, np.ndarray]:
    """What the buffer holds of a task, by what sampling reads."""
    buffer = jax.tree.map(lambda leaf: leaf[seed], getattr(collector.buffers, name))
    # All rows, so that one program serves all tasks.
    held = gather(buffer, task, jnp.arange(buffer.reward.shape[1]))
    count = int(buffer.num_rows[task])
    return {name: np.asarray(column)[:count] for name, column in held._asdict().items()}


def expected(explored: Explored, seed: int, task: int, *, encoder: bool) -> dict[str, np.ndarray]:
    """The same, from the trajectories one by one."""
    rows: list[dict[str, np.ndarray]] = []
    starts = explored.starts
    for n in range(len(explored.length)):
        if (explored.seed[n], explored.task[n]) != (seed, task):
            continue
        if encoder and explored.clears[n]:
            rows = []
        if encoder and not explored.in_encoder[n]:
            continue
        length, first = explored.length[n], starts[n]
        obs = explored.obs[first + n : first + n + length + 1]
        reward = explored.reward[first : first + length].astype(np.float64)
        left = np.arange(length, 0, -1)
        returns = [sum(reward[t:] * 0.9 ** np.arange(length - t)) for t in range(length)]
        rows.append(
            {
                "obs": obs[:-1], "next_obs": obs[1:], "terminal_obs": np.tile(obs[-1], (length, 1)),
                "action": explored.action[first : first + length], "reward": reward,
                "terminated": (left == 1) & explored.terminated[n], "mc_return": returns,
                "terminal_discount": 0.9**left,
            }
        )  # fmt: skip
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("which", ["finished", "early"])
@pytest.mark.parametrize("name", ["main", "encoder"])
def test_buffers_hold_what_was_played_in_order(which, name, request):
    path, _, collector = request.getfixturevalue(which)
    explored = log_of(path)
    for seed in (0, 1):
        for task in range(5):
            held = contents(collector, name, seed, task)
            wanted = expected(explored, seed, task, encoder=name == "encoder")
            assert len(held["reward"]) > 0
            for column, values in wanted.items():
                np.testing.assert_allclose(held[column], values, rtol=1e-6, atol=1e-6)


def test_the_encoder_buffer_was_emptied(finished):
    _, _, collector = finished
    main, encoder = (np.asarray(buffer.num_rows) for buffer in collector.buffers)
    np.testing.assert_array_equal(encoder, 40)
    assert main.sum() == 3600
    assert main.max() > 100


def test_encoder_buffers_that_are_kept(tmp_path):
    kept = replace(SHORT, clear_encoder=False, into_encoder="all")
    config = replace(RUN, algo=replace(RUN.algo, exploration=kept))
    _, collector = run_scout(tmp_path / "run", config)
    main, encoder = (np.asarray(buffer.num_rows) for buffer in collector.buffers)
    np.testing.assert_array_equal(main, encoder)


def test_rewards_are_those_of_the_task(finished):
    explored, env = log_of(finished[0]), point_robot()
    parameters = np.repeat(env.tasks[TASKS[explored.task]], explored.length, axis=0)
    reward = env.reward(explored.terms, explored.action, parameters)
    np.testing.assert_allclose(explored.reward, reward, rtol=1e-5, atol=1e-6)
    sums = np.add.reduceat(explored.reward, explored.starts[:-1])
    np.testing.assert_allclose(explored.returned, sums, rtol=1e-5)


# --- Beside logged data ---

UNION = replace(
    SHORT,
    draw="union",
    initial_steps=0,
    into_encoder="none",
    label_context=4,
    resample_every="step",
)


def logged():
    """Rewards tell the position of the task."""
    data = make_data(SPEC, num_tasks=5)
    reward = jnp.broadcast_to(jnp.arange(5.0)[:, None], data.reward.shape)
    return data._replace(reward=reward)


def test_labels_are_of_the_own_task_and_buffers_can_be_frozen(tmp_path):
    config = replace(RUN, algo=replace(RUN.algo, offline=5, exploration=UNION))
    states, collector = run_scout(tmp_path / "run", config, data=logged())
    np.testing.assert_array_equal(states.step, 25)
    explored = log_of(tmp_path / "run")
    assert [r["step"] for r in read_log(tmp_path / "run") if "exploration" in r] == [5, 11, 17, 23]
    # The scout predicts the mean reward of the context plus the action's sum.
    means = explored.reward - explored.action.sum(-1)
    np.testing.assert_allclose(means, np.repeat(explored.task, explored.length), atol=1e-5)
    parameters = np.repeat(point_robot().tasks[TASKS[explored.task]], explored.length, axis=0)
    true = point_robot().reward(explored.terms, explored.action, parameters)
    sums = np.add.reduceat(true, explored.starts[:-1])
    np.testing.assert_allclose(explored.returned, sums, rtol=1e-5)
    assert int(collector.buffers.encoder.num_rows.sum()) == 0
    assert not explored.clears.any()


def test_what_is_learned_from_is_the_union(tmp_path):
    """A run whose logged data is another one ends elsewhere, and so does one that draws less."""
    union = replace(UNION, label_context=0)
    ends = []
    for number, data in enumerate((logged(), logged()._replace(reward=logged().reward + 1))):
        config = replace(RUN, algo=replace(RUN.algo, exploration=union))
        ends.append(run_scout(tmp_path / str(number), config, data=data)[0].weight)
    assert np.all(ends[0] != ends[1])


def test_the_encoder_buffer_may_have_what_was_collected_alone(finished):
    collected = jax.tree.map(lambda leaf: leaf[0], finished[2].buffers)
    union, main_only = (
        joined(logged(), collected, replace(UNION, draw=draw, initial_steps=1, into_encoder="all"))
        for draw in ("union", "union-main")
    )
    assert main_only.encoder is collected.encoder
    assert_same_bits(main_only.main, union.main)
    np.testing.assert_array_equal(
        main_only.main.num_rows, logged().num_rows + collected.main.num_rows
    )


def test_labels_need_a_model_of_rewards(tmp_path):
    class Plain(Scout):
        predict_reward = Algorithm.predict_reward

    config = replace(RUN, algo=replace(RUN.algo, exploration=UNION))
    algorithm = Plain(config.algo)
    with pytest.raises(InputError, match="label_context: Plain has no reward decoder; leave it 0"):
        Collector(replace(setting(config), algorithm=algorithm), tmp_path)


def test_stages_need_their_data():
    online, union = RUN.algo, replace(RUN.algo, exploration=UNION)
    check_data(Scout(online), None, TASKS)
    with pytest.raises(InputError, match="stage online learns from logged data"):
        check_data(Scout(union), None, TASKS)
    with pytest.raises(InputError, match="stage offline learns from logged data"):
        check_data(Scout(replace(online, offline=1)), None, TASKS)
    few = replace(online, exploration=replace(SHORT, initial_steps=3))
    stages = Scout(few).stages()
    assert stages[0].exploration.least_rows() == 3


def test_an_environment_without_simulator(tmp_path):
    class Unsimulated(type(point_robot())):
        def physics(self, num_threads):
            raise NotImplementedError  # What the contract says of an MDP without simulator.

    base = point_robot()
    env = Unsimulated(base.spec, base.task_table, base.split_table)
    with pytest.raises(InputError, match="has no simulator to explore; learn from logged data"):
        Collector(replace(setting(RUN), env=env), tmp_path)


def test_buffers_that_do_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("omrl.exploration_setting.free_memory", lambda _: 1000)
    with pytest.raises(InputError, match=r"its buffers take [\d,]+ bytes on 1 device"):
        Collector(setting(RUN), tmp_path)


# --- Episodes that end early ---


def test_phases_go_on_until_they_have_their_steps(early):
    """As if trajectories were played one after the other: none too many, none too few."""
    path, _, _ = early
    ended = 0
    for part in parts_of(path)[1:]:
        for seed, task in sorted(set(zip(part.seed, part.task, strict=True))):
            one = part.only((part.seed == seed) & (part.task == task))
            ended += one.terminated.sum()
            bounds = [*np.flatnonzero(one.clears), len(one.length)]
            for first, stop in itertools.pairwise(bounds):
                prior = one.in_encoder[first:stop]
                for lengths, steps in (
                    (one.length[first:stop][prior], 30),
                    (one.length[first:stop][~prior], 50),
                ):
                    assert lengths.sum() - lengths[-1] < steps <= lengths.sum()
    assert ended > 10


def test_an_env_that_says_it_never_ends_must_not(tmp_path):
    base = leaving()
    env = replace(base, spec=replace(base.spec, termination="never"))
    collector = Collector(replace(setting(EARLY), env=env), tmp_path)
    states = start_states(EARLY)
    with pytest.raises(InputError, match=r"spec\.termination says never"):
        collector.explore(SHORT, states, None, step=0, first=True)


def start_states(config: ScoutRun):
    where = setting(config)
    return init_states(where.algorithm, where.layout, config.train.seed_numbers)


# --- What decides a trajectory ---


@pytest.mark.parametrize("config", [RUN, EARLY], ids=["whole", "early"])
def test_a_seed_alone_is_what_it_is_beside_others(tmp_path, config, request):
    path, states, _ = request.getfixturevalue("early" if config.ends_early else "finished")
    alone = replace(config, train=replace(config.train, seeds=1, first_seed=4))
    ended, _ = run_scout(tmp_path / "run", alone)
    assert_same_bits(ended, jax.tree.map(lambda leaf: leaf[1:], states))
    together = [part.only(part.seed == 1) for part in parts_of(path)]
    for one, other in zip(parts_of(tmp_path / "run"), together, strict=True):
        assert_same_bits(one._replace(seed=one.seed + 1), other)


def test_seeds_side_by_side_are_the_same_within_rounding(tmp_path, finished):
    """As on a GPU."""
    states, collector = run_scout(tmp_path / "run", RUN, side_by_side=True)
    for one, other in zip(
        *map(jax.tree.leaves, ((states, collector.buffers), (finished[1], finished[2].buffers))),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 3, MAX_UPDATES])
def test_chunk_lengths_change_nothing(tmp_path, early, length, monkeypatch):
    monkeypatch.setattr(Pace, "measured", lambda *_: None)
    monkeypatch.setattr(Pace, "length", length)
    states, collector = run_scout(tmp_path / "run", EARLY)
    assert_same_bits((states, collector.buffers), (early[1], early[2].buffers))
    assert untimed(tmp_path / "run") == untimed(early[0])


def test_all_seeds_tasks_and_trajectories_differ(finished):
    explored = log_of(finished[0])
    first = explored.obs[(explored.starts[:-1] + np.arange(len(explored.length)))]
    assert len(np.unique(first, axis=0)) == len(first)
    assert len(np.unique(explored.action, axis=0)) == len(explored.action)


def test_keys_are_functions_of_seed_step_task_and_number(tmp_path):
    where, states = setting(RUN), start_states(RUN)
    buffers = Collector(where, tmp_path).buffers
    task = np.tile(np.arange(5, dtype=np.int32), (2, 1))
    number = np.broadcast_to(np.arange(3, dtype=np.int32), (2, 5, 3))
    wave = Wave(task, number, np.zeros((2, 5, 3), bool))
    seen = []
    for step in (0, 6):
        acting = explorers.begin(
            where.algorithm, SHORT, where.layout, False, Given(states, buffers, None),
            place_seeds(where.layout, where.seeds), wave, jnp.asarray(TASKS, jnp.int32),
            np.int32(step),
        )  # fmt: skip
        guess = np.asarray(acting.own[2])
        seen += [np.asarray(keys).reshape(-1, 2) for keys in (acting.act_key, acting.label_key)]
        assert len(np.unique(guess.reshape(-1, 2), axis=0)) == 30
    everything = np.concatenate(seen)
    assert len(np.unique(everything, axis=0)) == len(everything) == 4 * 30
    key = trajectory_key(*map(jnp.int32, (4, 6, TASKS[2], 1)))
    np.testing.assert_array_equal(acting.act_key[1, 2, 1], jax.random.split(key, 4)[2])


def test_the_guess_is_drawn_for_every_trajectory_or_every_step(finished, tmp_path):
    """The noise of actions is small beside that of guesses."""

    def spread(path: Path) -> float:
        explored = log_of(path).only(~log_of(path).posterior)
        within = np.split(
            np.arctanh(np.clip(explored.action, -0.999, 0.999)), explored.starts[1:-1]
        )
        return float(np.mean([trajectory.std(0) for trajectory in within]))

    each_step = replace(
        RUN, algo=replace(RUN.algo, exploration=replace(SHORT, resample_every="step"))
    )
    run_scout(tmp_path / "run", each_step)
    assert spread(finished[0]) < 0.3
    assert 0.7 < spread(tmp_path / "run") < 1.1


def test_leaves_of_the_state_are_not_copied_for_every_trajectory():
    assert explorers._own(Scout()) == (True, True, True, False)


# --- Checkpoints ---


@pytest.mark.parametrize("step", [7, 14])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, early, step):
    """Cut back to an earlier checkpoint, with files of later explorations still there."""
    path = tmp_path / "run"
    keep = replace(EARLY, train=replace(EARLY.train, keep=10))
    states, collector = run_scout(path, keep)
    for later in (path / "checkpoints").iterdir():
        if int(later.name) > step:
            shutil.rmtree(later)
    (path / "collected" / "000003.npz").write_bytes(b"cut off")
    ended, refilled = run_scout(path, keep, resume=True)
    assert_same_bits((ended, refilled.buffers), (states, collector.buffers))
    assert untimed(path) == untimed(early[0])


def test_resumed_where_a_checkpoint_and_an_exploration_fall_together(tmp_path):
    """The checkpoint of update 12 knows nothing of the exploration behind it."""
    config = replace(RUN, train=replace(RUN.train, checkpoint_every=6, keep=10))
    path = tmp_path / "run"
    states, collector = run_scout(path, config)
    rows = untimed(path)
    for later in ("18", "20"):
        shutil.rmtree(path / "checkpoints" / later)
    ended, refilled = run_scout(path, config, resume=True)
    assert_same_bits((ended, refilled.buffers), (states, collector.buffers))
    assert untimed(path) == rows


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "run"
    run_scout(path, RUN)
    file = path / "collected" / "000001.npz"
    good = file.read_bytes()
    file.write_bytes(good[:-100])
    with pytest.raises(InputError, match=r"collected/000001\.npz: damaged"):
        run_scout(path, RUN, resume=True)
    file.write_bytes((path / "collected" / "000002.npz").read_bytes())
    with pytest.raises(InputError, match=r"000001\.npz: not what the checkpoint was made with"):
        run_scout(path, RUN, resume=True)
    file.unlink()
    with pytest.raises(InputError, match=r"000001\.npz: missing; restore it"):
        run_scout(path, RUN, resume=True)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("obs", lambda obs: np.concatenate([obs, obs], 1)),  # as of another environment
        ("obs", lambda obs: obs[:, 0]),
        ("length", lambda length: length.astype(np.float64)),
        ("length", lambda length: length + 2000 * (np.arange(len(length)) == 0)),
        ("length", lambda length: length[0]),
        ("task", lambda task: task + 2**40),
        ("task", lambda task: task.astype(str)),
        ("seed", lambda seed: seed - 7),
        ("reward", lambda reward: reward + np.float32(1)),
    ],
)
def test_what_is_not_of_the_run_is_named_before_it_is_used(tmp_path, name, other):
    files = ExploredFiles(tmp_path)
    trajectory = np.zeros(2, np.int64)
    flags, length = np.zeros(2, bool), np.full(2, 20)
    rows, obs = np.zeros((40, 2), np.float32), np.zeros((42, 2), np.float32)
    explored = Explored(
        trajectory, trajectory, length, flags, flags, flags, flags, obs, rows, rows[:, 0], rows,
        np.zeros(2, np.float32),
    )  # fmt: skip
    for _ in range(2):
        files.add(explored)
    assert len(list(ExploredFiles.of_checkpoint(tmp_path, files.to_json()).read())) == 2
    wrong = explored._asdict() | {name: other(getattr(explored, name))}
    np.savez(files.path(1), **wrong)
    found = files.read()
    next(found)
    with pytest.raises(InputError, match=r"000001\.npz: not what the checkpoint was made with"):
        next(found)


def test_files_of_a_checkpoint_with_one_hash_for_all(tmp_path):
    found = {"count": 2, "sha256": "ab"}
    with pytest.raises(InputError, match="is of another version of omrl"):
        ExploredFiles.of_checkpoint(tmp_path, found)


def in_a_process(path: Path, config: ScoutRun, *options: str, devices: int = 1) -> int:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    program = Path(__file__).with_name("scout.py")
    command = [sys.executable, str(program), str(path), json.dumps(to_json(config)), *options]
    return subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 3])
def test_killed_while_it_explores(tmp_path, early, files):
    """SIGKILL behind the file of an exploration that no checkpoint knows of yet."""
    path = tmp_path / "run"
    assert in_a_process(path, EARLY, "--kill-behind", str(files)) == -signal.SIGKILL
    states, collector = run_scout(path, EARLY, resume=True)
    assert_same_bits((states, collector.buffers), (early[1], early[2].buffers))
    assert untimed(path) == untimed(early[0])


@pytest.mark.slow
def test_two_devices_give_the_same(tmp_path, early):
    path = tmp_path / "run"
    assert in_a_process(path, EARLY, "--num-devices", "2", devices=2) == 0
    with np.load(path / "end.npz") as file:
        ended = [file[name] for name in file.files]
    assert_same_bits(ended, jax.tree.leaves((early[1], early[2].buffers)))
