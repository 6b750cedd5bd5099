"""Gradient descent on a network of adaptive layers, through the layers' exact dense-space steps.

A network is any pytree whose `AdaptiveLayer`s are to be adapted. Its traces are a tuple, one per
layer in tree order, and its rates an array [layer, tensor].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from omrl.nets.adaptive import AdaptiveLayer, LowRank

Net = Any
Traces = tuple[Any, ...]
Rates = Float[Array, "layer tensor"]


def _is_layer(node: object) -> bool:
    return isinstance(node, AdaptiveLayer)


def layers(net: Net) -> list[AdaptiveLayer]:
    """The adaptive layers of a network in tree order."""
    return [leaf for leaf in jax.tree.leaves(net, is_leaf=_is_layer) if _is_layer(leaf)]


def generate(net: Net) -> Net:
    """The network with every adaptive layer replaced by the dense layer that it makes."""
    return jax.tree.map(lambda layer: layer.dense(), net, is_leaf=_is_layer)


def start(net: Net) -> Traces:
    """Traces before any step."""
    return tuple(layer.start() for layer in layers(net))


def read(net: Net, traces: Traces) -> Net:
    """The dense network that the traces stand for."""
    return _rebuild(net, [layer.read(t) for layer, t in zip(layers(net), traces, strict=True)])


def descend(net: Net, rates: Rates, traces: Traces, grads: Net) -> Traces:
    """One step on every layer; `grads` is the gradient with respect to `read(net, traces)`."""
    dense_grads = jax.tree.leaves(grads, is_leaf=lambda node: hasattr(node, "weight"))
    return tuple(
        layer.descend(rate, trace, grad)
        for layer, rate, trace, grad in zip(layers(net), rates, traces, dense_grads, strict=True)
    )


def mix(net: Net, rates: Rates, history: Sequence[Traces], weights: Sequence[float]) -> Net:
    """The dense network of the parameters' weighted mean over the traces of steps 0..K."""
    return _rebuild(
        net,
        [
            layer.mix(rate, [traces[i] for traces in history], weights)
            for i, (layer, rate) in enumerate(zip(layers(net), rates, strict=True))
        ],
    )


def descend_plain(
    net: Net, rates: Rates, loss: Callable[[Net], Float[Array, ""]]
) -> tuple[Net, Float[Array, ""]]:
    """The same step on a full copy of every layer's parameters: what `descend` must agree with.

    Returns the adapted network, still of adaptive layers, and the loss before the step.
    """
    value, grads = jax.value_and_grad(lambda n: loss(generate(n)))(net)
    stepped = []
    for layer, grad, rate in zip(layers(net), layers(grads), rates, strict=True):
        leaves, tree = jax.tree.flatten(layer)
        moves = jax.tree.leaves(grad)
        stepped.append(tree.unflatten([x - a * g for x, a, g in zip(leaves, rate, moves)]))
    return _rebuild(net, stepped), value


def pad(traces: Traces, capacity: int) -> Traces:
    """Traces with room for exactly `capacity` steps, so that their shapes stay constant.

    Rows of no step are zeros and come first. A step that no longer fits makes theta NaN: without
    its row every later step would be silently wrong.
    """
    return tuple(_pad(t, capacity) if isinstance(t, LowRank) else t for t in traces)


def _pad(trace: LowRank, capacity: int) -> LowRank:
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


def _rebuild(net: Net, new_layers: list[Any]) -> Net:
    return jax.tree.structure(net, is_leaf=_is_layer).unflatten(new_layers)
