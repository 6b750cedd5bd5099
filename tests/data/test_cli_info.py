"""`omrl data info`: table, JSON, page, and what is not a whole dataset."""

import json
import re

import numpy as np
import pytest
from points import BEHAVIOUR, episodes_of

from omrl.cli.data import main
from omrl.data import manifest as manifests
from omrl.data.store import create
from omrl.envs import registry
from omrl.errors import InputError


@pytest.fixture(autouse=True)
def _registered(monkeypatch, env):
    monkeypatch.setattr(registry, "make", lambda env_id: env)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture
def show(capsys):
    """What the command prints, with `--json` as values."""

    def show(*arguments):
        main(["info", *map(str, arguments)], "")
        text = capsys.readouterr().out
        return json.loads(text) if "--json" in arguments else text

    return show


def unvalidated(dataset):
    path = dataset.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"validation": None}))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 0xFF
    path.write_bytes(content)


def test_the_table_has_every_task(dataset, show):
    text = show(dataset.path)
    row = next(line for line in text.splitlines() if line.startswith("│ 1 "))
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    returns = dataset.task(1).returns
    assert cells[:4] == ["1", "0.5", "4", "20"]
    numbers = (returns.min(), np.median(returns), returns.mean(), returns.max())
    assert cells[4:8] == [f"{number:.1f}" for number in numbers]
    assert cells[10:] == ["0 %", "4", "0", "0", "0.0 %"]
    assert "up to 10,000 rows per task" in text
    assert "stored minus recomputed" in text
    assert text.endswith("\nno warning\n")


def test_json_has_everything(dataset, show):
    found = show(dataset.path, "--json")
    assert found["transitions"] == 85
    assert [task["index"] for task in found["tasks"]] == [0, 1, 2]
    (first, *_) = found["statistics"]["tasks"]
    assert first["ends"]["terminated"] == 4
    assert found["warnings"] == []


def test_quick_reads_no_data(dataset, show):
    flip(dataset.path / "task-000/obs.npy")
    assert "mean return" in show(dataset.path, "--quick")
    with pytest.raises(InputError, match=r"task-000/obs.npy .*sha256 differs"):
        show(dataset.path)


def test_the_page_is_one_file_with_everything(dataset, show, tmp_path):
    page = tmp_path / "deep" / "info.html"
    show(dataset.path, "--html", page)
    text = page.read_text()
    assert text.count('<img src="data:image/svg+xml;base64,') == 3
    assert text.count("<tr>") == 1 + 3
    assert ":root" in text
    outside = re.findall(r'(?:src|href)="(?!data:)|https?://|@import|url\(', text)
    assert (outside, "<script" in text) == ([], False)


@pytest.mark.parametrize("option", ["--quick", "partial"])
def test_no_page_without_data(dataset, tmp_path, show, env, option):
    page, arguments = tmp_path / "info.html", [dataset.path, option]
    if option == "partial":
        arguments = [create(tmp_path / "new", env, command="test").partial]
    with pytest.raises(InputError, match="html: a page needs whole data"):
        show(*arguments, "--html", page)
    assert not page.exists()


@pytest.mark.parametrize("name", ["manifest.json", "task-000/obs.npy", "page"])
def test_a_page_takes_the_place_of_no_data(dataset, show, name):
    with pytest.raises(InputError, match=r"does not end in \.html; give the page such a name"):
        show(dataset.path, "--html", dataset.path / name)


# --- What was not validated ---


def test_data_that_was_not_validated_is_measured_if_it_is_valid(dataset, show):
    unvalidated(dataset)
    assert "no validation is on record; run omrl data validate" in show(dataset.path)
    assert not manifests.read(dataset.path).validated


def test_what_is_not_valid_is_said_and_not_measured(dataset, show, tmp_path):
    unvalidated(dataset)
    flip(dataset.path / "task-002/reward.npy")
    page = tmp_path / "info.html"
    found = show(dataset.path, "--json", "--html", page)
    assert found["statistics"] is None
    assert {(w["kind"], *w["tasks"]) for w in found["warnings"]} == {("invalid", 2)}
    assert "task 2: task-002/reward.npy: sha256 differs" in show(dataset.path)
    assert "sha256 differs" in page.read_text()


def test_an_unknown_environment_is_said(dataset, show, monkeypatch):
    def unknown(env_id):
        raise InputError("unknown environment")

    monkeypatch.setattr(registry, "make", unknown)
    text = show(dataset.path)
    assert "test-point/test-v1 is not known here" in text
    assert "local linear fit" in text


def test_another_mdp_is_said(dataset, show, other_env, monkeypatch):
    monkeypatch.setattr(registry, "make", lambda env_id: other_env)
    assert "another MDP" in show(dataset.path)


# --- What is not finished ---


@pytest.mark.parametrize(
    ("command", "source", "way"),
    [
        (
            "omrl collect test-point/test-v1 --steps 9",
            None,
            "omrl collect test-point/test-v1 --steps 9 --out {out} --resume",
        ),
        (
            "omrl data import logs OUT --format npz",
            {"name": "logs"},
            "omrl data import logs {out} --format npz",
        ),
        ("omrl data slice 'a b' OUT", {"hash": "1"}, "omrl data slice 'a b' {out}"),
        ("omrl data relabel a OUT --seed 1", {"hash": "1"}, "relabel a {out} --seed 1"),
        ("python mine.py", None, "began it with the command 'python mine.py'"),
    ],
)
def test_an_unfinished_one_says_how_to_go_on(tmp_path, env, columns, show, command, source, way):
    out = tmp_path / "my.data"
    writer = create(out, env, command=command, source=source)
    assert show(out, "--json")["tasks"] == []
    writer.write_task(1, behaviour=BEHAVIOUR, **columns[1])
    writer.append(0, **episodes_of(columns[0], 0, 2))
    text = show(writer.partial)
    assert f"{writer.partial}: unfinished" in text
    assert "1 tasks of test-point/test-v1 are complete and 1 begun, 28 transitions" in text
    assert way.format(out=out) in text
    assert show(out) == text
    assert show(out, "--json")["tasks"] == [
        {"index": 0, "complete": False, "episodes": 2, "transitions": 8},
        {"index": 1, "complete": True, "episodes": 4, "transitions": 20},
    ]


def test_a_dataset_that_is_being_replaced_is_shown_itself(dataset, env, show):
    create(dataset.path, env, command="another", overwrite=True)
    assert "no warning" in show(dataset.path)


@pytest.mark.parametrize("place", [".", "inside"])
def test_the_folder_one_is_in(dataset, show, monkeypatch, tmp_path, place):
    monkeypatch.chdir(dataset.path if place == "inside" else tmp_path)
    if place == "inside":
        assert "no warning" in show(".")
    else:
        with pytest.raises(InputError, match="not a dataset"):
            show(".")
