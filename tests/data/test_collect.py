"""Behaviour data: exact resuming, independent tasks, whole episodes, and agents that learn."""

import dataclasses
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from omrl.algos.sac import SacConfig
from omrl.algos.td3 import Td3Config
from omrl.cli.collect import describe, run
from omrl.data.collect import group as group_module
from omrl.data.collect import storage
from omrl.data.collect.budget import split_into_groups
from omrl.data.collect.config import CollectConfig, RandomConfig
from omrl.data.collect.learner import Learner
from omrl.data.collect.moments import Moments, add_rows, empty_moments, normalise, scale
from omrl.data.collect.progress import CollectProgress
from omrl.data.collect.results import FinalAgents, add_tasks, load
from omrl.data.collect.rounds import Round, live_order
from omrl.data.collect.run import collect
from omrl.data.collect.storage import Background
from omrl.data.store import open_dataset
from omrl.envs.engine import advance
from omrl.envs.point_robot import PointRobot
from omrl.envs.registry import make
from omrl.errors import InputError, NonFiniteError, Stopped

TINY = CollectConfig(
    env="point-robot/oyster-v1",
    agent=Td3Config(hidden=(8,), batch_size=16),
    tasks=(0, 3),
    steps=800,
    envs=4,
    updates_per_step=2,
    checkpoint_every=3,
)
"""Ten rounds of 4 episodes of 20 steps."""
TINY_CHEETAH = dataclasses.replace(
    TINY, env="cheetah-vel/macaw-v1", tasks=(2, 30), steps=1500, envs=3, checkpoint_every=1
)
"""Three rounds of 3 episodes of 200 steps."""


def collected(config, out, resume=False):
    quiet = Console(file=io.StringIO())
    return collect(
        config, out, command="test", device=jax.devices()[0], resume=resume, console=quiet
    )


def contents(folder):
    """Every file of a dataset but the drawing, and the manifest without its dates."""
    files = {p.relative_to(folder): p for p in folder.rglob("*") if p.suffix in (".npy", ".json")}
    arrays = {name: load(folder / name) for name in ("curves.npz", "agents.npz")}
    named = {f"{n}/{key}": a.tobytes() for n, held in arrays.items() for key, a in held.items()}
    return {str(name): path.read_bytes() for name, path in files.items()} | named


def test_what_rounding_to_whole_rounds_makes_is_said(tmp_path):
    config = dataclasses.replace(TINY, agent=RandomConfig(), steps=81)
    text = io.StringIO()
    options = {"command": "test", "device": jax.devices()[0]}
    dataset = collect(config, tmp_path / "d", console=Console(file=text, width=200), **options)
    assert "whole rounds of 4 environments x 20 steps: 160 transitions per task, at least 81" in (
        text.getvalue()
    )
    assert [task.transitions for task in dataset.manifest.tasks] == [160, 160]
    exact = dataclasses.replace(config, steps=160)
    collect(exact, tmp_path / "e", console=Console(file=(text := io.StringIO())), **options)
    assert "whole rounds" not in text.getvalue()
    early = dataclasses.replace(exact, steps=81).most_steps(
        dataclasses.replace(make("point-robot/oyster-v1").spec, termination="never or later")
    )
    assert early == 80 + 80


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("collect") / "data"
    collected(TINY, out)
    return contents(out)


@pytest.fixture(scope="module")
def uninterrupted_cheetah(tmp_path_factory):
    out = tmp_path_factory.mktemp("collect") / "data"
    collected(TINY_CHEETAH, out)
    return contents(out)


def stop_after(monkeypatch, rounds, signum):
    """Send this process a signal at the end of a round."""
    play_round = group_module.Group.play_round

    def play_and_signal(self):
        played = play_round(self)
        if self.rounds == rounds:
            os.kill(os.getpid(), signum)
        return played

    monkeypatch.setattr(group_module.Group, "play_round", play_and_signal)


