"""Whatever happens to a file, reading it ends in a value or in an `InputError` of one line.

Every kind of file that is read is cut off and changed at many places, byte by byte; JSON also
value by value, to what is JSON but not what was meant.
"""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import foreign
import jax
import numpy as np
import pytest
from points import BEHAVIOUR, PointEnv, lifetime

import fake_studies
import tiny_omniglot
from fake_results import make_result
from fake_shift import make_rewards, make_shift, make_traces
from omrl import bundle, runs
from omrl.cli import data_info
from omrl.config import parse_json
from omrl.curve import Curve
from omrl.data import info
from omrl.data.collect.results import AGENTS, FinalAgents, KeptPolicies, agents_file
from omrl.data.collect.storage import NAME as CHECKPOINT
from omrl.data.collect.storage import Checkpoint, load_checkpoint
from omrl.data.dataset import Dataset
from omrl.data.device import byte_budget
from omrl.data.formats import FORMATS
from omrl.data.formats.source import STATEMENT, Request, read_statement, statement_of
from omrl.data.manifest import CACHE
from omrl.data.slice import Slice
from omrl.data.store import create, open_dataset
from omrl.diagnostics.kinds import KINDS as DIAGNOSES
from omrl.envs.base import EnvSpec
from omrl.errors import InputError
from omrl.export import export_policy, load_policy
from omrl.logs import read_log
from omrl.omniglot.images import read_images
from omrl.results import EvalResult, table
from omrl.simulate import Labels
from omrl.studies import results as studies
from toy import ToyConfig

# A damaged archive is closed by the garbage collector where numpy and zipfile leave it open.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


class Damageable(NamedTuple):
    """A file and what reads it."""

    file: Path
    read: Callable[[], Any]


# --- The kinds of files ---


def dataset(folder: Path) -> Dataset:
    writer = create(folder / "points", PointEnv(), command="test")
    writer.write_task(0, behaviour=BEHAVIOUR, **lifetime(PointEnv(), 0, [5, 3, 5, 2]))
    return writer.finish()


def of_dataset(name: str) -> Callable[[Path], Damageable]:
    def make(folder: Path) -> Damageable:
        path = dataset(folder).path

        def read() -> None:
            opened = open_dataset(path)
            byte_budget(opened.view(Slice.parse("return-0.0-0.5")), opened.task_indices)

        return Damageable(path / name, read)

    return make


