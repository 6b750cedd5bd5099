"""What a training is told before it begins."""

import pytest

from omrl.cautions import tell_cautions
from omrl.envs import registry
from omrl.presets import PRESETS, RunRecord
from omrl.types import Spec


def told_by(preset, obs_std=()):
    config = PRESETS[preset].config
    spec = Spec(2, 1, 10, 200, obs_mean=(0.0,) * len(obs_std), obs_std=obs_std)
    lines: list[str] = []
    tell_cautions(RunRecord(config, spec, "", ""), registry.make(config.env), lines.append)
    return lines


@pytest.mark.parametrize(
    ("preset", "warned"), [("smac-walker-params", True), ("smac-cheetah-vel", False)]
)
def test_a_decoder_of_rewards_is_warned_of_tasks_that_rewards_do_not_tell(preset, warned):
    told = told_by(preset)
    assert [line.startswith("warning: tasks of walker-params/smac-v1") for line in told] == (
        [True] if warned else []
    )


@pytest.mark.parametrize(
    ("preset", "obs_std", "warned"),
    [
        ("macaw-cheetah-vel-paper", (0.006, 300.0), True),
        ("macaw-cheetah-vel-paper", (0.1, 300.0), False),
        ("macaw-cheetah-vel-paper", (), False),
        ("macaw-cheetah-vel", (0.006, 300.0), False),  # It standardises them.
    ],
)
def test_observations_of_very_different_scales_are_told_with_what_to_do(preset, obs_std, warned):
    told = told_by(preset, obs_std)
    assert [line.endswith("--algo.normalize-obs") for line in told] == ([True] if warned else [])
    assert all("from 0.006 to 3e+02" in line for line in told)
