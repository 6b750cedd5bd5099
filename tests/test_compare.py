"""Pages and pictures of several runs: what is alike stands side by side, all else is refused."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fake_results import make_result
from fake_studies import make_study, save
from omrl.cli import main
from omrl.compare import write_comparison
from omrl.errors import InputError
from omrl.report import write_report
from test_report import Page


def write_run(folder: Path, name: str, *, seeds: int = 2, better: float = 0.0, **changes) -> Path:
    """A run that was evaluated after 500 and 1000 updates."""
    run = folder / name
    (run / "eval").mkdir(parents=True)
    (run / "config.json").write_text('{"run": {}}')
    (run / "command.txt").write_text(f"omrl train {name}-cheetah-vel --data d --out {name}\n")
    for step in (500, 1000):
        result = make_result(step=step, seeds=seeds, **changes)
        result.returns[:] += better
        result.save(run / "eval" / f"step-{step}.npz")
    return run


def page(path: Path) -> Page:
    parsed = Page(path.read_text())
    assert parsed.open == []
    return parsed


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """Two runs with a study in common and one that only the first has."""
    one = write_run(tmp_path, "macaw")
    two = write_run(tmp_path, "mt-awr", better=5.0, shots=(0, 1, 20))
    save(make_study("steps", run=str(one), context_size=8), one / "eval" / "study-steps")
    save(make_study("distribution", run=str(one)), one / "eval" / "study-distribution")
    save(make_study("steps", run=str(two), seeds=3), two / "eval" / "study-steps")
    return [one, two]


def test_a_page_of_two_runs(runs, tmp_path):
    out = write_comparison(runs, tmp_path / "compare.html")
    shown = page(out)
    assert shown.headings == [
        "macaw · mt-awr",
        "given, tasks 7, 2, 15, 256 transitions drawn i.i.d. without replacement from all",
        "Study: steps",
        "How they were made",
    ]
    # Bars and return over updates, and the study.
    assert len(shown.sources) == 3
    text = " ".join(shown.text.split())
    header = "run method preset updates seeds before after shot behaviour random zero oracle"
    rows = re.findall(r"<tr>(.*?)</tr>", out.read_text())
    cells = [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in rows]
    assert cells[0] == header.split()
    # Tasks -10, -11, -12 after one round, -100 to -102 before; seeds and episodes add 1 in all.
    assert cells[1][:5] == ["macaw", "Macaw", "macaw-cheetah-vel", "1,000", "2"]
    assert cells[1][5].startswith("-100.0 [-100.")
    assert cells[1][6].startswith("-10.0 [-10.")
    assert cells[1][7:] == ["after 1", "-60.0", "-300.0", "-200.0", "-"]
    assert cells[2][:3] == ["mt-awr", "Macaw", "mt-awr-cheetah-vel"]
    # 5 better, and of -1 and -2 there is a twentieth after 20 rounds.
    assert cells[2][5].startswith("-95.0 [")
    assert cells[2][6].startswith("-4.0 [")
    assert cells[2][7] == "after 20"
    assert "macaw (context 8 transitions)" in text
    assert "mt-awr (context 256 transitions)" in text
    assert "study distribution: of macaw alone" in text
    assert "NOT OF THE SAME DATA" not in text
    assert out.read_bytes() == write_comparison(runs, tmp_path / "again.html").read_bytes()


def test_a_command_that_is_cut_within_quotes_names_its_preset_or_none(runs, tmp_path):
    (runs[0] / "command.txt").write_text("omrl train 'macaw")
    (runs[1] / "command.txt").write_text("omrl train mt-awr-x\nomrl train 'cut")
    out = write_comparison(runs, tmp_path / "compare.html").read_text()
    assert "<td>Macaw</td><td>-</td>" in re.sub(r"\s", "", out)
    assert "<td>mt-awr-x</td>" in out


def test_the_statistic_is_the_one_that_was_asked_for(runs, tmp_path):
    shown = page(write_comparison(runs, tmp_path / "c.html", statistic="standard-deviation"))
    text = " ".join(shown.text.split())
    assert "macaw: mean ± standard deviation (n - 1) over 2 seeds; seeds 0, 1; contexts of" in text
    assert "2 episodes per seed and task, seed 0, deterministic actions; the last evaluated" in text
    assert "-100.0 [-100.7, -99.3]" in text  # Seeds differ by 1.


def test_other_data_is_marked(runs, tmp_path):
    path = runs[1] / "eval" / "step-1000.npz"
    result = make_result(shots=(0, 1, 20))
    source = replace(result.provenance, dataset_hash="ef" * 32)
    replace(result, provenance=source).save(path)
    text = page(write_comparison(runs, tmp_path / "c.html")).text
    assert "NOT OF THE SAME DATA" in text
    assert "(efefefefefef)" in text


def test_what_was_adapted_to_no_data_has_no_contexts_of_it(runs, tmp_path):
    explored = {"protocol": "explore", "shots": (0, 1, 2)}
    for path in runs:
        for file in (path / "eval").glob("*.npz"):
            file.unlink()
        make_result(seeds=1, **explored).save(path / "eval" / "step-1000.npz")
    text = " ".join(page(write_comparison(runs, tmp_path / "c.html")).text.split())
    assert "behaviour and oracle of data/cheetah-vel" in text
    assert "contexts of" not in text.partition("Study")[0]
    assert "Return per task after adaptation, of one seed." in text


@pytest.mark.parametrize("kind", [".png", ".svg", ".html"])
def test_one_study_of_two_runs(runs, tmp_path, kind):
    out = write_comparison(runs, tmp_path / f"steps{kind}", study="steps", statistic="median")
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".html": b"<!doctype html>"}
    assert out.read_bytes().startswith(begins[kind])
    if kind == ".svg":
        (source,) = page(write_comparison(runs, tmp_path / "p.html", study="steps")).sources
        mean = base64.b64decode(source.split(",")[1])
        assert b"<svg" in mean
        assert out.read_bytes() != mean  # of the median


def test_folders_of_studies_stand_for_runs(tmp_path):
    folders = [
        save(make_study("steps", run="bundled:a", context_size=size), tmp_path / f"steps-{size}")
        for size in (8, 256)
    ]
    text = page(write_comparison(folders, tmp_path / "steps.html")).text
    assert "steps-8 (context 8 transitions)" in text
    assert write_comparison(folders, tmp_path / "steps.png").exists()
    # Of one state, different studies are one run.
    folders[1] = save(make_study("distribution", run="bundled:a"), tmp_path / "distribution")
    shown = page(write_comparison(folders, tmp_path / "both.html"))
    assert shown.headings == ["bundled:a", "Study: steps", "Study: distribution"]


def test_long_names_have_room(tmp_path):
    folders = [
        save(make_study("distribution", context_size=size), tmp_path / f"{size}-{'long' * 50}")
        for size in (8, 256)
    ]
    assert write_comparison(folders, tmp_path / "long.png").exists()


def test_a_report_shows_the_studies_of_its_run(runs):
    unfinished = make_study("context-size", points=("8",))
    save(unfinished, runs[0] / "eval" / "study-context-size", only=1)
    save(make_study("steps"), runs[0] / "eval" / "steps-on-256")
    shown = page(write_report(runs[0]))
    assert shown.headings[2:5] == [
        "Study: steps (steps-on-256)",
        "Study: distribution",
        "Study: steps",
    ]
    assert "study-context-size: 1 of 2 evaluations are still to come" in shown.text
    median = write_report(runs[0], runs[0] / "median.html", statistic="median")
    assert median.read_bytes() != (runs[0] / "report.html").read_bytes()


def other_environment(folder: Path) -> Path:
    run = write_run(folder, "ant")
    for step in (500, 1000):
        result = make_result(step=step)
        source = replace(result.provenance, env_id="ant-dir/x-v1", spec_hash="99" * 32)
        replace(result, provenance=source).save(run / "eval" / f"step-{step}.npz")
    return run


def test_other_environments_are_refused(runs, tmp_path):
    with pytest.raises(InputError, match=r"ant is of ant-dir/x-v1 .*different MDPs cannot be"):
        write_comparison([*runs, other_environment(tmp_path)], tmp_path / "c.html")
    assert not (tmp_path / "c.html").exists()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"protocol": "zero-shot", "shots": (0,)}, "protocol: 'zero-shot' is not 'given'"),
        ({"context_size": 8}, "context_size: 8 is not 256"),
        ({"episodes": 5}, "episodes: 5 is not 2"),
    ],
)
def test_a_run_that_was_evaluated_otherwise_is_refused(runs, tmp_path, changes, difference):
    other = write_run(tmp_path, "other", **changes)
    message = f"other: evaluated otherwise than macaw .{difference}.; evaluate both with the same"
    with pytest.raises(InputError, match=message):
        write_comparison([*runs, other], tmp_path / "c.html")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("macaw", "macaw"), {}, "one of them is there twice"),
        (("macaw", "nothing"), {}, "not a run folder"),
        (("macaw", "empty"), {}, "empty: no evaluation and no finished study; make one"),
        (("empty",), {}, "empty: no evaluation and no finished study"),
        (("macaw", "mt-awr"), {"study": "distribution"}, "mt-awr: has no finished study distrib"),
        (("macaw", "mt-awr"), {"study": "distribution"}, "omrl evaluate PATH/mt-awr --study dist"),
        (("empty",), {}, "make one: omrl evaluate PATH/empty"),
        (("macaw", "mt-awr"), {"out": "c.pdf"}, "c.pdf: ends in none of .html, .png, .svg"),
        (("macaw",), {"out": "c.png"}, "a picture is of one study; name it: --study steps|cont"),
    ],
)
def test_what_cannot_be_compared_is_refused(runs, tmp_path, names, options, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text('{"run": {}}')
    out = tmp_path / options.pop("out", "c.html")
    message = message.replace("|", r"\|").replace("PATH", re.escape(str(tmp_path)))
    with pytest.raises(InputError, match=message) as caught:
        write_comparison([tmp_path / name for name in names], out, **options)
    assert "\n" not in str(caught.value)


# --- The command ---


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main(["report", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_writes_pages_and_pictures(runs, tmp_path, capsys):
    out = tmp_path / "c.html"
    assert call(capsys, *runs, "--out", out) == (0, f"{out}\n", "")
    code, told, _ = call(capsys, *runs, "--study", "steps", "--out", tmp_path / "s.png", "--json")
    assert code == 0
    assert json.loads(told) == {
        "runs": list(map(str, runs)),
        "report": str(tmp_path / "s.png"),
    }
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    page_of_one = tmp_path / "one.html"
    assert call(capsys, runs[0], "--out", page_of_one, "--statistic", "median")[0] == 0
    assert "Study: steps" in page_of_one.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--statistic", "mode"], "statistic: no 'mode'; did you mean mean or median?"),
        (["--study", "steps"], "out: say where the page or picture goes: --out compare.html"),
        (["--out", "x.png"], "x.png: a report is a page; name it FILE.html"),
        (["--study", "depth"], "--study"),
    ],
)
def test_wrong_options_end_with_one_line(runs, capsys, options, message):
    code, _, err = call(capsys, runs[0], *options)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_without_a_run_there_is_nothing_to_report(capsys):
    assert call(capsys)[0] == 2
