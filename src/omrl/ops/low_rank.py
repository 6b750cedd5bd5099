"""Gradient steps on a weight-transform layer without a copy of its kernel, exactly.

The layer makes theta = z W + b. A gradient g with respect to theta moves z by W g, W by the outer
product z g^T and b by g, so after k steps with rates a_z, a_W, a_b

    W_k = W - a_W sum_{j<k} z_j g_j^T        z_{k+1} = z_k - a_z W_k g_k
    theta_{k+1} = z_{k+1} W + b - sum_{j<=k} (a_W <z_{k+1}, z_j> + a_b) g_j

and the pairs (z_j, g_j) are all that a task needs to keep: about 10,000 numbers a step in place of
a million. Meta-gradients flow through by ordinary autodiff.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
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


class Taps(NamedTuple):
    """Zeros added to every product with the kernel in a training pass, of one task.

    Reverse mode would add up one kernel-sized gradient per use of the kernel. With taps the kernel
    itself is a constant, the gradients of the taps are the cotangents of its products, and
    `kernel_gradient` makes the whole gradient in one matrix product.
    """

    start: Float[Array, "*task params"]
    moves: Float[Array, "*task step latent"]
    thetas: Float[Array, "*task step params"]


def taps(layer: WeightTransform, num_tasks: int, num_steps: int) -> Taps:
    """Zeros for `num_tasks` tasks that share one start; `start` has no task axis."""
    latent, params = layer.kernel.shape
    dtype = layer.kernel.dtype
    return Taps(
        jnp.zeros((params,), dtype),
        jnp.zeros((num_tasks, num_steps, latent), dtype),
        jnp.zeros((num_tasks, num_steps, params), dtype),
    )


def start(layer: WeightTransform, taps: Taps | None = None) -> LowRank:
    """Before any step."""
    latent, params = layer.kernel.shape
    dtype = layer.kernel.dtype
    pairs = jnp.zeros((0, latent), dtype), jnp.zeros((0, params), dtype)
    if taps is None:
        return LowRank(layer.z, layer.generate(layer.z), *pairs)
    return LowRank(layer.z, _constant_kernel(layer).generate(layer.z) + taps.start, *pairs)


def descend(
    layer: WeightTransform,
    rates: Rates,
    trace: LowRank,
    grad: Dense,
    *,
    first_order: bool = False,
    taps: Taps | None = None,
) -> LowRank:
    """One more step, with the gradient at the trace's dense layer; `layer` is the initial one."""
    stop = jax.lax.stop_gradient if first_order else lambda x: x
    step = trace.zs.shape[0]
    if taps is not None:
        layer = _constant_kernel(layer)
    g = stop(grad.affine.ravel())
    move = layer.kernel @ g
    if step:
        move = move - rates[1] * ((trace.grads @ g) @ trace.zs)
    if taps is not None:
        move = move + taps.moves[step]
    z = trace.z - rates[0] * stop(move)
    zs = jnp.concatenate([trace.zs, stop(trace.z)[None]])
    grads = jnp.concatenate([trace.grads, g[None]])
    theta = _theta(layer, rates, z, zs, grads)
    if taps is not None:
        theta = theta + taps.thetas[step]
    return LowRank(z, theta, zs, grads)


def kernel_gradient(
    layer: WeightTransform, trace: LowRank, cotangents: Taps
) -> Float[Array, "latent params"]:
    """The kernel's gradient from the tasks' last traces [task, ...] and the taps' gradients.

    Uses of the kernel: z_0 W once, and per task and step W g_k and z_{k+1} W.
    """
    latent, params = layer.kernel.shape
    later = jnp.concatenate([trace.zs[:, 1:], trace.z[:, None]], axis=1)
    left = [layer.z[None], later.reshape(-1, latent), cotangents.moves.reshape(-1, latent)]
    right = [
        cotangents.start[None],
        cotangents.thetas.reshape(-1, params),
        trace.grads.reshape(-1, params),
    ]
    return jnp.concatenate(left).T @ jnp.concatenate(right)


def mean(
    layer: WeightTransform, rates: Rates, traces: Sequence[LowRank], weights: Sequence[float]
) -> Dense:
    """The dense layer of the parameters' weighted mean over the traces of some steps in a row.

    A step counts in the mean kernel with the summed weight of the traces after it.
    """
    last = traces[-1]
    z = sum(weight * trace.z for weight, trace in zip(weights, traces, strict=True))
    z = jnp.asarray(z)
    before = traces[0].zs.shape[0]
    after = [sum(weights[max(j - before + 1, 0) :]) for j in range(last.zs.shape[0])]
    share = jnp.asarray(after, z.dtype)
    return layer.split(_theta(layer, rates, z, last.zs, share[:, None] * last.grads))


def materialize(layer: WeightTransform, rates: Rates, trace: LowRank) -> WeightTransform:
    """The layer that the trace stands for: z_k, W_k and b_k."""
    kernel = layer.kernel - rates[1] * (trace.zs.T @ trace.grads)
    if layer.offset is None:
        return dataclasses.replace(layer, z=trace.z, kernel=kernel)
    offset = layer.offset - rates[2] * jnp.sum(trace.grads, axis=0)
    return dataclasses.replace(layer, z=trace.z, kernel=kernel, offset=offset)


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


def _constant_kernel(layer: WeightTransform) -> WeightTransform:
    return dataclasses.replace(layer, kernel=jax.lax.stop_gradient(layer.kernel))


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
