"""The context encoder of PEARL and SMAC: what one transition says about the task."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.mlp import Dense, init_layers
from omrl.types import Key


class Encoder(eqx.Module):
    """(s, a, r[, s']) -> mean and variance of a Gaussian factor of z."""

    layers: tuple[Dense, ...]
    next_obs: bool = eqx.field(static=True)
    """Whether s' is looked at, for tasks that differ in their dynamics."""

    @classmethod
    def init(
        cls,
        key: Key,
        obs_dim: int,
        act_dim: int,
        hidden: tuple[int, ...],
        latent: int,
        last_bound: float | None,
        *,
        next_obs: bool,
    ) -> Encoder:
        """`last_bound`: see `init_layers`."""
        in_dim = obs_dim * (2 if next_obs else 1) + act_dim + 1
        return cls(init_layers(key, (in_dim, *hidden, 2 * latent), last_bound), next_obs)

    def __call__(
        self,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        reward: Float[Array, ""],
        next_obs: Float[Array, " obs"],
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """(mean, variance). The variance is the softplus of an output, as in the reference code of
        both; SMAC's paper says that the standard deviation is."""
        seen = [obs, action, reward[None], *([next_obs] if self.next_obs else [])]
        y = jnp.concatenate(seen)
        for layer in self.layers[:-1]:
            y = jax.nn.relu(y @ layer.weight + layer.bias)
        mean, raw = jnp.split(y @ self.layers[-1].weight + self.layers[-1].bias, 2)
        return mean, jax.nn.softplus(raw)
