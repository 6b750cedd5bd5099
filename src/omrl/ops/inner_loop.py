"""Gradient descent on a network of adaptive layers, differentiating the dense network only.

A network is any pytree with `AdaptiveLayer`s in it. What descent changes is a tuple of traces, one
per layer in tree order: `LowRank` for weight-transform layers, a full copy of the layer for all
others, and for all layers in the plain form, with which the low-rank form must agree. Rates are an
array [layer, tensor].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import Array, Float

from omrl.nets.adaptive import AdaptiveLayer, WeightTransform
from omrl.nets.mlp import Dense
from omrl.ops import low_rank
from omrl.ops.low_rank import LowRank

Net = Any
Trace = AdaptiveLayer | LowRank
Traces = tuple[Trace, ...]
Rates = Float[Array, "layer tensor"]


def layers(net: Net) -> list[AdaptiveLayer]:
    """The adaptive layers of a network in tree order."""
    return jax.tree.leaves(net, is_leaf=_is_layer)


def generate(net: Net) -> Net:
    """The network with every adaptive layer replaced by the dense layer that it makes."""
    return jax.tree.map(lambda layer: layer.dense(), net, is_leaf=_is_layer)


def start(net: Net, *, plain: bool = False) -> Traces:
    """Traces before any step."""
    return tuple(
        low_rank.start(layer) if isinstance(layer, WeightTransform) and not plain else layer
        for layer in layers(net)
    )


def read(net: Net, traces: Traces) -> Net:
    """The dense network that the traces stand for."""
    return _with_layers(net, map(_read, layers(net), traces))


def descend(net: Net, rates: Rates, traces: Traces, grads: Net) -> Traces:
    """One step on every tensor; `grads` is the gradient with respect to `read(net, traces)`."""
    dense_grads = jax.tree.leaves(grads, is_leaf=lambda node: isinstance(node, Dense))
    return tuple(
        low_rank.descend(layer, rate, trace, grad)  # pyright: ignore[reportArgumentType]
        if isinstance(trace, LowRank)
        else _descend_copy(rate, trace, grad)
        for layer, rate, trace, grad in zip(layers(net), rates, traces, dense_grads, strict=True)
    )


def mean(net: Net, rates: Rates, history: Sequence[Traces], weights: Sequence[float]) -> Net:
    """The dense network of the parameters' weighted mean over the traces of steps 0..K."""

    def one(layer: Any, rate: Array, *traces: Any) -> Dense:
        if isinstance(traces[0], LowRank):
            return low_rank.mean(layer, rate, traces, weights)
        mixed = jax.tree.map(lambda *xs: sum(w * x for w, x in zip(weights, xs)), *traces)  # noqa: B905
        return mixed.dense()

    return _with_layers(net, map(one, layers(net), rates, *history))


def pad(traces: Traces, capacity: int) -> Traces:
    """Traces whose shapes do not depend on how many of `capacity` steps were taken."""
    return tuple(
        low_rank.pad(trace, capacity) if isinstance(trace, LowRank) else trace for trace in traces
    )


def _is_layer(node: object) -> bool:
    return isinstance(node, AdaptiveLayer)


def _with_layers(net: Net, new: Any) -> Net:
    return jax.tree.structure(net, is_leaf=_is_layer).unflatten(list(new))


def _read(layer: Any, trace: Trace) -> Dense:
    return layer.split(trace.theta) if isinstance(trace, LowRank) else trace.dense()


def _descend_copy(rates: Array, layer: AdaptiveLayer, grad: Dense) -> AdaptiveLayer:
    """The chain rule from the dense layer back to the layer's own tensors, then the step."""
    _, pull_back = jax.vjp(lambda own: own.dense(), layer)
    tensors, tree = jax.tree.flatten(layer)
    moves = jax.tree.leaves(pull_back(grad)[0])
    return tree.unflatten([x - rates[i] * g for i, (x, g) in enumerate(zip(tensors, moves))])  # noqa: B905
