"""Gradient steps on a weight-transform layer without a copy of its kernel, exactly.

The layer makes theta = z W + b. A gradient g with respect to theta moves z by W g, W by the outer
product z g^T and b by g, so after k steps with rates a_z, a_W, a_b

    W_k = W - a_W sum_{j<k} z_j g_j^T        z_{k+1} = z_k - a_z W_k g_k
    theta_{k+1} = z_{k+1} W + b - sum_{j<=k} (a_W <z_{k+1}, z_j> + a_b) g_j

and the pairs (z_j, g_j) are all that a task needs to keep: about 10,000 numbers a step in place of
a million. Meta-gradients flow through by ordinary autodiff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.adaptive import WeightTransform
from omrl.nets.mlp import Dense

Rates = Float[Array, " tensor"]


class LowRank(NamedTuple):
    """A weight-transform layer after some steps: z, theta, and the pairs (z_j, g_j) so far.

    Rows of zeros in the pairs stand for no step, so that traces can be padded to one shape.
    """

    z: Float[Array, " latent"]
    theta: Float[Array, " params"]
    zs: Float[Array, "step latent"]
    grads: Float[Array, "step params"]


def start(layer: WeightTransform) -> LowRank:
    """Before any step."""
    latent, params = layer.kernel.shape
    dtype = layer.kernel.dtype
    pairs = jnp.zeros((0, latent), dtype), jnp.zeros((0, params), dtype)
    return LowRank(layer.z, layer.generate(layer.z), *pairs)


def descend(layer: WeightTransform, rates: Rates, trace: LowRank, grad: Dense) -> LowRank:
    """One more step, with the gradient at the trace's dense layer; `layer` is the initial one."""
    g = jnp.concatenate([grad.weight.ravel(), grad.bias])
    move = layer.kernel @ g
    if trace.zs.shape[0]:
        move = move - rates[1] * ((trace.grads @ g) @ trace.zs)
    z = trace.z - rates[0] * move
    zs = jnp.concatenate([trace.zs, trace.z[None]])
    grads = jnp.concatenate([trace.grads, g[None]])
    return LowRank(z, _theta(layer, rates, z, zs, grads), zs, grads)


def mean(
    layer: WeightTransform, rates: Rates, traces: Sequence[LowRank], weights: Sequence[float]
) -> Dense:
    """The dense layer of the parameters' weighted mean over the traces of steps 0..K.

    Step j counts in the mean kernel with the summed weight of the traces after it.
    """
    last = traces[-1]
    z = sum(weight * trace.z for weight, trace in zip(weights, traces, strict=True))
    z = jnp.asarray(z)
    after = [sum(weights[j + 1 :]) for j in range(len(weights) - 1)]
    share = jnp.asarray(after, z.dtype)
    return layer.split(_theta(layer, rates, z, last.zs, share[:, None] * last.grads))


def pad(trace: LowRank, capacity: int) -> LowRank:
    """The trace with exactly `capacity` pairs, missing ones as zeros in front.

    If a real pair has to go, theta becomes NaN: without it later steps would be silently wrong.
    """
    missing = capacity - trace.zs.shape[0]
    if missing >= 0:
        grow = ((missing, 0), (0, 0))
        return trace._replace(zs=jnp.pad(trace.zs, grow), grads=jnp.pad(trace.grads, grow))
    lost = jnp.any(trace.grads[:-missing] != 0)
    return trace._replace(
        theta=jnp.where(lost, jnp.nan, trace.theta),
        zs=trace.zs[-missing:],
        grads=trace.grads[-missing:],
    )


def _theta(
    layer: WeightTransform,
    rates: Rates,
    z: Float[Array, " latent"],
    zs: Float[Array, "step latent"],
    grads: Float[Array, "step params"],
) -> Float[Array, " params"]:
    pull = rates[1] * (zs @ z)
    if layer.offset is not None:
        pull = pull + rates[2]
    return layer.generate(z) - pull @ grads
