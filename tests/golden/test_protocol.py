"""The reference code's collection, repeated with our collector."""

from __future__ import annotations

from pathlib import Path

import check
import numpy as np
import protocol_cases
import pytest
from golden_file import GoldenFile

FILES = sorted((Path(__file__).parent / "smac").glob("golden_smac_*.npz"))
assert FILES, "tests/golden/smac has no golden file"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_lands_in_the_buffer(path, tmp_path):
    """Buffers are float32, and so are the policy and the labels."""
    file = GoldenFile(path)
    ours = protocol_cases.collected(file, tmp_path)
    outputs = {n for n in file.arrays if n.startswith(f"{protocol_cases.PREFIX}buffer_")}
    assert ours.keys() == outputs
    for name, array in ours.items():
        assert check.array_error(array, file[name]) < 1e-6, name
    # Labels are not the environment's rewards.
    env = protocol_cases._env(file)
    goal = np.array(env.task_table[protocol_cases.TASK])
    reached = file["protocol/collect/buffer_next_observations"]
    true = -np.abs(reached - goal).sum(-1, keepdims=True)
    assert check.array_error(true, file["protocol/collect/buffer_rewards"]) > 0.1
