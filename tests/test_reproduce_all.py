"""`omrl reproduce --list` and `ALL`: what is told before, and that one failure stops no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from omrl.cli import main, reproduce_all, reproduce_behaviour
from omrl.envs import optional
from omrl.errors import InputError, NonFiniteError, Stopped
from omrl.experiments import registry
from omrl.experiments.registry import BEHAVIOUR, EXPERIMENTS, OUTSIDE_RL
from omrl.experiments.reproduce import Reproduction
from tiny_study import STUDY


def listed(capsys) -> list[dict]:
    assert main(["reproduce", "--list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_tells_how_many_pieces_there_are(capsys):
    by_id = {each["id"]: each for each in listed(capsys)}
    assert list(by_id) == [*EXPERIMENTS, *BEHAVIOUR, *OUTSIDE_RL]
    figure = by_id["macaw-fig3-cheetah-vel"]
    # Five methods; the lifetimes of smoke are bundled, those of the other scales are collected.
    assert {name: scale["pieces"] for name, scale in figure["scales"].items()} == {
        "smoke": 5,
        "gpu": 6,
        "paper": 6,
    }
    assert figure["scales"]["gpu"]["seeds"] == 4
    assert figure["rows"][0] == "MACAW"
    assert figure["needs"] == ""
    assert "--data" in by_id["macaw-fig6-omniglot"]["needs"]
    for name in ("macaw-fig7-ml45", "macaw-fig9-behaviour-ml45"):
        assert by_id[name]["needs"] == "metaworld: pip install 'omrl[metaworld]'"
    # Of the four collections one is bundled; nothing is trained.
    figure = by_id["macaw-fig8-behaviour"]
    assert {name: scale["pieces"] for name, scale in figure["scales"].items()} == {
        "smoke": 3,
        "gpu": 4,
        "paper": 4,
    }
    assert figure["needs"] == ""


def test_rows_that_share_a_training_are_one_piece(capsys, monkeypatch):
    monkeypatch.setattr(registry, "EXPERIMENTS", {STUDY.id: STUDY})
    assert listed(capsys)[0]["scales"]["smoke"]["pieces"] == 2


def test_the_list_is_a_table(capsys):
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(EXPERIMENTS) + len(BEHAVIOUR) + len(OUTSIDE_RL)
    for line, (name, each) in zip(lines[2:], EXPERIMENTS.items(), strict=False):
        assert name in line
        assert each.title in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--list", "--out", "x"], "--out"),
        (["ALL", "--out", "x"], "--scale"),
        (["ALL", "--scale", "smoke", "--out", "x", "--only", "MACAW"], "--only"),
        (["ALL", "--scale", "smoke", "--out", "pyproject.toml"], "pyproject.toml: is a file"),
        (["ALL", "--scale", "smoke", "--out", "x", "--jobs", "0"], "error: jobs: 0 is not"),
        (["ALL", "--scale", "smoke", "--out", "x", "--jobs", "2", "--ray", "local"], "jobs: --ray"),
        (["al", "--scale", "smoke", "--out", "x"], "no experiment 'al'; did you mean"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, message):
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("omrl: error: ")
    assert error.count("\n") == 1
    assert message in error


# --- ALL ---


@pytest.fixture
def made(monkeypatch) -> list[tuple[str, Path, Path | None, int | None]]:
    """Three experiments that are not run; what each was asked for."""
    three = {name: replace(STUDY, id=name) for name in ("one", "two", "three")}
    three["of-gpu"] = replace(STUDY, id="of-gpu", scales={"gpu": STUDY.scales["gpu"]})
    monkeypatch.setattr(registry, "EXPERIMENTS", three)
    monkeypatch.setattr(registry, "BEHAVIOUR", {})
    asked = []

    def carry_out(chosen, options, command, crew):
        asked.append((chosen.id, options.out, options.cache, options.seeds))
        return Reproduction([], {"experiment": chosen.id})

    monkeypatch.setattr(reproduce_all, "carry_out", carry_out)
    return asked


def fail(monkeypatch, name: str, error: Exception) -> None:
    others = reproduce_all.carry_out

    def carry_out(chosen, options, command, crew):
        if chosen.id == name:
            raise error
        return others(chosen, options, command, crew)

    monkeypatch.setattr(reproduce_all, "carry_out", carry_out)


def run_all(capsys, *options: str) -> tuple[int, dict, str]:
    arguments = ["--scale", "smoke", "--out", "out", "--jobs", "1", "--json"]
    code = main(["reproduce", "ALL", *arguments, *options])
    output = capsys.readouterr()
    return code, json.loads(output.out or "{}"), output.err


def test_each_has_a_folder_and_all_share_their_runs(capsys, made):
    code, found, _ = run_all(capsys, "--seeds", "5")
    assert code == 0
    names = ["one", "two", "three"]
    assert found == {name: {"experiment": name} for name in names}
    assert made == [(name, Path("out", name), Path("out"), 5) for name in names]
    run_all(capsys, "--cache", "elsewhere")
    assert made[-1] == ("three", Path("out", "three"), Path("elsewhere"), None)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InputError("no room"), "omrl: two failed: no room\n"),
        (NonFiniteError("a NaN"), "omrl: two failed: a NaN\n"),
        (FileNotFoundError(2, "No such file", "x"), "omrl: two failed: x: No such file; check"),
        (RuntimeError("unforeseen"), "Traceback"),
    ],
)
def test_one_that_fails_is_named_and_the_others_go_on(capsys, monkeypatch, made, error, told):
    fail(monkeypatch, "two", error)
    code, found, printed = run_all(capsys)
    assert code == 1
    assert list(found) == ["one", "three"]
    assert told in printed
    last = printed.splitlines()[-1]
    assert last.startswith("omrl: error: 1 of 3 experiments failed: two; the same command")


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), 2), (("--jobs", "3"), 3), (("--jobs", "1"), None), (("--scale", "gpu"), None)],
)
def test_jobs_make_all_ahead(capsys, monkeypatch, made, options, expected):
    """At scale smoke one for each CPU; then all are told as if they had been made one by one."""
    ahead = []
    monkeypatch.setattr(reproduce_all, "available_cpus", lambda: 2)
    monkeypatch.setattr(
        reproduce_all, "make_ahead", lambda names, make, jobs: ahead.append((names, make, jobs))
    )
    scale = () if "--scale" in options else ("--scale", "smoke")
    arguments = ["reproduce", "ALL", *scale, "--out", "out", "--device", "cpu", *options]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if expected is None:
        assert ahead == []
        return
    ((names, make, jobs),) = ahead
    assert (names, jobs) == (list(found), expected)
    made.clear()
    make("two")
    assert [(name, out) for name, out, *_ in made] == [("two", Path("out", "two"))]


def test_being_stopped_stops_all(capsys, monkeypatch, made):
    fail(monkeypatch, "two", Stopped(143, "stopped; repeat the command to go on"))
    code, _, printed = run_all(capsys)
    assert code == 143
    assert [name for name, *_ in made] == ["one"]
    assert "repeat the command" in printed


# --- What needs a package ---


@pytest.fixture
def of_meta_world(monkeypatch) -> list[str]:
    """One experiment and one figure of its data beside one of neither; what is asked for."""
    ml45 = EXPERIMENTS["macaw-fig7-ml45"]
    monkeypatch.setattr(registry, "EXPERIMENTS", {"one": replace(STUDY, id="one"), ml45.id: ml45})
    figure = BEHAVIOUR["macaw-fig9-behaviour-ml45"]
    monkeypatch.setattr(registry, "BEHAVIOUR", {figure.id: figure})
    asked = []

    def carry_out(chosen, options, command, crew=None):
        asked.append(chosen.id)
        return SimpleNamespace(rows=[], found={"experiment": chosen.id})

    monkeypatch.setattr(reproduce_all, "carry_out", carry_out)
    monkeypatch.setattr(reproduce_behaviour, "carry_out", carry_out)
    return asked


def test_what_needs_a_missing_package_is_named_and_left_out(capsys, monkeypatch, of_meta_world):
    monkeypatch.setattr(optional, "is_installed", lambda extra: False)
    code, found, printed = run_all(capsys)
    assert code == 0
    assert of_meta_world == list(found) == ["one"]
    for name in ("macaw-fig7-ml45", "macaw-fig9-behaviour-ml45"):
        assert (
            f"omrl: {name} is left out: it needs metaworld, which is not installed: "
            "pip install 'omrl[metaworld]'\n"
        ) in printed


def test_with_the_package_nothing_is_left_out(capsys, monkeypatch, of_meta_world):
    monkeypatch.setattr(optional, "is_installed", lambda extra: True)
    monkeypatch.setattr(optional.importlib.metadata, "version", lambda extra: "3.0.0")
    code, found, printed = run_all(capsys)
    assert code == 0
    assert of_meta_world == list(found)
    assert list(found) == ["one", "macaw-fig7-ml45", "macaw-fig9-behaviour-ml45"]
    assert "left out" not in printed


def test_one_alone_says_how_to_install_what_it_needs(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(optional, "is_installed", lambda extra: False)
    for name in ("macaw-fig7-ml45", "macaw-fig9-behaviour-ml45"):
        out = str(tmp_path / name)
        assert main(["reproduce", name, "--scale", "smoke", "--out", out, "--device", "cpu"]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error == (
            "omrl: error: ml45/continuous-v1reward-h150-v1 needs metaworld, which is not "
            "installed: pip install 'omrl[metaworld]'"
        )


def test_programs_of_an_experiment_are_given_back(capsys, monkeypatch, made):
    """On a CPU they hold memory maps; all experiments together have more than a process may."""
    others, traced = reproduce_all.carry_out, []

    @jax.jit
    def program(x):
        traced.append(x)
        return x + 1

    def carry_out(chosen, options, command, crew):
        program(0)
        program(1)
        return others(chosen, options, command, crew)

    monkeypatch.setattr(reproduce_all, "carry_out", carry_out)
    run_all(capsys)
    assert len(traced) == len(made) > 1