# --- Resuming ---


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_after_the_round_and_it_resumes_exactly(
    tmp_path, monkeypatch, uninterrupted, signum, code
):
    with monkeypatch.context() as patch:
        stop_after(patch, 5, signum)
        with pytest.raises(Stopped, match="stopped, all is kept") as stopped:
            collected(TINY, tmp_path / "data")
    assert stopped.value.code == code
    assert not (tmp_path / "data").exists()
    collected(TINY, tmp_path / "data", resume=True)
    assert contents(tmp_path / "data") == uninterrupted
    assert not (tmp_path / "data.partial").exists()


def test_cheetah_resumes_exactly_with_another_number_of_threads(
    tmp_path, monkeypatch, uninterrupted_cheetah
):
    with monkeypatch.context() as patch:
        stop_after(patch, 2, signal.SIGTERM)
        with pytest.raises(Stopped):
            collected(dataclasses.replace(TINY_CHEETAH, threads=1), tmp_path / "data")
    collected(dataclasses.replace(TINY_CHEETAH, threads=2), tmp_path / "data", resume=True)
    assert contents(tmp_path / "data") == uninterrupted_cheetah


def test_killed_at_any_time_it_resumes_exactly(tmp_path, uninterrupted):
    """kill -9 somewhere after the first checkpoint, twice."""
    out = tmp_path / "data"
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_collect import TINY, collected\n"
        "collected(TINY, Path(sys.argv[2]), resume=Path(sys.argv[2] + '.partial').exists())\n"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(out)]
    rng = np.random.default_rng(0)
    for _ in range(2):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        checkpoint = tmp_path / "data.partial" / storage.NAME
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None and (
            not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before
        ):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.wait()
    if not out.exists():
        collected(TINY, out, resume=True)
    assert contents(out) == uninterrupted


def test_killed_before_the_first_checkpoint_it_starts_again(tmp_path, monkeypatch, uninterrupted):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage.Checkpoint, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            collected(TINY, tmp_path / "data")
    collected(TINY, tmp_path / "data", resume=True)
    assert contents(tmp_path / "data") == uninterrupted


def test_killed_while_tasks_go_on_record_it_resumes_exactly(tmp_path, monkeypatch, uninterrupted):
    from omrl.data.store import Writer

    complete = Writer.complete

    def complete_one(self, index, behaviour):
        if index != TINY.tasks[0]:
            raise KeyboardInterrupt
        complete(self, index, behaviour)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "complete", complete_one)
        with pytest.raises(KeyboardInterrupt):
            collected(TINY, tmp_path / "data")
    collected(TINY, tmp_path / "data", resume=True)
    assert contents(tmp_path / "data") == uninterrupted


def test_a_disk_that_fills_up_stops_it_with_the_checkpoint_kept(
    tmp_path, monkeypatch, uninterrupted
):
    from omrl.data.store import Writer

    append, appended = Writer.append, []

    def append_some(self, index, **columns):
        appended.append(index)
        if len(appended) > 8:
            raise InputError("disk full")
        append(self, index, **columns)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append", append_some)
        with pytest.raises(InputError, match="disk full"):
            collected(TINY, tmp_path / "data")
    collected(TINY, tmp_path / "data", resume=True)
    assert contents(tmp_path / "data") == uninterrupted


def test_damage_to_a_checkpoint_is_noticed(tmp_path, monkeypatch):
    stop_after(monkeypatch, 3, signal.SIGTERM)
    with pytest.raises(Stopped):
        collected(TINY, tmp_path / "data")
    path = tmp_path / "data.partial" / storage.NAME
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        collected(TINY, tmp_path / "data", resume=True)


def test_missing_data_is_noticed(tmp_path, monkeypatch):
    stop_after(monkeypatch, 3, signal.SIGTERM)
    with pytest.raises(Stopped):
        collected(TINY, tmp_path / "data")
    shutil.rmtree(tmp_path / "data.partial" / "task-003")
    with pytest.raises(InputError, match="the checkpoint has more: collect again"):
        collected(TINY, tmp_path / "data", resume=True)


