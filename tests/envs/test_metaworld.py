"""Meta-World is what the package metaworld 3.0.0 has, as pure functions of a state."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from test_collect import collected

from omrl.cli import main
from omrl.data.collect.presets import default_config
from omrl.data.store import open_dataset
from omrl.data.success import success_rate
from omrl.envs import metaworld as family
from omrl.envs import metaworld_state as states
from omrl.envs import optional, processes, registry
from omrl.envs.check import check
from omrl.envs.engine import VectorEnv, advance, initial_states, script_rngs
from omrl.envs.metaworld_tasks import KINDS, ML10_TEST, ML45_TEST, NAMES, number_of
from omrl.errors import InputError

INSTALLED = optional.is_installed("metaworld")
needs_metaworld = pytest.mark.skipif(not INSTALLED, reason=optional.install_line("metaworld"))

ML45 = registry.make("ml45/continuous-v2-h150-v1")
FIXED = registry.make("ml45/fixedgoal-v2-h150-v1")
REACH = registry.make("ml1-reach/continuous-v2-h150-v1")
DOOR = registry.make("ml1-door-open/continuous-v1reward-h150-v1")


@pytest.fixture
def without_metaworld(monkeypatch):
    monkeypatch.setattr(optional, "is_installed", lambda extra: False)
    monkeypatch.setattr(processes, "_LOCAL", {})


# --- Ids, which need no package ----------------------------------------------------------------


def test_the_ids_are_ml1_of_every_environment_ml10_and_ml45():
    found = registry.optional_ids()
    assert len(NAMES) == 50
    for version in ("v2", "v1reward"):
        assert f"ml45/continuous-{version}-h150-v1" in found
        assert f"ml10/fixedgoal-{version}-h150-v1" in found
        ml1 = {f"ml1-{name}/continuous-{version}-h150-v1" for name in NAMES}
        assert ml1 <= set(found)
    assert len(found) == 108 == len({registry.make(env_id).spec.hash for env_id in found})
    assert not set(found) & set(registry.ids())


@pytest.mark.parametrize(
    ("env", "train", "test"), [(ML45, 45, 5), (FIXED, 45, 5), (REACH, 50, 50), (DOOR, 50, 50)]
)
def test_tasks_and_splits(env, train, test):
    assert {name: len(tasks) for name, tasks in env.splits.items()} == {
        "train": train,
        "test": test,
    }
    env.check_tasks(env.tasks)
    assert len(np.unique(env.tasks, axis=0)) == train + test
    assert env.spec.horizon == 150
    env.check_tasks(env.sample_tasks(np.random.default_rng(0), 20))


def test_the_test_tasks_are_those_of_meta_world():
    for benchmark, test in (("ml45", ML45_TEST), ("ml10", ML10_TEST)):
        env = registry.make(f"{benchmark}/continuous-v2-h150-v1")
        numbers = env.tasks[list(env.splits["test"]), 0].astype(int)
        assert {NAMES[number] for number in numbers} == set(test)


def test_the_task_lists_are_those_of_their_seed():
    drawn = family.draw_tasks()
    np.testing.assert_array_equal(REACH.tasks, drawn["ml1"][number_of("reach")])
    np.testing.assert_array_equal(DOOR.tasks, drawn["ml1"][number_of("door-open")][:, :3])
    order = FIXED.tasks[:, 0].astype(int)
    np.testing.assert_array_equal(FIXED.tasks[:, 1:], drawn["fixedgoal"][order, 0])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_start_vectors_are_in_their_box_with_the_goal_apart(kind):
    rng = np.random.default_rng(0)
    drawn = np.stack([kind.draw(rng) for _ in range(200)])
    own = drawn[:, : kind.size]
    assert (own >= kind.low).all()
    assert (own <= kind.high).all()
    assert not drawn[:, kind.size :].any()
    wide = np.array(kind.high) - kind.low > 0.01
    assert (np.ptp(own, axis=0)[wide] > 0.6 * (np.array(kind.high) - kind.low)[wide]).all()
    if kind.apart:
        assert np.linalg.norm(own[:, :2] - own[:, 3:5], axis=1).min() >= kind.apart
        near = own[0].copy()
        near[3:5] = near[:2] = np.array(kind.low[:2])
        assert kind.problem(np.pad(near, (0, 6 - kind.size)))


@pytest.mark.parametrize(
    ("env", "tasks", "message"),
    [
        (ML45, [[50]], r"number of one of its environments \(0, 1, .*\), not 50 .* of task 0"),
        (ML45, [[0], [2.5]], "not 2.5 as environment of task 1"),
        (REACH, [[9, 0.6, 0.02, 0, 0.8, 0.1]], "reach has start.0 from -0.1 to 0.1; task 0 has 9,"),
        (FIXED, [[15, 0, 0.9, 0.15, 1, 0, 0]], "door-open has 3 entries, the others are 0; task 0"),
        (
            registry.make("ml10/continuous-v2-h150-v1"),
            [[number_of("hammer")]],
            "not 21 as environment",
        ),
    ],
)
def test_tasks_that_there_are_not(env, tasks, message):
    with pytest.raises(InputError, match=message):
        env.check_tasks(np.array(tasks, np.float64))


def test_a_test_environment_is_not_trained_on():
    hidden = ML45.splits["test"][1]
    with pytest.raises(InputError, match=f"task {hidden} of ml45/.* is box-close, a test env"):
        ML45.with_tasks(ML45.tasks, {"train": (0, hidden), "test": (1,)})
    with pytest.raises(InputError, match="a test environment of ML45"):
        ML45.check_training((hidden,))
    ML45.with_tasks(ML45.tasks, {"train": (0, 1), "test": (hidden,)})
    # Any goal of ML1 may be a training task.
    REACH.with_tasks(REACH.tasks, {"train": REACH.splits["test"], "test": (0,)})


# --- Without the package -----------------------------------------------------------------------


def test_the_list_says_how_to_install_what_is_missing(without_metaworld, capsys):
    assert main(["envs"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ml1-reach/continuous-v2-h150-v1 ") for line in printed)
    assert printed[-1].startswith("the 108 from ml45/continuous-v2-h150-v1 to ml1-window-open/")
    assert printed[-1].endswith("without metaworld: pip install 'omrl[metaworld]'")
    assert main(["envs", "--json"]) == 0
    rows = {row["id"]: row["extra"] for row in json.loads(capsys.readouterr().out)}
    assert rows["ml45/continuous-v2-h150-v1"] == "metaworld"
    assert rows["cheetah-vel/macaw-v1"] == ""


def test_the_list_is_silent_where_nothing_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(optional, "is_installed", lambda extra: True)
    assert main(["envs"]) == 0
    assert "pip install" not in capsys.readouterr().out


def test_what_steps_says_how_to_install_it(without_metaworld, tmp_path, capsys):
    line = r"needs metaworld, which is not installed: pip install 'omrl\[metaworld\]'"
    with pytest.raises(InputError, match=line):
        ML45.physics(2)
    with pytest.raises(InputError, match=line):
        gymnasium.make("omrl/ml45.continuous-v2-h150-v1")
    out = tmp_path / "data"
    assert main(["collect", "ml45/continuous-v2-h150-v1", "--out", str(out)]) == 2
    assert "pip install 'omrl[metaworld]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(optional, "is_installed", lambda extra: True)
    monkeypatch.setattr(optional.importlib.metadata, "version", lambda extra: "3.1.1")
    with pytest.raises(InputError, match=r"defined by metaworld 3.0.0, installed is 3.1.1: pip"):
        optional.check_installed("metaworld", "ml45/continuous-v2-h150-v1")


def test_neither_the_list_nor_gymnasium_imports_the_package():
    program = (
        "import sys, gymnasium, omrl; from omrl.envs import registry; "
        "registry.make('ml45/continuous-v2-h150-v1').spec.hash; "
        "assert 'omrl/ml45.continuous-v2-h150-v1' in gymnasium.registry; "
        "sys.exit('metaworld' in sys.modules or 'mujoco' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_there_are_no_films_of_it(tmp_path, capsys):
    out = ["--out", str(tmp_path / "film.gif")]
    assert main(["envs", "render", "ml45/continuous-v2-h150-v1", *out]) == 2
    assert "omrl makes no films of it" in capsys.readouterr().err


# --- With it -----------------------------------------------------------------------------------


@needs_metaworld
def test_the_table_is_that_of_the_package():
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS, ML10_V3, ML45_V3

    assert sorted(ALL_V3_ENVIRONMENTS) == sorted(f"{name}-v3" for name in NAMES)
    assert set(ML45_V3["test"]) == {f"{name}-v3" for name in ML45_TEST}
    assert set(ML10_V3["test"]) == {f"{name}-v3" for name in ML10_TEST}
    for kind in KINDS[::7]:
        space = ALL_V3_ENVIRONMENTS[f"{kind.name}-v3"]()._random_reset_space
        np.testing.assert_array_equal(space.low, kind.low)
        np.testing.assert_array_equal(space.high, kind.high)


def stock(name, version, start):
    """A new object of Meta-World's own, reset with a start vector, and its first observation."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env = ALL_V3_ENVIRONMENTS[f"{name}-v3"](reward_function_version=version)
    env._set_task_called = env._freeze_rand_vec = True
    env._last_rand_vec = np.array(start)
    return env, env.reset()[0]


