"""Rewards by a function of the user's, in Python and by `omrl data relabel`."""

import dataclasses
import json
import sys
from contextlib import closing

import numpy as np
import pytest
from points import BEHAVIOUR, assert_holds

import tiny_cheetah
from omrl import metatrain
from omrl.cli.data import main
from omrl.data import manifest as manifests
from omrl.data.borrow import Borrowing
from omrl.data.relabel import relabel, rewards
from omrl.data.store import create, open_dataset, open_for_training, write_slice
from omrl.envs import registry
from omrl.envs.engine import VectorEnv
from omrl.envs.own_reward import with_reward
from omrl.errors import InputError

ID = "test-point/squared-v1"


def squared(terms, action, task):
    return -((terms[:, 0] - task[:, 0]) ** 2) - 0.1 * action[:, 0]


def progress(obs, next_obs, task):
    return np.abs(obs[:, 0] - task[:, 0]) - np.abs(next_obs[:, 0] - task[:, 0])


@pytest.fixture(autouse=True)
def _registered(monkeypatch, env):
    known = {env.spec.id: env, "ant-dir/macaw-v1": registry.make("ant-dir/macaw-v1")}
    monkeypatch.setattr(registry, "_ENVIRONMENTS", known)


def test_a_function_of_terms_action_and_task(dataset, env, columns, tmp_path):
    own = with_reward(env, squared, ID, "-(position - goal)^2 - .1 action")
    new = relabel(dataset, tmp_path / "new", own, command="test")
    for index, task in columns.items():
        goal = env.tasks[index, 0]
        terms, action = (
            task[n].astype(np.float32).astype(float)[:, 0] for n in ("terms", "action")
        )
        task["reward"] = -((terms - goal) ** 2) - 0.1 * action
        record = new.manifest.record(index)
        assert record.behaviour["source"] == BEHAVIOUR
        assert record.behaviour["relabelled"]["episodes_from"] == {}
    assert_holds(new, columns)
    assert (new.env_id, new.spec.reward) == (ID, "-(position - goal)^2 - .1 action")
    assert new.spec.hash != env.spec.hash
    assert new.manifest.validation["reward"] == "checked"
    assert open_for_training(new.path, own, ["train"]).hash == new.hash
    with pytest.raises(InputError, match="another MDP"):
        open_for_training(new.path, env)
    assert write_slice(new, tmp_path / "copy", own, every=2, command="test").env_id == ID


def test_a_function_of_observations_needs_no_terms(env, columns, tmp_path):
    # Starts and ends of episodes are where observations are easily one off. Task 0 has terms.
    writer = create(tmp_path / "bare", env, command="test")
    for index, task in columns.items():
        given = {name: task[name] for name in task if index == 0 or name != "terms"}
        writer.write_task(index, behaviour=BEHAVIOUR, **given)
    own = with_reward(env, progress, ID, "nearer to the goal by the step")
    new = relabel(
        writer.finish(), tmp_path / "new", own, borrowing=Borrowing(per_task=1), command="test"
    )
    assert new.manifest.validation["reward"] == "not checkable: no terms were recorded"
    for index in columns:
        task, goal = new.task(index), env.tasks[index, 0]
        distance = np.abs(task.obs[:, 0].astype(float) - goal)
        bounds = np.stack([task.episode_start[:-1], task.episode_start[1:]], axis=1)
        expected = [
            -np.diff(distance[first + e : stop + e + 1]) for e, (first, stop) in enumerate(bounds)
        ]
        np.testing.assert_allclose(task.reward, np.concatenate(expected), atol=1e-6)
    with pytest.raises(InputError, match="reads observations, so it relabels data"):
        own.reward(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(1))


def test_it_is_an_environment_to_step():
    base = registry.make("ant-dir/macaw-v1")
    own = with_reward(base, lambda terms, task: terms[:, 0] * task[:, 0], "my-ant/x-v1", "x")
    action = np.full((2, 8), 0.3, np.float32)
    seen = []
    for env in (base, own):
        with closing(VectorEnv(env, base.tasks[:2], seed=0)) as vector:
            vector.reset()
            seen.append(vector.step(action))
    np.testing.assert_array_equal(seen[0].obs, seen[1].obs)
    expected = (seen[0].terms[:, 0] * base.tasks[:2, 0]).astype(np.float32)
    np.testing.assert_array_equal(seen[1].reward, expected)
    one = own.reward(seen[1].terms[0], action[0].astype(float), base.tasks[0])
    assert np.float32(one) == expected[0]


