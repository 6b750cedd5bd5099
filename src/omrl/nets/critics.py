"""An ensemble of action values as one `Mlp` whose leaves have a leading axis, the critic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.mlp import Mlp
from omrl.types import Key


def init_critics(
    key: Key, obs_dim: int, act_dim: int, hidden: tuple[int, ...], num: int = 2
) -> Mlp:
    sizes = (obs_dim + act_dim, *hidden, 1)
    return jax.vmap(lambda k: Mlp.init(k, sizes))(jax.random.split(key, num))


def action_values(
    critics: Mlp, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, " critic"]:
    """Q_i(s, a) of every critic."""
    x = jnp.concatenate([obs, action])
    return jax.vmap(lambda critic: critic(x)[0])(critics)