@needs_metaworld
@pytest.mark.parametrize(
    "name", ["assembly", "basketball", "bin-picking", "door-lock", "hammer", "peg-insert-side"]
)
def test_an_episode_has_the_bits_of_meta_worlds_own(name):
    """Of those that remember most: attributes, edits of the model, views of MuJoCo's memory."""
    env = registry.make(f"ml1-{name}/continuous-v2-h150-v1")
    tasks = env.tasks[[3, 7]]
    theirs = [[stock(name, version, task) for version in ("v1", "v2")] for task in tasks]
    now = initial_states(env, seed=0, num_envs=2, episode=0, tasks=tasks)
    script = env.script(tasks, script_rngs(seed=0, num_envs=2, episode=0))
    for row, pair in enumerate(theirs):
        np.testing.assert_array_equal(env.observe(now)[row], pair[1][1].astype(np.float32))
    with closing(env.physics(1)) as physics:
        for _ in range(60):
            action = script.act(now).astype(np.float32).astype(np.float64)
            after = advance(env, physics, now, action, tasks, np.ones(2, bool))
            now = after.states
            for row, ((first, _), (second, _)) in enumerate(theirs):
                old = first.step(action[row])[1]
                obs, reward, _, _, info = second.step(action[row])
                np.testing.assert_array_equal(after.obs[row], obs.astype(np.float32))
                assert after.reward[row] == np.float32(reward)
                np.testing.assert_array_equal(after.terms[row, :3], [old, reward, info["success"]])
                np.testing.assert_array_equal(now[row, states.GOAL], second._target_pos)
                nq = second.model.nq
                np.testing.assert_array_equal(after.terms[row, 14 : 14 + nq], second.data.qpos)


