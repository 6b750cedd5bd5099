"""`omrl evaluate RUN --diagnose shift` on the point robot, by a method whose every number is known
in advance, and on PEARL."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import tiny_macaw
from fake_shift import make_shift
from omrl import metatrain, runs
from omrl.algorithm import Algorithm
from omrl.algos.pearl_config import PearlConfig
from omrl.checkpoint import Checkpoints
from omrl.cli import main
from omrl.config import to_json
from omrl.context import draw_contexts
from omrl.data.store import open_dataset
from omrl.diagnostics import contexts
from omrl.diagnostics.base import SETS, SOURCES, file_of, grouped
from omrl.diagnostics.kinds import folder_of
from omrl.diagnostics.results import ShiftResult, describe
from omrl.diagnostics.run import diagnose_checkpoints, kept_checkpoints
from omrl.diagnostics.shift import diagnose_shift
from omrl.envs.point_robot import STEP_SIZE
from omrl.envs.positions import has_positions, positions
from omrl.envs.registry import make
from omrl.errors import InputError
from omrl.evaluate import EvalConfig
from omrl.explore import NEXT_TRAJECTORY
from omrl.metatrain import Trained, evaluate_trained, load_trained
from omrl.ops.latent import kl_to_prior
from omrl.presets import RunConfig, RunRecord
from omrl.protocol import ExploreConfig, exploring
from omrl.report import write_report
from omrl.train import TrainConfig
from test_evaluate import ENV, HORIZON, SPEC, TASKS, Fence, start_of, walk_return, write_walks

SIZE = 10
OWN = EvalConfig(tasks=TASKS, context_size=SIZE, context_seed=5, episode_seed=2)
CONFIG = replace(exploring("explore-paper", OWN), episodes=3)
RIGHT = np.array([9.0, 0.0])
CPU = ["--device", "cpu"]


# --- A method of which everything is known ---


class Knowledge(NamedTuple):
    seen: Array
    total: Array
    """Of the rewards seen."""
    own: Array
    """How many of the actions seen are its own before data."""
    guess: Array
    """The mean reward that was seen when it was drawn."""


@dataclass(frozen=True)
class Open(Algorithm):
    """Its posterior has the mean (seen, own) and variance 1; it walks to the left before data and
    to the right after it, and predicts its guess, the mean reward that it has seen."""

    spec: Any = SPEC
    config: str = ""
    online_context: ClassVar = "trajectory"

    def init(self, key):
        raise AssertionError("its states are given")

    def stages(self):
        return ()

    def begin(self, state, key):
        return Knowledge(*jnp.zeros(4))

    def adapt(self, state, task, support, key):
        raise AssertionError("it observes step by step")

    def observe(self, state, task, step, key):
        own = jnp.all(step.action == jnp.array([-1.0, 0.0]))
        return Knowledge(task.seen + 1, task.total + step.reward, task.own + own, task.guess)

    def resample(self, state, task, key):
        return task._replace(guess=task.total / jnp.maximum(task.seen, 1))

    def posterior(self, state, task):
        return jnp.stack([task.seen, task.own]), jnp.ones(2)

    def predict_reward(self, state, task, obs, action, next_obs):
        return task.guess

    def act(self, state, task, obs, key, deterministic):
        return jnp.stack([jnp.where(task.seen > 0, 1.0, -1.0), 0.0])

    def policy_layers(self, state, task):
        raise AssertionError("it is not exported")


@dataclass(frozen=True)
class Closed(Open):
    """The same without a decoder."""

    def predict_reward(self, state, task, obs, action, next_obs):
        return Algorithm.predict_reward(self, state, task, obs, action, next_obs)


class OpenState(NamedTuple):
    step: Array


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_walks(tmp_path_factory.mktemp("data") / "walks").path


def trained_of(algorithm: Algorithm, data: Path, states: Any = None) -> Trained:
    run = RunConfig(
        env=ENV.spec.id,
        algo=PearlConfig(**SIZES),
        train=TrainConfig(seeds=2),
        train_tasks=TASKS[1:],
        eval=EvalConfig(tasks=TASKS),
        discount=0.9,
    )
    record = RunRecord(run, algorithm.spec, str(data), "ab" * 32)
    states = OpenState(jnp.full(2, 11, jnp.int32)) if states is None else states
    return Trained(record, algorithm, states, 11, ENV, "run")


SIZES: dict[str, Any] = {
    "hidden": (4,),
    "encoder_hidden": (4,),
    "latent": 2,
    "task_batch": 2,
}


@pytest.fixture(scope="module")
def result(data) -> ShiftResult:
    return diagnose_shift(trained_of(Open(), data), CONFIG)


def test_contexts_are_of_one_size_and_of_their_source(result):
    assert result.context_size == SIZE
    assert (result.used == SIZE).all()
    assert result.kl.shape == result.returns.shape == (2, 2, 3, 3)
    offline, online = result.kl
    np.testing.assert_allclose(offline, 0.5 * SIZE**2)
    np.testing.assert_allclose(online, 0.5 * (SIZE**2 + SIZE**2))


def test_returns_after_adaptation_are_paired_and_those_of_the_closed_form(result):
    np.testing.assert_array_equal(*result.returns)
    for s, run_seed in enumerate((0, 1)):
        for t, task in enumerate(TASKS):
            for e in range(3):
                start = start_of(run_seed, task, 2 * NEXT_TRAJECTORY + e)
                right = walk_return(start, start + RIGHT, ENV.tasks[task])
                assert result.returns[0, s, t, e] == pytest.approx(right, abs=1e-4)
                for number in range(2):
                    start = start_of(run_seed, task, number * NEXT_TRAJECTORY + e)
                    left = walk_return(start, start - RIGHT, ENV.tasks[task])
                    assert result.exploration[s, t, number, e] == pytest.approx(left, abs=1e-4)
    assert result.change_of("test").value == 0.0


@pytest.mark.parametrize("every", ["trajectory", "step"])
def test_a_decoder_is_tried_on_other_data_and_on_what_is_explored(data, every):
    """Here it predicts the mean reward of the offline context for every transition."""
    config = replace(CONFIG, context_size=2 * HORIZON)  # All that is explored.
    config = replace(config, explore=replace(config.explore, resample_every=every))
    errors = diagnose_shift(trained_of(Open(), data), config).decoder_error
    assert errors is not None
    given = EvalConfig(tasks=TASKS, context_size=2 * HORIZON)
    drawn = [
        draw_contexts(
            open_dataset(data),
            ENV,
            replace(given, context_seed=CONFIG.context_seed + number),
            seeds=(0, 1),
            discount=0.9,
        ).batch
        for number in range(4)
    ]
    for s, t in ((0, 0), (1, 2)):
        *contexts, spare = (np.asarray(batch.reward[s, t]) for batch in drawn if batch is not None)
        expected = np.zeros(2)
        for e, rewards in enumerate(contexts):
            explored = []
            for number in range(2):
                start = start_of(s, TASKS[t], number * NEXT_TRAJECTORY + e)
                x = start[0] - STEP_SIZE * np.arange(1, HORIZON + 1)
                at = np.stack([x, np.full(HORIZON, start[1])], 1)
                explored.append(-np.linalg.norm(at - ENV.tasks[TASKS[t]], axis=1))
            for source, other in enumerate((spare, np.concatenate(explored))):
                expected[source] += np.mean((other - rewards.mean()) ** 2) / 3
        np.testing.assert_allclose(errors[:, s, t], expected, rtol=1e-4)
    assert diagnose_shift(trained_of(Closed(), data), CONFIG).decoder_error is None


def test_contexts_are_those_that_the_encoder_was_trained_on(data, tmp_path):
    """Of its buffer and slice; a decoder is tried on the slice of the main data. Both are one
    episode here, and `Open` predicts the mean reward of the context."""
    encoder = write_walks(tmp_path / "encoder", episodes=3)
    trained = trained_of(Open(), data)
    own = replace(trained.record.run, slice="last-1", encoder_slice="first-1")
    record = replace(trained.record, run=own, encoder_data=str(encoder.path))
    config = replace(CONFIG, context_size=HORIZON)
    result = diagnose_shift(replace(trained, record=record), config)
    assert result.provenance.dataset_hash == encoder.manifest.hash
    assert result.config.context_slice == "first-1"
    first, last = encoder.task(TASKS[1]), open_dataset(data).task(TASKS[1])
    error = np.mean((last.reward[-HORIZON:] - first.reward[:HORIZON].mean()) ** 2)
    assert result.decoder_error is not None
    np.testing.assert_allclose(result.decoder_error[0, :, 1], error, rtol=1e-4)

    of_main = replace(trained, record=replace(trained.record, run=replace(own, encoder_slice="")))
    result = diagnose_shift(of_main, config)
    assert result.config.context_slice == "last-1"
    asked = diagnose_shift(replace(trained, record=record), config, data)
    assert asked.config.context_slice == "all"
    assert asked.provenance.dataset_hash == open_dataset(data).manifest.hash


def test_what_ended_early_is_not_in_an_online_context(data):
    """Behind a fence at .5 an episode that begins beyond .6 is over after one step."""
    fence = Fence(ENV.spec, ENV.task_table, ENV.split_table)
    trained = replace(trained_of(Open(), data), env=fence)
    found = diagnose_shift(trained, replace(CONFIG, context_size=30))
    lengths = np.zeros((2, 3, 3))
    for s, t, e, number in np.ndindex(2, 3, 3, 2):
        start = start_of(s, TASKS[t], number * NEXT_TRAJECTORY + e)[0]
        lengths[s, t, e] += 1 if start > 0.6 else HORIZON
    assert lengths.min() < 30
    np.testing.assert_allclose(found.kl[1], np.minimum(lengths, 30) ** 2)
    np.testing.assert_allclose(found.kl[0], 0.5 * np.minimum(lengths, 30) ** 2)
    np.testing.assert_array_equal(found.used, np.minimum(lengths, 30))
    assert f"offline: {lengths.min():g} to 30 (asked for 30; explored" in describe([found])[1]


def test_contexts_are_no_larger_than_what_is_explored(data):
    """150 logged transitions against the 40 of two trajectories would not be a comparison."""
    found = diagnose_shift(trained_of(Open(), data), replace(CONFIG, context_size=100))
    assert (found.used == 2 * HORIZON).all()
    np.testing.assert_allclose(found.kl[0], 0.5 * (2 * HORIZON) ** 2)
    assert found.to_json()["used"] == [40, 40]
    assert found.context_size == 100
    told = "offline: 40 (asked for 100; explored no more, see --explore.episodes) transitions"
    assert told in describe([found])[1]


def test_where_trajectories_go(result, data):
    assert result.xy is not None
    assert result.xy.shape == (len(SETS), 3, 3, HORIZON, 2)
    by_set = dict(zip(SETS, result.xy, strict=True))
    start = start_of(0, TASKS[1], 2)
    x = start[0] - 0.1 * np.arange(1, HORIZON + 1)
    np.testing.assert_allclose(by_set["exploration"][1, 2, :, 0], x, atol=1e-5)
    assert (np.diff(by_set["online"][..., 0]) > 0).all()
    logged = np.asarray(open_dataset(data).task(TASKS[1]).terms).reshape(-1, HORIZON, 2)
    for trace in by_set["dataset"][1]:
        assert any(np.array_equal(trace, episode.astype(np.float64)) for episode in logged)


def test_groups_and_tasks(data, result):
    assert {name: tasks.tolist() for name, tasks in result.groups.items()} == {
        "test": [True, False, False],
        "train": [False, True, True],
    }
    split = diagnose_shift(
        replace_train(trained_of(Open(), data), (91,)), replace(CONFIG, tasks=(83, 80))
    )
    assert split.task_indices.tolist() == [83, 80]


def replace_train(trained: Trained, tasks: tuple[int, ...]) -> Trained:
    run = replace(trained.record.run, train_tasks=tasks)
    return replace(trained, record=replace(trained.record, run=run))


def test_at_most_ten_training_tasks_are_looked_at():
    assert contexts._spread(list(range(100, 180)), 10)[::9] == [100, 179]
    assert contexts._spread([5, 7], 10) == [5, 7]
    assert contexts._spread([], 10) == []


# --- Files, tables, pages ---


def test_a_file_holds_all_of_it(result, tmp_path):
    path = result.save(file_of(tmp_path, CONFIG, 11))
    loaded = ShiftResult.load(path)
    for field in dataclasses.fields(ShiftResult):
        one, other = getattr(loaded, field.name), getattr(result, field.name)
        assert (
            np.array_equal(one, other, equal_nan=True)
            if isinstance(one, np.ndarray)
            else one == other
        )
    groups = grouped(tmp_path, ShiftResult)
    assert [[one.provenance.step for one in group] for group in groups] == [[11]]
    told = json.loads(json.dumps(loaded.to_json(), allow_nan=False))
    assert told["groups"]["test"]["online_minus_offline"]["value"] == 0.0
    assert told["groups"]["train"]["offline"]["kl"]["value"] == pytest.approx(
        np.median(result.kl[0][:, 1:])
    )


def test_a_damaged_file_is_one_line(result, tmp_path):
    path = result.save(tmp_path / "a.npz")
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for kl, message in (
        (result.kl[:, :1], "kl has shape"),
        (result.kl * np.nan, "kl must be finite"),
    ):
        np.savez(path, allow_pickle=False, **(arrays | {"kl": kl}))
        with pytest.raises(InputError, match=rf"a\.npz: kl.*{message[3:]}.*evaluate again"):
            ShiftResult.load(path)


def test_several_checkpoints_go_on_where_they_were(data, tmp_path):
    loaded = []

    def load(step: int) -> Trained:
        loaded.append(step)
        trained = trained_of(Open(), data, OpenState(jnp.full(2, step, jnp.int32)))
        return replace(trained, step=step)

    lines: list[str] = []
    first = diagnose_checkpoints(load, [3, 6], CONFIG, out=tmp_path, report=lines.append)
    again = diagnose_checkpoints(load, [3, 6, 9], CONFIG, out=tmp_path)
    assert loaded == [3, 6, 9]
    assert [result.provenance.step for result in again] == [3, 6, 9]
    np.testing.assert_array_equal(first[0].kl, again[0].kl)
    assert "2 of 2: checkpoint 6" in lines[1]
    other = replace(again[0], provenance=replace(again[0].provenance, dataset_hash="other"))
    other.save(file_of(tmp_path, CONFIG, 3))
    with pytest.raises(InputError, match="other data; replace it with --overwrite"):
        diagnose_checkpoints(load, [3, 6], CONFIG, out=tmp_path)
    diagnose_checkpoints(load, [3, 6], CONFIG, out=tmp_path, overwrite=True)
    assert len(grouped(tmp_path, ShiftResult)[0]) == 3


def test_a_method_without_a_posterior_is_refused(data):
    algorithm = tiny_macaw.make_mt_awr()
    states = jax.vmap(algorithm.init)(jax.random.split(jax.random.PRNGKey(0), 2))
    with pytest.raises(InputError, match="diagnose: MtAwr has no posterior over tasks; ") as caught:
        diagnose_shift(trained_of(algorithm, data, states), CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "columns", "expected"),
    [
        ("point-robot/oyster-v1", 2, [[1, 2], [4, 6]]),
        ("ant-dir/smac-v1", 5, [[1, 2], [5, 8]]),
        ("humanoid-dir/smac-v1", 4, [[1, 2], [5, 8]]),
    ],
)
def test_positions_are_read_from_the_terms_that_have_them(env_id, columns, expected):
    terms = np.zeros((1, 2, columns))
    terms[0, :, :2] = [[1, 2], [4, 6]]
    np.testing.assert_array_equal(positions(make(env_id).spec, terms)[0], expected)


def test_a_cheetah_has_no_positions():
    assert not has_positions(make("cheetah-vel/macaw-v1").spec)


# --- PEARL, from a run folder ---


@pytest.fixture(scope="module")
def pearl_run(tmp_path_factory, data) -> Path:
    """A run folder of PEARL with checkpoints that nothing has trained."""
    path = tmp_path_factory.mktemp("run") / "pearl"
    record = trained_of(Open(), data).record
    algorithm = metatrain.build(record.run, record.spec)
    run = runs.create(path, record, command="tests", devices=runs.resolve_devices("cpu"))
    checkpoints = Checkpoints(run.checkpoints)
    for step in (1, 2):
        states = jax.vmap(algorithm.init)(jax.random.split(jax.random.PRNGKey(step), 2))
        checkpoints.save(step, states._replace(step=jnp.full(2, step)), run.config, {})
    checkpoints.wait()
    checkpoints.close()
    return path


def test_pearl_explores_without_any_data(pearl_run, tmp_path):
    trained = load_trained(pearl_run)
    config = exploring("explore-code", EvalConfig(tasks=TASKS, episodes=2))
    with_data = evaluate_trained(trained, None, config)
    gone = replace(trained, record=replace(trained.record, data=str(tmp_path / "gone")))
    without = evaluate_trained(gone, None, config)
    np.testing.assert_array_equal(with_data.returns, without.returns)
    assert (with_data.provenance.dataset, without.provenance.dataset) != ("", "")
    assert without.provenance.dataset == ""
    with pytest.raises(InputError, match="gone"):
        evaluate_trained(gone, tmp_path / "gone", config)
    with pytest.raises(InputError, match="gone"):
        evaluate_trained(gone, None, EvalConfig(tasks=TASKS, context_size=SIZE))


def run_cli(capsys, *arguments: object) -> str:
    assert main([*map(str, arguments), *CPU]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_commands(pearl_run, capsys):
    few = ["--episodes", "2", "--context-size", SIZE]
    explored = json.loads(
        run_cli(capsys, "evaluate", pearl_run, "--protocol", "explore", "--episodes", 2, "--json")
    )
    assert explored["config"]["shots"] == [0, 1, 2]
    assert explored["summary"].keys() == {"0", "1", "2"}
    assert Path(explored["file"]).name.startswith("explore-")
    command = ["evaluate", pearl_run, "--diagnose", "shift", "--checkpoints", "all", *few]
    told = json.loads(run_cli(capsys, *command, "--json"))
    assert [one["provenance"]["step"] for one in told["checkpoints"]] == [1, 2]
    assert kept_checkpoints(pearl_run) == [1, 2]
    last = told["checkpoints"][1]["groups"]["test"]["online"]
    assert last["kl"]["value"] > 0
    assert last["decoder_error"] is None
    table = run_cli(capsys, *command)
    assert "| updates |" in table
    assert "online minus offline" in table
    page = write_report(pearl_run).read_text()
    assert "Diagnosis: shift between offline and online contexts" in page
    assert "Return of every trajectory; the first 2 are before adaptation." in page


def test_a_page_shows_a_diagnosis_over_meta_training(pearl_run, tmp_path):
    run = shutil.copytree(pearl_run, tmp_path / "run", ignore=shutil.ignore_patterns("eval"))
    folder = run / "eval" / folder_of("shift")
    make_shift(step=1000).save(folder / "b.npz")
    alone = write_report(run).read_text()
    assert alone.count("data:image/svg+xml") == 2
    assert "Where trajectories go; a colour per task." in alone
    make_shift(step=3000).save(folder / "a.npz")
    page = write_report(run).read_text()
    cells = [cell.strip() for cell in re.findall(r"<t[dh][^>]*>([^<]*)</t", page)]
    assert cells[: cells.index("1,000")][-1] == "decoder error"
    first, last = (cells[cells.index(step) :][:6] for step in ("1,000", "3,000"))
    # KL is 1 + seed + task + repetition: 1, 3 x 2, 4 x 3, 4 x 4, 3 x 5, 6.
    # Returns are -50 - seed - task + updates / 1000.
    assert first[:4] == ["1,000", "test", "offline", "3.50 (2.75, 4.25)"]
    assert first[4].startswith("-50.0 [")
    assert last[4].startswith("-48.0 [")
    assert first[5] == "0.25"
    assert "test tasks 7, 2: online minus offline -10.0 [-10.0, -10.0] after 3,000 updates" in page
    shutil.rmtree(folder)
    make_shift(full=False, seeds=1).save(folder / "a.npz")
    assert write_report(run).read_text().count("data:image/svg+xml") == 1


def test_the_kl_of_pearl_is_that_of_its_posterior(pearl_run):
    """One repetition of `offline` is adaptation to the same context by `adapt`."""

    trained = load_trained(pearl_run)
    config = replace(CONFIG, explore=ExploreConfig(episodes=1), shots=(1,))
    found = diagnose_shift(trained, config)
    given = EvalConfig(tasks=TASKS, context_size=SIZE, context_seed=CONFIG.context_seed + 1)
    dataset = open_dataset(trained.record.data)
    contexts = draw_contexts(dataset, ENV, given, seeds=trained.seeds, discount=0.9)
    algorithm, key = trained.algorithm, jax.random.PRNGKey(0)
    state = jax.tree.map(lambda leaf: leaf[1], trained.states)
    support = jax.tree.map(lambda leaf: leaf[1, 2], contexts.batch)
    task = algorithm.adapt(state, algorithm.begin(state, key), support, key)
    kl = float(kl_to_prior(*algorithm.posterior(state, task)))
    assert found.kl[0, 1, 2, 1] == pytest.approx(kl, rel=1e-4)
    assert math.isfinite(kl)
    assert not np.allclose(found.kl[0], found.kl[1])
    assert SOURCES == ("offline", "online")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoints", "all"], "checkpoints: belongs to a diagnosis"),
        (["--diagnose", "shift", "--study", "steps"], "diagnose: not with a study"),
        (["--diagnose", "shift", "--protocol", "given"], "diagnose: explores, the protocol is"),
        (["--diagnose", "shift", "--step", "1", "--checkpoints", "all"], "step: names one"),
        (["--diagnose", "shift", "--step", "7"], "no checkpoint 7"),
        (["--diagnose", "shift", "--points", "8"], "points: belongs to a study"),
        (["--diagnose", "drift"], "invalid choice 'drift'"),
    ],
)
def test_wrong_options(pearl_run, capsys, options, message):
    assert main(["evaluate", str(pearl_run), *options, *CPU]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert to_json(CONFIG)["protocol"] == "explore"
