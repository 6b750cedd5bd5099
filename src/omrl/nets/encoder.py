"""The context encoder of PEARL and SMAC: what one transition says about the task."""

from __future__ import annotations

from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.mlp import Dense, init_layers
from omrl.types import Key

Spread: TypeAlias = Literal["variance", "deviation"]


class Encoder(eqx.Module):
    """(s, a, r[, s']) -> mean and variance of a Gaussian factor of z."""

    layers: tuple[Dense, ...]
    next_obs: bool = eqx.field(static=True)
    """Whether s' is looked at, for tasks that differ in their dynamics."""
    spread: Spread = eqx.field(static=True, default="variance")
    """What the softplus of an output is of the factor: its variance, as in the reference code of
    both, or its standard deviation, as in SMAC's paper (C.3)."""

    @classmethod
    def init(
        cls,
        key: Key,
        obs_dim: int,
        act_dim: int,
        hidden: tuple[int, ...],
        latent: int,
        last_bound: float | None,
        hidden_bias: float = 0.1,
        *,
        next_obs: bool,
        spread: Spread = "variance",
    ) -> Encoder:
        """`last_bound` and `hidden_bias`: see `init_layers`."""
        in_dim = obs_dim * (2 if next_obs else 1) + act_dim + 1
        layers = init_layers(key, (in_dim, *hidden, 2 * latent), last_bound, hidden_bias)
        return cls(layers, next_obs, spread)

    def __call__(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        reward: Float[Array, ""],
        next_obs: Float[Array, " obs"],
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """(mean, variance)."""
        seen = [obs, action, reward[None], *([next_obs] if self.next_obs else [])]
        y = jnp.concatenate(seen)
        for layer in self.layers[:-1]:
            y = jax.nn.relu(y @ layer.weight + layer.bias)
        mean, raw = jnp.split(y @ self.layers[-1].weight + self.layers[-1].bias, 2)
        spread = jax.nn.softplus(raw)
        return mean, spread if self.spread == "variance" else spread**2
