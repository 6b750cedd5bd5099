"""Dense layers and the multilayer perceptron, for one example; batch with `jax.vmap`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
from jaxtyping import Array, Float

from omrl.types import Key


class Dense(eqx.Module):
    """y = x W + b; what every adaptive layer (`nets/adaptive.py`) amounts to in a forward pass."""

    weight: Float[Array, "*n in out"]
    bias: Float[Array, "*n out"]

    @classmethod
    def init(cls, key: Key, in_dim: int, out_dim: int) -> Dense:
        """Uniform in +-1/sqrt(in_dim), weight and bias."""
        weight_key, bias_key = jax.random.split(key)
        bound = in_dim**-0.5
        return cls(
            jax.random.uniform(weight_key, (in_dim, out_dim), minval=-bound, maxval=bound),
            jax.random.uniform(bias_key, (out_dim,), minval=-bound, maxval=bound),
        )

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return x @ self.weight + self.bias


def forward(layers: Sequence[Dense], x: Float[Array, " in"]) -> Float[Array, " out"]:
    """Apply the layers with ReLU between them and none at the end."""
    for layer in layers[:-1]:
        x = jax.nn.relu(layer(x))
    return layers[-1](x)


class Mlp(eqx.Module):
    """A perceptron with ReLU hidden layers and a linear output."""

    layers: tuple[Dense, ...]

    @classmethod
    def init(cls, key: Key, sizes: Sequence[int]) -> Mlp:
        """`sizes` = (input, hidden ..., output)."""
        keys = jax.random.split(key, len(sizes) - 1)
        return cls(
            tuple(Dense.init(k, i, o) for k, (i, o) in zip(keys, pairwise(sizes), strict=True))
        )

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return forward(self.layers, x)


def num_parameters(tree: object) -> int:
    """How many numbers a tree of arrays (or of their shapes) holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