@needs_metaworld
def test_the_goal_is_hidden_from_agents_and_seen_by_the_script():
    tasks = REACH.tasks[:4]
    now = initial_states(REACH, seed=0, num_envs=4, episode=0, tasks=tasks)
    np.testing.assert_array_equal(REACH.observe(now)[:, 36:], np.zeros((4, 3)))
    np.testing.assert_array_equal(now[:, states.GOAL], tasks[:, 3:])
    rngs = script_rngs(seed=0, num_envs=4, episode=0)
    one, other = REACH.script(tasks, rngs, 0.0), REACH.script(tasks, rngs, 0.0)
    elsewhere = now.copy()
    elsewhere[:, states.GOAL] += 0.3
    assert (one.act(now) != other.act(elsewhere)).any(axis=1).all()


@needs_metaworld
def test_start_vectors_are_drawn_at_every_reset_of_continuous_and_never_of_fixedgoal():
    for env, same in ((ML45, False), (FIXED, True)):
        tasks = np.repeat(env.tasks[[0, 46]], 2, axis=0)
        first, again, later = (
            initial_states(env, seed=5, num_envs=4, episode=episode, tasks=tasks)
            for episode in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        for one, other in ((first[0], first[1]), (first[2], first[3]), (first[0], later[0])):
            assert np.array_equal(one[states.START], other[states.START]) == same
            assert np.array_equal(one[states.GOAL], other[states.GOAL]) == same
        # In box-close the object is elsewhere, too.
        assert np.array_equal(first[2, states.OBS], first[3, states.OBS]) == same


def played(env, tasks, threads, steps=8):
    """Observations and terms of the start of an episode."""
    rng = np.random.default_rng(0)
    with closing(VectorEnv(env, tasks, seed=3, num_threads=threads)) as vector:
        seen = [vector.reset(1)]
        terms = []
        for _ in range(steps):
            step = vector.step(rng.uniform(-1, 1, (6, 4))[: len(tasks)])
            seen.append(step.obs)
            terms.append(step.terms)
    return np.stack(seen), np.stack(terms)


@needs_metaworld
def test_neither_processes_nor_other_environments_change_an_episode():
    tasks = ML45.tasks[[0, 3, 0, 46, 20, 3]]
    first = played(ML45, tasks, 1)
    for threads, num in ((2, 6), (3, 2)):
        ours = played(ML45, tasks[:num], threads)
        for one, other in zip(ours, first, strict=True):
            np.testing.assert_array_equal(one, other[:, :num])


@needs_metaworld
def test_gymnasium_has_success_in_info():
    env = gymnasium.make("omrl/ml1-reach.continuous-v2-h150-v1", task=2)
    env.reset(seed=0)
    info, done, steps = {}, False, 0
    while not done:
        *_, done, info = env.step(np.zeros(4, np.float32))
        steps += 1
    assert steps == 150
    assert info["terms"]["success"] == 0.0
    assert info["terms"]["reward_v2"] > 0.0
    env.close()


@needs_metaworld
def test_states_that_were_not_placed_are_refused():
    unplaced = REACH.reset(np.random.default_rng(0))[None]
    with closing(REACH.physics(1)) as physics, pytest.raises(ValueError, match=r"TaskEnv\.place"):
        physics.step(unplaced, np.zeros((1, 4)), REACH.tasks[:1], np.ones(1, bool))


@needs_metaworld
def test_a_simulation_that_diverges_raises():
    from omrl.envs.base import SimulationError

    tasks = REACH.tasks[:2]
    now = initial_states(REACH, seed=0, num_envs=2, episode=0, tasks=tasks)
    now[1, states.QVEL] = 1e12
    with closing(REACH.physics(2)) as physics, pytest.raises(SimulationError, match="in reach at"):
        physics.step(now, np.zeros((2, 4)), tasks, np.ones(2, bool))


@needs_metaworld
@pytest.mark.parametrize("env_id", [ML45.spec.id, DOOR.spec.id])
def test_steps_are_those_on_record(env_id):
    result = check(registry.make(env_id))
    assert result.passed, result
    assert result.transitions == 1000


@needs_metaworld
def test_a_lifetime_begins_at_random_and_ends_well_and_serves_both_rewards(tmp_path):
    """Of two rounds the first is random; `success` is among the terms."""
    config = replace(default_config(REACH.spec.id), tasks=(0, 60), envs=2, steps=600, threads=1)
    assert (default_config(REACH.spec.id).agent.random, config.steps) == ((1.0, 0.0), 600)
    path = collected(config, tmp_path / "data").path
    held = open_dataset(path).task(60)
    success = np.asarray(held.terms)[:, family.TERM_NAMES.index("success")].reshape(2, 2, 150)
    reward = np.asarray(held.reward).reshape(2, 2, 150).sum(axis=-1)
    assert not success[0].all(axis=-1).any()
    assert reward[1].min() > 2 * reward[0].max()
    assert success_rate(held, REACH) == success.any(axis=-1).mean() > 0.0
    old = "ml1-reach/continuous-v1reward-h150-v1"
    assert main(["data", "relabel", str(path), str(tmp_path / "old"), "--env", old]) == 0
    again = np.asarray(open_dataset(tmp_path / "old").task(60).reward)
    np.testing.assert_array_equal(again, np.asarray(held.terms)[:, 0])


@needs_metaworld
def test_changed_files_are_refused(monkeypatch):
    from omrl.envs import metaworld_simulator

    monkeypatch.setattr(metaworld_simulator, "SOURCE_SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"not those of metaworld 3\.0\.0 .*--force-reinstall"):
        metaworld_simulator.check_source()


def test_the_two_rewards_differ_in_the_reward_alone():
    old, new = (registry.make(f"ml45/continuous-{v}-h150-v1") for v in ("v1reward", "v2"))
    assert replace(old.spec, id=new.spec.id, reward=new.spec.reward) == new.spec
    terms = np.arange(float(len(family.TERM_NAMES)))
    assert (old.reward(terms, terms[:4], terms[:1]), new.reward(terms, terms[:4], terms[:1])) == (
        0.0,
        1.0,
    )
