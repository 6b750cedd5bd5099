"""Shared types. Axes are always [seed, task, sample, feature]; types name the innermost ones.

`Batch` is what every loss reads. All its fields are always filled: a field that a loss does not
touch is removed by the compiler, because sampling and update are one jitted program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Array, Bool, Float, UInt

from omrl.ranges import Count, Finite, NonNegative, Positive, Size, check_ranges

Key = UInt[Array, "2"]
Scalar = Float[Array, ""]
Metrics = dict[str, Array]


class Batch(NamedTuple):
    """Transitions of one task, in the order in which they were sampled.

    Inside `Algorithm.update` every field has one more leading axis, the task.
    """

    obs: Float[Array, "*b obs"]
    action: Float[Array, "*b act"]
    reward: Float[Array, "*b"]
    next_obs: Float[Array, "*b obs"]
    terminated: Bool[Array, "*b"]
    """True ends of the MDP; a time limit is not one."""
    mc_return: Float[Array, "*b"]
    """Discounted sum of rewards to the end of the recorded episode, no bootstrap."""
    terminal_obs: Float[Array, "*b obs"]
    """Last observation of the recorded episode, whatever ended it."""
    terminal_discount: Float[Array, "*b"]
    """gamma^(steps to the end of the episode); gamma for its last transition."""


class Trajectory(NamedTuple):
    """Episodes of one task back to back, for what is learned along them."""

    obs: Float[Array, "*b step obs"]
    action: Float[Array, "*b step act"]
    reward: Float[Array, "*b step"]
    next_obs: Float[Array, "*b step obs"]
    terminated: Bool[Array, "*b step"]
    valid: Bool[Array, "*b step"]
    """Its first steps, at least one; those behind them only fill the array."""


class Step(NamedTuple):
    """One environment transition, as `Algorithm.observe` receives it."""

    obs: Float[Array, " obs"]
    action: Float[Array, " act"]
    reward: Scalar
    next_obs: Float[Array, " obs"]
    terminated: Bool[Array, ""]


@dataclass(frozen=True)
class Spec:
    """What an algorithm must know of its problem: static and hashable, a jit constant."""

    obs_dim: Size
    act_dim: Size
    num_train_tasks: Count
    horizon: Count
    """Steps per episode."""
    obs_mean: tuple[Finite, ...] = ()
    """Per observation entry, over the training tasks; empty: not measured."""
    obs_std: tuple[Positive, ...] = ()
    return_mean: Finite = 0.0
    """Of `mc_return` over the training tasks."""
    return_std: NonNegative = 1.0

    def __post_init__(self) -> None:
        check_ranges(self)
