"""The state of a Meta-World environment as one row of numbers, and what the rows mean.

Meta-World's environments remember things: in Python, in the model, which a reset edits, and in
MuJoCo. What a reset decides follows from the environment's number and its start vector; the rest
is here. So a row is all that the next step depends on.
"""

from __future__ import annotations

from omrl.envs.metaworld_tasks import NUM_VECTOR

NQ, NV, NUM_OBS, NUM_FRAME = 18, 17, 39, 18
"""Of the largest of the 50; smaller ones are filled up with 0. An observation is two frames and
the goal."""
INFO = ("success", "near_object", "grasp_success", "grasp_reward", "in_place_reward",
        "obj_to_target")  # fmt: skip
"""What Meta-World reports of a step, under its reward of version 2."""
REWARDS = ("reward_v1", "reward_v2")
MEMORY = ("pickCompleted", "placeCompleted", "reachCompleted", "_target_to_obj_init")
"""Attributes that Meta-World's rewards remember within an episode."""
UNSET = -1.0
"""Of one that it has not set since the reset; none of them is negative."""

_SIZES = {
    "seed": 1,  # of a start vector that is drawn when a state is placed
    "time": 1,
    "environment": 1,
    "start": NUM_VECTOR,
    "rewards": len(REWARDS),
    "info": len(INFO),
    "goal": 3,
    "obs": 2 * NUM_FRAME,  # as it is observed, without the goal
    "frame": NUM_FRAME,  # the last one, before it is clipped
    "memory": len(MEMORY),
    "qpos": NQ,
    "qvel": NV,
    "warmstart": NV,
    "mocap": 7,  # position and quaternion
}


def _columns() -> dict[str, slice]:
    columns, first = {}, 0
    for name, size in _SIZES.items():
        columns[name] = slice(first, first + size)
        first += size
    return columns


COLUMNS = _columns()
STATE_DIM = sum(_SIZES.values())
SEED, TIME, ENVIRONMENT = (COLUMNS[name].start for name in ("seed", "time", "environment"))
START, GOAL, OBS, QPOS, QVEL = (COLUMNS[name] for name in ("start", "goal", "obs", "qpos", "qvel"))
MOCAP_AT = slice(COLUMNS["mocap"].start, COLUMNS["mocap"].start + 3)
