"""The benchmark of environments measures the things that it names."""

import json

import pytest
from gymnasium.vector import SyncVectorEnv

from omrl import bench_envs
from omrl.bench_envs import EnvSpeed
from omrl.cli import main


def test_ratios():
    speed = EnvSpeed("cheetah", 64, 2, 900.0, 1000.0, 990.0, 300.0, 100.0)
    assert speed.over_sync == pytest.approx(3.0)
    assert speed.over_bare == pytest.approx(10 / 11)
    assert speed.outside_mujoco == pytest.approx(0.1)


def test_every_family_is_measured(capsys, monkeypatch):
    # Worker processes would each import MuJoCo; what they run is Gymnasium's business.
    monkeypatch.setattr(bench_envs, "AsyncVectorEnv", SyncVectorEnv)
    assert main(["bench", "envs", "--sizes", "3", "--seconds", "0.01", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["family"] for row in rows] == list(bench_envs.MATCHING)
    for row in rows:
        assert row["num_envs"] == 3
        own = ("omrl", "mujoco_rollout", "bare_rollout")
        assert min(row[name] for name in (*own, "gymnasium_sync", "gymnasium_async")) > 10
        assert row["over_bare"] == pytest.approx(row["omrl"] / row["bare_rollout"])
        assert row["over_sync"] == pytest.approx(row["omrl"] / row["gymnasium_sync"])
        assert 0.0 < row["outside_mujoco"] < 1.0
    assert main(["bench", "envs", "--sizes", "3", "--seconds", "0.01"]) == 0
    assert "outside MuJoCo" in capsys.readouterr().out


def test_families_go_by_either_name_and_once(capsys, monkeypatch):
    measured = []
    monkeypatch.setattr(
        bench_envs, "bench_envs", lambda names, *_, **__: measured.extend(names) or []
    )
    ids = [env_id for env_id, *_ in bench_envs.MATCHING.values()]
    names = ["hopper", *(env_id.split("/")[0] for env_id in ids)]
    assert main(["bench", "envs", "--families", *names, "--json"]) == 0
    assert measured == ["hopper", "cheetah", "ant", "walker", "humanoid"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            ["--families", "chetah"],
            "no 'chetah'; there are cheetah, ant, walker, hopper, humanoid, ",
        ),
        (["--families", "cheetah", "point-robot"], "no 'point-robot'; there are "),
        (["--sizes", "0"], "sizes[0]: 0 is not"),
        (["--seconds", "0"], "seconds: 0.0 is not"),
    ],
)
def test_wrong_options(wrong, message, capsys):
    assert main(["bench", "envs", *wrong]) == 2
    assert message in capsys.readouterr().err
