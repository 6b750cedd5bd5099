"""How many numbers MACAW's networks hold, in closed form, and the widths that make them equal.

For ablations that take layers away but keep the number of parameters. Nothing is built or traced,
so presets can be computed when they are imported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from omrl.algos.macaw_config import MacawConfig
from omrl.errors import InputError

WIDEST = 10_000


def layer_size(config: MacawConfig, in_dim: int, out_dim: int) -> int:
    """Numbers in one layer of the config's kind (`nets/adaptive.py`)."""
    affine = (in_dim + 1) * out_dim
    if config.layer == "linear":
        return affine
    if config.layer == "bias_transform":
        return affine + out_dim + out_dim**2
    return config.latent + (config.latent + config.offset) * affine


def value_size(config: MacawConfig, obs_dim: int) -> int:
    """Numbers in the value network."""
    return _chain_size(config, obs_dim, *config.value_widths, 1)


def policy_size(config: MacawConfig, obs_dim: int, act_dim: int) -> int:
    """Numbers in the policy, its advantage head included."""
    trunk = _chain_size(config, obs_dim, *config.hidden, act_dim)
    if not config.advantage_head:
        return trunk
    return trunk + _chain_size(config, config.hidden[-1] + act_dim, *config.head_hidden, 1)


def with_sizes_of(
    like: MacawConfig, config: MacawConfig, obs_dim: int, act_dim: int
) -> MacawConfig:
    """`config` with one width for all hidden layers of the policy and one for those of the value,
    such that each network holds as many numbers as that of `like`, as nearly as widths allow.

    Raises `InputError` where that needs a width above 10,000.
    """

    def value(width: int) -> int:
        return value_size(replace(config, value_hidden=(width,) * len(like.value_widths)), obs_dim)

    def policy(width: int) -> int:
        hidden = (width,) * len(like.hidden)
        return policy_size(replace(config, hidden=hidden), obs_dim, act_dim)

    value_width = nearest_width(value, value_size(like, obs_dim))
    policy_width = nearest_width(policy, policy_size(like, obs_dim, act_dim))
    return replace(
        config,
        hidden=(policy_width,) * len(like.hidden),
        value_hidden=(value_width,) * len(like.value_widths),
    )


def nearest_width(size: Callable[[int], int], target: int) -> int:
    """The width from 1 to 10,000 whose `size`, which has to grow with it, is nearest to `target`.

    Raises `InputError` where the widest is too small.
    """
    above = 1 + bisect_left(range(1, WIDEST + 1), target, key=size)
    if above > WIDEST:
        raise InputError(f"no width up to {WIDEST} makes {target} parameters; ask for fewer")
    candidates = (max(above - 1, 1), above)
    return min(candidates, key=lambda width: abs(size(width) - target))


def _chain_size(config: MacawConfig, *widths: int) -> int:
    return sum(layer_size(config, *pair) for pair in pairwise(widths))
