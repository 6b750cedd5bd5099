"""Layers that MAML adapts: plain, bias transform and weight transform.

Every one of them computes y = x W + b in the forward pass: `dense()` gives that W and b. They
differ in what a gradient step on their own parameters does to (W, b), see `ops/inner_loop.py`.
"""

from __future__ import annotations

import abc
from typing import Literal, TypeAlias

import equinox as eqx
import jax
from jaxtyping import Array, Float

from omrl.nets.mlp import Dense
from omrl.types import Key

LayerKind: TypeAlias = Literal["weight_transform", "bias_transform", "linear"]


class AdaptiveLayer(eqx.Module):
    """Parameters that make a dense layer. The inner loop has one rate per array, in field order."""

    @abc.abstractmethod
    def dense(self) -> Dense:
        """The dense layer that these parameters make."""


class Linear(AdaptiveLayer):
    """A dense layer adapted as it is."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    @classmethod
    def init(cls, key: Key, in_dim: int, out_dim: int) -> Linear:
        """Uniform in +-1/sqrt(in_dim)."""
        dense = Dense.init(key, in_dim, out_dim)
        return cls(dense.weight, dense.bias)

    def dense(self) -> Dense:
        return Dense.of(self.weight, self.bias)


class BiasTransform(AdaptiveLayer):
    """y = x W + b + z B (Finn et al. 2017, arXiv:1709.04905; MACAW appendix B, there without b).

    The reference code runs this layer wherever it says "no weight transform".
    """

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]
    z: Float[Array, " out"]
    kernel: Float[Array, "out out"]

    @classmethod
    def init(cls, key: Key, in_dim: int, out_dim: int) -> BiasTransform:
        """As the reference code: W, b uniform in +-1/sqrt(in), z ~ N(0, 1/out), B Xavier normal."""
        dense_key, z_key, kernel_key = jax.random.split(key, 3)
        dense = Dense.init(dense_key, in_dim, out_dim)
        z = jax.random.normal(z_key, (out_dim,)) / out_dim
        kernel = jax.random.normal(kernel_key, (out_dim, out_dim)) * out_dim**-0.5
        return cls(dense.weight, dense.bias, z, kernel)

    def dense(self) -> Dense:
        return Dense.of(self.weight, self.bias + self.z @ self.kernel)


class WeightTransform(AdaptiveLayer):
    """theta = z W + b, reshaped to a weight matrix and a bias (MACAW section 4.3, appendix B).

    `kernel` is W; `offset` is b, which the reference code has and the paper does not (None).
    """

    z: Float[Array, " latent"]
    kernel: Float[Array, "latent params"]
    offset: Float[Array, " params"] | None
    in_dim: int = eqx.field(static=True)

    @classmethod
    def init(
        cls, key: Key, in_dim: int, out_dim: int, *, latent: int, offset: bool
    ) -> WeightTransform:
        """With an offset as the reference code: z ~ N(0, 1/out), W and b uniform in
        +-1/sqrt(latent). Without one the paper gives no rule; here the generated weights have
        variance 1/(3 in), that of a dense layer."""
        z_key, kernel_key, offset_key = jax.random.split(key, 3)
        params = in_dim * out_dim + out_dim
        z_scale, bound = (1 / out_dim, latent**-0.5) if offset else (1.0, (in_dim * latent) ** -0.5)
        z = jax.random.normal(z_key, (latent,)) * z_scale
        kernel = jax.random.uniform(kernel_key, (latent, params), minval=-bound, maxval=bound)
        if not offset:
            return cls(z, kernel, None, in_dim)
        drawn = jax.random.uniform(offset_key, (params,), minval=-bound, maxval=bound)
        return cls(z, kernel, drawn, in_dim)

    def dense(self) -> Dense:
        return self.split(self.generate(self.z))

    def generate(self, z: Float[Array, " latent"]) -> Float[Array, " params"]:
        """theta = z W + b."""
        theta = z @ self.kernel
        return theta if self.offset is None else theta + self.offset

    def split(self, theta: Float[Array, " params"]) -> Dense:
        """theta as a dense layer: the weight matrix row by row, then the bias."""
        return Dense(theta.reshape(self.in_dim + 1, -1))


def make_layer(
    kind: LayerKind, key: Key, in_dim: int, out_dim: int, *, latent: int, offset: bool
) -> AdaptiveLayer:
    """A new layer; `latent` and `offset` are those of weight-transform layers."""
    if kind == "linear":
        return Linear.init(key, in_dim, out_dim)
    if kind == "bias_transform":
        return BiasTransform.init(key, in_dim, out_dim)
    return WeightTransform.init(key, in_dim, out_dim, latent=latent, offset=offset)
