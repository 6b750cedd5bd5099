"""A report is made of whatever a run folder holds, says what it lacks, and needs no network."""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fake_results import make_result
from omrl import stats
from omrl.config import json_hash
from omrl.errors import InputError
from omrl.report import intervals_told, write_report
from omrl.tuning import FinetuneConfig

LOG = [
    {"step": step, "stage": "meta", "seconds": 1.0, "steps_per_s": 9.0,
     "metrics": {"policy_loss": [1.0 / step, 2.0 / step], "value_loss": [3.0, None]}}
    for step in (100, 200, 300)
]  # fmt: skip


def write_run(folder: Path, *parts: str) -> Path:
    run = folder / "my-run"
    (run / "eval").mkdir(parents=True)
    (run / "config.json").write_text('{"run": "<script>alert(1)</script>"}')
    if "eval" in parts:
        make_result(step=1000).save(run / "eval" / "given-1000.npz")
    if "curve" in parts:
        make_result(step=500).save(run / "eval" / "given-500.npz")
    if "slice" in parts:
        make_result(context_slice="last-500", traces=()).save(run / "eval" / "last.npz")
    if "log" in parts:
        (run / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LOG))
    if "facts" in parts:
        (run / "command.txt").write_text("omrl train macaw-cheetah-vel\n")
        (run / "versions.json").write_text("[]")
    return run


