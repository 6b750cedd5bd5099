"""The reference replay buffer against arrays that the reference code produced."""

from pathlib import Path

import numpy as np

from omrl.data.formats.macaw_buffer import MacawReplayBuffer

GOLDEN = Path(__file__).parents[1] / "golden/macaw/golden_macaw_A_replay.npz"


def test_every_row_after_every_trajectory():
    compared = set()
    with np.load(GOLDEN, allow_pickle=False) as golden:
        buffer = MacawReplayBuffer(size=16, obs_dim=3, act_dim=2, discount=0.99)
        for number in range(3):
            trajectory = [
                golden[f"replay/traj{number}/{name}"]
                for name in ("states", "actions", "rewards", "dones")
            ]
            buffer.add_trajectory(*trajectory[:3], trajectory[3].astype(bool))
            prefix = f"replay/after{number}/"
            assert buffer.write_location == golden[prefix + "write_location"]
            for name, rows in buffer.rows().items():
                np.testing.assert_array_equal(rows, golden[prefix + name], err_msg=prefix + name)
                compared.add(prefix + name)
            compared.add(prefix + "write_location")
        assert compared == {name for name in golden.files if name.startswith("replay/after")}


def test_a_trajectory_longer_than_the_ring_keeps_its_first_transitions():
    buffer = MacawReplayBuffer(size=3, obs_dim=1, act_dim=1, discount=0.5)
    obs = np.arange(6.0)[:, None]
    reward = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    buffer.add_trajectory(obs, np.zeros((5, 1)), reward, np.zeros(5, bool))
    rows = buffer.rows()
    # In reverse time 4, 3, 2, 1, 0 at places 0, 1, 2, 0, 1.
    np.testing.assert_array_equal(rows["obs"][:, 0], [1, 0, 2])
    # 2 + (4 + (8 + 16 / 2) / 2) / 2 = 8; 1 + 8 / 2 = 5; 4 + (8 + 16 / 2) / 2 = 12
    np.testing.assert_array_equal(rows["mc_rewards"][:, 0], [8, 5, 12])
    np.testing.assert_array_equal(rows["terminal_discounts"][:, 0], [1 / 16, 1 / 32, 1 / 8])
    np.testing.assert_array_equal(rows["terminal_obs"][:, 0], [5, 5, 5])
    assert buffer.write_location == 2
