"""The trainer: keys, sampling, what happens between chunks, and the guard against NaN."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl import chunk, runs
from omrl.algorithm import Stage
from omrl.algos.smac import Smac
from omrl.algos.smac_config import SmacConfig
from omrl.checkpoint import steps_in
from omrl.chunk import Layout, init_states, place, train_chunk
from omrl.data.sample import BatchSpec
from omrl.errors import InputError, NonFiniteError, Stopped
from omrl.interrupt import Interrupt
from omrl.logs import read_log
from omrl.pace import Pace
from omrl.train import (
    TrainConfig,
    check_data,
    disk_bytes,
    load_states,
    num_updates,
    train,
)
from toy import SPEC, Toy, ToyConfig, make_data

TASK_IDS = np.array([10, 11, 12, 13, 14, 15])
CPU = jax.devices("cpu")[:1]


# --- One chunk ---


class Count(NamedTuple):
    step: jax.Array


def draw(state, batches, key):
    """Learns nothing; tells what it was given."""
    metrics = {"loss": jax.random.uniform(key), "reward": batches["batch"].reward[:, 0]}
    return Count(state.step + 1), metrics


DRAW = Stage("draw", 100, 4, (BatchSpec("batch", 1),), draw)


def drawn(seeds, num, steps=None):
    layout = Layout.of(CPU, len(seeds))
    steps = np.zeros(len(seeds), np.int32) if steps is None else np.asarray(steps, np.int32)
    states = place(Count(steps), layout.by_seed)
    data = place(make_data(), layout.replicated)
    states, metrics, _ = train_chunk(DRAW, layout, states, data, np.asarray(seeds), TASK_IDS, num)
    return states, {name: np.asarray(rows)[:, :num] for name, rows in metrics.items()}


def test_keys_are_a_function_of_seed_and_step():
    states, metrics = drawn([3, 5], num=2, steps=[7, 0])
    np.testing.assert_array_equal(states.step, [9, 2])
    for row, (seed, step) in enumerate([(3, 7), (5, 0)]):
        for update in range(2):
            key = jax.random.fold_in(jax.random.PRNGKey(seed), step + update)
            expected = jax.random.uniform(jax.random.split(key, 3)[2])
            assert metrics["loss"][row, update] == expected


def test_tasks_are_drawn_uniformly_without_replacement_and_named():
    _, metrics = drawn([0, 1], num=1500)
    tasks = metrics["task"]
    assert all(len(set(row)) == 4 for row in tasks.reshape(-1, 4))
    counts = np.array([(tasks == task).sum() for task in TASK_IDS])
    # 3,000 updates of 4 tasks of 6: each 2,000 times, standard deviation 26.
    assert np.all(np.abs(counts - 2000) < 4 * 26)
    rewards = np.asarray(make_data().reward)
    for task, reward in zip(tasks[0, :50].ravel(), metrics["reward"][0, :50].ravel(), strict=True):
        assert reward in rewards[task - 10]


def test_a_chunk_has_a_longest_length():
    with pytest.raises(ValueError, match="num_updates: 4097 is not in 0 … 4096"):
        drawn([0, 1], num=chunk.MAX_UPDATES + 1)


def test_seeds_must_divide_over_the_devices():
    with pytest.raises(InputError, match="3 do not divide evenly over 2 devices; use a multiple"):
        Layout.of(CPU * 2, 3)


@pytest.mark.parametrize(
    ("speed", "lengths"),
    [(10.0, [4, 15, 15, 15]), (1e6, [4, 16, 64, 256, 1024, 4096, 4096]), (0.1, [1, 1])],
)
def test_the_pace_settles_at_a_second_and_a_half(speed, lengths):
    pace = Pace()
    assert pace.length == 1
    for expected in lengths:
        pace.measured(pace.length, pace.length / speed)
        assert pace.length == expected


# --- A whole run ---


@dataclass(frozen=True)
class Config:
    algo: ToyConfig
    train: TrainConfig


def run_toy(path, algo, config, data=None, **options):
    layout = Layout.of(CPU, config.seeds)
    run = runs.create(path, Config(algo, config), command="toy", devices=CPU)
    data = make_data() if data is None else data
    return run, train(run, Toy(algo), config, layout, data, TASK_IDS, **options)


def test_what_happens_between_chunks(tmp_path, capsys):
    algo = ToyConfig(warmup=7, steps=33)
    config = TrainConfig(seeds=2, first_seed=3, log_every=10, eval_every=15, checkpoint_every=20)
    evaluated = []

    def evaluate(states, step):
        evaluated.append((step, states.step.tolist(), states.policy.bias.shape))
        return {"return": -float(step)}

    run, states = run_toy(tmp_path / "run", algo, config, evaluate=evaluate)
    assert evaluated == [(step, [step, step], (2, 2)) for step in (7, 15, 30, 40)]
    rows = read_log(run.path)
    # A row every ten updates, one at the end of the first stage, one per evaluation.
    assert [row["step"] for row in rows] == [7, 7, 10, 15, 20, 30, 30, 40, 40]
    assert [row["stage"] for row in rows if "stage" in row] == ["warmup", *["meta"] * 4]
    returns = [row["evaluation"]["return"] for row in rows if "evaluation" in row]
    assert returns == [-7, -15, -30, -40]
    assert sorted(rows[0]["metrics"]) == ["gradient_norm", "outer_loss"]
    assert sorted(path.name for path in run.checkpoints.glob("[0-9]*")) == ["20", "40", "7"]
    error = capsys.readouterr().err
    assert "meta: compiled in" in error
    assert "40/40 meta" in error

    layout = Layout.of(CPU, 2)
    data = place(make_data(), layout.replicated)
    expected = init_states(Toy(algo), layout, np.array([3, 4]))
    for stage in Toy(algo).stages():
        expected, *_ = train_chunk(
            stage, layout, expected, data, np.array([3, 4]), TASK_IDS, stage.steps
        )
    loaded, step = load_states(run, Toy(algo), config, layout)
    assert step == 40
    for one, two, three in zip(*map(jax.tree.leaves, (expected, states, loaded)), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_the_end_of_every_stage_has_a_checkpoint_that_stays(tmp_path):
    """Also where the run is resumed behind it; evaluations are asked for or not."""
    algo = ToyConfig(warmup=7, steps=33)
    config, evaluated = TrainConfig(checkpoint_every=5, keep=1), []

    def evaluate(states, step):
        evaluated.append(step)
        return {"return": 0.0}

    run, _ = run_toy(tmp_path / "run", algo, config, evaluate=evaluate)
    assert evaluated == [40]
    assert steps_in(run.checkpoints) == [7, 40]
    shutil.rmtree(run.checkpoints / "40")
    layout = Layout.of(CPU, 1)
    train(run, Toy(algo), config, layout, make_data(), TASK_IDS, evaluate=evaluate)
    assert steps_in(run.checkpoints) == [7, 40]
    assert load_states(run, Toy(algo), config, layout, 7)[1] == 7


def test_a_finished_run_is_not_trained_again(tmp_path, capsys):
    algo, config = ToyConfig(), TrainConfig()
    run, states = run_toy(tmp_path / "run", algo, config, quiet=True)
    assert capsys.readouterr().err == ""
    layout, called = Layout.of(CPU, 1), []
    again = train(
        run, Toy(algo), config, layout, make_data(), TASK_IDS, evaluate=lambda *_: called.append(1)
    )
    np.testing.assert_array_equal(again.policy.kernel, states.policy.kernel)
    assert called == []
    assert [row["step"] for row in read_log(run.path)] == [7, 40]


def test_going_on_with_a_run_that_is_trained_changes_nothing_of_it(tmp_path):
    """What the other process writes meanwhile, its log and its checkpoint, stays as it is."""
    algo, config = ToyConfig(warmup=7, steps=33), TrainConfig()
    run, _ = run_toy(tmp_path / "run", algo, config)
    unfinished = run.checkpoints / "60.orbax-checkpoint-tmp"
    unfinished.mkdir()
    with (run.path / "log.jsonl").open("a") as log:
        log.write('{"step": 50, "seconds": 1.0, "evaluation": {"return": 1.0}}\n')

    def files():
        return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    before = files()
    with runs.claimed(run.path):
        with pytest.raises(InputError, match="run: another process trains it; wait until"):
            runs.resume(run.path, Config(algo, config), command="second", devices=CPU)
        with pytest.raises(InputError, match="run: another process trains it; wait until"):
            train(run, Toy(algo), config, Layout.of(CPU, 1), make_data(), TASK_IDS)
    assert files() == before
    assert unfinished.exists()


def test_an_evaluation_that_fails_loses_no_update_and_is_made_up_for(tmp_path):
    algo, config = ToyConfig(warmup=7, steps=33), TrainConfig(checkpoint_every=100)

    def full_disk(states, step):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        run_toy(tmp_path / "run", algo, config, evaluate=full_disk)
    run, layout, evaluated = runs.open_run(tmp_path / "run"), Layout.of(CPU, 1), []
    assert load_states(run, Toy(algo), config, layout)[1] == 40

    def evaluate(states, step):
        evaluated.append(step)
        return {"return": 0.0}

    train(run, Toy(algo), config, layout, make_data(), TASK_IDS, evaluate=evaluate)
    assert evaluated == [40]


def test_disk_bytes_are_those_of_the_states():
    # Policy and two moments of Adam of 2 x 3 + 2 floats, two counters, 2 seeds; 3 checkpoints, one
    # of the first of two stages, and one more that is being written.
    expected = (3 * 8 + 2) * 4 * 2 * 5
    assert disk_bytes(Toy(ToyConfig()), Layout.of(CPU, 2), TrainConfig(seeds=2)) == expected


def test_updates_of_all_stages():
    assert num_updates(Toy(ToyConfig(warmup=7, steps=33))) == 40


def test_more_than_an_int32_can_count():
    """Updates of all stages, and transitions of one update."""
    with pytest.raises(InputError, match="steps: the stages have 2,147,483,648 updates together"):
        check_data(Toy(ToyConfig(warmup=1, steps=2**31 - 1)), None, TASK_IDS)
    algorithm = Smac(SmacConfig(batch=BatchSpec("batch", 2**29)), SPEC)
    with pytest.raises(InputError, match=r"batch\.size: 536,870,912 transitions of 4 tasks"):
        check_data(algorithm, None, TASK_IDS)


def test_the_last_seed_is_an_int32():
    assert TrainConfig(seeds=2, first_seed=2**31 - 2).seed_numbers[-1] == 2**31 - 1
    with pytest.raises(
        InputError, match=r"first_seed: 2147483646 leaves .*; use at most 2147483645"
    ):
        TrainConfig(seeds=3, first_seed=2**31 - 2)


def test_too_little_data_is_noticed_before_anything_is_compiled():
    with pytest.raises(InputError, match="stage warmup draws 4 tasks per update, the data has 3"):
        check_data(Toy(ToyConfig()), make_data(num_tasks=3), TASK_IDS[:3])
    empty = make_data(num_tasks=4)._replace(num_rows=jnp.array([40, 40, 0, 40]))
    with pytest.raises(InputError, match="task 12: batch 'outer' needs 1 rows"):
        check_data(Toy(ToyConfig()), empty, TASK_IDS[:4])


# --- NaN ---


def poisoned(task: int):
    """Data of which one task has an infinite action in every row."""
    data = make_data()
    return data._replace(action=data.action.at[task].set(jnp.inf))


def test_not_finite_names_update_seed_task_and_tensor(tmp_path):
    algo = ToyConfig(warmup=0, steps=40)
    # Seeds of which the second draws task 14 before the first does, and neither at once.
    config = TrainConfig(seeds=2, first_seed=25, checkpoint_every=1)
    metrics = sampled_tasks(algo, [25, 26])
    bad = metrics["task"] == 14
    update = int(np.argmax(bad.any(axis=(0, 2))))  # the first that draws task 14
    assert update == 3
    np.testing.assert_array_equal(bad[:, update].any(axis=1), [False, True])
    with pytest.raises(NonFiniteError) as caught:
        run_toy(tmp_path / "run", algo, config, data=poisoned(4))
    assert str(caught.value) == (
        f"stage meta, update {update + 1}: seed 26, task 14: metric outer_loss, "
        f"leaf policy.kernel not finite; "
        f"the checkpoint of update {update} is good"
    )
    run = runs.open_run(tmp_path / "run")
    states, step = load_states(run, Toy(algo), config, Layout.of(CPU, 2))
    assert step == update
    assert np.all(np.isfinite(states.policy.kernel))


def sampled_tasks(algo, seeds):
    """Tasks do not depend on the data, so sound data tells which ones the poisoned run draws."""
    layout = Layout.of(CPU, len(seeds))
    seeds = np.asarray(seeds)
    states = init_states(Toy(algo), layout, seeds)
    data = place(make_data(), layout.replicated)
    stage = Toy(algo).stages()[1]
    _, metrics, _ = train_chunk(stage, layout, states, data, seeds, TASK_IDS, 40)
    return {name: np.asarray(rows)[:, :40] for name, rows in metrics.items()}


def overflow(state, batches, key):
    """At step 5 the state overflows though the loss does not show it yet."""
    weight = jnp.where(state.step == 5, jnp.inf, state.weight)
    return Weight(weight, state.step + 1), {"loss": jnp.zeros(())}


class Weight(NamedTuple):
    weight: jax.Array
    step: jax.Array


@dataclass(frozen=True)
class Overflow(Toy):
    def init(self, key):
        return Weight(jnp.zeros(()), jnp.zeros((), jnp.int32))

    def stages(self):
        return (Stage("only", 20, 2, (BatchSpec("batch", 1),), overflow),)


def test_a_state_that_overflows_behind_a_finite_loss(tmp_path):
    config = TrainConfig(seeds=3, checkpoint_every=3)
    run = runs.create(tmp_path / "run", config, command="", devices=CPU)
    expected = (
        r"stage only, update 6: seed 0, one of the tasks 1\d, 1\d: leaf weight not finite; "
        "also of seed 1, 2; the checkpoint of update 3 is good"
    )
    with pytest.raises(NonFiniteError, match=expected):
        train(
            run, Overflow(ToyConfig()), config, Layout.of(CPU, 3), make_data(), TASK_IDS, quiet=True
        )


# --- Signals ---


def test_interrupt_gives_the_handlers_back():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupt() as interrupt:
        assert interrupt.signum == 0
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.signum == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_in_the_last_evaluation_is_not_forgotten(tmp_path):
    evaluated = []

    def evaluate(states, step):
        evaluated.append(step)
        signal.raise_signal(signal.SIGTERM)
        return {}

    expected = "stopped by SIGTERM after 40 updates, which are all, and evaluated"
    with pytest.raises(Stopped, match=expected) as told:
        run_toy(tmp_path / "run", ToyConfig(), TrainConfig(), evaluate=evaluate)
    assert told.value.code == 143
    assert evaluated == [40]
    run, layout = runs.open_run(tmp_path / "run"), Layout.of(CPU, 1)
    train(
        run, Toy(ToyConfig()), TrainConfig(), layout, make_data(), TASK_IDS, evaluate=evaluate
    )  # Nothing is left to do.
    assert evaluated == [40]


def test_a_resumed_run_without_its_checkpoints_says_that_it_begins_again(tmp_path, capsys):
    run, _ = run_toy(tmp_path / "run", ToyConfig(), TrainConfig())
    begins = f"{run.checkpoints}: no checkpoint; begins again at update 0"
    assert begins not in capsys.readouterr().err
    shutil.rmtree(run.checkpoints)
    train(run, Toy(ToyConfig()), TrainConfig(), Layout.of(CPU, 1), make_data(), TASK_IDS)
    assert begins in capsys.readouterr().err
