"""The environment pages say what the code does."""

import re
from pathlib import Path

import pytest

from omrl.envs.registry import ids, make

PAGES = Path(__file__).resolve().parents[2] / "docs" / "environments"


@pytest.mark.parametrize("env_id", ids())
def test_the_page_has_the_id_and_its_hash(env_id):
    page = (PAGES / f"{env_id.split('/')[0]}.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| `{env_id}` |"))
    assert make(env_id).spec.hash[:12] in row


@pytest.mark.parametrize(
    "env_id",
    [
        "cheetah-vel/macaw-v1",
        "cheetah-dir/macaw-v1",
        "walker-params/macaw-v1",
        "hopper-params/oyster-v1",
        "ant-dir/macaw-v1",
        "ant-semicircle/borel-v1",
        "point-robot/oyster-v1",
        "sparse-point-robot/oyster-v1",
        "gridnav/borel-v1",
    ],
)
def test_the_observation_table_is_the_layout(env_id):
    page = (PAGES / f"{env_id.split('/')[0]}.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, flags=re.MULTILINE)
    assert rows == [(str(index), name) for index, name in enumerate(make(env_id).spec.obs_names)]


def test_the_code_on_the_pages_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / "cheetah-vel.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "cheetah-vel.md", "exec"), {})
    assert "x_velocity" in capsys.readouterr().out