def test_it_goes_on_only_with_its_own_config(tmp_path, monkeypatch):
    stop_after(monkeypatch, 3, signal.SIGTERM)
    with pytest.raises(Stopped):
        collected(TINY, tmp_path / "data")
    other = dataclasses.replace(TINY, agent=dataclasses.replace(TINY.agent, discount=0.9))
    with pytest.raises(InputError, match=r"agent\.discount: 0\.99 is not 0\.9"):
        collected(other, tmp_path / "data", resume=True)
    with pytest.raises(
        InputError, match="where none is, repeat this one with --resume, or delete it"
    ):
        collected(TINY, tmp_path / "data")


def test_places(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists; choose another folder"):
        collected(TINY, tmp_path / "there")
    with pytest.raises(InputError, match="nothing to resume"):
        collected(TINY, tmp_path / "data", resume=True)


# --- Tasks ---


def test_data_of_a_task_do_not_depend_on_the_others(tmp_path, uninterrupted):
    """Other tasks beside it, and groups one after the other."""
    config = dataclasses.replace(TINY, tasks=(0, 1, 2, 3), group_size=2)
    collected(config, tmp_path / "data")
    found = contents(tmp_path / "data")
    for task in TINY.tasks:
        for column in ("obs", "action", "reward", "terms", "episode_start"):
            name = f"task-{task:03d}/{column}.npy"
            assert found[name] == uninterrupted[name]
    whole = load(tmp_path / "data" / "curves.npz")
    assert whole["tasks"].tolist() == [0, 1, 2, 3]
    assert whole["returns"].shape == (4, 10)


def test_tasks_have_different_data_and_seeds_too(tmp_path):
    def obs(config, out):
        return np.asarray(collected(config, out).task(0).obs)

    short = dataclasses.replace(TINY, steps=80, tasks=(0, 1))
    first = obs(short, tmp_path / "a")
    assert not np.array_equal(first, open_dataset(tmp_path / "a").task(1).obs)
    assert not np.array_equal(first, obs(dataclasses.replace(short, seed=1), tmp_path / "b"))


# --- What it leaves ---


def test_learns_and_leaves_the_oracle(tmp_path):
    config = dataclasses.replace(
        TINY,
        agent=Td3Config(hidden=(32, 32), batch_size=64, learning_rate=1e-3, discount=0.9),
        tasks=(1, 5),
        steps=4000,
        checkpoint_every=100,
    )
    summary = run(config, tmp_path / "data", command="test", device="cpu")
    dataset = open_dataset(tmp_path / "data")
    assert dataset.manifest.validated
    curves = load(tmp_path / "data" / "curves.npz")
    assert (tmp_path / "data" / "curves.png").stat().st_size > 10_000
    random = curves["returns"][:, :2].mean(axis=1)
    finals = curves["final_returns"].mean(axis=1)
    assert np.all(finals > 0.4 * random)  # Returns are negative.
    assert summary["final_return"] == pytest.approx(finals.mean())
    assert "2 tasks, 8,000 transitions" in describe(summary)
    for record, final in zip(dataset.manifest.tasks, finals, strict=True):
        behaviour = record.behaviour
        assert behaviour["agent"]["algorithm"] == "td3"
        assert behaviour["final_return"] == pytest.approx(final)
        assert (behaviour["env_steps"], behaviour["final_episodes"]) == (4000, 4)
    # The saved agents have these returns.
    agents, env = FinalAgents.load(str(tmp_path / "data")), make(config.env)
    rng = np.random.default_rng(0)
    for position, task in enumerate(config.tasks):
        states = np.stack([env.reset(rng) for _ in range(200)])
        alive, goal = np.ones(200, bool), np.repeat(env.tasks[[task]], 200, axis=0)
        total = np.zeros(200)
        for _ in range(env.spec.horizon):
            action = agents.act(task, env.observe(states))
            after = advance(env, env.physics(1), states, action, goal, alive)
            states, total = after.states, total + after.reward
        error = total.std() / 2  # of a mean of 4
        assert total.mean() == pytest.approx(finals[position], abs=4 * error)


def test_curves_are_the_returns_of_the_data(uninterrupted, tmp_path):
    dataset = collected(TINY, tmp_path / "data")
    curves = load(tmp_path / "data" / "curves.npz")
    for position, task in enumerate(TINY.tasks):
        rewards = np.asarray(dataset.task(task).reward, np.float64)
        by_round = rewards.reshape(10, 4, 20).sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(curves["returns"][position], by_round)
        np.testing.assert_array_equal(curves["steps"][position], 80 * np.arange(1, 11))
    assert contents(tmp_path / "data") == uninterrupted


def test_sac_collects_too(tmp_path):
    config = dataclasses.replace(TINY, agent=SacConfig(hidden=(8,), batch_size=16), steps=320)
    dataset = collected(config, tmp_path / "data")
    behaviour = dataset.manifest.tasks[0].behaviour
    assert behaviour["agent"]["algorithm"] == "sac"
    obs = np.zeros((5, 2), np.float32)
    assert np.abs(FinalAgents.load(tmp_path / "data").act(3, obs)).max() <= 1


# --- Episodes that end early ---


FENCE = 0.5


class Fenced(PointRobot):
    """The point robot, but leaving |x| <= `FENCE` ends the episode."""

    def terminated(self, state):
        return np.abs(state[..., 0]) > FENCE


@pytest.fixture
def fence(monkeypatch):
    free = make("point-robot/oyster-v1")
    env = Fenced(free.spec, free.task_table, free.split_table)
    monkeypatch.setattr("omrl.data.collect.run.make", lambda _: env)


@pytest.mark.usefixtures("fence")
def test_episodes_end_early_and_every_task_gets_its_transitions(tmp_path, monkeypatch):
    dataset = collected(TINY, tmp_path / "data")
    steps = load(tmp_path / "data" / "curves.npz")["steps"]
    rounds = np.isfinite(steps).sum(axis=1)
    assert rounds[0] != rounds[1]  # One rests while the other goes on.
    for position, task in enumerate(TINY.tasks):
        data = dataset.task(task)
        lengths = np.diff(data.episode_start)
        assert lengths.min() < 20
        assert lengths.max() <= 20
        last = np.asarray(data.episode_start[1:]) - 1
        out = np.abs(np.asarray(data.obs)[last + np.arange(1, len(lengths) + 1), 0]) > FENCE
        np.testing.assert_array_equal(np.asarray(data.terminated)[last], out)
        np.testing.assert_array_equal(np.asarray(data.truncated)[last], ~out)
        assert len(data.reward) >= TINY.steps > steps[position, rounds[position] - 2]
    # Resumed after one task is at rest, the replay buffers of both are what they were.
    whole = contents(tmp_path / "data")
    stop_after(monkeypatch, int(rounds.min()) + 1, signal.SIGTERM)
    with pytest.raises(Stopped):
        collected(TINY, tmp_path / "again")
    collected(TINY, tmp_path / "again", resume=True)
    assert contents(tmp_path / "again") == whole


@pytest.mark.usefixtures("fence")
def test_a_resting_task_is_as_if_it_were_alone(tmp_path):
    """A task that ended before the others has the final agent of its own last round."""
    collected(TINY, tmp_path / "both")
    steps = load(tmp_path / "both" / "curves.npz")["steps"]
    rounds = np.isfinite(steps).sum(axis=1)
    assert rounds[0] != rounds[1]
    position = int(np.argmin(rounds))
    pair = dataclasses.replace(TINY, tasks=(TINY.tasks[position], 7))
    collected(pair, tmp_path / "pair")
    both, other = (FinalAgents.load(tmp_path / name) for name in ("both", "pair"))
    index = TINY.tasks[position]
    obs = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(both.act(index, obs), other.act(index, obs))


def test_columns_of_a_round():
    """Two environments of one task, three steps; the second ends after its first."""
    horizon, envs = 3, 2
    time_env = np.arange(horizon * envs, dtype=np.float32).reshape(horizon, 1, envs)
    played = Round(
        obs=np.arange(8, dtype=np.float32).reshape(4, 1, envs, 1),
        action=time_env[..., None],
        reward=time_env,
        terms=time_env[..., None],
        terminated=np.array([[[False, True]], [[False, True]], [[False, True]]]),
        length=np.array([[3, 1]]),
    )
    columns = played.columns(0)
    assert columns["obs"][:, 0].tolist() == [0, 2, 4, 6, 1, 3]
    assert columns["reward"].tolist() == [0, 2, 4, 1]
    assert columns["terminated"].tolist() == [False, False, False, True]
    assert columns["truncated"].tolist() == [False, False, True, False]
    assert columns["episode_start"].tolist() == [0, 3, 4]


def test_live_order():
    """Two rounds of two environments with episodes of 2, 1 and 1, 2 steps."""
    # Stored: round 0 env 0 (rows 0 1), env 1 (2); round 1 env 0 (3), env 1 (4 5).
    assert live_order(np.array([0, 2, 3, 4, 6]), 2).tolist() == [0, 2, 1, 3, 4, 5]


# --- Learner ---


def test_insert_keeps_the_living_in_order():
    learner = Learner(TINY.make_agent(make(TINY.env).spec), 2)
    replay = learner.empty_replay(2, 4)
    obs = jnp.arange(12.0).reshape(2, 3, 2)
    action = jnp.full((2, 3, 2), 0.5)
    packed = np.zeros((2, 3, 5), np.float32)
    packed[..., 2] = [[1, 2, 3], [4, 5, 6]]
    packed[..., 4] = [[1, 0, 1], [0, 0, 1]]
    replay, next_obs = learner.insert(replay, obs, action, packed)
    assert replay.size.tolist() == [2, 1]
    assert next_obs.shape == (2, 3, 2)
    replay, _ = learner.insert(replay, obs, action, packed)
    assert replay.size.tolist() == [4, 2]
    reward = 2 + 2
    assert replay.rows[0, :, reward].tolist() == [1, 3, 1, 3]
    assert replay.rows[1, :, reward].tolist() == [6, 6, 0, 0]
    assert replay.rows[0, 1].tolist() == [4, 5, 0.5, 0.5, 3, 0, 0, 0]


def test_moments_are_those_of_all_valid_rows():
    rng = np.random.default_rng(0)
    obs = (rng.normal(size=(60, 3)) * [1, 10, 0] + [0, 500, 7]).astype(np.float32)
    valid = rng.random(60) < 0.7
    moments = empty_moments(3)
    for part in (slice(0, 10), slice(10, 11), slice(11, 60)):
        moments = add_rows(moments, jnp.asarray(obs[part]), jnp.asarray(valid[part]))
    none = add_rows(moments, jnp.asarray(obs), jnp.zeros(60, bool))
    for before, after in zip(moments, none, strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(moments.mean, obs[valid].mean(axis=0), rtol=1e-5)
    expected = np.maximum(obs[valid].astype(np.float64).std(axis=0), 1e-2)
    np.testing.assert_allclose(scale(moments), expected, rtol=1e-4)
    standard = jax.vmap(normalise, (None, 0))(moments, jnp.asarray(obs[valid]))
    np.testing.assert_allclose(np.asarray(standard).std(axis=0), [1, 1, 0], atol=1e-3)
    far = jnp.array([0.0, 1e6, 7.0])
    assert normalise(moments, far)[1] == 10


def test_batches_hold_what_was_inserted():
    learner = Learner(TINY.make_agent(make(TINY.env).spec), 2)
    rows = jnp.array([[1.0, 2.0, 0.1, 0.2, -3.0, 1.0, 5.0, 6.0]])
    identity = Moments(jnp.ones(()), jnp.zeros(2), jnp.ones(2))
    batch = learner._unpack(identity, rows)
    expected = ([[1, 2]], [[0.1, 0.2]], [-3], [[5, 6]], [True])
    for leaf, value in zip(batch, expected, strict=True):
        np.testing.assert_allclose(leaf, value, rtol=1e-6)


def test_a_diverged_agent_is_named(tmp_path, monkeypatch):
    end_round = Learner.end_round

    def poison(self, brains, *rest):
        brains = end_round(self, brains, *rest)
        mean = brains.moments.mean.at[1].set(jnp.nan)
        return brains._replace(moments=brains.moments._replace(mean=mean))

    monkeypatch.setattr(Learner, "end_round", poison)
    with pytest.raises(NonFiniteError, match="task 3, round 3, step 1: the action"):
        collected(TINY, tmp_path / "data")
    # Nor is it saved: a checkpoint is always one to go on from.
    with pytest.raises(NonFiniteError, match=r"task 3, round 1: moments\.mean is not finite"):
        collected(dataclasses.replace(TINY, checkpoint_every=1), tmp_path / "other")
    assert not (tmp_path / "other.partial" / storage.NAME).exists()


# --- Small parts ---


def test_bad_configs():
    with pytest.raises(InputError, match=r"tasks: .* name a task twice"):
        CollectConfig(tasks=(1, 1))
    env = make("point-robot/oyster-v1")
    with pytest.raises(InputError, match=r"no task 100; .* has tasks 0 to 99"):
        dataclasses.replace(TINY, tasks=(100,)).indices(env)
    assert dataclasses.replace(TINY, tasks=()).indices(env) == tuple(range(100))
    with pytest.raises(
        InputError, match=r"updates_per_step: 3 is not a multiple of agent\.policy_delay \(2\)"
    ):
        dataclasses.replace(TINY, updates_per_step=3).make_agent(env.spec)


def test_groups_fit_the_device():
    tasks = tuple(range(10))
    assert split_into_groups(tasks, 10, 200, 0) == [tasks]
    # 0.9 * 50 / 10 = 4 fit, so three groups are needed.
    sizes = [len(group) for group in split_into_groups(tasks, 10, 50, 0)]
    assert sizes == [4, 4, 2]
    assert len(split_into_groups(tasks, 10, 200, 5)) == 2
    assert split_into_groups((), 10, 200, 0) == []
    with pytest.raises(InputError, match="group_size: 7 tasks side by side need 70"):
        split_into_groups(tasks, 10**7, 5 * 10**7, 7)
    with pytest.raises(InputError, match="lower steps"):
        split_into_groups(tasks, 10, 5, 0)


def test_results_of_groups_with_different_numbers_of_rounds(tmp_path):
    path = tmp_path / "curves.npz"
    add_tasks(path, {"tasks": np.array([3, 5]), "returns": np.array([[1.0, 2.0], [3.0, 4.0]])})
    add_tasks(path, {"tasks": np.array([4, 5]), "returns": np.array([[5.0], [6.0]])})
    held = load(path)
    assert held["tasks"].tolist() == [3, 4, 5]
    np.testing.assert_array_equal(held["returns"], [[1, 2], [5, np.nan], [6, np.nan]])


def test_background_runs_in_order_and_reports_failures():
    done = []

    def fail():
        raise InputError("no room")

    with Background() as background:
        for number in range(5):
            background.submit(lambda number=number: done.append(number))
        background.drain()
        assert done == [0, 1, 2, 3, 4]
        background.submit(fail)
        with pytest.raises(InputError, match="no room"):
            background.drain()


def test_progress_lines(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("omrl.data.collect.progress.time.monotonic", lambda: now[0])
    text = io.StringIO()
    with CollectProgress(3000, 1000, console=Console(file=text, width=200)) as progress:
        for _ in range(12):
            now[0] += 1.0
            progress.step(100, 20)
            progress.round(np.array([-3.0, -1.0]))
    first, last = text.getvalue().splitlines()
    assert first == (
        "2,000/3,000 transitions  100 env steps/s  20 updates/s  ETA 0:00:10  "
        "return -2.0 (worst -3.0, best -1.0)"
    )
    assert last.startswith("2,200/3,000 transitions")


def test_progress_bar_on_a_terminal():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=150)
    with CollectProgress(100, 0, console=console) as progress:
        progress.step(100, 20)
    assert "100/100 transitions" in text.getvalue()
