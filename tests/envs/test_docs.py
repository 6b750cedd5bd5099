"""The environment pages and cards say what the code does."""

import json
import re
from pathlib import Path

import pytest

from omrl.envs import cards
from omrl.envs.base import SolvedEnv
from omrl.envs.baselines import read
from omrl.envs.metaworld_tasks import NAMES
from omrl.envs.papers import PAPERS, USES
from omrl.envs.registry import ids, make

PAGES = Path(__file__).resolve().parents[2] / "docs" / "environments"
BASELINES = read(PAGES / cards.BASELINES)
FAMILIES = sorted({env_id.split("/")[0] for env_id in ids()})


def test_the_cards_are_what_their_command_writes():
    expected = cards.files(BASELINES)
    committed = {
        path.relative_to(PAGES).as_posix(): path.read_bytes() for path in PAGES.glob("*/*")
    }
    stale = [name for name in expected | committed if expected.get(name) != committed.get(name)]
    assert not stale, f"run {cards.COMMAND}, and delete files that it does not write: {stale}"


def test_the_page_of_meta_world_links_to_its_cards_and_has_what_was_measured(monkeypatch):
    page = (PAGES / "meta-world.md").read_text()
    cards_of = {env_id for env_id in cards.carded() if make(env_id).extra == "metaworld"}
    assert len(cards_of) == 8
    links = set(re.findall(r"\]\(([\w./-]+\.md)[)#]", page))
    assert {f"{env_id}.md" for env_id in cards_of} <= links
    monkeypatch.syspath_prepend(PAGES.parents[1] / "benchmarks")
    import meta_world

    kept = json.loads((PAGES / "metaworld-scripted.json").read_text())
    assert kept["spec_hash"] == make(kept["env"]).spec.hash
    assert set(kept["environments"]) == set(NAMES)
    assert meta_world.table(kept) in page
    assert f"`{kept['command']} --write docs/environments/metaworld-scripted.json`" in page
    assert kept["hardware"] in page


def test_pictures_are_small():
    sizes = [path.stat().st_size for path in PAGES.glob("*/*.svg")]
    assert 0 < sum(sizes) < 1_500_000
    # Equal tasks and splits share one.
    assert not (PAGES / "cheetah-vel" / "nopos-v1.svg").exists()


@pytest.mark.parametrize("env_id", ids())
def test_every_environment_has_papers_and_baselines(env_id):
    assert all(paper in PAPERS for paper, _ in USES[env_id])
    entry = BASELINES[env_id]
    assert entry.random is not None
    assert entry.zero is not None
    assert entry.oracle is not None or not isinstance(make(env_id), SolvedEnv)


@pytest.mark.parametrize("env_id", cards.carded())
def test_the_card_has_the_spec(env_id):
    spec = make(env_id).spec
    card = (PAGES / f"{env_id}.md").read_text()
    assert f"`{spec.hash}`" in card
    assert f"`omrl/{env_id.replace('/', '.')}`" in card
    rows = re.findall(r"^\| (\d+) \| `([\w.]+)` \|$", card, flags=re.MULTILINE)
    assert rows == [(str(index), name) for index, name in enumerate(spec.obs_names)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_page_of_a_family_links_to_all_its_cards(family):
    links = re.findall(r"\]\(([\w./-]+\.md)[)#]", (PAGES / f"{family}.md").read_text())
    assert {f"{env_id}.md" for env_id in ids() if env_id.startswith(f"{family}/")} <= set(links)
    assert all((PAGES / link).exists() for link in links)


def test_indices_are_written_as_runs():
    assert cards._runs((5, 0, 1, 2, 8, 9)) == "0 to 2, 5, 8 to 9"
