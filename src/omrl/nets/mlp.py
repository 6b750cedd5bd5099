"""Dense layers and the multilayer perceptron, for one example; batch with `jax.vmap`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.types import Key


class Dense(eqx.Module):
    """y = [x, 1] A; what every adaptive layer (`nets/adaptive.py`) amounts to in a forward pass.

    A is the weight matrix with the bias as its last row. One matrix in place of two arrays means
    one matrix product, in place of a product, a sum and a reduction for the bias's gradient: the
    networks here are so small that the number of operations decides the speed.
    """

    affine: Float[Array, "*n in_and_one out"]

    @classmethod
    def of(cls, weight: Float[Array, "*n in out"], bias: Float[Array, "*n out"]) -> Dense:
        return cls(jnp.concatenate([weight, bias[..., None, :]], axis=-2))

    @classmethod
    def init(cls, key: Key, in_dim: int, out_dim: int) -> Dense:
        """Uniform in +-1/sqrt(in_dim), weight and bias."""
        bound = in_dim**-0.5
        return cls(jax.random.uniform(key, (in_dim + 1, out_dim), minval=-bound, maxval=bound))

    @property
    def weight(self) -> Float[Array, "*n in out"]:
        return self.affine[..., :-1, :]

    @property
    def bias(self) -> Float[Array, "*n out"]:
        return self.affine[..., -1, :]

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return jnp.pad(x, (0, 1), constant_values=1.0) @ self.affine


def forward(layers: Sequence[Dense], x: Float[Array, " in"]) -> Float[Array, " out"]:
    """Apply the layers with ReLU between them and none at the end."""
    for layer in layers[:-1]:
        x = jax.nn.relu(layer(x))
    return layers[-1](x)


def init_layers(
    key: Key, sizes: Sequence[int], last_bound: float | None = None, hidden_bias: float = 0.1
) -> tuple[Dense, ...]:
    """The layers of a perceptron; `sizes` = (input, hidden ..., output).

    `last_bound` None: `Dense.init` for all. Else as the reference code of PEARL and SMAC: hidden
    weights uniform in +-1/sqrt(outputs), biases `hidden_bias`, the last layer uniform in
    +-`last_bound`, so that outputs are near 0 at first.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = list(zip(keys, pairwise(sizes), strict=True))
    if last_bound is None:
        return tuple(Dense.init(k, i, o) for k, (i, o) in pairs)
    (last_key, (last_in, last_out)) = pairs[-1]
    last = jax.random.uniform(
        last_key, (last_in + 1, last_out), minval=-last_bound, maxval=last_bound
    )
    return (*(_init_hidden(k, i, o, hidden_bias) for k, (i, o) in pairs[:-1]), Dense(last))


def _init_hidden(key: Key, in_dim: int, out_dim: int, bias: float) -> Dense:
    bound = out_dim**-0.5
    weight = jax.random.uniform(key, (in_dim, out_dim), minval=-bound, maxval=bound)
    return Dense.of(weight, jnp.full((out_dim,), bias, weight.dtype))


class Mlp(eqx.Module):
    """A perceptron with ReLU hidden layers and a linear output."""

    layers: tuple[Dense, ...]

    @classmethod
    def init(cls, key: Key, sizes: Sequence[int]) -> Mlp:
        """`sizes` = (input, hidden ..., output)."""
        return cls(init_layers(key, sizes))

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return forward(self.layers, x)


def num_parameters(tree: object) -> int:
    """How many numbers a tree of arrays (or of their shapes) holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
