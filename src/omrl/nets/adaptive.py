"""Layers that MAML adapts, each with its exact gradient step in terms of the dense layer it makes.

Every layer here computes y = x W + b in the forward pass; they differ in what a gradient step on
their own parameters does to (W, b). So the inner loop differentiates with respect to the dense
layer only, and the layer turns that gradient into its own step: `descend`. What a task changes is a
`Trace`, not a copy of the layer, because a weight-transform layer has a hundred times more
parameters than the dense layer that it makes.

The contract, for rates `a` (one per tensor, in the order of the fields) and traces of K steps:

* `start()`: the trace before any step.
* `read(trace)`: the dense layer of a trace.
* `descend(rates, trace, grad)`: the trace after one more step of gradient descent on every tensor
  of the layer, where `grad` is the gradient with respect to `read(trace)`.
* `mix(rates, traces, weights)`: the dense layer of the weighted mean of the layer's parameters over
  the traces of steps 0..K (a target network that follows the inner loop).
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.mlp import Dense
from omrl.types import Key

Rates = Float[Array, " tensor"]


class AdaptiveLayer(eqx.Module):
    """See the module's docstring."""

    num_tensors: ClassVar[int]

    @abc.abstractmethod
    def dense(self) -> Dense:
        """The dense layer that this layer makes."""

    @abc.abstractmethod
    def start(self) -> Any: ...

    @abc.abstractmethod
    def read(self, trace: Any) -> Dense: ...

    @abc.abstractmethod
    def descend(self, rates: Rates, trace: Any, grad: Dense) -> Any: ...

    @abc.abstractmethod
    def mix(self, rates: Rates, traces: Sequence[Any], weights: Sequence[float]) -> Dense: ...


def _weighted_mean(trees: Sequence[Any], weights: Sequence[float]) -> Any:
    return jax.tree.map(lambda *xs: sum(w * x for w, x in zip(weights, xs, strict=True)), *trees)


class Linear(AdaptiveLayer):
    """A dense layer adapted as it is. A trace is the dense layer itself."""

    num_tensors: ClassVar[int] = 2
    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    @classmethod
    def init(cls, key: Key, in_dim: int, out_dim: int) -> Linear:
        dense = Dense.init(key, in_dim, out_dim)
        return cls(dense.weight, dense.bias)

    def dense(self) -> Dense:
        return Dense(self.weight, self.bias)

    def start(self) -> Dense:
        return self.dense()

    def read(self, trace: Dense) -> Dense:
        return trace

    def descend(self, rates: Rates, trace: Dense, grad: Dense) -> Dense:
        return Dense(trace.weight - rates[0] * grad.weight, trace.bias - rates[1] * grad.bias)

    def mix(self, rates: Rates, traces: Sequence[Dense], weights: Sequence[float]) -> Dense:
        return _weighted_mean(traces, weights)


class BiasTransform(AdaptiveLayer):
    """y = x W + b + z B (Finn et al. 2017, "One-shot visual imitation"; MACAW appendix B).

    With b = 0 and no rate for it this is the paper's form. The reference code runs this layer
    wherever it says "no weight transform". A trace is the layer itself: it is small.
    """

    num_tensors: ClassVar[int] = 4
    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]
    z: Float[Array, " out"]
    kernel: Float[Array, "out out"]

    @classmethod
    def init(cls, key: Key, in_dim: int, out_dim: int) -> BiasTransform:
        """Dense part uniform in +-1/sqrt(in), z ~ N(0, 1/out), kernel Xavier normal (code)."""
        dense_key, z_key, kernel_key = jax.random.split(key, 3)
        dense = Dense.init(dense_key, in_dim, out_dim)
        z = jax.random.normal(z_key, (out_dim,)) / out_dim
        kernel = jax.random.normal(kernel_key, (out_dim, out_dim)) * out_dim**-0.5
        return cls(dense.weight, dense.bias, z, kernel)

    def dense(self) -> Dense:
        return Dense(self.weight, self.bias + self.z @ self.kernel)

    def start(self) -> BiasTransform:
        return self

    def read(self, trace: BiasTransform) -> Dense:
        return trace.dense()

    def descend(self, rates: Rates, trace: BiasTransform, grad: Dense) -> BiasTransform:
        return BiasTransform(
            trace.weight - rates[0] * grad.weight,
            trace.bias - rates[1] * grad.bias,
            trace.z - rates[2] * (trace.kernel @ grad.bias),
            trace.kernel - rates[3] * jnp.outer(trace.z, grad.bias),
        )

    def mix(self, rates: Rates, traces: Sequence[BiasTransform], weights: Sequence[float]) -> Dense:
        return _weighted_mean(traces, weights).dense()