def test_registered_it_is_trained_on_as_any_other(tmp_path, monkeypatch):
    base = tiny_cheetah.ENV
    monkeypatch.setattr(registry, "_ENVIRONMENTS", {base.spec.id: base})
    own = with_reward(base, lambda terms: terms[:, 0], "my-cheetah/fast-v1", "x_velocity")
    few = base.with_tasks(base.tasks[:6], {"train": (0, 1, 2, 3, 4), "test": (5,)})
    source = tiny_cheetah.write_data(tmp_path / "source", few)
    relabel(source, tmp_path / "new", own, command="test")
    config = dataclasses.replace(tiny_cheetah.config(), env="my-cheetah/fast-v1")
    with pytest.raises(InputError, match="unknown environment 'my-cheetah/fast-v1'"):
        metatrain.open_problem(config, tmp_path / "new")
    registry.register(own)
    problem = metatrain.open_problem(config, tmp_path / "new")
    assert problem.env.spec == own.spec
    assert problem.env.splits["test"] == (5,)
    other = dataclasses.replace(own.spec, reward="-x_velocity")
    with pytest.raises(InputError, match="is another MDP already"):
        registry.register(dataclasses.replace(own, spec=other))


# --- Functions that are none ---


class SilentError(Exception):
    def __str__(self):
        raise ValueError


def raise_silently():
    raise SilentError


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda terms: terms, r"returned float64 \(\d+, 1\) for \d+ rows"),
        (lambda terms: 0.0, r"returned float64 \(\) for"),
        (lambda terms: [None] * len(terms), "returned object"),
        (lambda terms: terms[:, 1], "its reward function raised IndexError: index 1 is out of"),
        (lambda terms: np.full(len(terms), np.nan), r"under task 0 is nan \(40 such rows\)"),
        (lambda terms: np.full(len(terms), np.inf), r"under task 0 is inf \(40 such rows\)"),
        (lambda terms: np.full(len(terms), 1e300), "must be finite in float32"),
        (lambda terms: np.ma.masked_less(terms[:, 0], 9.0), "returned a masked array"),
        (lambda terms: sys.exit(0), "its reward function raised SystemExit: 0"),
        (lambda terms: raise_silently(), "its reward function raised SilentError: SilentError"),
        (lambda terms: np.random.default_rng().random(len(terms)), "but reward.* is"),
    ],
)
def test_functions_that_give_no_rewards(dataset, env, tmp_path, function, message):
    own = with_reward(env, function, ID, "bad")
    with pytest.raises(InputError, match=message):
        relabel(dataset, tmp_path / "new", own, command="test")
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda terms, goal: terms,
            "its reward function has 'goal'; its parameters must be some of",
        ),
        (lambda *terms: terms, r"has '\*terms'"),
        (lambda terms, /: terms, "has 'terms'"),
        (dict, "tells no parameters"),
    ],
)
def test_functions_of_other_parameters(env, function, message):
    with pytest.raises(InputError, match=message):
        with_reward(env, function, ID, "bad")


def test_a_parameter_with_a_default_is_the_functions_own(dataset, env):
    own = with_reward(env, lambda terms, scale=2.0: scale * terms[:, 0], ID, "2 position")
    np.testing.assert_array_equal(
        rewards(dataset, own, 0), 2 * dataset.task(0).terms[:, 0].astype(float)
    )


@pytest.mark.parametrize(
    ("env_id", "text", "message"),
    [
        ("mine", "x", "must be like my-cheetah/fast-v1"),
        ("My/reward-v1", "x", "must be like my-cheetah/fast-v1"),
        ("../reward-v1", "x", "must be like my-cheetah/fast-v1"),
        ("test-point/test-v1", "x", "is that of a registered environment"),
        (ID, " ", "describe the reward"),
    ],
)
def test_an_mdp_without_a_name_or_description(env, env_id, text, message):
    with pytest.raises(InputError, match=message):
        with_reward(env, squared, env_id, text)


# --- omrl data relabel ---


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text("def near(terms, task):\n    return 0.0 + (abs(terms - task)[:, 0] < 0.3)\n")
    return path