def of_statistics(folder: Path) -> Damageable:
    data = dataset(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(info, "CACHE_FROM", 1)
        info.measure(data, None)
    (file,) = (data.path / CACHE).iterdir()
    return Damageable(file, lambda: info.measure(data, None))


def of_unfinished(folder: Path) -> Damageable:
    writer = create(folder / "points", PointEnv(), command="test")
    writer.append(0, **lifetime(PointEnv(), 0, [5, 3]))
    options = data_info.InfoOptions(writer.partial)
    return Damageable(writer.partial / "manifest.json", lambda: data_info.run(options))


def of_evaluation(folder: Path) -> Damageable:
    file = make_result().save(folder / "given.npz")
    return Damageable(file, lambda: table(EvalResult.load(file)))


def of_diagnosis(name: str) -> Callable[[Path], Damageable]:
    def make(folder: Path) -> Damageable:
        made = {"shift": make_shift, "traces": make_traces, "rewards": make_rewards}
        kind = DIAGNOSES[name]
        file = made[name](seeds=1).save(folder / "diagnosis.npz")

        def read() -> None:
            results = [kind.result.load(file)]
            kind.table(results), kind.describe(results), results[0].to_json()

        return Damageable(file, read)

    return make


def of_curve(folder: Path) -> Damageable:
    labels, file = Labels((0,), (3, 4), (0, 2), 2), folder / "finetune.npz.unfinished"
    Curve.of(labels, ("x_velocity",), 5, succeeds=False).save(file, "mine")

    def read() -> None:
        assert not Curve.of(labels, ("x_velocity",), 5, succeeds=False).take_over(file, "mine")

    return Damageable(file, read)


def of_study(folder: Path) -> Damageable:
    path = fake_studies.save(fake_studies.make_study("context-size", seeds=1), folder / "study")

    def read() -> None:
        result = studies.load(path)
        studies.table(result), studies.describe(result), result.series

    return Damageable(path / studies.RECORD, read)


def of_policy(suffix: str) -> Callable[[Path], Damageable]:
    def make(folder: Path) -> Damageable:
        layers = [(np.ones((2, 3)), np.zeros(3)), (np.ones((3, 1)), np.zeros(1))]
        about = {"env_id": "e", "spec_hash": "0" * 64, "context": {"task": 3}}
        scales = {"obs_mean": [0.0, 1.0], "obs_std": [1.0, 2.0]}
        file = export_policy(folder / "policy", layers, **about, **scales)
        return Damageable(file.with_suffix(suffix), lambda: load_policy(file)(np.zeros(2)))

    return make


def of_log(folder: Path) -> Damageable:
    rows = (
        {"step": 1, "stage": "s", "seconds": 1.0, "steps_per_s": 9.5, "metrics": {"loss": [1.5]}},
        {"step": 2, "seconds": 1.0, "evaluation": {"return": None}},
    )
    file = folder / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Damageable(file, lambda: read_log(folder))


def of_run(name: str) -> Callable[[Path], Damageable]:
    def make(folder: Path) -> Damageable:
        path = folder / "run"
        runs.create(path, ToyConfig(), command="c", devices=jax.devices("cpu")[:1])

        def read() -> None:
            runs.open_run(path).parse(ToyConfig)
            runs.read_sessions(path)

        return Damageable(path / name, read)

    return make


def of_checkpoint(folder: Path) -> Damageable:
    record = {"env": "e", "agent": {"lr": 0.1}}
    numbers = np.ones((3, 2), np.int64)
    Checkpoint(record, (0, 1), numbers[0], numbers / 2, numbers, (np.ones(2),)).save(folder)
    return Damageable(folder / CHECKPOINT, lambda: load_checkpoint(folder, record))


def of_agents(folder: Path) -> Damageable:
    row, layer = np.ones((2, 3), np.float32), np.ones((2, 3, 2), np.float32)
    agents = FinalAgents(np.arange(2), row, row, 5.0, (layer,), (row[:, :2],), 1)
    np.savez(folder / AGENTS, **agents.arrays())
    return Damageable(folder / AGENTS, lambda: FinalAgents.load(folder))


def of_kept(folder: Path) -> Damageable:
    """A policy kept before the final one."""
    path, spec = dataset(folder).path, PointEnv().spec
    row = np.ones((1, spec.obs_dim), np.float32)
    layer = np.ones((1, spec.obs_dim, spec.act_dim), np.float32)
    agents = FinalAgents(np.arange(1), row, row, 5.0, (layer,), (layer[:, 0],), spec.act_dim)
    for number in (1, 2):
        np.savez(path / agents_file(number, 2), **agents.arrays())
    return Damageable(path / agents_file(1, 2), lambda: KeptPolicies.load(path, PointEnv()))


def of_spec(folder: Path) -> Damageable:
    file = folder / "spec.json"
    file.write_text(PointEnv().spec.to_json())
    return Damageable(file, lambda: EnvSpec.from_json(file.read_text("utf-8", "replace")))


def of_statement(folder: Path) -> Damageable:
    file, data = folder / STATEMENT, dataset(folder)
    file.write_text(json.dumps(statement_of(data, data.manifest.tasks).to_json()))
    return Damageable(file, lambda: read_statement(file))


def of_foreign(name: str, pattern: str, make: Callable[[Path, Any], None]) -> Callable:
    """A file of another program's source, to which `pattern` leads from where that is."""

    def made(folder: Path) -> Damageable:
        source = folder / "source"
        make(source, {0: lifetime(PointEnv(), 0, [5, 5, 5, 5])})
        module, request = FORMATS[name].load(), Request(PointEnv().spec, 5)

        def read() -> None:
            if name == "minari":
                module.stated(source)
            for task in module.read(source, request):
                for _ in task.read():
                    pass

        return Damageable(min(folder.glob(pattern)), read)

    return made


def oyster(source: Path, columns: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        source.write_bytes(pickle.dumps(foreign.oyster_buffer(patch, columns)))


FOREIGN: dict[str, Callable[[Path], Damageable]] = {
    "macaw": of_foreign("macaw", "source/*.hdf5", lambda f, c: foreign.macaw(f, c, [0.5])),
    "macaw-task": of_foreign("macaw", "source/*.pkl", lambda f, c: foreign.macaw(f, c, [0.5])),
    "oyster": of_foreign("rlkit", "source", oyster),
    "smac": of_foreign("smac", "source/*.npy", lambda f, c: foreign.smac(f, c, [0.5])),
    "focal": of_foreign("focal", "source/*/*.npy", foreign.focal),
    "borel": of_foreign("borel", "source/*/*.npy", lambda f, c: foreign.borel(f, c, [0.5])),
    "d4rl": of_foreign("d4rl", "source", lambda f, c: foreign.d4rl(f, c[0])),
    "npz": of_foreign("npz", "source/*/*.npz", foreign.npz),
    "minari": of_foreign("minari", "source/*.hdf5", lambda f, c: foreign.minari_hdf5(f, c[0])),
    "arrow": of_foreign("minari", "source/0/*.arrow", lambda f, c: foreign.minari_arrow(f, c[0])),
    "minari-json": of_foreign(
        "minari", "source/*.json", lambda f, c: foreign.minari_arrow(f, c[0])
    ),
}


def of_images(folder: Path) -> Damageable:
    contents = tiny_omniglot.members(tiny_omniglot.ALPHABETS[:1], characters=1)
    file = tiny_omniglot.write_archive(folder / "omniglot", "images_background", contents)
    return Damageable(file, lambda: read_images(file.parent))


KINDS: dict[str, Callable[[Path], Damageable]] = {
    "manifest": of_dataset("manifest.json"),
    "column": of_dataset("task-000/obs.npy"),
    "episodes": of_dataset("task-000/episode_start.npy"),
    "statistics": of_statistics,
    "unfinished": of_unfinished,
    "evaluation": of_evaluation,
    **{f"diagnosis {name}": of_diagnosis(name) for name in DIAGNOSES},
    "curve": of_curve,
    "study": of_study,
    "policy": of_policy(".safetensors"),
    "policy-json": of_policy(".json"),
    "log": of_log,
    "config": of_run("config.json"),
    "versions": of_run("versions.json"),
    "collection": of_checkpoint,
    "agents": of_agents,
    "kept": of_kept,
    "spec": of_spec,
    "statement": of_statement,
    "images": of_images,
    **FOREIGN,
}
JSON = (
    *("manifest", "policy-json", "log", "config", "versions", "spec"),
    *("statement", "minari-json", "unfinished"),
)


# --- Bytes ---


def damages(content: bytes, count: int, last: int) -> Iterator[bytes]:
    """`content` cut off, and with bits flipped and bytes overwritten, at `count` places all over
    it and at each of the `last` ones."""
    places = np.linspace(0, len(content) - 1, count).astype(int)
    for at in np.union1d(places, np.arange(len(content) - last, len(content))).tolist():
        yield content[:at]
        for byte in (content[at] ^ 1, content[at] ^ 128, 0, ord("9")):
            yield content[:at] + bytes([byte]) + content[at + 1 :]


def survives(read: Callable[[], Any]) -> None:
    line = ""
    try:
        read()
    except InputError as error:
        line = str(error)
    assert "\n" not in line
    assert len(line) < 1000


def damage_everywhere(damaged: Damageable, count: int, last: int = 0) -> None:
    content = damaged.file.read_bytes()
    damaged.read()
    for other in damages(content, count, last):
        damaged.file.write_bytes(other)
        survives(damaged.read)


@pytest.mark.parametrize("name", KINDS)
def test_damaged_bytes(tmp_path, name):
    archive = name in ("evaluation", "curve", "collection", "agents", "npz", "images")
    # Of an archive, the directory is at the end.
    damage_everywhere(KINDS[name](tmp_path), 25, 100 if archive else 0)


@pytest.mark.parametrize("name", [bundle.MANIFEST, bundle.WEIGHTS])
def test_a_damaged_bundle(stand_ins, tmp_path, name):
    folder = shutil.copytree(stand_ins / "macaw-cheetah-vel", tmp_path / "bundle")
    damage_everywhere(Damageable(folder / name, lambda: bundle.read(folder)), 15)


# --- JSON ---

HOSTILE = {
    "null": "null",
    "truth": "true",
    "negative": "-1",
    "fraction": "0.5",
    "long": "1" + 400 * "0",
    "longer": "1" + 5000 * "0",
    "overflow": "1e999",
    "not-a-number": "NaN",
    "text": '"x"',
    "no-path": r'"\u0000"',
    "half-a-pair": r'"\ud800"',
    "list": "[]",
    "object": "{}",
    "lists": "[[1, 2], [3]]",
    "deep": 60 * "[" + 60 * "]",
    "deeper": 100_000 * "[" + 100_000 * "]",
}
HERE = "<here>"


def replaced(value: Any) -> Iterator[Any]:
    """Copies of a JSON value with `HERE` in place of each value in it, of lists the first."""
    yield HERE
    keys = {dict: value, list: range(1) if value else ()}.get(type(value), ())
    for key in keys:
        for inner in replaced(value[key]):
            outer = copy.copy(value)
            outer[key] = inner
            yield outer


def lacking(value: Any) -> Iterator[Any]:
    """Copies of a JSON value without one of its fields, or with one more."""
    if isinstance(value, dict):
        yield value | {"surplus\n": 1}
        for key in value:
            yield {name: item for name, item in value.items() if name != key}
            for inner in lacking(value[key]):
                yield value | {key: inner}
    elif isinstance(value, list) and value:
        yield from ([inner, *value[1:]] for inner in lacking(value[0]))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("name", JSON)
def test_json_that_is_not_what_was_meant(tmp_path, name, text):
    file, read = KINDS[name](tmp_path)
    first, *others = file.read_text().splitlines() if name == "log" else [file.read_text()]
    for value in replaced(json.loads(first)):
        damaged = json.dumps(value).replace(f'"{HERE}"', text)
        file.write_text("".join(line + "\n" for line in (damaged, *others)))
        survives(read)


@pytest.mark.parametrize("name", JSON)
def test_json_that_lacks_a_field(tmp_path, name):
    file, read = KINDS[name](tmp_path)
    first, *others = file.read_text().splitlines() if name == "log" else [file.read_text()]
    for value in lacking(json.loads(first)):
        file.write_text("".join(line + "\n" for line in (json.dumps(value), *others)))
        survives(read)


@pytest.mark.parametrize("name", ["long", "longer", "overflow", "not-a-number", "no-path",
                                  "half-a-pair", "deep", "deeper"])  # fmt: skip
def test_what_nothing_could_hold_is_refused_by_name(name):
    for text in (HOSTILE[name], f'{{"a": [{HOSTILE[name]}]}}', HOSTILE[name].encode()):
        with pytest.raises(InputError, match=r"^here: not JSON \(.*\); mend it$") as caught:
            parse_json(text, "here", "mend it")
        assert len(str(caught.value)) < 250


def test_numbers_at_the_limits_are_kept():
    numbers = [2**63 - 1, -(2**63), 1.7976931348623157e308, 5e-324, -0.0]
    assert parse_json(json.dumps(numbers), "here", "") == numbers
    assert parse_json('"\\ud83d\\ude00"', "here", "") == "\N{GRINNING FACE}"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_refused(encoding):
    with pytest.raises(InputError, match="not JSON"):
        parse_json('"ä"'.encode(encoding), "here", "mend it")


# --- Archives with members that numpy would not write ---


@pytest.mark.parametrize("name", ["evaluation", "collection", "agents", "kept"])
@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 3)), np.array("x"), np.array([{}]), np.zeros(3, "U0"), np.zeros(2, "i4, f8")],
    ids=["empty", "text", "object", "no-text", "records"],
)
def test_arrays_of_another_kind(tmp_path, name, array):
    file, read = KINDS[name](tmp_path)
    with np.load(file) as archive:
        arrays = dict(archive)
    for member in (*arrays, "surplus"):
        np.savez(file, **arrays | {member: array})
        survives(read)
        with suppress(KeyError):
            np.savez(file, **{key: value for key, value in arrays.items() if key != member})
            survives(read)