class Page(HTMLParser):
    """Balanced tags, image sources, headings and text."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.sources, self.text, self.headings = [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def page(run: Path) -> Page:
    path = write_report(run)
    assert path == run / "report.html"
    parsed = Page(path.read_text())
    assert parsed.open == []
    return parsed


def test_a_whole_run_has_every_section(tmp_path):
    report = page(write_run(tmp_path, "eval", "curve", "slice", "log", "facts"))
    assert report.headings == [
        "my-run",
        "Evaluation: given, tasks 7, 2, 15, 256 transitions of all",
        "Evaluation: given, tasks 7, 2, 15, 256 transitions of last-500",
        "Meta-training",
        "How it was made",
    ]
    # Bars, adaptation, speed; bars and adaptation; return over updates and metrics.
    assert len(report.sources) == 3 + 2 + 2
    for source in report.sources:
        kind, content = source.split(",", 1)
        assert kind == "data:image/svg+xml;base64"
        assert b"<svg" in base64.b64decode(content)
    assert "-10.0 [" in report.text
    assert "spec abababababab" in report.text
    assert "speed over time (given, tasks 7, 2, 15, 256 transitions of last-500)" in report.text


def test_the_last_step_is_the_score_not_the_best(tmp_path):
    run = write_run(tmp_path, "eval")
    worse = make_result(step=2000)
    worse.returns[:] -= 50
    worse.save(run / "eval" / "a.npz")
    report = page(run)
    assert "Macaw after 2,000 updates" in report.text
    assert "Macaw after 1,000 updates" not in report.text
    assert "mean return after 1\n    -60.0 [" in report.text


def test_results_of_other_runs_are_left_out_and_told(tmp_path):
    run = write_run(tmp_path)
    own = json_hash([json.loads((run / "config.json").read_text())["run"], None])
    for name, of, better in (("b", "f" * 64, 50.0), ("a", own, 0.0), ("c", own, 7.0)):
        result = make_result(step=1000)
        result.returns[:] += better
        source = replace(result.provenance, run_hash=of)
        replace(result, provenance=source).save(run / "eval" / f"{name}.npz")
    text = page(run).text
    assert "-3.0 [" in text  # Of the last of two of the same state.
    assert "40.0 [" not in text
    assert "a.npz: of the same state as c.npz" in text
    assert "Macaw after 1,000 updates in eval/: of another run" in text


@pytest.mark.parametrize("parts", [(), ("eval",), ("log",), ("facts",), ("curve", "log")])
def test_any_subset_works_and_what_is_missing_is_named(tmp_path, parts):
    text = page(write_run(tmp_path, *parts)).text
    has_eval = "eval" in parts or "curve" in parts
    assert ("no eval/*.npz" in text) == (not has_eval)
    assert ("no rows in log.jsonl" in text) == ("log" not in parts)
    assert ("no command.txt" in text) == ("facts" not in parts)
    assert "fewer than two evaluations" in text


def test_logged_evaluations_stand_in_for_missing_files(tmp_path):
    run = write_run(tmp_path, "log")
    rows = [{"step": step, "seconds": 1.0, "evaluation": {"return": -step}} for step in (100, 200)]
    with (run / "log.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    report = page(run)
    assert len(report.sources) == 2
    assert "fewer than two evaluations" not in report.text


def test_nothing_is_fetched_and_nothing_executed(tmp_path):
    text = write_report(write_run(tmp_path, "eval", "facts")).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "@import" not in text


def test_the_same_run_gives_the_same_bytes(tmp_path):
    run = write_run(tmp_path, "eval", "curve", "log")
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first
    assert not list(run.glob(".*"))


def test_one_shot_and_one_seed(tmp_path):
    run = write_run(tmp_path)
    make_result(protocol="zero-shot", shots=(0,), seeds=1).save(run / "eval" / "zero.npz")
    report = page(run)
    assert len(report.sources) == 2
    assert "adaptation curve (zero-shot, tasks 7, 2, 15): one shot only" in report.text
    assert "Return per task, of one seed." in report.text


@pytest.mark.parametrize(
    ("seeds", "episodes", "told"),
    [
        ((2, 2), 1, "with 95 % intervals"),
        ((1, 1), 2, "with 95 % intervals over the episodes of one seed"),
        ((1, 1), 1, "without intervals: one seed, and one episode of each task"),
        ((1, 2), 2, "with 95 % intervals, of one seed over its episodes"),
    ],
)
def test_captions_promise_the_intervals_that_there_are(seeds, episodes, told):
    results = [make_result(seeds=number, episodes=episodes) for number in seeds]
    assert intervals_told(results) == told
    for result in results:
        curve = stats.bootstrap(result.shot(1), stats.mean)
        assert math.isnan(curve.low) == told.startswith("without")


def test_online_learning_has_its_curve(tmp_path):
    run = write_run(tmp_path)
    settings = FinetuneConfig(eval_every=5)
    result = make_result(protocol="finetune", shots=(0, 20), finetune=settings)
    result.save(run / "eval" / "finetune.npz")
    report = page(run)
    assert "Evaluation: finetune, tasks 7, 2, 15, 256 transitions of all" in report.headings
    curve = base64.b64decode(report.sources[1].split(",", 1)[1])
    assert b"environment steps online" in curve
    assert curve.count(b"<use") > 5 * 3  # a marker at each of the five points, and ticks
    assert "Return while learning online: 100 gradient steps per trajectory" in report.text
    assert "mean return 4,000 steps" in report.text


@pytest.mark.parametrize("found", [None, "[]", '{"name": "a web page"}'])
def test_a_folder_that_is_no_run_is_refused(tmp_path, found):
    if found is not None:
        (tmp_path / "config.json").write_text(found)
    with pytest.raises(InputError, match=r"not a run folder"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_bundle_has_no_run_to_report():
    name = "bundled:macaw-cheetah-vel"
    with pytest.raises(InputError, match=f"without its run.*measure it: omrl evaluate {name}$"):
        write_report(name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", r"config\.json: not JSON"),
        ("versions.json", b"{", r"versions\.json: not JSON"),
        ("versions.json", b"\xff", r"versions\.json: not JSON"),
        ("log.jsonl", b"[1]\n", r"log\.jsonl: line 1: \[1\] is not an object"),
        ("eval/broken.npz", b"PK", r"broken\.npz: damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    run = write_run(tmp_path, "eval", "log", "facts")
    (run / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        write_report(run)


def test_a_command_that_is_not_unicode_is_shown_as_far_as_it_is(tmp_path):
    run = write_run(tmp_path, "facts")
    (run / "command.txt").write_bytes(b"omrl train \xff")
    assert "omrl train \N{REPLACEMENT CHARACTER}" in page(run).text