class LowRank(NamedTuple):
    """A weight-transform layer after k steps, without a copy of its kernel.

    `zs` and `grads` are z_j and g_j of the steps taken, in order. Rows of zeros stand for no step,
    so traces may be padded to a constant shape.
    """

    z: Float[Array, " latent"]
    theta: Float[Array, " params"]
    zs: Float[Array, "step latent"]
    grads: Float[Array, "step params"]


class WeightTransform(AdaptiveLayer):
    """theta = z W + b, reshaped to a weight matrix and a bias (MACAW section 4.3, appendix B).

    W is `kernel`, [latent, in*out + out]; b is `offset`, which the paper does not have (`None`)
    and the reference code does. Adaptation changes z, W and b.
    """

    num_tensors: ClassVar[int] = 3
    z: Float[Array, " latent"]
    kernel: Float[Array, "latent params"]
    offset: Float[Array, " params"] | None
    in_dim: int = eqx.field(static=True)

    @classmethod
    def init(
        cls, key: Key, in_dim: int, out_dim: int, *, latent: int, offset: bool
    ) -> WeightTransform:
        """As the reference code with an offset; without one, generated weights have variance
        1/(3 in), that of a dense layer's usual initialisation (the paper gives no rule)."""
        z_key, kernel_key, offset_key = jax.random.split(key, 3)
        params = in_dim * out_dim + out_dim
        if offset:
            z_scale, bound = 1.0 / out_dim, latent**-0.5
        else:
            z_scale, bound = 1.0, (in_dim * latent) ** -0.5
        return cls(
            jax.random.normal(z_key, (latent,)) * z_scale,
            jax.random.uniform(kernel_key, (latent, params), minval=-bound, maxval=bound),
            jax.random.uniform(offset_key, (params,), minval=-bound, maxval=bound)
            if offset
            else None,
            in_dim,
        )

    def dense(self) -> Dense:
        return self._split(self._generate(self.z))

    def start(self) -> LowRank:
        latent, params = self.kernel.shape
        dtype = self.kernel.dtype
        return LowRank(
            self.z,
            self._generate(self.z),
            jnp.zeros((0, latent), dtype),
            jnp.zeros((0, params), dtype),
        )

    def read(self, trace: LowRank) -> Dense:
        return self._split(trace.theta)

    def descend(self, rates: Rates, trace: LowRank, grad: Dense) -> LowRank:
        """z' = z - a_z W_k g with W_k = W - a_W sum_j z_j g_j^T, and theta' from `_theta`."""
        g = jnp.concatenate([grad.weight.ravel(), grad.bias])
        back = self.kernel @ g
        if trace.zs.shape[0]:
            back = back - rates[1] * ((trace.grads @ g) @ trace.zs)
        zs = jnp.concatenate([trace.zs, trace.z[None]])
        grads = jnp.concatenate([trace.grads, g[None]])
        z = trace.z - rates[0] * back
        return LowRank(z, self._theta(rates, z, zs, grads), zs, grads)

    def mix(self, rates: Rates, traces: Sequence[LowRank], weights: Sequence[float]) -> Dense:
        """The mean kernel is W - a_W sum_j beta_j z_j g_j^T, beta_j the weight of later traces."""
        last = traces[-1]
        z = _weighted_mean([trace.z for trace in traces], weights)
        later = jnp.asarray([sum(weights[j + 1 :]) for j in range(len(weights) - 1)], z.dtype)
        return self._split(self._theta(rates, z, last.zs, last.grads, later))

    def _generate(self, z: Float[Array, " latent"]) -> Float[Array, " params"]:
        theta = z @ self.kernel
        return theta if self.offset is None else theta + self.offset

    def _theta(
        self,
        rates: Rates,
        z: Float[Array, " latent"],
        zs: Float[Array, "step latent"],
        grads: Float[Array, "step params"],
        share: Float[Array, " step"] | float = 1.0,
    ) -> Float[Array, " params"]:
        """z W + b - sum_j share_j (a_W <z, z_j> + a_b) g_j, W and b those before any step."""
        pull = rates[1] * (zs @ z)
        if self.offset is not None:
            pull = pull + rates[2]
        return self._generate(z) - (share * pull) @ grads

    def _split(self, theta: Float[Array, " params"]) -> Dense:
        out_dim = theta.shape[0] // (self.in_dim + 1)
        weight = theta[: self.in_dim * out_dim].reshape(self.in_dim, out_dim)
        return Dense(weight, theta[self.in_dim * out_dim :])
