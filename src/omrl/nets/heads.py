"""The value and policy networks of MACAW, for one observation.

Built of adaptive layers they hold meta-parameters; `ops.inner_loop.generate` or `read` turn them
into dense networks, which can be called.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.mlp import forward
from omrl.types import Key, Scalar

MakeLayer = Callable[[Key, int, int], Any]


class ValueNet(eqx.Module):
    """V(s)."""

    layers: tuple[Any, ...]

    @classmethod
    def init(cls, key: Key, obs_dim: int, hidden: tuple[int, ...], make: MakeLayer) -> ValueNet:
        return cls(_chain(key, (obs_dim, *hidden, 1), make))

    def __call__(self, obs: Float[Array, " obs"]) -> Scalar:
        return forward(self.layers, obs)[0]


class PolicyNet(eqx.Module):
    """The mean action of a Gaussian of fixed width, and an advantage head (MACAW Figure 2).

    The head sees the last hidden layer and the action. In the reference code it sees the hidden
    layer before its ReLU, and its first operation is a ReLU on hidden layer and action both, so
    that it never sees a negative action component (`relu_action`).
    """

    trunk: tuple[Any, ...]
    head: tuple[Any, ...]
    relu_action: bool = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        key: Key,
        obs_dim: int,
        act_dim: int,
        hidden: tuple[int, ...],
        head_hidden: tuple[int, ...] | None,
        make: MakeLayer,
        *,
        relu_action: bool,
    ) -> PolicyNet:
        """`head_hidden` None builds no head."""
        trunk_key, head_key = jax.random.split(key)
        trunk = _chain(trunk_key, (obs_dim, *hidden, act_dim), make)
        if head_hidden is None:
            return cls(trunk, (), relu_action)
        head = _chain(head_key, (hidden[-1] + act_dim, *head_hidden, 1), make)
        return cls(trunk, head, relu_action)

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        return jnp.tanh(self.trunk[-1](self._hidden(obs)))

    def with_advantage(
        self, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> tuple[Float[Array, " act"], Scalar]:
        """The mean action, and the predicted advantage of `action`."""
        hidden = self._hidden(obs)
        seen = jax.nn.relu(action) if self.relu_action else action
        advantage = forward(self.head, jnp.concatenate([hidden, seen]))[0]
        return jnp.tanh(self.trunk[-1](hidden)), advantage

    def _hidden(self, obs: Float[Array, " obs"]) -> Float[Array, " hidden"]:
        for layer in self.trunk[:-1]:
            obs = jax.nn.relu(layer(obs))
        return obs


def _chain(key: Key, sizes: tuple[int, ...], make: MakeLayer) -> tuple[Any, ...]:
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(make(k, i, o) for k, (i, o) in zip(keys, pairwise(sizes), strict=True))