def test_the_command_takes_a_file_and_a_function(dataset, program, tmp_path, capsys):
    out = str(tmp_path / "new")
    options = ["--reward", f"{program}:near", "--id", "my-point/near-v1"]
    main(["relabel", str(dataset.path), out, *options, "--json"], "")
    summary = json.loads(capsys.readouterr().out)
    assert (summary["env"], summary["reward"]) == ("my-point/near-v1", "checked")
    assert summary["command"] == (
        f"omrl data relabel {dataset.path.name} OUT --reward rewards.py:near "
        "--id my-point/near-v1"  # No path of a machine.
    )
    terms = dataset.task(1).terms[:, 0].astype(float)
    np.testing.assert_array_equal(open_dataset(out).task(1).reward, np.abs(terms - 0.5) < 0.3)
    # Another text of the file is another MDP.
    program.write_text(program.read_text().replace("0.3", "0.2"))
    main(["relabel", str(dataset.path), out, *options, "--overwrite", "--json"], "")
    assert json.loads(capsys.readouterr().out)["spec_hash"] != summary["spec_hash"]
    # Without the function, all but the rewards can be checked.
    main(["validate", out], "")
    assert "not checkable: the environment is not known here" in capsys.readouterr().out
    assert open_dataset(out).manifest.validated


def test_the_command_takes_over_episodes(dataset, tmp_path, capsys):
    options = ["--per-task", "2", "--seed", "3", "--slice", "last-4"]
    main(["relabel", str(dataset.path), str(tmp_path / "new"), *options, "--json"], "")
    summary = json.loads(capsys.readouterr().out)
    assert summary["command"] == (
        f"omrl data relabel {dataset.path.name} OUT --per-task 2 --seed 3 --slice last-4"
    )
    assert [task["episodes"] for task in summary["tasks"]] == [6, 6, 4]
    given = summary["tasks"][0]["behaviour"]["relabelled"]["episodes_from"]
    assert list(given) == ["1"]
    assert summary["source"]["hash"] == dataset.manifest.hash


def test_what_rounding_leaves_in_doubt_is_said(columns, env, program, tmp_path, capsys):
    task = columns[1]
    task["terms"][7] = 0.2  # In half precision 0.19995: next to the border of task 1's goal.
    task["reward"] = -np.abs(task["terms"][:, 0] - 0.5)
    writer = create(tmp_path / "one", env, command="test", dtype="float16")
    writer.write_task(1, behaviour={}, **task)
    writer.finish()
    options = ["--reward", f"{program}:near", "--id", "my-point/near-v1"]
    main(["relabel", str(tmp_path / "one"), str(tmp_path / "new"), *options, "--json"], "")
    printed = capsys.readouterr()
    json.loads(printed.out)
    assert "omrl: 1 rewards are of transitions at a border" in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to relabel with"),
        (["--split", "test"], "split: needs --share or --per-task"),
        (["--mode", "replace"], "mode: needs --share or --per-task"),
        (["--reward", "{program}:near"], "reward: needs --id NAME/VERSION"),
        (["--reward", "{program}:near", "--id", ID, "--env", ID], "reward: .* and no --env"),
        (["--id", ID], "id: .* needs --reward FILE.py:FUNCTION"),
        (["--reward", "{program}:far", "--id", ID], "has no function 'far'"),
        (["--reward", "{program}", "--id", ID], "is not FILE.py:FUNCTION"),
        (["--share", "1", "--slice", "0.5:all+0.5:end"], "write it first with omrl data slice"),
        (["--reward", "os:system", "--id", ID], "'os:system' is not FILE.py:FUNCTION"),
        (["--reward", "missing.py:near", "--id", ID], "cannot read missing.py: No such file"),
        (["--reward", "{broken}:near", "--id", ID], "broken.py: SyntaxError: .*; correct it"),
        (["--reward", "{quitting}:near", "--id", ID], "quitting.py: SystemExit: 0; correct it"),
        (["--env", "ant-dir/macaw-v2"], "unknown environment 'ant-dir/macaw-v2'; did you mean"),
        (["--env", "ant-dir/macaw-v1"], "ant-dir/macaw-v1 has other transitions"),
        (["--per-task", "0"], "per_task: 0 is not a whole number"),
    ],
)
def test_commands_that_cannot_be(dataset, program, tmp_path, options, message):
    (tmp_path / "broken.py").write_text("def near(terms:\n")
    (tmp_path / "quitting.py").write_text("raise SystemExit(0)\n")
    files = {"program": program} | {n: tmp_path / f"{n}.py" for n in ("broken", "quitting")}
    filled = [option.format(**files) for option in options]
    with pytest.raises(InputError, match=message):
        main(["relabel", str(dataset.path), str(tmp_path / "new"), *filled], "")
    assert not list(tmp_path.glob("new*"))
    assert manifests.read(dataset.path) == dataset.manifest
