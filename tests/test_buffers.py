"""Training on a mixture, and on two buffers: the same bits wherever the data is, and the record."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pytest

import tiny_cheetah
from omrl import metatrain
from omrl.algorithm import Stage
from omrl.chunk import BLOCK, Layout, place, train_chunk
from omrl.cli import main
from omrl.cli import train as train_command
from omrl.data.buffers import Buffers
from omrl.data.device import load
from omrl.data.host import open_host
from omrl.data.sample import BatchSpec
from omrl.data.slice import Slice
from omrl.data.store import open_dataset, write_slice
from omrl.errors import InputError

SEEDS = np.array([3, 8])
LAYOUT = Layout.of(jax.devices("cpu")[:1], len(SEEDS))
SLICES = {"slice": "0.3:all+0.7:end", "encoder_slice": "last-50-transitions"}
INNER = BatchSpec("inner", 16, "without_replacement", buffer="encoder")


def config(**changes):
    tiny = tiny_cheetah.config()
    return replace(tiny, algo=replace(tiny.algo, inner_batch=INNER), **SLICES | changes)


@pytest.fixture(scope="module")
def other(tmp_path_factory, cheetah_data):
    """Every second episode of the tiny dataset."""
    source = open_dataset(cheetah_data).view(Slice.parse("every-2"))
    path = tmp_path_factory.mktemp("other") / "half"
    return write_slice(source, path, tiny_cheetah.ENV, command="tests").path


@pytest.fixture(scope="module")
def problem(cheetah_data, other):
    return metatrain.open_problem(config(), cheetah_data, mix=other)


class Counter(NamedTuple):
    step: jax.Array


def report(state, batches, key):
    """An update that only tells what it was given."""
    return Counter(state.step + 1), {name: batch.reward for name, batch in batches.items()} | {
        f"{name}_return": batch.mc_return for name, batch in batches.items()
    }


def test_batches_are_of_their_buffers_and_the_same_on_disk_and_device(problem):
    tasks = problem.train_tasks
    stage = Stage("report", 100, 3, (INNER, BatchSpec("outer", 16, start=0.8)), report)
    device, disk = (
        Buffers(*(read(view, tasks, discount=0.99) for view in problem.views))
        for read in (load, partial(open_host, cache=False))
    )
    np.testing.assert_array_equal(disk.encoder.num_rows, 50)
    told = []
    for data in (place(device, LAYOUT.replicated), disk):
        initial = Counter(place(np.zeros(2, np.int32), LAYOUT.by_seed))
        _, metrics, _ = train_chunk(stage, LAYOUT, initial, data, SEEDS, np.array(tasks), BLOCK + 2)
        told.append({name: np.asarray(rows)[:, : BLOCK + 2] for name, rows in metrics.items()})
    for name in told[0]:
        np.testing.assert_array_equal(told[0][name], told[1][name], err_msg=name)
    for name, view in (("inner", problem.encoder), ("outer", problem.view)):
        for task, rewards in zip(told[0]["task"][0, 0], told[0][name][0, 0], strict=True):
            assert np.isin(rewards, view.task(int(task)).reward).all(), name


def test_a_run_records_all_it_was_trained_on(problem, cheetah_data, other, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(metatrain, "_train", lambda *arguments: given.append(arguments))
    path = tmp_path / "run"
    metatrain.start(config(), cheetah_data, path, mix=other, report=lambda text: None, quiet=True)
    record = metatrain.read_record(metatrain.open_run(path))
    assert (record.mix, record.encoder_data) == (str(other), "")
    assert record.data_hash == problem.data_hash
    again = {"data": None, "command": "again", "devices": jax.devices("cpu")[:1], "quiet": True}
    metatrain.go_on(path, **again)
    assert [type(loaded.data) for _, _, _, loaded, _, _ in given] == [Buffers, Buffers]
    with pytest.raises(InputError, match=r"not the data that .*folder with --data, --mix$"):
        metatrain.go_on(path, mix=cheetah_data, **again)


def test_the_command_line(cheetah_data, other, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(metatrain, "_train", lambda *arguments: given.append(arguments[2]))
    monkeypatch.setattr(train_command, "_show", lambda *arguments: None)
    run, moved = tmp_path / "run", tmp_path / "moved"
    options = ["--slice", "0.3:all+0.7:all", "--encoder-slice", "last-40-transitions", "--quiet"]
    options += ["--algo.inner-batch.buffer", "encoder", "--mix", str(other)]
    command = ["train", "macaw-cheetah-vel", *tiny_cheetah.OPTIONS, *options, "--device", "cpu"]
    data = ["--data", str(cheetah_data), "--encoder-data"]
    assert main([*command, *data, str(other), "--out", str(run)]) == 0
    shutil.copytree(other, moved)
    folders = ["--mix", str(moved), "--encoder-data", str(moved)]
    assert main(["train", "--resume", str(run), "--quiet", "--device", "cpu", *folders]) == 0
    assert [(p.view.parts[1].path, p.encoder.path) for p in given] == [(other,) * 2, (moved,) * 2]


def test_the_hash_tells_what_was_trained_on(problem, cheetah_data, other):
    hashes = {problem.data_hash}
    for changes, folders in (
        ({}, {}),
        ({}, {"mix": other, "encoder_data": other}),
        ({"encoder_slice": "last-49-transitions"}, {"mix": other}),
        ({"encoder_slice": ""}, {"mix": other}),
        ({"slice": "all", "encoder_slice": ""}, {}),
    ):
        opened = metatrain.open_problem(config(**changes), cheetah_data, **folders)
        hashes.add(opened.data_hash)
        assert (opened.encoder is None) == (opened.config.encoder_slice == "")
    assert len(hashes) == 6


@pytest.mark.parametrize(
    ("changes", "folders", "message"),
    [
        ({"slice": "end"}, {"mix": "other"}, "mix: .* is given and slice 'end' is no mixture"),
        ({}, {"mix": "missing"}, "missing"),
        (
            {"slice": "0.5:all+0.5:last-99"},
            {"mix": "other"},
            "half, task 0: slice last-99: the task has 7 episodes",
        ),
        (
            {"algo": tiny_cheetah.config().algo},
            {},
            "Macaw draws no batch of the encoder buffer, only inner, outer of the main one",
        ),
        ({"encoder_slice": "last-99"}, {}, "^encoder_slice: .*slice last-99: the task has"),
        (
            {"slice": "last-9", "encoder_slice": ""},
            {"encoder_data": "other"},
            "^encoder_slice: that of slice, for want of its own; .* the task has 7 episodes",
        ),
        ({"encoder_slice": "last-9-transitions"}, {}, "task 0: batch 'inner' needs 16 rows"),
        (
            {"slice": "all", "encoder_slice": ""},
            {},
            "algo.inner_batch.buffer: encoder, and there is no encoder buffer; .*--encoder-data",
        ),
    ],
)
def test_what_is_refused_before_a_folder_is_made(
    changes, folders, message, cheetah_data, other, tmp_path
):
    folders = {name: {"other": other}.get(folder, folder) for name, folder in folders.items()}
    with pytest.raises(InputError, match=message):
        metatrain.start(
            replace(config(), **changes),
            cheetah_data,
            tmp_path / "run",
            report=lambda text: None,
            **folders,
        )
    assert not (tmp_path / "run").exists()


def test_names_of_views_are_checked_by_the_config():
    for field in ("slice", "encoder_slice"):
        with pytest.raises(InputError, match=rf"^{field}: no mixture '0.5:all\+'"):
            config(**{field: "0.5:all+"})
