"""Run folders and devices: what is written, and what is refused."""

from __future__ import annotations

import importlib.metadata
import json

import jax
import pytest

from omrl import __version__, hosts, runs, versions
from omrl.errors import InputError
from toy import ToyConfig

CPU = jax.devices("cpu")[:1]


def test_a_new_run_says_what_where_and_how(tmp_path):
    path = tmp_path / "deep" / "run"
    run = runs.create(path, ToyConfig(lr=0.5), command="omrl train toy --lr 0.5", devices=CPU)
    assert json.loads((path / "config.json").read_text())["lr"] == 0.5
    assert (path / "command.txt").read_text() == "omrl train toy --lr 0.5\n"
    (session,) = json.loads((path / "versions.json").read_text())
    assert session["omrl"] == __version__
    assert session["jax"] == jax.__version__
    assert session["devices"] == "1 x cpu"
    assert session["xla_threads"] >= 1
    assert runs.open_run(path) == run
    assert run.parse(ToyConfig) == ToyConfig(lr=0.5)


def test_threads_are_those_of_nproc(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    assert runs.session(CPU)["xla_threads"] == 7


def test_an_existing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="exists; choose another folder"):
        runs.create(tmp_path, ToyConfig(), command="", devices=CPU)


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"needs 1,000,000,000,000,000,000 bytes on this disk"):
        runs.create(tmp_path / "a" / "b", ToyConfig(), command="", devices=CPU, room=10**18)
    assert list(tmp_path.iterdir()) == []


def test_resume_adds_a_session_and_wants_the_same_config(tmp_path, capsys, monkeypatch):
    path = tmp_path / "run"
    runs.create(path, ToyConfig(), command="first", devices=CPU)
    runs.resume(path, ToyConfig(), command="second", devices=CPU)
    assert capsys.readouterr().err == ""
    assert (path / "command.txt").read_text() == "first\nsecond\n"
    assert len(json.loads((path / "versions.json").read_text())) == 2
    with pytest.raises(InputError, match=r"config\.json: .*differs: lr: 0\.01 is not 0\.02$"):
        runs.resume(path, ToyConfig(lr=0.02), command="", devices=CPU)
    monkeypatch.setenv("NPROC", "7")
    runs.resume(path, ToyConfig(), command="third", devices=CPU)
    assert "-> 7: the numbers are repeated to rounding" in capsys.readouterr().err


def test_what_is_not_a_run_folder(tmp_path):
    with pytest.raises(InputError, match=r"not a run folder, it has no config\.json$"):
        runs.open_run(tmp_path)
    for text in ("{", '{"lr": NaN}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match=r"config\.json: not JSON"):
            runs.open_run(tmp_path)
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    with pytest.raises(InputError, match=r"run|config\.json\.inner_lr: missing"):
        runs.open_run(tmp_path).parse(ToyConfig)


@pytest.mark.parametrize("text", ["{", "[]", "{}", "[1]", "null", '{"a": 1}'])
def test_damaged_sessions_are_named_and_nothing_is_added(tmp_path, text):
    path = tmp_path / "run"
    runs.create(path, ToyConfig(), command="first", devices=CPU)
    (path / "versions.json").write_text(text)
    with pytest.raises(InputError, match=r"versions\.json: not .*: delete it to go on$"):
        runs.resume(path, ToyConfig(), command="second", devices=CPU)
    assert (path / "command.txt").read_text() == "first\n"
    (path / "versions.json").unlink()
    runs.resume(path, ToyConfig(), command="second", devices=CPU)


def test_one_process_trains_a_run(tmp_path):
    path = tmp_path / "run"
    runs.create(path, ToyConfig(), command="first", devices=CPU)
    other = pytest.raises(InputError, match="run: another process trains it; wait until")
    with runs.claimed(path), other, runs.claimed(path):
        pass
    with runs.claimed(path):  # It was let go.
        pass


def test_devices():
    assert runs.resolve_devices("cpu") == CPU
    assert runs.resolve_devices("auto", 1) == jax.devices()[:1]
    count = len(jax.devices("cpu")) + 1
    with pytest.raises(
        InputError, match=rf"devices: {count} were asked for, there are {count - 1}"
    ):
        runs.resolve_devices("cpu", count)


def test_a_gpu_that_is_not_there():
    with pytest.raises(InputError, match=r"gpu was asked for.*pip install 'omrl\[cuda\]'"):
        runs.resolve_devices("gpu")


@pytest.mark.parametrize("coordinator", ["9000", "host", "host:", ":9000", "host:port"])
def test_a_coordinator_is_a_host_and_a_port(coordinator):
    with pytest.raises(InputError, match=r"coordinator: .* is not HOST:PORT"):
        hosts.initialise(coordinator, 2, 0)


def test_a_process_has_a_number_below_their_count():
    with pytest.raises(InputError, match="process_id: 2 is not in 0 … 1"):
        hosts.initialise("localhost:9000", 2, 2)


def test_omrl_has_its_version_without_being_installed(monkeypatch):
    def nothing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    assert versions.version("omrl") == __version__
    assert versions.version("numpy") is None
