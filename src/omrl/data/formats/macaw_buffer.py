"""The replay buffer of MACAW's reference code: its row order, its derived columns, its wrapping.

Facts from eric-mitchell/macaw@3dfd4f9, `src/utils.py`, `ReplayBuffer`. Differences to our store:
every trajectory is stored in reverse time (its last transition first), in a ring that overwrites
the oldest rows even in the middle of a trajectory; next and terminal observations, Monte-Carlo
rewards and terminal discounts are stored per row; all columns are float32 of width one or more.
`omrl.data.slice.macaw_buffer_rows` says which rows of a stored buffer the reference loads.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from omrl.data.device import mc_return, terminal_discount

Columns = dict[str, np.ndarray]


def trajectory_rows(
    obs: Float[np.ndarray, "obs_rows obs"],
    action: Float[np.ndarray, "rows act"],
    reward: Float[np.ndarray, " rows"],
    terminated: Bool[np.ndarray, " rows"],
    discount: float,
) -> Columns:
    """One whole episode, given in time order, as the rows that the reference stores of it."""
    start = np.array([0, len(reward)])
    columns = {
        "obs": obs[:-1],
        "actions": action,
        "next_obs": obs[1:],
        "terminal_obs": np.repeat(obs[-1:], len(reward), axis=0),
        "terminal_discounts": terminal_discount(start, discount)[:, None],
        "terminals": terminated[:, None],
        "rewards": reward[:, None],
        "mc_rewards": mc_return(reward, start, discount)[:, None],
    }
    return {name: column[::-1] for name, column in columns.items()}


class MacawReplayBuffer:
    """A ring of `size` rows. `write_location` is the row that is written next."""

    def __init__(self, size: int, obs_dim: int, act_dim: int, discount: float = 0.99):
        self.size = size
        self.discount = discount
        self.write_location = 0
        self._num_stored = 0
        widths = {
            "obs": obs_dim,
            "actions": act_dim,
            "next_obs": obs_dim,
            "terminal_obs": obs_dim,
            "terminal_discounts": 1,
            "terminals": 1,
            "rewards": 1,
            "mc_rewards": 1,
        }
        self._columns = {
            name: np.zeros((size, width), bool if name == "terminals" else np.float32)
            for name, width in widths.items()
        }

    def add_trajectory(
        self,
        obs: Float[np.ndarray, "obs_rows obs"],
        action: Float[np.ndarray, "rows act"],
        reward: Float[np.ndarray, " rows"],
        terminated: Bool[np.ndarray, " rows"],
    ) -> None:
        """Store one whole episode, given in time order."""
        rows = trajectory_rows(obs, action, reward, terminated, self.discount)
        places = (self.write_location + np.arange(len(reward))) % self.size
        for name, column in rows.items():
            self._columns[name][places] = column
        self.write_location = (self.write_location + len(reward)) % self.size
        self._num_stored = min(self._num_stored + len(reward), self.size)

    def rows(self) -> Columns:
        """The stored rows, in the order of the ring."""
        return {name: column[: self._num_stored] for name, column in self._columns.items()}
