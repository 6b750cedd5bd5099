"""Environments of other programs: registered once, known everywhere."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import tiny_cheetah
from omrl import metatrain
from omrl.cli import main
from omrl.data import store
from omrl.envs import registry
from omrl.envs.engine import VectorEnv
from omrl.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "docs/environments/your-own.md"
ID = "glider/first-v1"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The module of the documentation in the present folder; what it registers is forgotten."""
    module = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / "my_envs.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(registry, "_ENVIRONMENTS", {**registry._ENVIRONMENTS})
    yield tmp_path
    sys.modules.pop("my_envs", None)


@pytest.fixture
def glider(monkeypatch, folder):
    monkeypatch.syspath_prepend(folder)
    import my_envs

    return my_envs.Glider()


def write(env, path, episodes: int = 3) -> Path:
    """Episodes of random actions in every task, by the environment itself."""
    writer, rng = store.create(path, env, command="test"), np.random.default_rng(0)
    horizon = env.spec.horizon
    for task, parameters in enumerate(env.tasks):
        vector = VectorEnv(env, np.tile(parameters, (episodes, 1)), seed=task)
        obs = [vector.reset()]
        action = rng.uniform(-1, 1, (horizon, episodes, env.spec.act_dim)).astype(np.float32)
        steps = [vector.step(each) for each in action]
        obs = np.stack([*obs, *(step.obs for step in steps)], axis=1)
        writer.write_task(
            task,
            obs=obs.reshape(-1, env.spec.obs_dim),
            action=action.swapaxes(0, 1).reshape(-1, env.spec.act_dim),
            reward=np.stack([step.reward for step in steps], axis=1).ravel(),
            terms=np.stack([step.terms for step in steps], 1).reshape(-1, 1).astype(np.float32),
            terminated=np.zeros(horizon * episodes, bool),
            truncated=np.tile(np.arange(horizon) == horizon - 1, episodes),
            episode_start=np.arange(episodes + 1) * horizon,
            behaviour={"policy": "random"},
        )
    return writer.finish().path


def test_one_of_your_own_is_like_any_other(glider, folder):
    assert registry.make(ID) == glider
    env = gymnasium.make("omrl/glider.first-v1", task=3)
    assert env.reset(seed=0)[1]["task"] == [-0.25]
    registry.register(dataclasses.replace(glider))
    tiny = tiny_cheetah.config(steps=1)
    config = dataclasses.replace(
        tiny, env=ID, eval=dataclasses.replace(tiny.eval, traces=("position",))
    )
    run = metatrain.start(
        config, write(glider, folder / "data"), folder / "run", quiet=True, report=lambda _: None
    )
    result = metatrain.evaluate_trained(metatrain.load_trained(run.path))
    assert result.task_parameters.ravel().tolist() == [-0.5, 0.5]
    assert np.isfinite(result.returns).all()


@pytest.mark.parametrize("option", [["--import", "my_envs"], ["--import=my_envs"]])
def test_commands_import_a_module_first(capsys, folder, option):
    assert main(["envs", ID]) == 2
    assert "unknown environment 'glider/first-v1'" in (error := capsys.readouterr().err)
    assert "omrl --import MODULE" in error
    assert main([*option, "envs", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][3] == [-0.25]
    data = write(registry.make(ID), folder / "data")
    assert main([*option, "data", "validate", str(data)]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--import other: ModuleNotFoundError: No module named 'other'; give a"),
        ("1 / 0", "--import other: ZeroDivisionError: division by zero; .* 'import other' tells"),
        ("while", "--import other: SyntaxError: "),
        ("raise SystemExit(0)", "--import other: SystemExit: 0; give a"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(capsys, folder, content, message):
    if content:
        (folder / "other.py").write_text(content)
    assert main(["--import", "other", "envs"]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["", ".", "a/b", "1", "a..b"])
def test_what_is_no_module_is_one_line(capsys, name):
    assert main(["--import", name, "envs"]) == 2
    assert f"--import: {name!r} is no name of a module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "glider"}, r"spec.id: 'glider' is not FAMILY/NAME-vNUMBER"),
        ({"id": "cheetah-vel/macaw-v1"}, "cheetah-vel/macaw-v1: is another MDP already"),
        ({"horizon": 7}, "glider/first-v1: is another MDP already; give a changed one a new"),
        ({"id": "a/b-v1", "obs_dim": 3}, r"a/b-v1: obs of one environment are \(1, 2\), not \(1,"),
        ({"id": "a/b-v1", "term_names": ()}, r"terms of one environment are \(1, 1\), not \(1, 0"),
        ({"id": "a/b-v1", "task_names": ("x", "y")}, r"tasks of a/b-v1 must have shape"),
        ({"split_table": (("train", (0,)),)}, "split_table has no 'test'; train and test are used"),
    ],
)
def test_what_is_no_environment_is_not_registered(glider, changes, message):
    before = {env_id: registry.make(env_id) for env_id in registry.ids()}
    if "split_table" in changes:
        other = dataclasses.replace(glider, **changes)
    else:
        other = dataclasses.replace(glider, spec=dataclasses.replace(glider.spec, **changes))
    with pytest.raises(InputError, match=message):
        registry.register(other)
    assert {env_id: registry.make(env_id) for env_id in registry.ids()} == before
