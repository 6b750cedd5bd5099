"""Checkpoints: what comes back, what stays, and what happens when a bit has flipped."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omrl.checkpoint import Checkpoints, leaf_hashes, leaf_names
from omrl.chunk import Layout
from omrl.errors import InputError

CONFIG = {"algo": {"lr": 0.1, "layers": [3, 4]}, "name": "toy"}


class State(NamedTuple):
    layers: list[jax.Array]
    step: jax.Array


def make(step: int, num_seeds: int = 2) -> State:
    # Random numbers, so that no compression hides a byte of them.
    kernel = jax.random.normal(jax.random.PRNGKey(step), (num_seeds, 40, 30))
    state = State([kernel], jnp.full(num_seeds, step, jnp.int32))
    return jax.device_put(state, Layout.of(jax.devices("cpu")[:1], num_seeds).by_seed)


def like(state: State) -> State:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state
    )


@pytest.fixture
def checkpoints(tmp_path):
    """Steps 10 and 20 on the disk."""
    opened = Checkpoints(tmp_path)
    for step in (10, 20):
        opened.save(step, make(step), CONFIG, {"seconds": step / 10})
    opened.wait()
    yield opened
    opened.close()


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def test_restores_every_bit_and_what_was_said_beside_it(checkpoints):
    states, meta = checkpoints.restore(like(make(0)), CONFIG)
    np.testing.assert_array_equal(states.layers[0], make(20).layers[0])
    np.testing.assert_array_equal(states.step, [20, 20])
    assert (meta["step"], meta["seconds"]) == (20, 2.0)
    earlier, _ = checkpoints.restore(like(make(0)), CONFIG, 10)
    np.testing.assert_array_equal(earlier.layers[0], make(10).layers[0])


def test_hashes_are_of_the_bytes_of_each_seed():
    state = State([jnp.array([[1.0], [2.0]])], jnp.array([3, 4]))
    assert leaf_names(state) == ["layers[0]", "step"]
    expected = [hashlib.sha256(np.float32(x).tobytes()).hexdigest() for x in (1, 2)]
    assert leaf_hashes(state)["layers[0]"] == expected


def test_keeps_the_newest(tmp_path):
    opened = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        opened.save(step, make(step), CONFIG, {})
    opened.wait()
    assert opened.steps == [3, 4]
    opened.close()


def test_a_reader_leaves_a_save_in_progress_alone(checkpoints, tmp_path):
    unfinished = tmp_path / "30.orbax-checkpoint-tmp"
    unfinished.mkdir()
    reader = Checkpoints(tmp_path, read_only=True)
    reader.restore(like(make(0)), CONFIG)
    reader.close()
    assert unfinished.exists()
    Checkpoints(tmp_path).close()
    # Orbax removes it in a thread of its own, which `close` does not wait for.
    deadline = time.monotonic() + 30
    while unfinished.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not unfinished.exists()


def test_names_the_steps_there_are(checkpoints):
    with pytest.raises(InputError, match=r"no checkpoint 15; there are 10, 20$"):
        checkpoints.restore(like(make(0)), CONFIG, 15)


def test_names_the_fields_of_another_config(checkpoints):
    other = {"algo": {"lr": 0.2, "layers": [3, 4]}, "name": "toy", "more": 1}
    expected = r"20: was made with another config: algo\.lr: 0\.1 is not 0\.2; more: only in one"
    with pytest.raises(InputError, match=expected):
        checkpoints.restore(like(make(0)), other)


def test_names_leaves_that_another_version_had(checkpoints):
    wanted = like(make(0))
    with pytest.raises(InputError, match=r"other leaves than this version.*layers\[1\]"):
        checkpoints.restore(wanted._replace(layers=wanted.layers * 2), CONFIG)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.parametrize("damage", [flip_a_bit, cut_off, Path.unlink])
def test_all_damage_is_found_or_harmless(checkpoints, tmp_path, damage, caplog, capfd):
    """In each file of a checkpoint in turn: one line with the way out, or the true numbers; and
    nothing is reported beside, neither at once nor by what is left behind."""
    damaged = {}
    for path in files(tmp_path / "20"):
        original = path.read_bytes()
        damage(path)
        reader = Checkpoints(tmp_path, read_only=True)
        try:
            states, meta = reader.restore(like(make(0)), CONFIG, 20)
        except InputError as error:
            damaged[path.name] = str(error)
        else:
            np.testing.assert_array_equal(states.layers[0], make(20).layers[0])
            assert meta["step"] == 20
        finally:
            reader.close()
            path.write_bytes(original)
    largest = max(files(tmp_path / "20"), key=lambda path: path.stat().st_size)
    assert largest.name in damaged
    for error in damaged.values():
        assert error.startswith(f"{tmp_path / '20'}: ")
        assert error.endswith(f"10 is intact: remove {tmp_path / '20'} to continue from there")
        assert "\n" not in error
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr() == ("", "")


def test_a_number_other_than_the_saved_one_names_its_leaf_and_seed(checkpoints, monkeypatch):
    """What no file check would notice: the hash alone decides."""
    truth = checkpoints._manager.restore

    def wrong(step, args):
        restored = truth(step, args=args)
        if step == 20 and "state" in restored:
            states = restored["state"]
            kernel = states.layers[0].at[1, 5, 5].add(1e-6)
            return {"state": states._replace(layers=[kernel])}
        return restored

    monkeypatch.setattr(checkpoints._manager, "restore", wrong)
    expected = r"20: leaf layers\[0\] of seed number 1 is damaged; 10 is intact: remove .*20"
    with pytest.raises(InputError, match=expected):
        checkpoints.restore(like(make(0)), CONFIG)


def test_no_good_one_left(checkpoints, tmp_path):
    for step in ("10", "20"):
        flip_a_bit(tmp_path / step / "meta" / "metadata")
    with pytest.raises(InputError, match="no earlier one is intact"):
        checkpoints.restore(like(make(0)), CONFIG)


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_checkpoint(checkpoints, tmp_path):
    """A limit on the size of files stands in for it: both fail in the middle of a write."""
    script = (
        "import resource, sys, signal; from pathlib import Path\n"
        "import test_checkpoint as t\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "checkpoints = t.Checkpoints(Path(sys.argv[1]))\n"
        "try:\n"
        "    checkpoints.save(30, t.make(30), t.CONFIG, {})\n"
        "    checkpoints.wait()\n"
        "except t.InputError as error:\n"
        "    sys.exit(f'omrl: error: {error}')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    command = [sys.executable, "-c", script, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "the checkpoint could not be written" in ended.stderr
    assert "make room and resume" in ended.stderr
    states, meta = Checkpoints(tmp_path).restore(like(make(0)), CONFIG)
    assert meta["step"] == 20
    np.testing.assert_array_equal(states.layers[0], make(20).layers[0])


FULL_DISK = """
import jax.numpy as jnp, os, resource, signal, sys
from pathlib import Path
from omrl.checkpoint import Checkpoints
from omrl.errors import InputError
checkpoints = Checkpoints(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    checkpoints.save(1, {"a": jnp.arange(2e5).reshape(2, -1)}, {}, {})
    checkpoints.wait()
except InputError as error:
    print(error)
"""


def test_a_write_that_fails_is_one_line(tmp_path):
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "checkpoints")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the checkpoint could not be written" in ended.stdout
    assert ended.stderr == ""
